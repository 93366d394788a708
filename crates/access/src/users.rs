use crate::password::Password;
use crate::scram::ScramPassword;
use tessera_types::Rights;

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
    pub const DEFAULT: &str = "default";
    /// The user whom a cluster always has, and who may do everything.
    pub const ADMIN: &str = tessera_types::ADMIN;

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

/// The users that the configuration of a node names.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Users(Vec<User>);

impl Users {
    /// The users of a configuration. If several have one name, the first counts.
    pub fn new(users: Vec<User>) -> Self {
        Self(users)
    }

    /// Whether it names none.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The user of that name.
    pub fn named(&self, name: &str) -> Option<&User> {
        self.0.iter().find(|user| user.name == name)
    }

    /// All of them.
    pub fn all(&self) -> &[User] {
        &self.0
    }

    /// One of the passwords that are slow to check, if there are such, else any.
    pub(crate) fn slowest_password(&self) -> Option<&Password> {
        self.0.iter().filter_map(|user| user.password.as_ref()).max_by_key(|password| password.is_slow())
    }

    /// A password that clients can prove to know.
    pub(crate) fn scram_password(&self) -> Option<&ScramPassword> {
        self.0.iter().find_map(User::scram_password)
    }
}
