//! Writes that belong together: what becomes of each document is computed here from what it was, and its partition compares. Those that
//! were overtaken are computed anew.

use crate::tables::{damaged, decoded, failed};
use crate::work::{Reply, Taken, WriteWork};
use crate::write::{DocumentWrite, encoded, refused};
use bytes::Bytes;
use std::collections::{BTreeMap, BTreeSet};
use tessera_document::Value;
use tessera_reql::{Change, Env, Error, ErrorKind, Result, Write, Written};
use tessera_types::RequestError;

/// Documents that are written at once are so long together, but for the last one.
const BYTES_AT_ONCE: usize = 8 << 20;

/// How often a write is computed anew because others were faster. One of all those who try succeeds each time.
const WRITE_TRIES: usize = 1000;

/// Where the documents are.
pub(crate) trait Documents {
    /// What documents are now.
    fn read(&self, keys: Vec<Bytes>) -> Result<Vec<Option<Bytes>>>;

    /// What a partition is asked for a document to take the place of another one; each comes as a value and as bytes.
    ///
    /// # Errors
    /// If the functions of indexes were interrupted.
    fn work(&self, key: &Bytes, old: (&Value, Option<Bytes>), new: (&Value, Option<Bytes>)) -> Result<DocumentWrite>;

    /// Sends writes, each one to be carried out for itself; what `claiming` has change unique keys. Returns replies with the places of the writes;
    /// those without one are to be made again.
    fn send(
        &mut self,
        work: Vec<(usize, WriteWork)>,
        claiming: Vec<(usize, DocumentWrite)>,
    ) -> Result<Vec<(usize, Reply)>>;

    /// What a document is told that cannot have a key of a unique index.
    fn duplicate(&self, taken: &Taken) -> Result<Error>;

    /// Removes documents that have ended.
    fn remove_ended(&self, keys: Vec<Bytes>) -> Result<()>;

    /// Takes note of the list of indexes of a document's partition.
    fn learn(&self, key: &Bytes, list: &Bytes) -> Result<()>;
}

pub(crate) struct WriteBatch<'a> {
    env: &'a Env,
    primary_key: &'a str,
    writes: Vec<Write>,
    /// The documents' keys.
    keys: Vec<Bytes>,
    /// What the documents are, or are taken for.
    there: Vec<Option<Bytes>>,
    /// Whether that was read, and not assumed.
    is_known: Vec<bool>,
    /// What became of those that are done.
    written: Vec<Option<Written>>,
}

impl<'a> WriteBatch<'a> {
    pub(crate) fn new(env: &'a Env, primary_key: &'a str, writes: Vec<Write>, keys: Vec<Bytes>) -> Self {
        let (there, is_known) = (vec![None; writes.len()], vec![false; writes.len()]);
        let written = writes.iter().map(|_| None).collect();
        Self { env, primary_key, writes, keys, there, is_known, written }
    }

    /// Carries out the writes, each one atomically; answers them in the order given.
    ///
    /// # Errors
    /// Why it ends before. Where some are written this does not say that nothing was done.
    pub(crate) fn carry_out(mut self, documents: &mut impl Documents) -> Result<Vec<Written>> {
        match self.go(documents) {
            Ok(()) => Ok(self.written.into_iter().flatten().collect()),
            Err(error) => Err(self.unless_written(error)),
        }
    }

    fn unless_written(&self, error: Error) -> Error {
        let is_written = |written: &Written| written.error.is_none() && written.old != written.new;
        match error.kind() {
            ErrorKind::OpFailed if self.written.iter().flatten().any(is_written) => failed(&RequestError::Interrupted),
            _ => error,
        }
    }

    fn go(&mut self, documents: &mut impl Documents) -> Result<()> {
        // What is inserted is mostly not there; a comparison that fails tells what is.
        if !self.writes.iter().all(|write| matches!(write.change, Change::Insert { .. })) {
            self.there = documents.read(self.keys.clone())?;
            self.is_known.fill(true);
        }
        let mut tries = WRITE_TRIES;
        while tries > 0 {
            let left = self.left();
            self.round(documents)?;
            match self.left() {
                0 => return Ok(()),
                now if now < left => tries = WRITE_TRIES,
                _ => tries -= 1,
            }
            self.env.step()?;
        }
        Err(Error::failed("Cannot perform write: others change the document all the time."))
    }

