//! Who computes: so many turns, and who has the next one.
//!
//! A turn that is given back goes to the user who has the fewest, of those who wait, and within a user to the query that has waited the
//! longest. So a user with a thousand queries does not come before one with a single query, and nobody has less for it while others
//! want nothing.

use parking_lot::Mutex;
use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use tokio::sync::oneshot;

/// The turns of a node.
pub(crate) struct TurnQueue {
    state: Mutex<State>,
    /// Queries that wait. Kept beside the state, since those that compute ask for it often.
    wanted: AtomicUsize,
}

struct State {
    free: usize,
    /// By number; those who neither have nor want a turn are not here.
    users: BTreeMap<u64, OfUser>,
    last_arrival: u64,
}

#[derive(Default)]
struct OfUser {
    held: usize,
    waiting: VecDeque<Waiting>,
}

struct Waiting {
    arrival: u64,
    turn: oneshot::Sender<HeldTurn>,
}

/// That a query of a user may compute, until dropped.
pub(crate) struct HeldTurn {
    queue: Arc<TurnQueue>,
    user: u64,
}

/// Where a query waits among those of its user.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum End {
    Front,
    Back,
}

impl TurnQueue {
    pub(crate) fn new(turns: usize) -> Arc<Self> {
        let state = State { free: turns, users: BTreeMap::new(), last_arrival: 0 };
        Arc::new(Self { state: Mutex::new(state), wanted: AtomicUsize::new(0) })
    }

    /// Whether a query waits. One that has given up may count for a moment.
    pub(crate) fn is_wanted(&self) -> bool {
        self.wanted.load(Ordering::Relaxed) > 0
    }

    /// Whether somebody waits who has fewer turns than this user.
    pub(crate) fn is_owed_by(&self, user: u64) -> bool {
        let state = self.state.lock();
        let held = state.users.get(&user).map_or(0, |of_user| of_user.held);
        state.users.values().any(|other| !other.waiting.is_empty() && other.held < held)
    }

    /// Waits for a turn.
    pub(crate) async fn take(self: &Arc<Self>, user: u64) -> HeldTurn {
        let given = {
            let mut state = self.state.lock();
            // Turns are free only while nobody waits.
            if state.free > 0 {
                state.note_given(user);
                return HeldTurn { queue: self.clone(), user };
            }
            self.wait(&mut state, user, End::Back)
        };
        received(given).await
    }

    fn wait(&self, state: &mut State, user: u64, end: End) -> oneshot::Receiver<HeldTurn> {
        let (turn, given) = oneshot::channel();
        state.last_arrival += 1;
        let waiting = Waiting { arrival: state.last_arrival, turn };
        let of_user = &mut state.users.entry(user).or_default().waiting;
        match end {
            End::Front => of_user.push_front(waiting),
            End::Back => of_user.push_back(waiting),
        }
        self.wanted.fetch_add(1, Ordering::Relaxed);
        given
    }

    /// Gives a turn back, and what else is free to those who wait.
    fn give_back(self: &Arc<Self>, state: &mut State, user: u64) -> Vec<HeldTurn> {
        state.note_given_back(user);
        let mut not_taken = Vec::new();
        while state.free > 0
            && let Some((user, waiting)) = state.next()
        {
            self.wanted.fetch_sub(1, Ordering::Relaxed);
            if waiting.turn.is_closed() {
                continue;
            }
            state.note_given(user);
            if let Err(turn) = waiting.turn.send(HeldTurn { queue: self.clone(), user }) {
                not_taken.push(turn);
            }
        }
        not_taken
    }
}

/// A turn that will be given: the queue is there for as long as somebody waits, and forgets nobody.
async fn received(given: oneshot::Receiver<HeldTurn>) -> HeldTurn {
    match given.await {
        Ok(turn) => turn,
        Err(_) => std::future::pending().await,
    }
}

impl State {
    fn note_given(&mut self, user: u64) {
        self.free -= 1;
        self.users.entry(user).or_default().held += 1;
    }

    fn note_given_back(&mut self, user: u64) {
        self.free += 1;
        if let Some(of_user) = self.users.get_mut(&user) {
            of_user.held -= 1;
        }
        self.forget_if_idle(user);
    }

    /// Takes the query off the list whose turn it is.
    fn next(&mut self) -> Option<(u64, Waiting)> {
        let first = |(user, of_user): (&u64, &OfUser)| Some((of_user.held, of_user.waiting.front()?.arrival, *user));
        let (.., user) = self.users.iter().filter_map(first).min()?;
        let waiting = self.users.get_mut(&user)?.waiting.pop_front()?;
        self.forget_if_idle(user);
        Some((user, waiting))
    }

    fn forget_if_idle(&mut self, user: u64) {
        if self.users.get(&user).is_some_and(|of_user| of_user.held == 0 && of_user.waiting.is_empty()) {
            self.users.remove(&user);
        }
    }
}

