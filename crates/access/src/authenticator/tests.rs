use super::*;

use parking_lot::RwLock;
use std::collections::BTreeMap;
use std::pin::Pin;
use std::sync::Arc;
use tessera_types::{Permissions, Right, Rights, Scope};

/// Users of a cluster, and those that other nodes have changed already.
#[derive(Clone, Default)]
struct Cluster(Arc<RwLock<(u64, BTreeMap<String, User>)>>, Arc<RwLock<BTreeMap<String, User>>>);

impl Directory for Cluster {
    fn changes(&self) -> u64 {
        self.0.read().0
    }

    fn user(&self, name: &str) -> Option<User> {
        let admin = || User { name: name.into(), ..User::everybody() };
        self.0.read().1.get(name).cloned().or_else(|| (name == User::ADMIN).then(admin))
    }

    fn names(&self) -> Vec<String> {
        self.0.read().1.keys().cloned().collect()
    }

    fn is_closed(&self) -> bool {
        self.0.read().1.contains_key(User::ADMIN)
    }

    fn learn(&self) -> Pin<Box<dyn Future<Output = ()> + Send + '_>> {
        Box::pin(async {
            let news = self.1.read().clone();
            let mut known = self.0.write();
            if known.1 != news {
                *known = (known.0 + 1, news);
            }
        })
    }
}

impl Cluster {
    fn set(&self, name: &str, clear: &str, rights: Rights) {
        let password = Some(Password::Scram(ScramPassword::new(clear.as_bytes(), 10)));
        let user = User { name: name.into(), password, rights, default_table: None };
        self.1.write().insert(name.into(), user);
    }
}

#[tokio::test]
async fn a_user_that_another_node_has_just_made_is_let_in() {
    let cluster = Cluster::default();
    let users = Authenticator::new(Users::default()).with_directory(cluster.clone());
    assert!(users.is_open() && users.anonymous() == Some(User::everybody()) && users.named("admin").is_some());
    assert_eq!(users.log_in("bob", b"secret").await, Err(NotLetIn::Wrong));
    cluster.set("bob", "secret", Rights::default());
    assert_eq!(users.log_in("bob", b"secret").await.unwrap().name, "bob");
    assert!(users.is_open(), "until `admin` has a password");
    cluster.set("admin", "root", Rights::all());
    assert_eq!(users.log_in("admin", b"wrong").await.map(|user| user.name), Ok("admin".into()), "it is not known yet");
    users.learn().await;
    assert!(!users.is_open() && users.anonymous().is_none() && users.named("default").is_none());
    assert_eq!(users.log_in("admin", b"wrong").await, Err(NotLetIn::Wrong));
    assert!(users.log_in("admin", b"root").await.is_ok());
    cluster.set("bob", "other", Rights::default());
    users.learn().await;
    assert_eq!(users.log_in("bob", b"secret").await, Err(NotLetIn::Wrong), "that was right once");
    assert!(users.log_in("bob", b"other").await.is_ok());
}

#[tokio::test]
async fn who_has_logged_in_may_do_what_it_may_do_now() {
    let cluster = Cluster::default();
    let read = Permissions::NONE.with(Right::Read, Some(true));
    let mut rights = Rights::default();
    rights.set(&Scope::Global, read);
    cluster.set("bob", "secret", rights);
    let users = Arc::new(Authenticator::new(Users::default()).with_directory(cluster.clone()));
    users.learn().await;
    let login = crate::Login::new(users.clone(), "bob".into());
    assert!(login.rights().may(Right::Read));
    cluster.set("bob", "secret", Rights::default());
    users.learn().await;
    assert!(!login.rights().may(Right::Read));
    cluster.1.write().clear();
    users.learn().await;
    assert_eq!(*login.rights(), Rights::default());
}

