use crate::password::Password;
use crate::rights::Rights;
use crate::scram::ScramPassword;

/// Somebody who may use a node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct User {
    /// What the user logs in as.
    pub name: String,
    /// `None` lets everybody in under this name.
    pub password: Option<Password>,
    /// What the user may do.
    pub rights: Rights,
    /// The table that a new connection of the user has chosen, where connections choose one.
    pub default_table: Option<String>,
}

impl User {
    /// The name under which a connection comes that has not logged in.
    const DEFAULT: &str = "default";

    /// The user who may do everything, and whom nobody asks for a password.
    pub fn everybody() -> Self {
        Self { name: Self::DEFAULT.into(), password: None, rights: Rights::all(), default_table: None }
    }

    /// The password in the form in which a client can prove that it knows it, if it is kept so.
    pub fn scram_password(&self) -> Option<&ScramPassword> {
        match &self.password {
            Some(Password::Scram(password)) => Some(password),
            _ => None,
        }
    }
}

/// The users of a node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Users {
    all: Vec<User>,
    is_open: bool,
}

impl Users {
    /// Without users everybody may do everything. Of several with one name the first counts.
    pub fn new(users: Vec<User>) -> Self {
        match users.is_empty() {
            true => Self { all: vec![User::everybody()], is_open: true },
            false => Self { all: users, is_open: false },
        }
    }

    /// Whether everybody may do everything, since no user was named.
    pub fn is_open(&self) -> bool {
        self.is_open
    }

    /// The user that a connection is before it logs in: `default`, if that one has no password.
    pub fn anonymous(&self) -> Option<&User> {
        self.named(User::DEFAULT).filter(|user| user.password.is_none())
    }

    /// The user of that name.
    pub fn named(&self, name: &str) -> Option<&User> {
        self.all.iter().find(|user| user.name == name)
    }

    /// Whether a password alone, without a name, can be the right one.
    pub fn default_has_password(&self) -> bool {
        self.named(User::DEFAULT).is_some_and(|user| user.password.is_some())
    }

    /// All of them.
    pub fn all(&self) -> &[User] {
        &self.all
    }

    /// One of the passwords that are slow to check, if there are such, else any.
    pub(crate) fn slowest_password(&self) -> Option<&Password> {
        self.all.iter().filter_map(|user| user.password.as_ref()).max_by_key(|password| password.is_slow())
    }

    /// Passwords that clients can prove to know.
    pub(crate) fn scram_passwords(&self) -> impl Iterator<Item = &ScramPassword> {
        self.all.iter().filter_map(User::scram_password)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn users_with_passwords_have_to_log_in() {
        let hex = "2bb80d537b1da3e38bd30361aa855686bde0eacd7162fef6a25fe97bf527a25b";
        let users = Users::new(vec![User { password: Password::from_hex(hex), ..User::everybody() }]);
        assert!(users.anonymous().is_none() && users.named("default").is_some() && !users.is_open());
        assert!(users.named("nobody").is_none() && users.slowest_password().is_some() && users.default_has_password());
        let open = Users::new(vec![]);
        assert!(open.is_open() && open.anonymous() == Some(&User::everybody()) && !open.default_has_password());
    }
}