    /// How many are not done.
    fn left(&self) -> usize {
        self.written.iter().filter(|written| written.is_none()).count()
    }

    /// Sends those that are not done, as many as may be written at once, and notes what became of them.
    fn round(&mut self, documents: &mut impl Documents) -> Result<()> {
        let (mut work, mut claiming) = (Vec::new(), Vec::new());
        let mut under_way = BTreeMap::new();
        let (mut in_turn, mut waiting, mut bytes) = (BTreeSet::new(), Vec::new(), 0);
        for (at, write) in self.writes.iter().enumerate() {
            if bytes >= BYTES_AT_ONCE {
                break;
            }
            if self.written[at].is_some() {
                continue;
            }
            let key = &self.keys[at];
            // Of several writes of one document, each one is computed from what the one before it has made.
            if !in_turn.insert(key) {
                self.is_known[at] = false;
                waiting.push(at);
                continue;
            }
            let old = decoded(self.there[at].as_ref())?;
            let new = match write.apply(self.env, self.primary_key, &old) {
                Ok(new) => new,
                Err(error) if error.kind() == ErrorKind::Interrupted => return Err(error),
                // Only what was read counts: an assumption is looked at first.
                Err(error) if self.is_known[at] => {
                    self.written[at] = Some(Written { old, new: Value::Null, error: Some(error) });
                    continue;
                }
                Err(_) => {
                    self.there[at] = documents.read(vec![key.clone()])?.pop().flatten();
                    self.is_known[at] = true;
                    continue;
                }
            };
            let new_bytes = encoded(&new);
            if self.is_known[at] && new_bytes == self.there[at] && write.lifetime.is_nothing(new_bytes.is_some()) {
                self.written[at] = Some(Written { old, new, error: None });
                continue;
            }
            bytes += new_bytes.as_ref().map_or(0, Bytes::len);
            let mut asked = documents.work(key, (&old, self.there[at].clone()), (&new, new_bytes))?;
            asked.work.lifetime = write.lifetime;
            match asked.claims.is_empty() {
                true => work.push((at, asked.work)),
                false => claiming.push((at, asked)),
            }
            under_way.insert(at, (old, new));
        }
        let (done, others): (Vec<_>, Vec<_>) =
            documents.send(work, claiming)?.into_iter().partition(|(_, reply)| matches!(reply, Reply::Written));
        // First, so that they count if something goes wrong with another one.
        for (at, _) in done {
            let Some((old, new)) = under_way.remove(&at) else { continue };
            if let Some(next) = waiting.iter().find(|next| self.keys[**next] == self.keys[at]) {
                self.there[*next] = encoded(&new);
            }
            self.written[at] = Some(Written { old, new, error: None });
        }
        let mut ended = Vec::new();
        for (at, reply) in others {
            let Some((old, _)) = under_way.remove(&at) else { continue };
            match reply {
                Reply::Differs(found) => {
                    self.there[at] = found;
                    self.is_known[at] = true;
                }
                Reply::Refused(reason) => self.written[at] = Some(refused(old, &reason)),
                Reply::Taken(taken) => {
                    let error = Some(documents.duplicate(&taken)?);
                    self.written[at] = Some(Written { old, new: Value::Null, error });
                }
                Reply::Ended(key) => ended.push(key),
                Reply::List(list) => documents.learn(&self.keys[at], &list)?,
                _ => return Err(damaged()),
            }
        }
        if ended.is_empty() { Ok(()) } else { documents.remove_ended(ended) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tables::key_of;
    use std::sync::Arc;
    use tessera_reql::{Conflict, Lifetime, Stop};
    use tessera_types::Space;

    /// Partitions that answer writes as a test says, and nothing else.
    struct Scripted<F>(F);

    impl<F: FnMut(&WriteWork) -> Reply> Documents for Scripted<F> {
        fn read(&self, _: Vec<Bytes>) -> Result<Vec<Option<Bytes>>> {
            Err(no_leader())
        }

        fn work(
            &self,
            key: &Bytes,
            old: (&Value, Option<Bytes>),
            new: (&Value, Option<Bytes>),
        ) -> Result<DocumentWrite> {
            let work = WriteWork { old: old.1, new: new.1, ..WriteWork::comparison(key.clone(), None) };
            Ok(work.into())
        }

        fn send(
            &mut self,
            work: Vec<(usize, WriteWork)>,
            claiming: Vec<(usize, DocumentWrite)>,
        ) -> Result<Vec<(usize, Reply)>> {
            assert!(claiming.is_empty());
            Ok(work.into_iter().map(|(at, work)| (at, (self.0)(&work))).collect())
        }

        fn duplicate(&self, _: &Taken) -> Result<Error> {
            Err(no_leader())
        }

        fn remove_ended(&self, _: Vec<Bytes>) -> Result<()> {
            Err(no_leader())
        }

        fn learn(&self, _: &Bytes, _: &Bytes) -> Result<()> {
            Ok(())
        }
    }

    fn no_leader() -> Error {
        failed(&RequestError::NotReady)
    }

    fn key(id: i32) -> Bytes {
        key_of(&Value::from(id)).unwrap()
    }

    fn document(id: i32, n: i32) -> Value {
        Value::object([("id", Value::from(id)), ("n", Value::from(n))]).unwrap()
    }

    /// How a batch ends that inserts documents with these keys.
    fn end(ids: &[i32], conflict: &Conflict, answer: impl FnMut(&WriteWork) -> Reply) -> ErrorKind {
        let env = Env::for_functions(Arc::new(Stop::default()), Value::Null);
        let insert = |id: &i32| Write {
            key: Value::from(*id),
            change: Change::Insert { document: document(*id, 1), conflict: conflict.clone() },
            hook: None,
            lifetime: Lifetime::Kept,
        };
        let (writes, keys) = (ids.iter().map(insert).collect(), ids.iter().map(|id| key(*id)).collect());
        WriteBatch::new(&env, "id", writes, keys).carry_out(&mut Scripted(answer)).unwrap_err().kind()
    }

    fn taken() -> Reply {
        Reply::Taken(Taken { space: Space(16), key: Bytes::new(), holder: Bytes::new() })
    }

    const UNDONE: ErrorKind = ErrorKind::OpFailed;
    const UNCERTAIN: ErrorKind = ErrorKind::OpIndeterminate;

    #[test]
    fn a_document_that_cannot_be_read_before_its_second_write_does_not_undo_the_first() {
        // The second insert would fail if the document is there, so it is read.
        assert_eq!(end(&[1, 1], &Conflict::Error, |_| Reply::Written), UNCERTAIN);
    }

    #[test]
    fn a_key_whose_holder_cannot_be_told_does_not_undo_what_is_written() {
        let taken_is = |id| move |work: &WriteWork| if work.key == key(id) { taken() } else { Reply::Written };
        assert_eq!(end(&[1, 2], &Conflict::Error, taken_is(2)), UNCERTAIN);
        // Also what is told behind it.
        assert_eq!(end(&[1, 2], &Conflict::Error, taken_is(1)), UNCERTAIN);
        assert_eq!(end(&[1], &Conflict::Error, taken_is(1)), UNDONE);
    }

    #[test]
    fn a_document_that_others_change_all_the_time_does_not_undo_what_is_written() {
        let mut sent = 0;
        let mut changed = |work: &WriteWork| {
            if work.key == key(1) {
                return Reply::Written;
            }
            sent += 1;
            Reply::Differs(encoded(&document(2, 2 + sent)))
        };
        assert_eq!(end(&[1, 2], &Conflict::Replace, &mut changed), UNCERTAIN);
        assert_eq!(end(&[2], &Conflict::Replace, &mut changed), UNDONE);
        // The first round of the first batch had one write more, and counts as one that got on.
        assert_eq!(sent as usize, 2 * WRITE_TRIES + 1);
    }

    #[test]
    fn documents_that_have_ended_and_cannot_be_removed_do_not_undo_what_is_written() {
        let ended = |work: &WriteWork| match work.key == key(2) {
            true => Reply::Ended(key(2)),
            false => Reply::Written,
        };
        assert_eq!(end(&[1, 2], &Conflict::Error, ended), UNCERTAIN);
        assert_eq!(end(&[2], &Conflict::Error, ended), UNDONE);
    }
}
