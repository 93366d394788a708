//! ACL GETUSER, SETUSER and DELUSER: the users of the cluster.

use super::super::Connection;
use crate::acl;
use crate::acl_rules::Rules;
use crate::commands::CommandError;
use tessera_access::{ScramPassword, User};
use tessera_cluster::{CatalogCommand, CatalogError, PasswordHash};

fn refuse(reason: impl std::fmt::Display) -> CommandError {
    CommandError::Reply(format!("ERR {reason}").into())
}

fn name_of(argument: &[u8]) -> Result<String, CommandError> {
    String::from_utf8(argument.to_vec()).map_err(|_| refuse("the name of a user is in UTF-8"))
}

impl Connection {
    async fn change_user(&self, command: CatalogCommand) -> Result<Result<(), CatalogError>, CommandError> {
        let changed = self.server.store.change_catalog(command).await.map_err(refuse)?;
        Ok(changed.map(|_| ()))
    }

    fn check_not_configured(&self, name: &str) -> Result<(), CommandError> {
        match self.server.config.authenticator.is_configured(name) {
            true => Err(refuse(format!(
                "the user '{name}' stands in the configuration of this node (redis.users), and is changed there"
            ))),
            false => Ok(()),
        }
    }

    pub(super) async fn set_user(&mut self, name: &[u8], rules: &[&[u8]]) -> Result<(), CommandError> {
        let name = name_of(name)?;
        self.check_not_configured(&name)?;
        let rules = Rules::read(rules).map_err(|reason| refuse(format!("Error in ACL SETUSER modifier: {reason}")))?;
        let password = match rules.password.clone() {
            Some(Some(clear)) => {
                let hash = move || ScramPassword::new(clear.as_bytes(), ScramPassword::ITERATIONS).to_string();
                let hash = tokio::task::spawn_blocking(hash).await.map_err(refuse)?;
                Some(Some(PasswordHash(hash)))
            }
            Some(None) => Some(None),
            None => None,
        };
        // What another node has just made is there too.
        self.server.store.learn_of_changes().await;
        let entry = self.server.store.catalog().users().get(&name);
        let commands = match entry {
            None => {
                // In Redis such a user is off.
                let password =
                    password.ok_or_else(|| refuse("a new user needs a password (>PASSWORD), or nopass for none"))?;
                vec![CatalogCommand::CreateUser { name, password, rights: rules.rights() }]
            }
            Some(entry) => {
                let password = password.map(|password| CatalogCommand::AlterUser { name: name.clone(), password });
                let grants = rules
                    .changes_of(&entry.rights)
                    .into_iter()
                    .map(|(scope, changes)| CatalogCommand::Grant { user: name.clone(), scope, changes });
                grants.chain(password).collect()
            }
        };
        for command in commands {
            self.change_user(command).await?.map_err(refuse)?;
        }
        self.reply().ok();
        Ok(())
    }

    pub(super) async fn drop_users(&mut self, names: &[&[u8]]) -> Result<(), CommandError> {
        let mut dropped = 0;
        for name in names {
            let name = name_of(name)?;
            self.check_not_configured(&name)?;
            match self.change_user(CatalogCommand::DropUser { name }).await? {
                Ok(()) => dropped += 1,
                Err(CatalogError::NoSuchUser(_)) => {}
                Err(error) => return Err(refuse(error)),
            }
        }
        self.reply().integer(dropped);
        Ok(())
    }

    pub(super) fn get_user(&mut self, name: &[u8]) {
        let user = std::str::from_utf8(name).ok().and_then(|name| self.server.config.authenticator.named(name));
        let mut reply = self.reply();
        match user {
            Some(user) => show(&mut reply, &user),
            None => reply.null(),
        }
    }
}

fn show(reply: &mut crate::resp::Reply<'_>, user: &User) {
    let (commands, selectors) = acl::shown(user);
    reply.map(6);
    reply.bulk(b"flags");
    let flags: &[&str] = if user.password.is_none() { &["on", "nopass"] } else { &["on"] };
    reply.array(flags.len());
    flags.iter().for_each(|flag| reply.bulk(flag.as_bytes()));
    reply.bulk(b"passwords");
    reply.array(usize::from(user.password.is_some()));
    if user.password.is_some() {
        reply.bulk(b"<hidden>");
    }
    for (name, value) in [("commands", commands.as_str()), ("keys", "~*"), ("channels", "")] {
        reply.bulk(name.as_bytes());
        reply.bulk(value.as_bytes());
    }
    reply.bulk(b"selectors");
    reply.array(selectors.len());
    for selector in selectors {
        reply.bulk(selector.as_bytes());
    }
}
