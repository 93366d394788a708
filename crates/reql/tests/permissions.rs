//! What somebody may do who may not do everything, while a query runs.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on is to fail")]

use std::sync::Arc;
use tessera_reql::{
    AccountChange, Administrator, Answer, Cursor, ErrorKind, Failure, MemorySource, Query, Request, Requester, Source,
    Stop, TableChange,
};
use tessera_types::{PermissionChanges, Right, Rights, Scope};

struct Bob(Arc<MemorySource>);

impl Requester for Bob {
    fn name(&self) -> &str {
        "bob"
    }

    fn rights(&self) -> Arc<Rights> {
        let account = self.0.accounts().unwrap().into_iter().find(|account| account.name == "bob");
        Arc::new(account.map(|account| account.rights).unwrap_or_default())
    }
}

fn query(text: &str) -> Query {
    let Request::Start(query) = Request::read(text).unwrap() else { panic!("{text}") };
    *query
}

struct Databases(Arc<MemorySource>);

impl Databases {
    fn new() -> Self {
        let source = Arc::new(MemorySource::new("server"));
        source.create_database("test").unwrap();
        let all = Self(source);
        all.do_all("[1,[60,[\"t\"]]]").unwrap();
        all.do_all("[1,[56,[[15,[\"t\"]],[2,[{\"id\":1},{\"id\":2}]]]]]").unwrap();
        all.0.change_account("bob", AccountChange::Create(None)).unwrap();
        all.grant(Right::Read, true);
        all
    }

    fn grant(&self, right: Right, is_given: bool) {
        self.grant_in(Scope::Table("test.t".into()), right, Some(is_given));
    }

    fn grant_in(&self, scope: Scope, right: Right, is_given: Option<bool>) {
        let changes = PermissionChanges::from([(right, is_given)]);
        self.0.change_account("bob", AccountChange::Grant(scope, changes)).unwrap();
    }

    fn run(&self, requester: Arc<dyn Requester>, text: &str) -> Result<Answer, Failure> {
        query(text).prepare(0.into())?.run_for(requester, self.0.clone(), Arc::new(Stop::default()))
    }

    fn do_all(&self, text: &str) -> Result<Answer, Failure> {
        self.run(Arc::new(Administrator), text)
    }

    fn stream_of_bob(&self, text: &str) -> Result<Box<Cursor>, Failure> {
        match self.run(Arc::new(Bob(self.0.clone())), text)? {
            Answer::Cursor(cursor) => Ok(cursor),
            Answer::Value(_) => panic!("{text} gives no stream"),
        }
    }
}

const NOT_READ: &str = "User `bob` does not have the required `read` permission.";

#[test]
fn a_feed_goes_by_the_rights_in_the_table_that_it_is_of_whatever_its_name_is() {
    let rename = |databases: &Databases, from: [&str; 2], to: [&str; 2]| {
        let database = databases.0.database(from[0]).unwrap().unwrap();
        let table = databases.0.table(&database, from[1]).unwrap().unwrap();
        let change = TableChange::Rename { database: to[0].into(), name: to[1].into() };
        databases.0.change_table(&table, &change).unwrap();
    };
    // The right is one in the table, and goes with it.
    let databases = Databases::new();
    databases.0.create_database("private").unwrap();
    let mut feed = databases.stream_of_bob("[1,[152,[[15,[\"t\"]]]]]").unwrap();
    rename(&databases, ["test", "t"], ["private", "u"]);
    databases.do_all("[1,[56,[[15,[[14,[\"private\"]],\"u\"]],{\"id\":3}]]]").unwrap();
    assert_eq!(feed.next(10).unwrap().len(), 1);
    // The right is one in the database, and the table is there no more.
    let databases = Databases::new();
    databases.0.create_database("private").unwrap();
    databases.grant_in(Scope::Table("test.t".into()), Right::Read, None);
    databases.grant_in(Scope::Database("test".into()), Right::Read, Some(true));
    let mut feed = databases.stream_of_bob("[1,[152,[[15,[\"t\"]]]]]").unwrap();
    rename(&databases, ["test", "t"], ["private", "t"]);
    databases.do_all("[1,[56,[[15,[[14,[\"private\"]],\"t\"]],{\"id\":3}]]]").unwrap();
    let failure = feed.next(10).unwrap_err();
    assert_eq!((failure.kind, &*failure.message), (ErrorKind::Permission, NOT_READ));
}

