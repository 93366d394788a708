//! How operations reach a server: what is sent, over which of a client's links, and which reply belongs to what.

mod lines;
mod memcached;
mod pegasus;
mod redis;
mod redis_cluster;

use crate::workload::{Operation, RecordShape, Values};
use serde::{Deserialize, Serialize};
use std::net::SocketAddr;

/// A protocol that servers speak.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Protocol {
    Redis,
    /// Redis', as clients that know Redis Cluster speak it: requests go straight to the nodes that lead
    RedisCluster,
    /// memcached's text protocol
    Memcached,
    /// Apache Pegasus': the port is that of a meta server; requests go straight to the nodes that lead
    Pegasus,
}

/// Where a client's requests go.
#[derive(Clone, Debug)]
pub enum Route {
    /// One link, over which the Redis protocol is spoken, to one of these: the first client's to the first, and so on.
    Any(Vec<SocketAddr>),
    Memcached(Vec<SocketAddr>),
    RedisCluster(redis_cluster::Route),
    Pegasus(pegasus::Route),
}

impl Route {
    /// Asks a Pegasus meta server where a table's partitions are.
    ///
    /// # Errors
    /// If it does not answer, or not as expected.
    pub fn to_pegasus_table(meta: SocketAddr, table: &str) -> anyhow::Result<Self> {
        pegasus::Route::ask(meta, table).map(Self::Pegasus)
    }

    /// Asks a server that speaks the Redis protocol who leads which slots, after a greeting.
    ///
    /// # Errors
    /// If it does not answer, or not as expected.
    pub fn to_redis_cluster(server: SocketAddr, greeting: &[Vec<String>]) -> anyhow::Result<Self> {
        redis_cluster::Route::ask(server, greeting).map(Self::RedisCluster)
    }

    pub fn protocol(&self) -> Protocol {
        match self {
            Self::Any(_) => Protocol::Redis,
            Self::Memcached(_) => Protocol::Memcached,
            Self::RedisCluster(_) => Protocol::RedisCluster,
            Self::Pegasus(_) => Protocol::Pegasus,
        }
    }

    /// All places.
    pub fn addresses(&self) -> &[SocketAddr] {
        match self {
            Self::Any(addresses) | Self::Memcached(addresses) => addresses,
            Self::RedisCluster(route) => &route.nodes,
            Self::Pegasus(route) => &route.nodes,
        }
    }

    /// Where the links of a client lead.
    pub fn links(&self, client: usize) -> Vec<SocketAddr> {
        match self {
            Self::Any(addresses) | Self::Memcached(addresses) => vec![addresses[client % addresses.len()]],
            Self::RedisCluster(route) => route.nodes.clone(),
            Self::Pegasus(route) => route.nodes.clone(),
        }
    }
}

/// Writes the requests of operations.
pub enum Encoder {
    Redis(redis::Encoder),
    Memcached(memcached::Encoder),
    Pegasus(pegasus::Encoder),
}

impl Encoder {
    pub fn new(route: &Route, shape: RecordShape, batch: usize) -> Self {
        match route {
            Route::Any(_) => Self::Redis(redis::Encoder::new(shape, batch, None)),
            Route::Memcached(_) => Self::Memcached(memcached::Encoder::new(shape)),
            Route::RedisCluster(route) => Self::Redis(redis::Encoder::new(shape, batch, Some(route.clone()))),
            Route::Pegasus(route) => Self::Pegasus(pegasus::Encoder::new(route.clone(), shape)),
        }
    }

    /// The link over which operations on a record go.
    pub fn link_of(&mut self, number: u64) -> usize {
        match self {
            Self::Redis(encoder) => encoder.link_of(number),
            Self::Memcached(_) => 0,
            Self::Pegasus(encoder) => encoder.link_of(number),
        }
    }

    /// Appends the requests of one operation on the record `number`. Returns how many replies will come, and the number of
    /// the first request where the protocol has such.
    pub fn encode(
        &mut self,
        operation: Operation,
        number: u64,
        values: &mut Values,
        out: &mut Vec<u8>,
    ) -> (usize, Option<i32>) {
        match self {
            Self::Redis(encoder) => (encoder.encode(operation, number, values, out), None),
            Self::Memcached(encoder) => (encoder.encode(operation, number, values, out), None),
            Self::Pegasus(encoder) => encoder.encode(operation, number, values, out),
        }
    }

    /// What takes the replies of one link.
    pub fn counter(&self) -> Counter {
        match self {
            Self::Redis(_) => Counter::Redis(redis::ReplyCounter::default()),
            Self::Memcached(_) => Counter::Memcached(memcached::ReplyCounter::default()),
            Self::Pegasus(_) => Counter::Pegasus(pegasus::ReplyCounter::default()),
        }
    }
}

/// Takes the replies of one link.
pub enum Counter {
    Redis(redis::ReplyCounter),
    Memcached(memcached::ReplyCounter),
    Pegasus(pegasus::ReplyCounter),
}

/// Replies that have come.
pub struct Replies<'a> {
    pub count: usize,
    /// The requests that they answer, where the protocol says so; else they come in order.
    pub numbers: Option<&'a [i32]>,
}

impl Counter {
    /// Takes bytes and returns the replies that ended in them.
    pub fn take(&mut self, bytes: &[u8]) -> Replies<'_> {
        match self {
            Self::Redis(counter) => Replies { count: counter.count(bytes), numbers: None },
            Self::Memcached(counter) => Replies { count: counter.count(bytes), numbers: None },
            Self::Pegasus(counter) => {
                let numbers = counter.take(bytes);
                Replies { count: numbers.len(), numbers: Some(numbers) }
            }
        }
    }

    pub fn errors(&self) -> u64 {
        match self {
            Self::Redis(counter) => counter.errors,
            Self::Memcached(counter) => counter.errors,
            Self::Pegasus(counter) => counter.errors,
        }
    }

    pub fn last_error(&mut self) -> Option<String> {
        match self {
            Self::Redis(counter) => counter.last_error.take(),
            Self::Memcached(counter) => counter.last_error.take(),
            Self::Pegasus(counter) => counter.last_error.take(),
        }
    }
}

pub use redis::{ReplyCounter as GreetingReplies, request};