#[test]
fn users_of_the_configuration_count_and_admin_without_a_password_does_not_open_what_they_close() {
    let hex = "2bb80d537b1da3e38bd30361aa855686bde0eacd7162fef6a25fe97bf527a25b";
    let file = Users::new(vec![User { password: Password::from_hex(hex), ..User::everybody() }]);
    let cluster = Cluster::default();
    let users = Authenticator::new(file).with_directory(cluster.clone());
    assert!(!users.is_open() && users.anonymous().is_none() && users.default_has_password());
    assert!(users.named("admin").is_none() && users.provable("admin").1.is_none() && users.nobody_can_prove());
    cluster.set("default", "other", Rights::default());
    cluster.set("admin", "root", Rights::all());
    *cluster.0.write() = (1, cluster.1.read().clone());
    assert!(users.named("default").unwrap().rights.are_all() && users.is_configured("default"));
    assert!(users.provable("admin").1.is_some() && !users.nobody_can_prove());
    assert_eq!(users.names(), ["default", "admin"]);
}

fn with_user(password: Option<Password>) -> Authenticator {
    Authenticator::new(Users::new(vec![User { password, name: "shop".into(), ..User::everybody() }]))
}

fn with_slow_password() -> Authenticator {
    with_user(Password::from_argon2(&Password::hash(b"secret").unwrap()))
}

#[tokio::test]
async fn a_password_that_was_right_is_checked_slowly_once() {
    let checks = with_slow_password();
    for _ in 0..100 {
        assert_eq!(checks.log_in("shop", b"secret").await.unwrap().name, "shop");
    }
    assert_eq!(checks.slow_checks.load(Ordering::Relaxed), 1);
    assert_eq!(checks.log_in("shop", b"wrong").await, Err(NotLetIn::Wrong));
    assert_eq!(checks.log_in("nobody", b"secret").await, Err(NotLetIn::Wrong));
    assert_eq!(checks.slow_checks.load(Ordering::Relaxed), 3, "nor does time tell who exists");
}

#[tokio::test]
async fn a_storm_of_wrong_passwords_is_bounded_and_those_who_are_known_pass() {
    let checks = with_slow_password();
    checks.log_in("shop", b"secret").await.unwrap();
    // Nobody's turn comes.
    let turns = checks.turns.acquire_many(AT_ONCE as u32).await.unwrap();
    let wrong: Vec<Vec<u8>> = (0..WAITING + 5).map(|number| number.to_string().into_bytes()).collect();
    let mut waiting = Vec::new();
    let mut refused = 0;
    for password in &wrong {
        let mut attempt = Box::pin(checks.log_in("shop", password));
        match futures_now(&mut attempt).await {
            None => waiting.push(attempt),
            Some(outcome) => {
                assert_eq!(outcome, Err(NotLetIn::Busy));
                refused += 1;
            }
        }
    }
    assert_eq!((waiting.len(), refused), (WAITING, 5));
    assert!(checks.log_in("shop", b"secret").await.is_ok());
    drop(waiting);
    drop(turns);
    assert_eq!(checks.waiting.load(Ordering::Relaxed), 0);
}

#[test]
fn what_is_asked_does_not_tell_who_exists() {
    let users = with_user(Some(Password::Scram(ScramPassword::new(b"secret", 10))));
    let (asked, user) = users.provable("shop");
    assert!(asked.is(b"secret") && user.is_some());
    let (asked, user) = users.provable("nobody");
    assert!(user.is_none() && asked.challenge() == users.provable("nobody").0.challenge());
    assert_eq!(asked.challenge().1, 10, "it takes as long as for those who exist");
    // A password that cannot be proven to be known is none here.
    assert!(with_slow_password().provable("shop").1.is_none());
}

/// What a future comes to without waiting.
async fn futures_now<F: Future + Unpin>(future: &mut F) -> Option<F::Output> {
    std::future::poll_fn(|context| {
        std::task::Poll::Ready(match std::pin::Pin::new(&mut *future).poll(context) {
            std::task::Poll::Ready(outcome) => Some(outcome),
            std::task::Poll::Pending => None,
        })
    })
    .await
}