#[test]
fn a_feed_ends_when_its_user_may_not_read_any_more() {
    let databases = Databases::new();
    let mut feed = databases.stream_of_bob("[1,[152,[[15,[\"t\"]]]]]").unwrap();
    databases.do_all("[1,[56,[[15,[\"t\"]],{\"id\":3}]]]").unwrap();
    assert_eq!(feed.next(10).unwrap().len(), 1);
    databases.grant(Right::Read, false);
    databases.do_all("[1,[56,[[15,[\"t\"]],{\"id\":4}]]]").unwrap();
    let failure = feed.next(10).unwrap_err();
    assert_eq!((failure.kind, &*failure.message), (ErrorKind::Permission, NOT_READ));
    // As RethinkDB says it who may not open one.
    let failure = databases.stream_of_bob("[1,[152,[[15,[\"t\"]]]]]").err().unwrap();
    assert_eq!((failure.kind, failure.message), (ErrorKind::Internal, format!("Unexpected exception: {NOT_READ}")));
}

#[test]
fn a_stream_ends_when_its_user_is_dropped() {
    let databases = Databases::new();
    let mut rows = databases.stream_of_bob("[1,[15,[\"t\"]]]").unwrap();
    databases.0.change_account("bob", AccountChange::Drop).unwrap();
    let failure = rows.next(1).unwrap_err();
    assert_eq!((failure.kind, &*failure.message), (ErrorKind::Permission, NOT_READ));
}

#[test]
fn a_password_that_was_set_is_not_shown() {
    let databases = Databases::new();
    let set = "[1,[53,[[16,[[15,[[14,[\"rethinkdb\"]],\"users\"]],\"bob\"]],{\"password\":\"secret\"}],{\"return_changes\":true}]]";
    let Ok(Answer::Value(answer)) = databases.do_all(set) else { panic!("a value") };
    let shown = answer.to_json().unwrap();
    assert!(shown.contains("<hidden>") && !shown.contains("secret") && shown.contains("\"replaced\":1"), "{shown}");
    let change = AccountChange::Create(Some(tessera_reql::NewPassword { clear: "secret".into(), iterations: None }));
    assert!(!format!("{change:?}").contains("secret"));
}

#[test]
fn an_atomic_query_needs_the_rights_to_what_it_reads_and_writes() {
    let databases = Databases::new();
    let refused = |term: &str| {
        let text = format!("[1,{term},{{\"atomic\":true}}]");
        let failure = databases.run(Arc::new(Bob(databases.0.clone())), &text).err().unwrap();
        assert_eq!(failure.kind, ErrorKind::Permission, "{term}");
        failure.message
    };
    let (insert, get) = ("[56,[[15,[\"t\"]],{\"id\":9}]]", "[16,[[15,[\"t\"]],1]]");
    let not_written = NOT_READ.replace("read", "write");
    // Who may only read.
    assert_eq!(refused(insert), not_written);
    assert_eq!(refused(&format!("[2,[{get},{insert}]]")), not_written);
    // Who may only write.
    databases.grant(Right::Read, false);
    databases.grant(Right::Write, true);
    assert_eq!(refused(insert), NOT_READ);
    assert_eq!(refused(&format!("[2,[{get},{get}]]")), NOT_READ);
    let Ok(Answer::Value(count)) = databases.do_all("[1,[43,[[15,[\"t\"]]]]]") else { panic!("a value") };
    assert_eq!(count.to_json().unwrap(), "2", "nothing was written");
}

#[test]
fn who_may_not_drop_a_table_may_not_drop_its_database() {
    let databases = Databases::new();
    let grant = |scope, is_given| {
        let changes = PermissionChanges::from([(Right::Config, Some(is_given))]);
        databases.0.change_account("bob", AccountChange::Grant(scope, changes)).unwrap();
    };
    grant(Scope::Database("test".into()), true);
    grant(Scope::Table("test.t".into()), false);
    for term in ["[61,[\"t\"]]", "[58,[\"test\"]]"] {
        let failure = databases.run(Arc::new(Bob(databases.0.clone())), &format!("[1,{term}]")).err().unwrap();
        assert_eq!(failure.kind, ErrorKind::Permission, "{term}");
    }
}
