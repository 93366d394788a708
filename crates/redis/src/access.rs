//! Who may do what.

use crate::commands::Flags;
pub use crate::password::Password;

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

    pub(crate) fn user(&self, name: &str) -> Option<&User> {
        self.users.iter().find(|user| user.name == name)
    }

    /// One of the passwords that are slow to check, if there are such, else any.
    pub(crate) fn slowest_password(&self) -> Option<&Password> {
        self.users.iter().filter_map(|user| user.password.as_ref()).max_by_key(|password| password.is_slow())
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
    fn users_with_passwords_have_to_authenticate() {
        let hex = "2bb80d537b1da3e38bd30361aa855686bde0eacd7162fef6a25fe97bf527a25b";
        let access = Access::new(vec![User { password: Password::from_hex(hex), ..User::everybody() }]);
        assert!(access.requires_authentication() && access.user("default").is_some());
        assert!(access.user("nobody").is_none() && access.slowest_password().is_some());
        assert!(!Access::new(vec![]).requires_authentication());
    }
}
