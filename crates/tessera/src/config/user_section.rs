use super::Config;
use serde::{Deserialize, Serialize};
use tessera_access::{Password, User, Users};
use tessera_types::{Permissions, Right, Rights, SYSTEM_DATABASE, Scope};

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
        let rights = rights(&self.access, self.tables.as_deref())
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

/// What the words `read`, `write` and `admin` mean, for some tables or all.
///
/// # Errors
/// A word that is none of these.
fn rights<'a>(words: &'a [String], tables: Option<&[String]>) -> Result<Rights, &'a str> {
    let (mut records, mut everywhere) = (Permissions::NONE, Permissions::NONE);
    let mut rights = Rights::default();
    for word in words {
        match word.as_str() {
            "read" => records = records.with(Right::Read, Some(true)),
            "write" => records = records.with(Right::Write, Some(true)),
            "admin" => {
                everywhere = everywhere.with(Right::Config, Some(true)).with(Right::Connect, Some(true));
                let given = Permissions::NONE.with(Right::Config, Some(true));
                let given = given.with(Right::Read, Some(true)).with(Right::Write, Some(true));
                rights.set(&Scope::Database(SYSTEM_DATABASE.into()), given);
            }
            other => return Err(other),
        }
    }
    match tables {
        None => {
            for (right, is_given) in records.decided() {
                everywhere = everywhere.with(right, Some(is_given));
            }
        }
        Some(tables) => tables.iter().for_each(|table| rights.set(&Scope::Table(table.clone()), records)),
    }
    rights.set(&Scope::Global, everywhere);
    Ok(rights)
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rights_are_said_in_words() {
        let read = |words: &[&str], tables: Option<&[String]>| {
            let words: Vec<String> = words.iter().map(ToString::to_string).collect();
            rights(&words, tables).map_err(str::to_string)
        };
        let reader = read(&["read"], Some(&["one".into()])).unwrap();
        assert!(reader.may_in_table(Right::Read, "one") && !reader.may_in_table(Right::Write, "one"));
        assert!(!reader.may_in_table(Right::Read, "two") && !reader.may(Right::Config));
        let all = read(&["admin", "write", "read"], None).unwrap();
        assert!(all.are_all() && all.may_in_table(Right::Write, "two"));
        let limited = read(&["admin", "write", "read"], Some(&[])).unwrap();
        assert!(limited.may(Right::Config) && !limited.may_in_table(Right::Read, "one"));
        assert!(!read(&["read", "write"], None).unwrap().may_in_table(Right::Read, "rethinkdb.users"));
        assert_eq!(read(&["read", "Write"], None), Err("Write".into()));
    }
}
