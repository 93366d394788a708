//! Is there an order of transactions that explains what each of them saw, and that agrees with time? Each transaction appends
//! elements, of which no two are the same, to lists, and reads lists.
//!
//! A list tells in which order its elements were appended, so what is read tells which transaction depends on which one (Kingsbury
//! and Alvaro, Elle, PVLDB 14(3), 2020). There is no order if transactions depend on each other in a cycle. Anomalies have the names of
//! Adya's thesis (1999), with `-realtime` behind it if the cycle has an edge that only time makes: one transaction had ended
//! before another one began.

use super::graphs::{Graph, Path};
use std::collections::{BTreeMap, HashMap, HashSet};
use std::fmt;

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Operation {
    Append {
        list: u64,
        element: u64,
        /// How many elements there were with it, as it was answered.
        place: Option<usize>,
    },
    Read {
        list: u64,
        elements: Vec<u64>,
    },
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    Committed,
    /// It was not done, and will not be.
    Aborted,
    /// It may have been done, or may be yet, in whole or not at all.
    Unknown,
}

/// One that is not committed has no reads.
#[derive(Clone, Debug)]
pub struct Transaction {
    pub operations: Vec<Operation>,
    pub outcome: Outcome,
    pub began: u64,
    /// `u64::MAX` if it is not known when it took effect.
    pub ended: u64,
}

/// Shortest cycles are looked for from so many places. Where there are more, a shorter one may be missed.
const TRIED: usize = 500;

/// So many elements of a list are shown, the last ones.
const SHOWN: usize = 8;

impl fmt::Display for Transaction {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { operations, outcome, began, ended } = self;
        write!(f, "[{outcome:?}, {began} to {ended}:")?;
        for operation in operations {
            match operation {
                Operation::Append { list, element, place } => write!(f, " append {element} to {list} ({place:?})")?,
                Operation::Read { list, elements } => {
                    let last = &elements[elements.len().saturating_sub(SHOWN)..];
                    write!(f, " read {list}: {} elements, the last ones {last:?}", elements.len())?;
                }
            }
        }
        f.write_str("]")
    }
}

/// # Errors
/// The anomaly, by its name, and what shows it.
pub fn check(transactions: &[Transaction]) -> Result<(), String> {
    let writers = writers(transactions)?;
    let mut history = History { transactions, writers, orders: BTreeMap::new(), reads: Vec::new() };
    for at in 0..transactions.len() {
        history.follow(at)?;
    }
    history.check_orders()?;
    history.check_reads()?;
    Cycles { graph: history.graph(), transactions }.check()
}

/// Who appended an element.
#[derive(Clone, Copy)]
struct Writer {
    transaction: usize,
    list: u64,
    /// Whether it is the last one that the transaction appended to the list.
    is_last: bool,
}

fn writers(transactions: &[Transaction]) -> Result<HashMap<u64, Writer>, String> {
    let mut writers = HashMap::new();
    for (transaction, of) in transactions.iter().enumerate() {
        let mut lists = HashSet::new();
        for operation in of.operations.iter().rev() {
            let Operation::Append { list, element, .. } = *operation else { continue };
            let writer = Writer { transaction, list, is_last: lists.insert(list) };
            if writers.insert(element, writer).is_some() {
                return Err(format!("element {element} was appended twice by those who made the history"));
            }
        }
    }
    Ok(writers)
}

/// What a transaction found in a list before it appended to it.
struct ExternalRead<'a> {
    reader: usize,
    list: u64,
    elements: &'a [u64],
}

struct History<'a> {
    transactions: &'a [Transaction],
    /// By their elements.
    writers: HashMap<u64, Writer>,
    /// The most that was seen in each list.
    orders: BTreeMap<u64, &'a [u64]>,
    reads: Vec<ExternalRead<'a>>,
}

impl<'a> History<'a> {
    /// Goes through the operations of one transaction, each of which must see those before it.
    fn follow(&mut self, at: usize) -> Result<(), String> {
        let transaction = &self.transactions[at];
        let fail = |what: &str| Err(format!("internal: {what} in {transaction}"));
        let mut own: HashMap<u64, Vec<u64>> = HashMap::new();
        let mut found: HashMap<u64, &[u64]> = HashMap::new();
        let mut lengths: HashMap<u64, usize> = HashMap::new();
        for operation in &transaction.operations {
            let (list, length) = match operation {
                Operation::Append { list, element, place } => {
                    own.entry(*list).or_default().push(*element);
                    (list, *place)
                }
                Operation::Read { list, elements } => {
                    let own = own.get(list).map_or(&[][..], Vec::as_slice);
                    let Some(before) = elements.strip_suffix(own) else {
                        return fail("a read lacks what was appended before it");
                    };
                    found.insert(*list, before);
                    let longest = self.orders.entry(*list).or_default();
                    if longest.len() < elements.len() {
                        *longest = elements;
                    }
                    (list, Some(elements.len()))
                }
            };
            let Some(length) = length else { continue };
            let Some(before) = length.checked_sub(own.get(list).map_or(0, Vec::len)) else {
                return fail("an append is where no place is");
            };
            if lengths.insert(*list, before).is_some_and(|earlier| earlier != before) {
                return fail("a list was changed by others");
            }
        }
        let reads = found.into_iter().map(|(list, elements)| ExternalRead { reader: at, list, elements });
        self.reads.extend(reads);
        Ok(())
    }

