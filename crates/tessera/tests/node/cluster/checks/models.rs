//! Is there an order of calls on one thing that explains all answers, for anything whose steps can be told (a [`Model`])?
//!
//! All orders are followed side by side, from one end of a call to the next one: what is kept is every pair of a state
//! and the calls under way that it already reflects (Lowe, Testing for linearizability, Concurrency and Computation 29(4),
//! 2017). A call of unknown outcome stays under way for ever, and would double the pairs. Of pairs that differ in these alone,
//! those that have used up more of them are left out: whatever explains the rest for them explains it for the others too.

use std::collections::{HashMap, VecDeque};
use std::fmt::Debug;
use std::hash::Hash;

/// What a thing does when it is called.
pub trait Model: Clone + PartialEq + Debug {
    type State: Clone + Eq + Hash + Debug + Default;

    /// The state after the call, or `None` if nobody gets this answer in the state before.
    fn step(&self, state: &Self::State) -> Option<Self::State>;
}

#[derive(Clone, Debug)]
pub struct Call<M> {
    pub call: M,
    pub began: u64,
    /// `u64::MAX` if it is not known whether, or when, it took effect.
    pub ended: u64,
}

impl<M> Call<M> {
    fn is_known(&self) -> bool {
        self.ended != u64::MAX
    }
}

/// Most pairs that are followed side by side. More would need thousands of calls of unknown outcome at once.
const MOST_PAIRS: usize = 1 << 20;

/// So many calls are shown that had ended before one that nothing explains.
const SHOWN: usize = 16;

/// What some order of calls comes to: the state, and which of the known calls under way it reflects, in ascending order.
type Reached<M> = (<M as Model>::State, Vec<usize>);

/// Everything that can have been reached so far, each with the least sets of unknown calls that it takes.
struct Frontier<M: Model>(HashMap<Reached<M>, Vec<Vec<usize>>>);

impl<M: Model> Frontier<M> {
    /// Returns whether it is new.
    fn add(&mut self, reached: Reached<M>, used: Vec<usize>) -> bool {
        let contains = |larger: &[usize], smaller: &[usize]| smaller.iter().all(|one| larger.contains(one));
        let all = self.0.entry(reached).or_default();
        if all.iter().any(|other| contains(&used, other)) {
            return false;
        }
        all.retain(|other| !contains(other, &used));
        all.push(used);
        true
    }

    fn len(&self) -> usize {
        self.0.values().map(Vec::len).sum()
    }

    fn pairs(&self) -> Vec<(Reached<M>, Vec<usize>)> {
        let pairs =
            self.0.iter().flat_map(|(reached, all)| all.iter().map(move |used| (reached.clone(), used.clone())));
        pairs.collect()
    }
}

/// # Errors
/// The first answer that nothing explains.
pub fn check<M: Model>(calls: &[Call<M>]) -> Result<(), String> {
    let mut moments: Vec<(u64, bool, usize)> = Vec::new();
    for (at, call) in calls.iter().enumerate() {
        moments.push((call.began, false, at));
        if call.is_known() {
            moments.push((call.ended, true, at));
        }
    }
    moments.sort_unstable();
    let mut under_way: Vec<usize> = Vec::new();
    let mut unknown: Vec<usize> = Vec::new();
    let mut frontier = Frontier::<M>(HashMap::new());
    frontier.add((M::State::default(), Vec::new()), Vec::new());
    for (_, is_end, at) in moments {
        if !is_end {
            if calls[at].is_known() {
                under_way.push(at)
            } else {
                unknown.push(at)
            }
            continue;
        }
        let next = until_it_happened(calls, &frontier, &under_way, &unknown, at)?;
        if next.0.is_empty() {
            let states: Vec<_> = frontier.0.keys().map(|(state, _)| state).take(8).collect();
            let beside: Vec<_> = under_way.iter().filter(|other| **other != at).map(|at| &calls[*at]).collect();
            let mut earlier: Vec<_> = calls.iter().filter(|call| call.ended < calls[at].ended).collect();
            earlier.sort_by_key(|call| call.ended);
            let earlier = &earlier[earlier.len().saturating_sub(SHOWN)..];
            return Err(format!(
                "nothing explains {:?}; before it there were {states:?}; under way were {beside:?} and {} of unknown outcome; \
                 the last ones that had ended were {earlier:?}",
                calls[at],
                unknown.len()
            ));
        }
        frontier = next;
        under_way.retain(|other| *other != at);
    }
    Ok(())
}

/// All that can be reached in which a call that ends now has happened. It is forgotten there: it is under way no more.
fn until_it_happened<M: Model>(
    calls: &[Call<M>],
    frontier: &Frontier<M>,
    under_way: &[usize],
    unknown: &[usize],
    ends: usize,
) -> Result<Frontier<M>, String> {
    let mut seen = Frontier::<M>(HashMap::new());
    let mut done = Frontier::<M>(HashMap::new());
    // Those with few unknown calls come first, so that they stand for those with more.
    let mut todo = VecDeque::from(frontier.pairs());
    while let Some(((state, happened), used)) = todo.pop_front() {
        if happened.contains(&ends) {
            let rest = happened.into_iter().filter(|one| *one != ends).collect();
            done.add((state, rest), used);
            continue;
        }
        if !seen.add((state.clone(), happened.clone()), used.clone()) {
            continue;
        }
        if seen.len() + done.len() > MOST_PAIRS {
            return Err(format!("more than {MOST_PAIRS} ways to explain it: the checker cannot tell"));
        }
        for at in under_way.iter().filter(|at| !happened.contains(at)) {
            if let Some(next) = calls[*at].call.step(&state) {
                let mut happened = happened.clone();
                let place = happened.partition_point(|one| one < at);
                happened.insert(place, *at);
                todo.push_back(((next, happened), used.clone()));
            }
        }
        let mut tried: Vec<&M> = Vec::new();
        for at in unknown.iter().filter(|at| !used.contains(at)) {
            // Of those that are alike it does not matter which one it was.
            let call = &calls[*at].call;
            if tried.contains(&call) {
                continue;
            }
            tried.push(call);
            if let Some(next) = call.step(&state).filter(|next| *next != state) {
                let mut used = used.clone();
                used.push(*at);
                todo.push_back(((next, happened.clone()), used));
            }
        }
    }
    Ok(done)
}
