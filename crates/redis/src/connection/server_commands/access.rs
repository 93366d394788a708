//! Who a connection speaks for: AUTH, HELLO and ACL.

use super::super::Connection;
use super::client::client_name;
use super::{REDIS_VERSION, unknown_subcommand_named};
use crate::acl;
use crate::commands::CommandError;
use crate::number::parse_integer;
use crate::resp::Protocol;
use tessera_access::{NotLetIn, User};

impl Connection {
    async fn log_in(&mut self, name: &str, password: &[u8]) -> Result<(), CommandError> {
        let server = self.server.clone();
        let user = server.config.authenticator.log_in(name, password).await.map_err(|why| match why {
            NotLetIn::Wrong => CommandError::text("WRONGPASS invalid username-password pair or user is disabled."),
            NotLetIn::Busy => CommandError::text("TRYAGAIN too many passwords are being checked at this moment"),
        })?;
        self.session.log_in(&self.server, user);
        self.session.show(&self.client);
        Ok(())
    }

    pub(super) async fn auth(&mut self, args: &[&[u8]]) -> Result<(), CommandError> {
        match args {
            [_, password] => {
                if !self.server.config.authenticator.default_has_password() {
                    return Err(CommandError::text(
                        "ERR AUTH <password> called without any password configured for the default user. Are you sure \
                         your configuration is correct?",
                    ));
                }
                self.log_in("default", password).await?;
            }
            [_, name, password] => self.log_in(&String::from_utf8_lossy(name), password).await?,
            _ => return Err(CommandError::SYNTAX),
        }
        self.reply().ok();
        Ok(())
    }

    pub(super) async fn hello(&mut self, args: &[&[u8]]) -> Result<(), CommandError> {
        let mut protocol = self.session.protocol;
        if let Some(version) = args.get(1) {
            protocol = match parse_integer(version) {
                Some(2) => Protocol::Resp2,
                Some(3) => Protocol::Resp3,
                Some(_) => return Err(CommandError::text("NOPROTO unsupported protocol version")),
                None => return Err(CommandError::text("ERR Protocol version is not an integer or out of range")),
            };
        }
        let mut at = 2;
        let mut name = None;
        let mut credentials = None;
        while at < args.len() {
            if args[at].eq_ignore_ascii_case(b"AUTH") && at + 2 < args.len() {
                credentials = Some((String::from_utf8_lossy(args[at + 1]).into_owned(), args[at + 2]));
                at += 3;
            } else if args[at].eq_ignore_ascii_case(b"SETNAME") && at + 1 < args.len() {
                name = Some(client_name(args[at + 1])?);
                at += 2;
            } else {
                let option = String::from_utf8_lossy(args[at]);
                return Err(CommandError::Reply(format!("ERR Syntax error in HELLO option '{option}'").into()));
            }
        }
        if let Some((user, password)) = credentials {
            self.log_in(&user, password).await?;
        }
        if self.session.user.is_none() {
            return Err(CommandError::text(
                "NOAUTH HELLO must be called with the client already authenticated, otherwise the HELLO <proto> AUTH <user> \
                 <pass> option can be used to authenticate the client and select the RESP protocol version at the same time",
            ));
        }
        self.session.protocol = protocol;
        if let Some(name) = name {
            self.session.name = name;
        }
        self.session.show(&self.client);
        let id = i64::try_from(self.client.id).unwrap_or(i64::MAX);
        let mut reply = self.reply();
        reply.map(7);
        for (key, value) in [("server", "redis"), ("version", REDIS_VERSION)] {
            reply.bulk(key.as_bytes());
            reply.bulk(value.as_bytes());
        }
        reply.bulk(b"proto");
        reply.integer(if protocol == Protocol::Resp3 { 3 } else { 2 });
        reply.bulk(b"id");
        reply.integer(id);
        for (key, value) in [("mode", "standalone"), ("role", "master")] {
            reply.bulk(key.as_bytes());
            reply.bulk(value.as_bytes());
        }
        reply.bulk(b"modules");
        reply.array(0);
        Ok(())
    }

    /// Those whom the node knows, and the one that clients are who have not said who they are.
    fn users(&self) -> Vec<User> {
        let authenticator = &self.server.config.authenticator;
        let mut users: Vec<User> = authenticator.names().iter().filter_map(|name| authenticator.named(name)).collect();
        let anonymous = authenticator.anonymous().filter(|user| users.iter().all(|own| own.name != user.name));
        users.extend(anonymous);
        users
    }

    pub(super) async fn acl(&mut self, args: &[&[u8]]) -> Result<(), CommandError> {
        let user = self.session.user.clone();
        match &args[1].to_ascii_uppercase()[..] {
            b"WHOAMI" => self.reply().bulk(user.map(|user| user.name).unwrap_or_default().as_bytes()),
            b"USERS" | b"LIST" => {
                let names_only = args[1].eq_ignore_ascii_case(b"USERS");
                self.check_admin(if names_only { "acl|users" } else { "acl|list" })?;
                let users = self.users();
                let mut reply = self.reply();
                reply.array(users.len());
                for user in users {
                    reply.bulk(if names_only { user.name } else { acl::describe(&user) }.as_bytes());
                }
            }
            b"GETUSER" if args.len() == 3 => {
                self.check_admin("acl|getuser")?;
                self.get_user(args[2]);
            }
            b"SETUSER" if args.len() >= 3 => {
                self.check_admin("acl|setuser")?;
                self.set_user(args[2], &args[3..]).await?;
            }
            b"DELUSER" if args.len() >= 3 => {
                self.check_admin("acl|deluser")?;
                self.drop_users(&args[2..]).await?;
            }
            b"CAT" => {
                let mut reply = self.reply();
                reply.array(3);
                for category in ["read", "write", "admin"] {
                    reply.bulk(category.as_bytes());
                }
            }
            _ => return Err(unknown_subcommand_named("ACL", args[1])),
        }
        Ok(())
    }
}