    /// Each element is there once, was appended there by a transaction that was not aborted, and is where that one was told.
    fn check_orders(&self) -> Result<(), String> {
        for (list, order) in &self.orders {
            let mut seen = HashSet::new();
            for element in *order {
                if !seen.insert(element) {
                    return Err(format!("element {element} is twice in list {list}"));
                }
                let writer = self.writers.get(element).filter(|writer| writer.list == *list);
                let Some(writer) = writer else {
                    return Err(format!("element {element} is in list {list}, and nobody appended it there"));
                };
                let writer = &self.transactions[writer.transaction];
                if writer.outcome == Outcome::Aborted {
                    return Err(format!(
                        "G1a: element {element} of an aborted transaction is in list {list}: {writer}"
                    ));
                }
            }
        }
        for transaction in self.transactions {
            for operation in &transaction.operations {
                let Operation::Append { list, element, place: Some(place) } = operation else { continue };
                let there = self.order(*list).get(place - 1);
                if there.is_some_and(|there| there != element) {
                    return Err(format!("element {there:?} is at place {place} of list {list}: {transaction}"));
                }
            }
        }
        Ok(())
    }

    /// Each read is of some time of its list, and of none within another transaction.
    fn check_reads(&self) -> Result<(), String> {
        let operations = self.transactions.iter().flat_map(|of| of.operations.iter().map(move |one| (of, one)));
        for (reader, operation) in operations {
            let Operation::Read { list, elements } = operation else { continue };
            let order = self.order(*list);
            if let Some(at) = elements.iter().zip(order).position(|(one, other)| one != other) {
                let (one, other) = (elements[at], order[at]);
                return Err(format!("list {list} was seen with {one} at place {}, and with {other}: {reader}", at + 1));
            }
        }
        for read in &self.reads {
            let last = read.elements.last().map(|last| self.writers[last]);
            if let Some(writer) = last.filter(|writer| !writer.is_last && writer.transaction != read.reader) {
                let (writer, reader) = (&self.transactions[writer.transaction], &self.transactions[read.reader]);
                return Err(format!("G1b: {reader} saw list {} in the middle of {writer}", read.list));
            }
        }
        Ok(())
    }

    fn order(&self, list: u64) -> &'a [u64] {
        self.orders.get(&list).copied().unwrap_or_default()
    }

    /// Who depends on whom. The first nodes are the transactions.
    fn graph(&self) -> Graph<Edge> {
        let mut graph = Graph::new(2 * self.transactions.len());
        let writer = |element: &u64| self.writers[element].transaction;
        let took_effect = self.that_took_effect();
        // Elements that nobody saw come after all that were seen.
        let seen: HashSet<u64> = self.orders.values().flat_map(|order| order.iter().copied()).collect();
        let mut unseen: HashMap<u64, Vec<usize>> = HashMap::new();
        for (_, writer) in self.writers.iter().filter(|(element, _)| !seen.contains(element)) {
            if took_effect.contains(&writer.transaction) {
                unseen.entry(writer.list).or_default().push(writer.transaction);
            }
        }
        let after_all = |list: u64| unseen.get(&list).map_or(&[][..], Vec::as_slice);
        for (list, order) in &self.orders {
            let edge = Edge { kind: Kind::Write, list: *list };
            order.windows(2).for_each(|pair| graph.add(writer(&pair[0]), writer(&pair[1]), edge));
            if let Some(last) = order.last() {
                after_all(*list).iter().for_each(|to| graph.add(writer(last), *to, edge));
            }
        }
        for ExternalRead { reader, list, elements } in &self.reads {
            if let Some(last) = elements.last() {
                graph.add(writer(last), *reader, Edge { kind: Kind::Read, list: *list });
            }
            let edge = Edge { kind: Kind::Overwrite, list: *list };
            match self.order(*list).get(elements.len()) {
                Some(next) => graph.add(*reader, writer(next), edge),
                None => after_all(*list).iter().for_each(|to| graph.add(*reader, *to, edge)),
            }
        }
        self.add_time(&mut graph, &took_effect);
        graph
    }

    /// Those that are committed, and those of unknown outcome of which something was seen.
    fn that_took_effect(&self) -> HashSet<usize> {
        let is_committed = |at: &usize| self.transactions[*at].outcome == Outcome::Committed;
        let committed = (0..self.transactions.len()).filter(is_committed);
        let seen = self.orders.values().flat_map(|order| order.iter().map(|element| self.writers[element].transaction));
        committed.chain(seen).collect()
    }

    /// The nodes behind the transactions are the moments at which transactions end, one after the other, so that a few edges say what
    /// would else need one for each pair.
    fn add_time(&self, graph: &mut Graph<Edge>, took_effect: &HashSet<usize>) {
        let edge = Edge { kind: Kind::Time, list: 0 };
        let first = self.transactions.len();
        let known = took_effect.iter().filter(|at| self.transactions[**at].ended != u64::MAX);
        let mut ends: Vec<(u64, usize)> = known.map(|at| (self.transactions[*at].ended, *at)).collect();
        ends.sort_unstable();
        for (moment, (_, at)) in (first..).zip(&ends) {
            graph.add(*at, moment, edge);
            if moment > first {
                graph.add(moment - 1, moment, edge);
            }
        }
        for at in took_effect {
            let before = ends.partition_point(|(ended, _)| *ended < self.transactions[*at].began);
            if before > 0 {
                graph.add(first + before - 1, *at, edge);
            }
        }
    }
}

