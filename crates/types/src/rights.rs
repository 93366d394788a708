//! What users may do, and where.

use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// The database whose tables tell how the cluster is. What holds everywhere does not hold there: who is to see it is named.
pub const SYSTEM_DATABASE: &str = "rethinkdb";

/// The user whom a cluster always has, and who may do everything. Nobody can change more of it than its password.
pub const ADMIN: &str = "admin";

/// Something that a user may do.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Right {
    /// Make, change and drop tables and indexes; and, where it holds everywhere, databases, nodes, settings and users, and by these all
    /// other rights.
    Config,
    /// Have the node connect to other servers. It holds everywhere or nowhere.
    Connect,
    /// Read records.
    Read,
    /// Change records.
    Write,
}

impl Right {
    /// All of them, in the order of their names.
    pub const ALL: [Self; 4] = [Self::Config, Self::Connect, Self::Read, Self::Write];

    /// The word for it.
    pub fn name(self) -> &'static str {
        match self {
            Self::Config => "config",
            Self::Connect => "connect",
            Self::Read => "read",
            Self::Write => "write",
        }
    }

    /// The right that a word means.
    pub fn named(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|right| right.name() == name)
    }
}

/// Which rights are given in one place, and which are denied there. About the others a wider place decides.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Permissions {
    #[serde(skip_serializing_if = "Option::is_none")]
    config: Option<bool>,
    #[serde(skip_serializing_if = "Option::is_none")]
    connect: Option<bool>,
    #[serde(skip_serializing_if = "Option::is_none")]
    read: Option<bool>,
    #[serde(skip_serializing_if = "Option::is_none")]
    write: Option<bool>,
}

/// What is to become of some rights: given, denied, or left to a wider place.
pub type PermissionChanges = BTreeMap<Right, Option<bool>>;

impl Permissions {
    /// Nothing is decided.
    pub const NONE: Self = Self { config: None, connect: None, read: None, write: None };

    fn slot(&mut self, right: Right) -> &mut Option<bool> {
        match right {
            Right::Config => &mut self.config,
            Right::Connect => &mut self.connect,
            Right::Read => &mut self.read,
            Right::Write => &mut self.write,
        }
    }

    /// Whether a right is given or denied, if that is decided here.
    pub fn get(&self, right: Right) -> Option<bool> {
        let mut copy = *self;
        *copy.slot(right)
    }

    /// These decisions, with one right decided otherwise.
    #[must_use]
    pub fn with(mut self, right: Right, decision: Option<bool>) -> Self {
        *self.slot(right) = decision;
        self
    }

    /// The same with these changes.
    #[must_use]
    pub fn changed(self, changes: &PermissionChanges) -> Self {
        changes.iter().fold(self, |permissions, (right, decision)| permissions.with(*right, *decision))
    }

    /// Those that are decided, in the order of their names.
    pub fn decided(&self) -> impl Iterator<Item = (Right, bool)> {
        let own = *self;
        Right::ALL.into_iter().filter_map(move |right| Some((right, own.get(right)?)))
    }

    /// Whether nothing is decided.
    pub fn is_none(&self) -> bool {
        *self == Self::NONE
    }
}

/// Where something holds.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Scope {
    /// It holds in all databases and tables but those of [`SYSTEM_DATABASE`].
    Global,
    /// It holds in a database.
    Database(String),
    /// It holds in a table, given by its whole name: that of a table of documents begins with its database and a dot.
    Table(String),
}

/// What a user may do. The most specific place where something is decided decides.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Rights {
    global: Permissions,
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    databases: BTreeMap<String, Permissions>,
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    tables: BTreeMap<String, Permissions>,
}

impl Rights {
    /// To do everything.
    pub fn all() -> Self {
        let given = |rights: &[Right]| {
            rights.iter().fold(Permissions::NONE, |permissions, right| permissions.with(*right, Some(true)))
        };
        let mut all = Self { global: given(&Right::ALL), ..Self::default() };
        let here = given(&[Right::Config, Right::Read, Right::Write]);
        all.databases.insert(SYSTEM_DATABASE.into(), here);
        all
    }

    /// Whether they are [`all`](Self::all) that there are.
    pub fn are_all(&self) -> bool {
        *self == Self::all()
    }

    /// What is decided in one place.
    pub fn at(&self, scope: &Scope) -> Permissions {
        match scope {
            Scope::Global => self.global,
            Scope::Database(name) => self.databases.get(name).copied().unwrap_or_default(),
            Scope::Table(name) => self.tables.get(name).copied().unwrap_or_default(),
        }
    }

    /// Decides otherwise in one place.
    pub fn set(&mut self, scope: &Scope, permissions: Permissions) {
        let (places, name) = match scope {
            Scope::Global => return self.global = permissions,
            Scope::Database(name) => (&mut self.databases, name),
            Scope::Table(name) => (&mut self.tables, name),
        };
        if permissions.is_none() {
            places.remove(name);
        } else {
            places.insert(name.clone(), permissions);
        }
    }

