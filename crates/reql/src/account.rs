//! The users of a cluster, as queries see and change them, and who of them asks a query.

use std::fmt;
use std::sync::{Arc, OnceLock};

use tessera_types::{ADMIN, PermissionChanges, Right, Rights, Scope};

use crate::error::{Error, ErrorKind};
use crate::scan::TableInfo;

/// A user of the cluster.
#[derive(Debug, Clone)]
pub struct Account {
    /// What the user logs in as.
    pub name: String,
    /// Whether the user has to give a password.
    pub has_password: bool,
    /// What the user may do.
    pub rights: Rights,
}

/// A password that somebody is to get. It is not shown where changes are.
#[derive(Clone, PartialEq, Eq)]
pub struct NewPassword {
    /// As the user will give it.
    pub clear: String,
    /// How often it is to be hashed, if that is said.
    pub iterations: Option<u32>,
}

impl fmt::Debug for NewPassword {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("NewPassword(hidden)")
    }
}

/// What is to become of a user.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum AccountChange {
    /// There is to be one.
    Create(Option<NewPassword>),
    /// The password is to be another one, or none.
    SetPassword(Option<NewPassword>),
    /// There is to be none.
    Drop,
    /// The user is to have other rights in one place.
    Grant(Scope, PermissionChanges),
}

/// Who asks a query. What this one may do can change while the query runs.
pub trait Requester: Send + Sync {
    /// The name of the user.
    fn name(&self) -> &str;

    /// What the user may do now.
    fn rights(&self) -> Arc<Rights>;
}

/// The user who may do everything.
#[derive(Debug, Clone, Copy)]
pub struct Administrator;

impl Requester for Administrator {
    fn name(&self) -> &str {
        ADMIN
    }

    fn rights(&self) -> Arc<Rights> {
        static ALL: OnceLock<Arc<Rights>> = OnceLock::new();
        ALL.get_or_init(|| Arc::new(Rights::all())).clone()
    }
}

/// Where a right is needed.
#[derive(Debug, Clone, Copy)]
pub enum Place<'a> {
    /// Everywhere.
    Global,
    /// Applies in the database of this name.
    Database(&'a str),
    /// In a table.
    Table(&'a TableInfo),
    /// In the table that has this full name now.
    Named(&'a str),
}

impl Place<'_> {
    /// Checks that a user has a right here.
    ///
    /// # Errors
    /// If it was not given.
    pub fn check(self, requester: &dyn Requester, right: Right) -> Result<(), Error> {
        let rights = requester.rights();
        let is_given = match self {
            Self::Global => rights.may(right),
            Self::Database(name) => rights.may_in_database(right, name),
            Self::Table(table) => return Place::Named(&table.full_name()).check(requester, right),
            Self::Named(table) if right == Right::Write => rights.may_write_in_table(table),
            Self::Named(table) => rights.may_in_table(right, table),
        };
        match is_given {
            true => Ok(()),
            false => Err(Error::new(
                ErrorKind::Permission,
                format!("User `{}` does not have the required `{}` permission.", requester.name(), right.name()),
            )),
        }
    }
}

/// The error with which RethinkDB answers in the places where it does not expect that somebody lacks a right.
pub(crate) fn unexpected(error: Error) -> Error {
    match error.kind() {
        ErrorKind::Permission => {
            let message = format!("Unexpected exception: {}", error.message());
            error.with_message(message).with_kind(ErrorKind::Internal)
        }
        _ => error,
    }
}
