//! What every replica does: where the log says so, it digests a slice of its own records.

use super::mark::{Answer, Mark};
use crate::message;
use crate::node_context::NodeContext;
use crate::stalled_writes;
use bytes::Bytes;
use serde::{Deserialize, Serialize};
use std::sync::Arc;
use tessera_consensus::GroupId;
use tessera_engine::{Applied, Digest, SliceDigest, mutation};
use tessera_store::Table;
use tessera_store::hosting::partition_of_group;
use tessera_types::NodeId;

/// Asks a replica to take part. Marks of other comparisons it passes over: those that it applies again after a restart have
/// been answered, or will not be waited for.
#[derive(Serialize, Deserialize)]
pub(super) struct TakePart {
    pub(super) group: u64,
    /// Zero when it is over.
    pub(super) comparison: u64,
}

/// Does what another node asked of the replica here. Returns whether there is such a partition.
pub(crate) fn take_part(context: &NodeContext, request: &[u8]) -> bool {
    serde_json::from_slice(request).is_ok_and(|request| take_part_here(context, &request))
}

pub(super) fn take_part_here(context: &NodeContext, TakePart { group, comparison }: &TakePart) -> bool {
    let Some((table, partition)) = partition_of_group(GroupId(*group)) else { return false };
    let table = context.registry.any(table);
    let state = table.as_ref().and_then(|table| table.partitions().get(partition as usize));
    state.inspect(|state| state.set_compared_by(*comparison)).is_some()
}

/// Applies entries of a partition up to the last one with a mark, and digests after each of these. Returns how many are
/// applied; fewer if the engine would wait.
///
/// The engine is told the index of each entry with a mark. An earlier index would do as long as the log has the entries; but a power
/// failure may take the end of a `soft` table's log and leave what RocksDB had flushed of it, with effects above its index. Entries
/// without a payload are not among `entries`. Where there are some, which is rare, no index is known but the last, and the marks are
/// passed over: what nobody answers is asked for again.
pub(crate) fn apply_marked(
    context: &Arc<NodeContext>,
    table: &Arc<Table>,
    entries: &Applied<'_>,
) -> Result<usize, String> {
    let Applied { partition, index: last, term, payloads } = *entries;
    let first = table.engine().applied_index(partition) + 1;
    if first + payloads.len() as u64 != last + 1 {
        return Ok(0);
    }
    let compared_by = table.partition(partition).compared_by();
    let mut done = 0;
    for (at, payload) in payloads.iter().enumerate() {
        let Some(content) = mutation::leading_mark(payload) else { continue };
        let Some(mark) = Mark::decode(Bytes::copy_from_slice(content)) else { continue };
        if mark.comparison != compared_by {
            continue;
        }
        // All are of one term: a leader's first entry has no payload.
        let entries = [Applied { partition, index: first + at as u64, term, payloads: &payloads[done..=at] }];
        if !stalled_writes::write(table, &entries, |engine, entries| engine.try_write(entries))? {
            break;
        }
        done = at + 1;
        digest(context, table, partition, mark);
    }
    Ok(done)
}

/// The digest of a slice that holds damaged records. It is equal to no other node's, whether that one's is sound or damaged too, so the
/// replica differs from all others, and is replaced if a majority of them agrees.
fn damaged(node: NodeId) -> SliceDigest {
    SliceDigest { records: 0, bytes: 0, hash: u128::MAX - u128::from(node.0), next: None, is_cut: false }
}

fn digest(context: &Arc<NodeContext>, table: &Arc<Table>, partition: u32, mark: Mark) {
    let Mark { node, comparison, number, slice } = mark;
    let own = context.clone();
    let answer = move |digest| own.send_digest(node, Answer { comparison, number, digest });
    let context = context.clone();
    if table.engine().is_damaged(partition) {
        return answer(Some(damaged(context.identity.node)));
    }
    match table.engine().digest(partition, &slice) {
        Digest::Done(digest) => answer(Some(digest)),
        later => {
            let name = table.name();
            let finish = move || {
                answer(later.finish().map_or_else(
                    |error| {
                        tracing::warn!(table = %name, partition, %error, "records cannot be compared");
                        error.is_damage().then(|| damaged(context.identity.node))
                    },
                    Some,
                ));
            };
            // It reads from the disk. Without a thread the slice is asked for again.
            let _ = std::thread::Builder::new().name("digest".into()).spawn(finish);
        }
    }
}

impl NodeContext {
    fn send_digest(&self, to: NodeId, answer: Answer) {
        if to == self.identity.node {
            self.comparisons.note_digest(to, answer);
        } else {
            self.transport.send(to, message::DIGEST, &[answer], Answer::encode);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::comparison::mark;
    use crate::test_node::TestNode;
    use bytes::BytesMut;
    use tessera_types::EngineKind;

    const COMPARISON: u64 = 7;

    /// The entries up to a mark were once written under the index of those before. After a power failure the records of a `soft`
    /// table could then be those of entries that no log had.
    #[tokio::test]
    #[cfg_attr(not(feature = "rocksdb"), ignore = "RocksDB is needed")]
    async fn the_records_at_a_mark_are_those_of_its_index() {
        let node = TestNode::start(|_| {});
        for (name, engine) in [("rocks", EngineKind::Rocksdb), ("memory", EngineKind::Memory)] {
            let table = node.create_table_in(name, 1, engine).await;
            table.partition(0).set_compared_by(COMPARISON);
            let slice = mark::slice(Bytes::new(), None);
            let mark = Mark { node: node.context.identity.node, comparison: COMPARISON, number: 0, slice };
            let mut marked = BytesMut::new();
            mutation::encode_mark(&mut marked, &mark.encode());
            let payloads = [Bytes::new(), marked.freeze(), Bytes::new()];
            let before = table.engine().applied_index(0);
            // One of four entries has no payload, and nobody knows which.
            let unknown = Applied { partition: 0, index: before + 4, term: 9, payloads: &payloads };
            assert_eq!(apply_marked(&node.context, &table, &unknown), Ok(0), "{name}");
            assert_eq!(table.engine().applied_index(0), before, "{name}");
            let known = Applied { index: before + 3, ..unknown };
            assert_eq!(apply_marked(&node.context, &table, &known), Ok(2), "{name}");
            assert_eq!(table.engine().applied_index(0), before + 2, "{name}");
        }
    }
}
