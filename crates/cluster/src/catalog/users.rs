//! The users of the cluster: names, hashes of passwords, and rights.
//!
//! The user [`ADMIN`] always exists and may always do everything; it stands in the list only once it has a password. As long as it has
//! none, whoever connects may do everything. A list counts its changes, so that those who keep something that follows from it, such as
//! connections of users, notice cheaply that they have to look again.

use super::{Catalog, CatalogError};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;
use tessera_types::{ADMIN, PermissionChanges, Right, Rights, SYSTEM_DATABASE, Scope};

/// The most users of a cluster.
const MOST_USERS: usize = 10_000;
/// The longest name of a user.
const NAME_BYTES: usize = 256;

/// What is kept of a password, in the text form of `access::ScramPassword`. It is not shown where commands are.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct PasswordHash(pub String);

impl fmt::Debug for PasswordHash {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("PasswordHash(hidden)")
    }
}

/// A user of the cluster.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct UserEntry {
    /// `None` lets in whoever gives this name.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub password: Option<PasswordHash>,
    /// What the user may do. Those of [`ADMIN`] are not kept: that one may do everything.
    #[serde(default)]
    pub rights: Rights,
}

/// All users. Copies share what they hold.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct UserList {
    #[serde(default)]
    changes: u64,
    #[serde(default, with = "shared")]
    entries: Arc<BTreeMap<String, UserEntry>>,
}

/// A shared map has the same JSON as another one.
mod shared {
    use super::{Arc, BTreeMap, UserEntry};
    use serde::{Deserialize, Deserializer, Serialize, Serializer};

    type Entries = Arc<BTreeMap<String, UserEntry>>;

    pub(super) fn serialize<S: Serializer>(entries: &Entries, serializer: S) -> Result<S::Ok, S::Error> {
        (**entries).serialize(serializer)
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Entries, D::Error> {
        BTreeMap::deserialize(deserializer).map(Arc::new)
    }
}

impl UserList {
    /// How often users have been changed; it never falls.
    pub fn changes(&self) -> u64 {
        self.changes
    }

    /// Whether nobody was ever made a user, and `admin` never had a password.
    pub(super) fn is_unused(&self) -> bool {
        self.changes == 0
    }

    /// The user of that name.
    pub fn get(&self, name: &str) -> Option<UserEntry> {
        match self.entries.get(name) {
            found if name == ADMIN => {
                Some(UserEntry { password: found.and_then(|entry| entry.password.clone()), rights: Rights::all() })
            }
            found => found.cloned(),
        }
    }

    /// Whether `admin` has a password, so that whoever connects must say who it is.
    pub fn is_closed(&self) -> bool {
        self.entries.get(ADMIN).is_some_and(|admin| admin.password.is_some())
    }

    /// The names of all users, in their order.
    pub fn names(&self) -> Vec<String> {
        let mut names: Vec<String> = self.entries.keys().cloned().collect();
        if let Err(at) = names.binary_search_by(|name| name.as_str().cmp(ADMIN)) {
            names.insert(at, ADMIN.into());
        }
        names
    }

    fn entries(&mut self) -> &mut BTreeMap<String, UserEntry> {
        self.changes += 1;
        Arc::make_mut(&mut self.entries)
    }

    pub(super) fn create(
        &mut self,
        name: &str,
        password: Option<&PasswordHash>,
        rights: &Rights,
    ) -> Result<(), CatalogError> {
        if name.is_empty() || name.len() > NAME_BYTES {
            return Err(CatalogError::UserName(NAME_BYTES));
        }
        if name == ADMIN || self.entries.contains_key(name) {
            return Err(CatalogError::UserExists(name.into()));
        }
        if self.entries.len() >= MOST_USERS {
            return Err(CatalogError::TooManyUsers(MOST_USERS));
        }
        let entry = UserEntry { password: password.cloned(), rights: rights.clone() };
        self.entries().insert(name.into(), entry);
        Ok(())
    }

    pub(super) fn set_password(&mut self, name: &str, password: Option<&PasswordHash>) -> Result<(), CatalogError> {
        match self.get(name) {
            None => return Err(CatalogError::NoSuchUser(name.into())),
            Some(entry) if entry.password.as_ref() == password => return Ok(()),
            Some(_) => {}
        }
        if name == ADMIN && password.is_none() {
            self.entries().remove(name);
        } else {
            self.entries().entry(name.into()).or_default().password = password.cloned();
        }
        Ok(())
    }

    pub(super) fn drop(&mut self, name: &str) -> Result<(), CatalogError> {
        match name {
            ADMIN => Err(CatalogError::Admin),
            _ if !self.entries.contains_key(name) => Err(CatalogError::NoSuchUser(name.into())),
            _ => {
                self.entries().remove(name);
                Ok(())
            }
        }
    }

