//! Calls to a meta server.

use super::wire::{Connection, Fields, Reply, message, v1};

pub struct Meta(pub Connection);

impl Meta {
    pub fn at(port: u16) -> Self {
        Self(Connection::to(port))
    }

    pub fn call(&mut self, name: &str, request: &Fields) -> Reply {
        self.0.call(&v1(-1, -1, &message(name, 1, request)))
    }

    /// Makes a call whose response begins with the name of an error, and returns the response.
    pub fn expect(&mut self, name: &str, request: &Fields, error: &str) -> Reply {
        let reply = self.call(name, request);
        assert!(reply.fields.starts_with(&Fields::default().blob(1, error.as_bytes()).bytes()), "{name}: {reply:?}");
        reply
    }

    pub fn create(&mut self, table: &str, error: &str) -> Reply {
        let options = Fields::default().i32(1, 4).i32(2, 1).bool(3, false).string(4, "pegasus").bool(5, true);
        let request = Fields::default().string(1, table).inner(2, &options);
        self.expect("RPC_CM_CREATE_APP", &request, error)
    }

    pub fn set_env(&mut self, table: &str, name: &str, value: &str, error: &str) -> Reply {
        let request = Fields::default().string(1, table).i32(2, 1).strings(3, &[name]).strings(4, &[value]);
        self.expect("RPC_CM_UPDATE_APP_ENV", &request, error)
    }

    /// The tables in a state (0 for all of them), as readable as their bytes are.
    pub fn tables(&mut self, status: i32) -> String {
        text(&self.call("RPC_CM_LIST_APPS", &Fields::default().i32(1, status)))
    }
}

pub fn text(reply: &Reply) -> String {
    reply.fields.escape_ascii().to_string()
}
