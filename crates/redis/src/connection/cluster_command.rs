//! CLUSTER: tells clients that know Redis Cluster where slots are, so that they go straight to the leader. Nobody has to:
//! every node answers every command, unless a connection asks to be told where to go.

use super::Connection;
use super::frame::OwnedFrame;
use crate::commands::CommandError;
use crate::resp::Reply;
use std::fmt::Write;
use std::ops::RangeInclusive;
use tessera_cluster::NodeEntry;
use tessera_store::{Leader, Table};
use tessera_types::{NodeId, Partitioner, REDIS_SLOTS, redis_slot};

/// The slots of a partition; none if there are more partitions than slots.
fn slots_of(partition: u32, partitions: u32) -> Option<RangeInclusive<u32>> {
    let first = |partition: u32| (partition * u32::from(REDIS_SLOTS)).div_ceil(partitions);
    let (first, next) = (first(partition), first(partition + 1));
    (first < next).then(|| first..=next - 1)
}

/// A node with its name in Redis' form.
type NamedNode = (String, NodeEntry);

/// Host and port of an address.
fn host_and_port(node: &NodeEntry) -> (&str, i64) {
    let (host, port) = node.site.redis.rsplit_once(':').unwrap_or((&node.site.redis, "0"));
    (host.trim_matches(['[', ']']), port.parse().unwrap_or(0))
}

impl Connection {
    pub(super) fn cluster(&mut self, args: &[&[u8]]) -> Result<(), CommandError> {
        let which = args[1].to_ascii_lowercase();
        if which == b"redirects" {
            return self.choose_redirects(args);
        }
        if which == b"keyslot" {
            let [_, _, key] = args else { return Err(CommandError::arity("cluster|keyslot")) };
            self.reply().integer(i64::from(redis_slot(key)));
            return Ok(());
        }
        let Some(table) = self.session.table() else { return Err(CommandError::NO_TABLE) };
        if table.schema().partitioner != Partitioner::RedisSlots {
            // What Redis says; clients then treat the server as a single one, which is right.
            return Err(CommandError::text("ERR This instance has cluster support disabled"));
        }
        match &which[..] {
            b"info" => self.cluster_info(&table),
            b"myid" => {
                let id = self.redis_id(self.server.store.node());
                self.reply().bulk(id.as_bytes());
            }
            b"slots" => self.cluster_slots(&table),
            b"shards" => self.cluster_shards(&table),
            b"nodes" => self.cluster_nodes(&table),
            _ => return Err(super::server_commands::unknown_subcommand_named("CLUSTER", args[1])),
        }
        Ok(())
    }

    /// Forty hexadecimal digits, as in Redis.
    fn redis_id(&self, node: NodeId) -> String {
        format!("{}{:08x}", self.server.store.cluster(), node.0)
    }

    fn cluster_info(&mut self, table: &Table) {
        let partitions = table.schema().partitions;
        let led =
            (0..partitions).filter(|partition| self.server.store.live_leader(table, *partition).is_some()).count();
        let state = if led == partitions as usize { "ok" } else { "fail" };
        let nodes = self.server.store.catalog().nodes().count();
        let text = format!(
            "cluster_enabled:1\r\ncluster_state:{state}\r\ncluster_slots_assigned:{REDIS_SLOTS}\r\n\
             cluster_known_nodes:{nodes}\r\ncluster_size:{nodes}\r\n"
        );
        self.reply().bulk(text.as_bytes());
    }

    /// CLUSTER REDIRECTS: whether keys that other nodes lead are answered with MOVED on this connection.
    fn choose_redirects(&mut self, args: &[&[u8]]) -> Result<(), CommandError> {
        match args {
            [_, _] => {
                let text: &[u8] = if self.session.wants_redirects { b"on" } else { b"off" };
                self.reply().bulk(text);
            }
            [_, _, word] if word.eq_ignore_ascii_case(b"on") || word.eq_ignore_ascii_case(b"off") => {
                self.session.wants_redirects = word.eq_ignore_ascii_case(b"on");
                self.reply().ok();
            }
            _ => return Err(CommandError::text("ERR CLUSTER REDIRECTS takes on or off")),
        }
        Ok(())
    }

    /// The error that sends a client who wants that to the node that leads all of a command's keys.
    pub(super) fn redirection(&self, table: &Table, frame: &OwnedFrame, parts: &[(u32, OwnedFrame)]) -> Option<String> {
        let [(partition, _)] = parts else { return None };
        if !self.session.wants_redirects || table.schema().partitioner != Partitioner::RedisSlots {
            return None;
        }
        let Leader::Node(node) = table.leader_of(*partition) else { return None };
        let args = frame.arguments();
        let command = crate::commands::find(args[0])?;
        let slot = redis_slot(args[command.key_positions(args.len()).next()?]);
        let catalog = self.server.store.catalog();
        let (host, port) = host_and_port(catalog.node(node)?);
        Some(format!("MOVED {slot} {host}:{port}"))
    }

