use super::Config;
use serde::{Deserialize, Serialize};
use tessera_access::{Password, Rights, User, Users};

/// A user, as the configuration says one.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct UserSection {
    pub name: String,
    /// What `tessera hash-password` prints; absent for a user without password.
    pub password_hash: Option<String>,
    /// In the place of `password_hash`: what the first versions knew. It is soon guessed by whoever has seen it.
    pub password_sha256: Option<String>,
    /// Of "read", "write", "admin".
    #[serde(default)]
    pub access: Vec<String>,
    pub tables: Option<Vec<String>>,
    pub default_table: Option<String>,
}

impl UserSection {
    pub fn has_password(&self) -> bool {
        self.password_hash.is_some() || self.password_sha256.is_some()
    }

    /// The user.
    ///
    /// # Errors
    /// What is wrong with the section.
    pub fn user(&self) -> Result<User, String> {
        let name = &self.name;
        let rights = Rights::from_words(&self.access, self.tables.as_deref())
            .map_err(|word| format!("redis.users: '{word}' is no access of '{name}'; known: read, write, admin"))?;
        let password = self.password()?;
        Ok(User { name: name.clone(), password, rights, default_table: self.default_table.clone() })
    }

    fn password(&self) -> Result<Option<Password>, String> {
        let name = &self.name;
        match (&self.password_hash, &self.password_sha256) {
            (None, None) => Ok(None),
            (Some(hash), None) => match Password::from_salted(hash) {
                Some(password) => Ok(Some(password)),
                None => {
                    Err(format!("redis.users: password_hash of '{name}' is not what `tessera hash-password` prints"))
                }
            },
            (None, Some(hash)) => match Password::from_hex(hash) {
                Some(password) => Ok(Some(password)),
                None => Err(format!("redis.users: password_sha256 of '{name}' is not 64 hexadecimal digits")),
            },
            (Some(_), Some(_)) => {
                Err(format!("redis.users: '{name}' has password_hash and password_sha256; one is enough"))
            }
        }
    }
}

impl Config {
    /// The users of the node.
    ///
    /// # Errors
    /// What is wrong with one of them.
    pub fn users(&self) -> Result<Users, String> {
        let users: Result<Vec<User>, String> = self.redis.users.iter().map(UserSection::user).collect();
        users.map(Users::new)
    }
}
