//! Who may do what.

use crate::commands::Flags;
use sha2::{Digest, Sha256};
use subtle::ConstantTimeEq;

/// A password, kept as its SHA-256.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Password([u8; 32]);

impl Password {
    pub fn new(clear: &[u8]) -> Self {
        Self(Sha256::digest(clear).into())
    }

    /// From 64 hexadecimal digits, as `sha256sum` prints them.
    pub fn from_hex(digits: &str) -> Option<Self> {
        let mut hash = [0; 32];
        if digits.len() != 64 || !digits.bytes().all(|digit| digit.is_ascii_hexdigit()) {
            return None;
        }
        for (at, byte) in hash.iter_mut().enumerate() {
            *byte = u8::from_str_radix(&digits[2 * at..2 * at + 2], 16).ok()?;
        }
        Some(Self(hash))
    }

    pub fn is(&self, clear: &[u8]) -> bool {
        self.0.ct_eq(&Self::new(clear).0).into()
    }
}

/// A user of the Redis face.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct User {
    pub name: String,
    /// `None` lets everybody in under this name.
    pub password: Option<Password>,
    pub may_read: bool,
    pub may_write: bool,
    /// CONFIG, SLOWLOG and the like.
    pub may_administer: bool,
    /// Tables that the user reaches; `None` for all.
    pub tables: Option<Vec<String>>,
    /// The table that a new connection of the user has chosen.
    pub default_table: Option<String>,
}

impl User {
    /// The user who may do everything, as in a new Redis.
    pub fn everybody() -> Self {
        Self {
            name: "default".into(),
            password: None,
            may_read: true,
            may_write: true,
            may_administer: true,
            tables: None,
            default_table: None,
        }
    }

    pub(crate) fn may_run(&self, flags: Flags) -> bool {
        (!flags.read || self.may_read) && (!flags.write || self.may_write) && (!flags.admin || self.may_administer)
    }

    pub(crate) fn may_use(&self, table: &str) -> bool {
        self.tables.as_ref().is_none_or(|tables| tables.iter().any(|allowed| allowed == table))
    }

    /// The user as ACL LIST shows one.
    pub(crate) fn describe(&self) -> String {
        let mut text = format!("user {} on", self.name);
        text += if self.password.is_none() { " nopass" } else { " #<hidden>" };
        text += " ~*";
        for (may, category) in [(self.may_read, "read"), (self.may_write, "write"), (self.may_administer, "admin")] {
            text += if may { " +@" } else { " -@" };
            text += category;
        }
        if let Some(tables) = &self.tables {
            text += &format!(" tables:{}", tables.join(","));
        }
        text
    }
}

/// The users of a node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Access {
    users: Vec<User>,
}

impl Access {
    /// Without users everybody may do everything.
    pub fn new(users: Vec<User>) -> Self {
        Self { users: if users.is_empty() { vec![User::everybody()] } else { users } }
    }

    /// The user that a connection is before it authenticates: `default`, if that one has no password.
    pub fn anonymous(&self) -> Option<&User> {
        self.users.iter().find(|user| user.name == "default" && user.password.is_none())
    }

    pub fn authenticate(&self, name: &str, password: &[u8]) -> Option<&User> {
        let user = self.users.iter().find(|user| user.name == name)?;
        user.password.as_ref().is_none_or(|right| right.is(password)).then_some(user)
    }

    /// Whether AUTH with a password alone makes sense.
    pub fn default_has_password(&self) -> bool {
        self.users.iter().any(|user| user.name == "default" && user.password.is_some())
    }

    pub fn requires_authentication(&self) -> bool {
        self.anonymous().is_none()
    }

    pub fn users(&self) -> &[User] {
        &self.users
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn passwords_decide() {
        let user = User { password: Some(Password::new(b"secret")), ..User::everybody() };
        let access = Access::new(vec![user]);
        assert!(access.requires_authentication());
        assert!(access.authenticate("default", b"secret").is_some());
        assert!(access.authenticate("default", b"wrong").is_none());
        assert!(access.authenticate("nobody", b"secret").is_none());
        let hex = "2bb80d537b1da3e38bd30361aa855686bde0eacd7162fef6a25fe97bf527a25b";
        assert_eq!(Password::from_hex(hex), Some(Password::new(b"secret")));
        assert_eq!(Password::from_hex("2bb8"), None);
        assert!(!Access::new(vec![]).requires_authentication());
    }
}