    /// All places where something is decided.
    pub fn places(&self) -> impl Iterator<Item = (Scope, Permissions)> {
        let global = (!self.global.is_none()).then_some((Scope::Global, self.global));
        let databases = self.databases.iter().map(|(name, own)| (Scope::Database(name.clone()), *own));
        let tables = self.tables.iter().map(|(name, own)| (Scope::Table(name.clone()), *own));
        global.into_iter().chain(databases).chain(tables)
    }

    /// Whether the right is given wherever nothing more specific is decided.
    pub fn may(&self, right: Right) -> bool {
        self.global.get(right).unwrap_or(false)
    }

    /// Whether the right is given in a database.
    pub fn may_in_database(&self, right: Right, database: &str) -> bool {
        let own = self.databases.get(database).and_then(|own| own.get(right));
        own.unwrap_or_else(|| database != SYSTEM_DATABASE && self.may(right))
    }

    /// Whether the right is given in the table of this whole name.
    pub fn may_in_table(&self, right: Right, table: &str) -> bool {
        let own = self.tables.get(table).and_then(|own| own.get(right));
        own.unwrap_or_else(|| match table.split_once('.') {
            Some((database, _)) => self.may_in_database(right, database),
            None => self.may(right),
        })
    }

    /// Whether records of a table may be written whose writer learns what was there: that needs the right to read as well.
    pub fn may_write_in_table(&self, table: &str) -> bool {
        self.may_in_table(Right::Read, table) && self.may_in_table(Right::Write, table)
    }

    /// A table has another name now.
    pub fn table_was_renamed(&mut self, name: &str, to: &str) {
        if let Some(own) = self.tables.remove(name) {
            self.tables.insert(to.into(), own);
        }
    }

    /// A table is gone. One that gets its name later is another one.
    pub fn table_was_dropped(&mut self, name: &str) {
        self.tables.remove(name);
    }

    /// A database is gone.
    pub fn database_was_dropped(&mut self, name: &str) {
        self.databases.remove(name);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn given(words: &[(Right, bool)]) -> Permissions {
        words.iter().fold(Permissions::NONE, |own, (right, is_given)| own.with(*right, Some(*is_given)))
    }

    #[test]
    fn the_most_specific_place_decides() {
        let mut rights = Rights::default();
        assert!(!rights.may(Right::Read) && !rights.may_in_table(Right::Read, "test.t"));
        rights.set(&Scope::Global, given(&[(Right::Read, true), (Right::Write, true)]));
        rights.set(&Scope::Database("test".into()), given(&[(Right::Write, false), (Right::Config, true)]));
        rights.set(&Scope::Table("test.t".into()), given(&[(Right::Write, true)]));
        assert!(rights.may_in_table(Right::Read, "test.t") && rights.may_in_table(Right::Write, "test.t"));
        assert!(!rights.may_in_table(Right::Write, "test.u") && rights.may_in_table(Right::Config, "test.u"));
        assert!(rights.may_in_table(Right::Write, "sessions") && rights.may_in_table(Right::Write, "other.t"));
        assert!(!rights.may_in_database(Right::Config, "other") && !rights.may(Right::Config));
        rights.set(&Scope::Table("test.t".into()), given(&[(Right::Read, false), (Right::Write, true)]));
        assert!(rights.may_in_table(Right::Write, "test.t") && !rights.may_write_in_table("test.t"));
        rights.set(&Scope::Table("test.t".into()), Permissions::NONE);
        assert_eq!(rights.places().count(), 2);
    }

    #[test]
    fn what_holds_everywhere_does_not_hold_in_the_system_database() {
        let mut rights = Rights::default();
        rights.set(&Scope::Global, given(&[(Right::Read, true)]));
        assert!(!rights.may_in_table(Right::Read, "rethinkdb.users"));
        rights.set(&Scope::Table("rethinkdb.users".into()), given(&[(Right::Read, true)]));
        assert!(rights.may_in_table(Right::Read, "rethinkdb.users"));
        assert!(!rights.may_in_table(Right::Read, "rethinkdb.permissions"));
        assert!(Rights::all().may_in_table(Right::Write, "rethinkdb.users") && Rights::all().are_all());
    }

    #[test]
    fn a_right_goes_with_its_table() {
        let mut rights = Rights::default();
        rights.set(&Scope::Table("a".into()), given(&[(Right::Read, true)]));
        rights.table_was_renamed("a", "b");
        assert!(rights.may_in_table(Right::Read, "b") && !rights.may_in_table(Right::Read, "a"));
        rights.table_was_dropped("b");
        assert_eq!(rights, Rights::default());
    }

    #[test]
    fn changes_name_what_they_change() {
        let before = given(&[(Right::Read, true), (Right::Write, false)]);
        let changes = PermissionChanges::from([(Right::Read, None), (Right::Config, Some(true))]);
        let after = before.changed(&changes);
        assert_eq!(after, given(&[(Right::Write, false), (Right::Config, true)]));
        let decided: Vec<_> = after.decided().map(|(right, is_given)| (right.name(), is_given)).collect();
        assert_eq!(decided, [("config", true), ("write", false)]);
        assert_eq!(Right::named("connect"), Some(Right::Connect));
        assert_eq!(Right::named("Connect"), None);
    }
}
