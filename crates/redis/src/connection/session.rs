//! What a connection has chosen: user, table, protocol, durability, an open transaction.

use super::open_transaction::{self, OpenTransaction};
use super::session_options::SessionOptions;
use super::watches::Watches;
use crate::acl::{self, Allowed};
use crate::clients::Client;
use crate::commands::{Command, CommandError, Flags};
use crate::resp::Protocol;
use crate::server::RedisServer;
use std::borrow::Cow;
use std::sync::Arc;
use tessera_access::User;
use tessera_store::Table;
use tessera_types::{Limits, Model, ReadMode, TableNumber};

pub(super) struct Session {
    pub(super) protocol: Protocol,
    /// `None` before authentication.
    pub(super) user: Option<User>,
    pub(super) table: Option<Arc<Table>>,
    pub(super) options: SessionOptions,
    /// Whether it wants to be told where to go instead of being served from there.
    pub(super) wants_redirects: bool,
    pub(super) transaction: Option<OpenTransaction>,
    pub(super) watches: Watches,
    pub(super) name: String,
    pub(super) library: (String, String),
    /// Whether a GET needs no further look: the user may read, no transaction is open, and nobody has to confirm it.
    pub(super) reads_freely: bool,
    /// What the user may do with the chosen table.
    pub(super) allowed: Allowed,
    /// The number of the change of users at which that was looked up. `None` for commands of another node, which checks them itself.
    known_users: Option<u64>,
    /// Whether the client has said who it is.
    has_logged_in: bool,
}

impl Session {
    fn blank() -> Self {
        Self {
            protocol: Protocol::Resp2,
            user: None,
            table: None,
            options: SessionOptions::default(),
            wants_redirects: false,
            transaction: None,
            watches: Watches::default(),
            name: String::new(),
            library: Default::default(),
            reads_freely: false,
            allowed: Allowed::default(),
            known_users: None,
            has_logged_in: false,
        }
    }

    pub(super) fn new(server: &RedisServer) -> Self {
        let authenticator = &server.config.authenticator;
        let mut session = Self { known_users: Some(authenticator.changes()), ..Self::blank() };
        if let Some(user) = authenticator.anonymous() {
            session.become_user(server, user);
        }
        session
    }

    /// For commands of another node, which has checked that its user may give them.
    pub(super) fn of_another_node(table: Arc<Table>) -> Self {
        let allowed = Allowed { read: true, write: true, administer: true };
        Self { table: Some(table), user: Some(User::everybody()), allowed, ..Self::blank() }
    }

    /// The client has shown who it is.
    pub(super) fn log_in(&mut self, server: &RedisServer, user: User) {
        self.has_logged_in = true;
        self.become_user(server, user);
    }

    /// Looks what the user may do by now, if any user has been changed. Returns whether the user is another one, or none any more.
    pub(super) fn follow_users(&mut self, server: &RedisServer) -> bool {
        let authenticator = &server.config.authenticator;
        let changes = authenticator.changes();
        if self.known_users.is_none_or(|known| known == changes) {
            return false;
        }
        self.known_users = Some(changes);
        let before = self.user.take();
        self.user = match &before {
            Some(user) if self.has_logged_in => authenticator.named(&user.name),
            None if self.has_logged_in => None,
            _ => authenticator.anonymous(),
        };
        if self.user == before {
            return false;
        }
        // What was queued was checked by other rights.
        self.spoil_transaction();
        match (&before, self.user.clone()) {
            (None, Some(user)) => self.become_user(server, user),
            (_, user) => {
                let is_reached =
                    |table: &Arc<Table>| user.as_ref().is_some_and(|user| acl::reaches(user, &table.name()));
                self.table = self.table.take().filter(is_reached);
                self.update();
            }
        }
        true
    }

    fn become_user(&mut self, server: &RedisServer, user: User) {
        self.table = match &user.default_table {
            Some(name) => server.store.table_named(name).filter(|table| table.schema().model == Model::Kv),
            None => server.store.table_numbered(TableNumber(0)).filter(|table| acl::reaches(&user, &table.name())),
        };
        self.user = Some(user);
        self.update();
    }

    /// Recomputes what follows from the rest.
    pub(super) fn update(&mut self) {
        let table = self.table.as_ref().map(|table| table.name());
        let allowed = self.user.as_ref().map(|user| Allowed::of(user, table.as_deref().map(|name| &**name)));
        self.allowed = allowed.unwrap_or_default();
        self.reads_freely = self.allowed.read && self.transaction.is_none() && self.options.reads != ReadMode::Majority;
    }

    pub(super) fn show(&self, client: &Client) {
        let mut shown = client.shown.lock();
        shown.name.clone_from(&self.name);
        shown.user = self.user.as_ref().map(|user| user.name.clone()).unwrap_or_default();
        shown.table = self.table.as_ref().map_or(0, |table| table.number().0);
        (shown.library, shown.library_version) = self.library.clone();
        shown.resp = if self.protocol == Protocol::Resp3 { 3 } else { 2 };
    }

    /// The chosen table. Requests to it are refused once it is dropped.
    pub(super) fn table(&self) -> Option<Arc<Table>> {
        self.table.clone()
    }

    /// Turns to the table that took the chosen one's place when that was split or truncated. Returns whether there is one.
    pub(super) fn follow_split(&mut self) -> bool {
        let successor = self.table.as_ref().and_then(|table| table.successor());
        let is_replaced = successor.is_some();
        self.table = successor.or(self.table.take());
        is_replaced
    }

    pub(super) fn choose(&mut self, table: Arc<Table>) -> Result<(), CommandError> {
        let name = table.name();
        if !self.user.as_ref().is_some_and(|user| acl::reaches(user, &name)) {
            return Err(CommandError::Reply(format!("NOPERM this user may not use the table '{name}'").into()));
        }
        if table.schema().model == Model::Document {
            let message =
                format!("ERR table '{name}' holds documents: use a driver of RethinkDB on the ReQL port for it");
            return Err(CommandError::Reply(message.into()));
        }
        self.table = Some(table);
        self.update();
        Ok(())
    }

    pub(super) fn limits(&self) -> Limits {
        self.table.as_ref().map(|table| table.limits().clone()).unwrap_or_default()
    }

    pub(super) fn spoil_transaction(&mut self) {
        if let Some(transaction) = &mut self.transaction {
            transaction.spoiled = true;
        }
    }

    /// Whether the user may run the command with so many arguments now.
    pub(super) fn check(&self, command: &Command, arguments: usize) -> Result<(), CommandError> {
        if !command.takes(arguments) {
            return Err(CommandError::arity(command.name));
        }
        let Some(user) = &self.user else {
            return if command.flags.no_auth {
                Ok(())
            } else {
                Err(CommandError::text("NOAUTH Authentication required."))
            };
        };
        if !self.allowed.includes(command.flags) {
            let text = format!("NOPERM User {} has no permissions to run the '{}' command", user.name, command.name);
            return Err(CommandError::Reply(Cow::Owned(text)));
        }
        if self.transaction.is_some() && !command.flags.in_multi && !open_transaction::ends_or_looks_at(command) {
            let text = format!("ERR '{}' is not allowed in a transaction", command.name);
            return Err(CommandError::Reply(Cow::Owned(text)));
        }
        let Flags { read, write, .. } = command.flags;
        if (read || write) && self.table.is_none() {
            return Err(CommandError::NO_TABLE);
        }
        Ok(())
    }
}