    fn grant(&mut self, name: &str, scope: &Scope, changes: &PermissionChanges) -> Result<(), CatalogError> {
        if name == ADMIN {
            return Err(CatalogError::Admin);
        }
        let entry = self.entries.get(name).ok_or_else(|| CatalogError::NoSuchUser(name.into()))?;
        if *scope != Scope::Global && changes.get(&Right::Connect).is_some_and(Option::is_some) {
            return Err(CatalogError::ConnectIsGlobal);
        }
        let before = entry.rights.at(scope);
        let after = before.changed(changes);
        if after != before {
            self.change_rights(|rights| rights.set(scope, after), |own| own == name);
        }
        Ok(())
    }

    /// Changes the rights of some users.
    fn change_rights(&mut self, change: impl Fn(&mut Rights), is_concerned: impl Fn(&str) -> bool) {
        let concerned = self.entries().iter_mut().filter(|(name, _)| is_concerned(name));
        concerned.for_each(|(_, entry)| change(&mut entry.rights));
    }

    /// Changes the rights of those users to whom it makes a difference.
    fn follow(&mut self, change: impl Fn(&mut Rights)) {
        let differs = |entry: &UserEntry| {
            let mut rights = entry.rights.clone();
            change(&mut rights);
            rights != entry.rights
        };
        if self.entries.values().any(differs) {
            self.change_rights(change, |_| true);
        }
    }

    pub(super) fn table_was_renamed(&mut self, name: &str, to: &str) {
        self.follow(|rights| rights.table_was_renamed(name, to));
    }

    pub(super) fn table_was_dropped(&mut self, name: &str) {
        self.follow(|rights| rights.table_was_dropped(name));
    }

    pub(super) fn database_was_dropped(&mut self, name: &str) {
        self.follow(|rights| rights.database_was_dropped(name));
    }
}

impl Catalog {
    /// The users of the cluster.
    pub fn users(&self) -> &UserList {
        &self.users
    }

    pub(super) fn create_user(
        &mut self,
        name: &str,
        password: Option<&PasswordHash>,
        rights: &Rights,
    ) -> Result<(), CatalogError> {
        rights.places().try_for_each(|(scope, _)| self.check_scope(&scope))?;
        self.users.create(name, password, rights)
    }

    pub(super) fn grant(&mut self, name: &str, scope: &Scope, changes: &PermissionChanges) -> Result<(), CatalogError> {
        self.check_scope(scope)?;
        self.users.grant(name, scope, changes)
    }

