//! CLIENT.

use super::super::Connection;
use super::unknown_subcommand_named;
use crate::commands::CommandError;
use crate::number::parse_integer;
use std::sync::Arc;

impl Connection {
    pub(super) fn client_command(&mut self, args: &[&[u8]]) -> Result<(), CommandError> {
        let subcommand = args[1].to_ascii_uppercase();
        match (&subcommand[..], &args[2..]) {
            (b"ID", []) => {
                let id = i64::try_from(self.client.id).unwrap_or(i64::MAX);
                self.reply().integer(id);
            }
            (b"GETNAME", []) => {
                let name = self.session.name.clone();
                if name.is_empty() { self.reply().null() } else { self.reply().bulk(name.as_bytes()) }
            }
            (b"SETNAME", [name]) => {
                self.session.name = client_name(name)?;
                self.session.show(&self.client);
                self.reply().ok();
            }
            (b"SETINFO", [attribute, value]) => {
                let value = client_name(value)?;
                if attribute.eq_ignore_ascii_case(b"LIB-NAME") {
                    self.session.library.0 = value;
                } else if attribute.eq_ignore_ascii_case(b"LIB-VER") {
                    self.session.library.1 = value;
                } else {
                    let attribute = String::from_utf8_lossy(attribute);
                    return Err(CommandError::Reply(format!("ERR Unrecognized option '{attribute}'").into()));
                }
                self.session.show(&self.client);
                self.reply().ok();
            }
            (b"INFO", []) => {
                let text = self.client.describe() + "\n";
                self.reply().verbatim(&text);
            }
            (b"LIST", _) => {
                self.check_admin("client|list")?;
                let text: String = self.server.clients.list().iter().map(|client| client.describe() + "\n").collect();
                self.reply().verbatim(&text);
            }
            (b"KILL", rest) => {
                self.check_admin("client|kill")?;
                self.kill(rest)?;
            }
            (b"NO-EVICT" | b"NO-TOUCH", [_]) => self.reply().ok(),
            _ => return Err(unknown_subcommand_named("CLIENT", args[1])),
        }
        Ok(())
    }

    /// Refuses a subcommand that concerns others than the connection itself to users who may not administer the server.
    pub(super) fn check_admin(&self, subcommand: &str) -> Result<(), CommandError> {
        match &self.session.user {
            Some(_) if self.session.allowed.administer => Ok(()),
            user => {
                let name = user.as_ref().map_or("", |user| &user.name);
                let text = format!("NOPERM User {name} has no permissions to run the '{subcommand}' command");
                Err(CommandError::Reply(text.into()))
            }
        }
    }

    fn kill(&mut self, rest: &[&[u8]]) -> Result<(), CommandError> {
        let matching = |address: Option<&[u8]>, id: Option<u64>| -> Vec<_> {
            let is_it = |client: &Arc<crate::clients::Client>| {
                address.is_none_or(|address| client.address.to_string().as_bytes() == address)
                    && id.is_none_or(|id| client.id == id)
            };
            self.server.clients.list().into_iter().filter(is_it).collect()
        };
        if let [address] = rest {
            let found = matching(Some(address), None);
            found.iter().for_each(|client| client.end());
            if found.is_empty() {
                return Err(CommandError::text("ERR No such client"));
            }
            self.reply().ok();
            return Ok(());
        }
        let (mut address, mut id) = (None, None);
        for pair in rest.chunks(2) {
            match pair {
                [filter, value] if filter.eq_ignore_ascii_case(b"ADDR") => address = Some(*value),
                [filter, value] if filter.eq_ignore_ascii_case(b"ID") => {
                    let number = parse_integer(value).and_then(|number| u64::try_from(number).ok());
                    id = Some(number.ok_or(CommandError::text("ERR client-id should be greater than 0"))?);
                }
                _ => return Err(CommandError::SYNTAX),
            }
        }
        let found = matching(address, id);
        found.iter().for_each(|client| client.end());
        self.reply().count(found.len());
        Ok(())
    }
}

/// Names are shown in lists of words, so they hold none of what separates those.
pub(super) fn client_name(name: &[u8]) -> Result<String, CommandError> {
    if name.iter().all(|byte| (b'!'..=b'~').contains(byte)) {
        Ok(String::from_utf8_lossy(name).into_owned())
    } else {
        Err(CommandError::text("ERR Client names cannot contain spaces, newlines or special characters."))
    }
}