impl HeldTurn {
    /// Lets others have this turn, if they want it, and waits for another one.
    pub(crate) async fn pass_on(self, end: End) -> Self {
        // First this, so that whoever gets the turn is chosen among all who want one.
        let given = self.queue.wait(&mut self.queue.state.lock(), self.user, end);
        drop(self);
        received(given).await
    }
}

impl Drop for HeldTurn {
    fn drop(&mut self) {
        let not_taken = self.queue.give_back(&mut self.queue.state.lock(), self.user);
        // Without the lock, which each of them takes.
        drop(not_taken);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::pin::Pin;
    use std::task::{Context, Poll, Waker};

    const ANN: u64 = 1;
    const BOB: u64 = 2;
    const CY: u64 = 3;

    type Asked = Pin<Box<dyn Future<Output = HeldTurn>>>;

    /// What has come of asking for a turn.
    fn given(asked: &mut Asked) -> Option<HeldTurn> {
        match asked.as_mut().poll(&mut Context::from_waker(Waker::noop())) {
            Poll::Ready(turn) => Some(turn),
            Poll::Pending => None,
        }
    }

    fn asked(queue: &Arc<TurnQueue>, user: u64) -> Asked {
        let queue = queue.clone();
        Box::pin(async move { queue.take(user).await })
    }

    fn taken(queue: &Arc<TurnQueue>, user: u64) -> HeldTurn {
        given(&mut asked(queue, user)).expect("a turn is free")
    }

    /// A query that has to wait.
    fn waiting(queue: &Arc<TurnQueue>, user: u64) -> Asked {
        let mut asked = asked(queue, user);
        assert!(given(&mut asked).is_none(), "all turns are taken");
        asked
    }

    #[test]
    fn the_next_turn_is_for_who_has_the_fewest() {
        let queue = TurnQueue::new(3);
        let mut held: Vec<HeldTurn> = [ANN, ANN, BOB].map(|user| taken(&queue, user)).into();
        let [mut first, mut second] = [(); 2].map(|()| waiting(&queue, ANN));
        let [mut of_bob, mut of_cy] = [BOB, CY].map(|user| waiting(&queue, user));
        assert!(queue.is_wanted());
        drop(held.remove(0));
        // Ann has one turn left, bob has one, and cy has none.
        let of_cy = given(&mut of_cy).expect("cy has none");
        drop(held.remove(0));
        let of_ann = given(&mut first).expect("ann has none, and asked before");
        drop(of_cy);
        assert!(given(&mut of_bob).is_none(), "ann asked before");
        let other = given(&mut second).expect("both have one");
        drop(of_ann);
        let of_bob = given(&mut of_bob).expect("nobody else waits");
        assert!(!queue.is_wanted());
        // They have all of them if nobody else wants one.
        drop((held, other, of_bob));
        let all: Vec<HeldTurn> = (0..3).map(|_| taken(&queue, ANN)).collect();
        drop(all);
        assert!(queue.state.lock().users.is_empty());
    }

    #[test]
    fn a_turn_that_is_passed_on_comes_back_in_its_order() {
        let queue = TurnQueue::new(1);
        let held = taken(&queue, ANN);
        let mut behind = waiting(&queue, ANN);
        assert!(!queue.is_owed_by(ANN), "ann's own queries are owed nothing");
        let mut of_bob = waiting(&queue, BOB);
        assert!(queue.is_owed_by(ANN) && !queue.is_owed_by(BOB));
        let mut passing: Asked = Box::pin(held.pass_on(End::Front));
        assert!(given(&mut passing).is_none());
        drop(given(&mut of_bob).expect("bob has none"));
        let held = given(&mut passing).expect("it waits before the others of its user");
        let mut passing: Asked = Box::pin(held.pass_on(End::Back));
        assert!(given(&mut passing).is_none());
        drop(given(&mut behind).expect("it has waited for longer"));
        let held = given(&mut passing).expect("nobody else waits");
        let mut passing: Asked = Box::pin(held.pass_on(End::Back));
        assert!(given(&mut passing).is_some(), "nobody wants it");
    }

    #[test]
    fn the_turn_of_who_has_given_up_is_for_others() {
        let queue = TurnQueue::new(1);
        let held = taken(&queue, ANN);
        let [gone, goes] = [(); 2].map(|()| waiting(&queue, BOB));
        let mut stays = waiting(&queue, BOB);
        drop(gone);
        drop(held);
        // It was given to this one, who does not look any more.
        drop(goes);
        drop(given(&mut stays).expect("it is free"));
        assert!(!queue.is_wanted() && queue.state.lock().users.is_empty());
        assert_eq!(queue.state.lock().free, 1);
    }
}