/// Why one transaction comes before another one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    /// The other one appended after it.
    Write,
    /// The other one saw what it appended.
    Read,
    /// It did not see what the other one appended.
    Overwrite,
    /// It had ended before the other one began.
    Time,
}

#[derive(Clone, Copy, Debug)]
struct Edge {
    kind: Kind,
    list: u64,
}

struct Cycles<'a> {
    graph: Graph<Edge>,
    transactions: &'a [Transaction],
}

impl Cycles<'_> {
    /// The gravest anomaly is looked for first.
    fn check(&self) -> Result<(), String> {
        let kinds = [("G0", &[Kind::Write][..]), ("G1c", &[Kind::Write, Kind::Read])];
        for times in [&[][..], &[Kind::Time]] {
            for (name, kinds) in kinds {
                let kinds = [kinds, times].concat();
                self.find(&kinds).map_or(Ok(()), |cycle| Err(self.tell(name, &cycle)))?;
            }
            let kinds = [&[Kind::Write, Kind::Read], times].concat();
            if let Some((name, cycle)) = self.find_overwriting(&kinds) {
                return Err(self.tell(name, &cycle));
            }
        }
        Ok(())
    }

    fn find(&self, kinds: &[Kind]) -> Option<Path<Edge>> {
        let follows = |edge: Edge| kinds.contains(&edge.kind);
        let component = self.graph.components(follows).into_iter().min_by_key(Vec::len)?;
        component
            .iter()
            .take(TRIED)
            .filter_map(|node| self.graph.shortest_path(*node, *node, follows))
            .min_by_key(Vec::len)
    }

    /// A cycle of edges of these kinds and of one or more overwrites.
    fn find_overwriting(&self, kinds: &[Kind]) -> Option<(&'static str, Path<Edge>)> {
        let follows = |edge: Edge| kinds.contains(&edge.kind);
        let with_overwrites = [kinds, &[Kind::Overwrite]].concat();
        let component =
            self.graph.components(|edge| with_overwrites.contains(&edge.kind)).into_iter().min_by_key(Vec::len)?;
        let edges = self.graph.edges_within(&component).into_iter();
        let overwrites = edges.filter(|(_, _, edge)| edge.kind == Kind::Overwrite);
        let back = overwrites.take(TRIED).filter_map(|(from, to, edge)| {
            let mut path = self.graph.shortest_path(to, from, follows)?;
            path.insert(0, (from, edge));
            Some(path)
        });
        let Some(cycle) = back.min_by_key(Vec::len) else { return Some(("G2-item", self.find(&with_overwrites)?)) };
        match cycle[..] {
            [(_, one), (_, Edge { kind: Kind::Write, list })] if one.list == list => Some(("lost update", cycle)),
            _ => Some(("G-single", cycle)),
        }
    }

    fn tell(&self, name: &str, cycle: &[(usize, Edge)]) -> String {
        let is_by_time = cycle.iter().any(|(_, edge)| edge.kind == Kind::Time);
        let mut text = format!("{name}{}:", if is_by_time { "-realtime" } else { "" });
        for (at, Edge { kind, list }) in cycle {
            // Between two transactions may be any number of moments.
            let Some(transaction) = self.transactions.get(*at) else { continue };
            let why = match kind {
                Kind::Write => format!("whose element of list {list} is before that of"),
                Kind::Read => format!("whose element of list {list} was seen by"),
                Kind::Overwrite => format!("which did not see in list {list} the element of"),
                Kind::Time => "which had ended before there began".into(),
            };
            text += &format!("\n  {transaction}, {why}");
        }
        text + "\n  the first one"
    }
}

#[cfg(test)]
mod tests;
