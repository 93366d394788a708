//! What nodes tell each other of the groups that they lead: those who hold no replica have no other way to know.

use crate::message;
use crate::node_context::NodeContext;
use bytes::{Buf, BufMut, Bytes, BytesMut};
use tessera_consensus::GroupId;
use tessera_store::Table;
use tessera_store::hosting::{Partition, group_of, partition_of_group};
use tessera_types::{NodeId, ReplicaId};

/// Appends to a message of [`message::LEADS`] that this node leads a partition, if it still does: `u64 group | u64 term | u32 incarnation of its replica`.
fn put_leader(message: &mut BytesMut, own: NodeId, table: &Table, partition: u32) {
    let (term, replica) = table.partition(partition).leader().replica();
    if replica.node != own {
        return; // it has been overtaken
    }
    message.put_u64_le(group_of(table.id(), partition).0);
    message.put_u64_le(term);
    message.put_u32_le(replica.incarnation);
}

impl NodeContext {
    /// Tells other nodes that this one leads a partition.
    pub(crate) fn tell_leads(&self, table: &Table, partition: u32) {
        let mut message = BytesMut::new();
        put_leader(&mut message, self.identity.node, table, partition);
        self.transport.broadcast(message::LEADS, &message);
    }

    pub(crate) fn on_leaders(&self, node: NodeId, mut payload: Bytes) {
        while let (Ok(group), Ok(term), Ok(incarnation)) =
            (payload.try_get_u64_le(), payload.try_get_u64_le(), payload.try_get_u32_le())
        {
            let Some((table, partition)) = partition_of_group(GroupId(group)) else { continue };
            if let Some(table) = self.registry.any(table)
                && let Some(state) = table.partitions().get(partition as usize)
            {
                state.leader().heard(term, ReplicaId { node, incarnation });
            }
        }
        self.leader_news.notify_waiters();
    }

    /// Tells another node, or all, which groups this one leads: those who hold no replica have no other way to know.
    pub(crate) fn tell_leading(&self, node: Option<NodeId>) {
        let payload = self.led_here();
        match node {
            _ if payload.is_empty() => {}
            Some(node) => self.transport.send(node, message::LEADS, &[payload], |payload, out| out.put_slice(payload)),
            None => self.transport.broadcast(message::LEADS, &payload),
        }
    }

    /// What others are told of the groups that this node leads.
    fn led_here(&self) -> BytesMut {
        let mut payload = BytesMut::new();
        for table in self.registry.open_tables() {
            // A partition that was sealed serves nothing, and is asked all the same what has become of transactions. Who has not heard of its
            // leader before would never know whom to ask.
            let is_told =
                |(_, state): &(u32, &Partition)| state.is_serving() || table.is_splitting() && state.is_leading();
            let led = (0..).zip(table.partitions()).filter(is_told);
            led.for_each(|(partition, _)| put_leader(&mut payload, self.identity.node, &table, partition));
        }
        payload
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::test_node::TestNode;
    use tessera_cluster::CatalogCommand;
    use tessera_types::UnixMillis;

    /// A node without a replica that had not heard of the leader could not end a transaction for which it had to ask that partition: the
    /// truncation hung for good.
    #[tokio::test]
    async fn who_leads_a_partition_that_is_sealed_is_told() {
        let node = TestNode::start(|_| {});
        for name in ["a", "b", "c", "d", "e", "f", "g", "h"] {
            let table = node.create_table(name, 1).await;
            let group = group_of(table.id(), 0).0.to_le_bytes();
            let is_told = || node.context.led_here().chunks(20).any(|told| told.starts_with(&group));
            let has_its_place = || node.context.registry.open_tables().iter().any(|open| open.id() == table.id());
            assert!(is_told());
            table.partition(0).stop_serving();
            assert!(!is_told(), "nobody needs to know");
            node.change(CatalogCommand::truncate(name, UnixMillis::new(u64::MAX >> 1))).await;
            if has_its_place() && is_told() && has_its_place() {
                return;
            }
            assert!(!has_its_place(), "it is being truncated");
        }
        panic!("each table was truncated before it could be looked at");
    }
}
