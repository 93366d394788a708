//! Queries of drivers in browsers: the admin port takes them, and the ReQL face carries them out. Neither knows the other.

use bytes::Bytes;
use std::net::SocketAddr;
use tessera_admin::{Answered, NotAnswered, QuerySessions};
use tessera_reql_wire::{NotAsked, Sessions};

pub struct BrowserQueries(pub Sessions);

impl QuerySessions for BrowserQueries {
    fn open(&self, user: &str, client: SocketAddr) -> Result<String, String> {
        self.0.open(user, client).map_err(|error| error.to_string())
    }

    fn ask(&self, id: &str, user: &str, request: Bytes) -> Answered {
        let (sessions, id, user) = (self.0.clone(), id.to_string(), user.to_string());
        Box::pin(async move {
            match sessions.ask(&id, &user, request).await {
                Ok(answer) => Ok(Bytes::from_owner(answer)),
                Err(error @ NotAsked::TooSmall) => Err(NotAnswered::NoRequest(error.to_string())),
                Err(error @ NotAsked::TooMany) => Err(NotAnswered::Busy(error.to_string())),
                Err(error @ NotAsked::Closed) => Err(NotAnswered::Closed(error.to_string())),
            }
        })
    }

    fn close(&self, id: &str, user: &str) {
        self.0.close(id, user);
    }
}