    /// Refuses rights to what is not there: whoever made it later would not know of them.
    fn check_scope(&self, scope: &Scope) -> Result<(), CatalogError> {
        let system = format!("{SYSTEM_DATABASE}.");
        match scope {
            Scope::Database(database) if database != SYSTEM_DATABASE && !self.databases().contains(database) => {
                Err(CatalogError::NoSuchDatabase(database.clone()))
            }
            Scope::Table(table) if !table.starts_with(&system) && self.by_name(table).is_none() => {
                Err(CatalogError::NoSuchTable(table.clone()))
            }
            _ => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::{CatalogCommand, Changed, Site};
    use super::*;
    use tessera_types::{EngineKind, Limits, Permissions, UnixMillis};

    fn hash(text: &str) -> Option<PasswordHash> {
        Some(PasswordHash(text.into()))
    }

    fn apply(catalog: &mut Catalog, command: CatalogCommand) -> Result<Changed, CatalogError> {
        // As it comes out of the log.
        let text = serde_json::to_string(&command).unwrap();
        assert_eq!(serde_json::from_str::<CatalogCommand>(&text).unwrap(), command, "{text}");
        catalog.apply(&command, &Limits::default())
    }

    fn create(catalog: &mut Catalog, name: &str) -> Result<Changed, CatalogError> {
        let (password, rights) = (hash("x"), Rights::default());
        apply(catalog, CatalogCommand::CreateUser { name: name.into(), password, rights })
    }

    fn grant(catalog: &mut Catalog, name: &str, scope: Scope, right: Right) -> Result<Changed, CatalogError> {
        let changes = PermissionChanges::from([(right, Some(true))]);
        apply(catalog, CatalogCommand::Grant { user: name.into(), scope, changes })
    }

    #[test]
    fn users_come_are_changed_and_go() {
        let mut catalog = Catalog::of_new_cluster(Site::default(), EngineKind::Rocksdb);
        assert_eq!((catalog.users().names(), catalog.users().is_closed()), (vec![ADMIN.to_string()], false));
        create(&mut catalog, "bob").unwrap();
        assert_eq!(create(&mut catalog, "bob"), Err(CatalogError::UserExists("bob".into())));
        assert_eq!(create(&mut catalog, ADMIN), Err(CatalogError::UserExists(ADMIN.into())));
        assert_eq!(create(&mut catalog, ""), Err(CatalogError::UserName(NAME_BYTES)));
        let before = catalog.users().changes();
        let alter = |password| CatalogCommand::AlterUser { name: "bob".into(), password };
        apply(&mut catalog, alter(hash("x"))).unwrap();
        assert_eq!(catalog.users().changes(), before, "nothing has changed");
        apply(&mut catalog, alter(None)).unwrap();
        assert_eq!(catalog.users().get("bob").unwrap().password, None);
        assert!(catalog.users().changes() > before);
        let text = serde_json::to_string(&catalog).unwrap();
        assert_eq!(serde_json::from_str::<Catalog>(&text).unwrap(), catalog);
        let drop = |name: &str| CatalogCommand::DropUser { name: name.into() };
        apply(&mut catalog, drop("bob")).unwrap();
        assert_eq!(apply(&mut catalog, drop("bob")), Err(CatalogError::NoSuchUser("bob".into())));
        assert_eq!(apply(&mut catalog, drop(ADMIN)), Err(CatalogError::Admin));
    }

    #[test]
    fn admin_may_do_everything_and_its_password_closes_the_cluster() {
        let mut catalog = Catalog::of_new_cluster(Site::default(), EngineKind::Rocksdb);
        let alter = |password| CatalogCommand::AlterUser { name: ADMIN.into(), password };
        apply(&mut catalog, alter(hash("x"))).unwrap();
        assert!(catalog.users().is_closed() && catalog.users().get(ADMIN).unwrap().rights.are_all());
        assert_eq!(grant(&mut catalog, ADMIN, Scope::Global, Right::Read), Err(CatalogError::Admin));
        apply(&mut catalog, alter(None)).unwrap();
        assert!(!catalog.users().is_closed() && catalog.users().get(ADMIN).is_some());
    }

    #[test]
    fn rights_go_with_what_they_are_for() {
        let mut catalog = Catalog::of_new_cluster(Site::default(), EngineKind::Rocksdb);
        create(&mut catalog, "bob").unwrap();
        let table = |name: &str| Scope::Table(name.into());
        grant(&mut catalog, "bob", table("default"), Right::Read).unwrap();
        grant(&mut catalog, "bob", table("rethinkdb.users"), Right::Read).unwrap();
        grant(&mut catalog, "bob", Scope::Database("test".into()), Right::Write).unwrap();
        let refused = [
            (grant(&mut catalog, "bob", table("none"), Right::Read), CatalogError::NoSuchTable("none".into())),
            (grant(&mut catalog, "eve", Scope::Global, Right::Read), CatalogError::NoSuchUser("eve".into())),
            (grant(&mut catalog, "bob", table("default"), Right::Connect), CatalogError::ConnectIsGlobal),
        ];
        refused.into_iter().for_each(|(outcome, error)| assert_eq!(outcome, Err(error)));
        assert!(catalog.users().get("bob").unwrap().rights.may_in_table(Right::Write, "test.any"));
        apply(&mut catalog, CatalogCommand::DropDatabase { name: "test".into() }).unwrap();
        assert!(!catalog.users().get("bob").unwrap().rights.may_in_table(Right::Write, "test.any"));

        let entry = catalog.by_name("default").unwrap();
        let (schema, settings, absent) = (entry.schema.clone(), entry.settings.clone(), Default::default());
        apply(&mut catalog, CatalogCommand::Create { name: "a".into(), schema, settings, absent }).unwrap();
        grant(&mut catalog, "bob", table("a"), Right::Read).unwrap();
        apply(&mut catalog, CatalogCommand::Rename { name: "a".into(), to: "b".into() }).unwrap();
        assert!(catalog.users().get("bob").unwrap().rights.may_in_table(Right::Read, "b"));
        let purge_at = UnixMillis::new(100);
        apply(&mut catalog, CatalogCommand::drop("b", purge_at)).unwrap();
        assert!(!catalog.users().get("bob").unwrap().rights.may_in_table(Right::Read, "b"));
    }

    #[test]
    fn a_hash_is_not_shown_where_commands_are() {
        let command = CatalogCommand::AlterUser { name: "bob".into(), password: hash("SCRAM-SHA-256$1:a$b:c") };
        assert!(!format!("{command:?}").contains("SCRAM"));
    }

    #[test]
    fn nobody_has_rights_to_what_is_not_there() {
        let mut catalog = Catalog::default();
        let mut rights = Rights::default();
        rights.set(&Scope::Table("payroll".into()), Permissions::NONE.with(Right::Read, Some(true)));
        let create = CatalogCommand::CreateUser { name: "bob".into(), password: hash("x"), rights };
        assert_eq!(apply(&mut catalog, create), Err(CatalogError::NoSuchTable("payroll".into())));
    }
}