    /// For each range of slots, the node that leads it and those that hold replicas, each with its name.
    fn holders(&self, table: &Table) -> Vec<(RangeInclusive<u32>, Vec<NamedNode>)> {
        let catalog = self.server.store.catalog();
        let Some(entry) = catalog.get(table.id()) else { return Vec::new() };
        let partitions = table.schema().partitions;
        let holders = (0..partitions).zip(&entry.placement).filter_map(|(partition, placement)| {
            let leader = table.known_leader(partition)?;
            let members = placement.current.iter().filter(|replica| !replica.is_witness());
            let others = members.map(|replica| replica.node).filter(|node| *node != leader);
            let nodes = std::iter::once(leader).chain(others).filter_map(|node| catalog.node(node).cloned());
            let named = nodes.map(|node| (self.redis_id(node.id), node));
            Some((slots_of(partition, partitions)?, named.collect()))
        });
        holders.collect()
    }

    fn cluster_slots(&mut self, table: &Table) {
        let holders = self.holders(table);
        let mut reply = self.reply();
        reply.array(holders.len());
        for (slots, nodes) in &holders {
            reply.array(2 + nodes.len());
            reply.integer(i64::from(*slots.start()));
            reply.integer(i64::from(*slots.end()));
            for (id, node) in nodes {
                let (host, port) = host_and_port(node);
                reply.array(4);
                reply.bulk(host.as_bytes());
                reply.integer(port);
                reply.bulk(id.as_bytes());
                reply.array(0);
            }
        }
    }

    fn cluster_shards(&mut self, table: &Table) {
        let holders = self.holders(table);
        let mut reply = self.reply();
        reply.array(holders.len());
        for (slots, nodes) in &holders {
            reply.map(2);
            reply.bulk(b"slots");
            reply.array(2);
            reply.integer(i64::from(*slots.start()));
            reply.integer(i64::from(*slots.end()));
            reply.bulk(b"nodes");
            reply.array(nodes.len());
            for (at, (id, node)) in nodes.iter().enumerate() {
                shard_node(&mut reply, node, id, at == 0);
            }
        }
    }

    fn cluster_nodes(&mut self, table: &Table) {
        let (own, holders) = (self.server.store.node(), self.holders(table));
        let mut text = String::new();
        for node in self.server.store.catalog().nodes() {
            let (host, port) = host_and_port(node);
            let own = if node.id == own { "myself," } else { "" };
            let id = self.redis_id(node.id);
            let _ = write!(text, "{id} {host}:{port}@0 {own}master - 0 0 {} connected", node.id);
            let led = holders.iter().filter(|(_, nodes)| nodes.first().is_some_and(|(_, leader)| leader.id == node.id));
            for (slots, _) in led {
                let _ = write!(text, " {}-{}", slots.start(), slots.end());
            }
            text.push('\n');
        }
        self.reply().bulk(text.as_bytes());
    }
}

fn shard_node(reply: &mut Reply<'_>, node: &NodeEntry, id: &str, is_leader: bool) {
    let (host, port) = host_and_port(node);
    reply.map(7);
    for (name, value) in [("id", id), ("ip", host), ("endpoint", host)] {
        reply.bulk(name.as_bytes());
        reply.bulk(value.as_bytes());
    }
    for (name, value) in [("port", port), ("replication-offset", 0)] {
        reply.bulk(name.as_bytes());
        reply.integer(value);
    }
    for (name, value) in [("role", if is_leader { "master" } else { "replica" }), ("health", "online")] {
        reply.bulk(name.as_bytes());
        reply.bulk(value.as_bytes());
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tessera_types::RecordKey;

    #[test]
    fn slots_are_those_of_the_partitioner() {
        for partitions in [1, 3, 16, 100, 4_096] {
            let mut next = 0;
            for partition in 0..partitions {
                let slots = slots_of(partition, partitions).unwrap();
                assert_eq!(*slots.start(), next);
                next = slots.end() + 1;
            }
            assert_eq!(next, u32::from(REDIS_SLOTS));
            for number in 0..1_000u32 {
                let key = number.to_string();
                let partition = Partitioner::RedisSlots.partition_of(&RecordKey::new(key.as_bytes(), b""), partitions);
                let slot = u32::from(redis_slot(key.as_bytes()));
                assert!(slots_of(partition, partitions).unwrap().contains(&slot), "{key} of {partitions}");
            }
        }
    }
}
