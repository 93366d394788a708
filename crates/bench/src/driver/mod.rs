//! How operations reach a server: what is sent, over which of a client's links, and which reply belongs to what.

mod etcd;
mod frames;
mod lines;
mod memcached;
mod pegasus;
mod redis;
mod redis_cluster;
mod resp;
mod rethinkdb;

use crate::socket::ClientTls;
use crate::workload::{Mix, Operation, RecordShape, Values};
use clap::ValueEnum;
use serde::{Deserialize, Serialize};
use std::fmt;
use std::net::SocketAddr;

/// A protocol that servers speak.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Protocol {
    Redis,
    /// Redis', as clients that know Redis Cluster speak it: requests go straight to the nodes that lead
    RedisCluster,
    /// memcached's text protocol
    Memcached,
    /// etcd's version 3, gRPC
    Etcd,
    /// RethinkDB's driver protocol; the table is TABLE of database `test`, or DATABASE.TABLE
    Rethinkdb,
    /// Apache Pegasus': the port is that of a meta server; requests go straight to the nodes that lead
    Pegasus,
}

/// Where a client's requests go.
#[derive(Clone, Debug)]
pub enum Route {
    /// One link, over which the Redis protocol is spoken, to one of these: the first client's to the first, and so on.
    Any(Vec<SocketAddr>),
    Memcached(Vec<SocketAddr>),
    Etcd(Vec<SocketAddr>),
    Rethinkdb(rethinkdb::Route),
    RedisCluster(redis_cluster::Route),
    Pegasus(pegasus::Route),
}

impl fmt::Display for Protocol {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(self.to_possible_value().expect("none is skipped").get_name())
    }
}

/// What is refused before a run begins.
const NOT_SENT: &str = "refused when the run was planned";

impl Protocol {
    /// Whether it can be spoken over TLS here.
    pub fn has_tls(self) -> bool {
        !matches!(self, Self::Pegasus | Self::Etcd)
    }

    /// # Errors
    /// Why operations of the mix cannot be asked for over it.
    pub fn check_mix(self, mix: &Mix) -> Result<(), &'static str> {
        match self {
            _ if mix.scans() => Err(
                "workload E scans keys in order, which the Redis protocol cannot express; `tessera bench engine` can",
            ),
            Self::Rethinkdb => Ok(()),
            _ if mix.map_reduces() => Err("the map-reduce query is one of ReQL: it needs `--protocol rethinkdb`"),
            _ => Ok(()),
        }
    }

    /// # Errors
    /// Why records that look like this, or batches of them, cannot be had over it.
    pub fn check(self, shape: &RecordShape, batch: usize) -> Result<(), &'static str> {
        match self {
            Self::Memcached if batch > 1 || shape.fields > 1 => {
                Err("records of memcached are single values, which --batch and --fields are not for")
            }
            Self::Etcd if batch > 1 || shape.bytes() > etcd::VALUE_BYTES => {
                Err("records of etcd are single values of at most 60,000 bytes, which --batch is not for")
            }
            Self::RedisCluster if batch > 1 => Err("Redis clusters refuse batches over several slots"),
            Self::Pegasus if batch > 1 => {
                Err("--batch is for the Redis protocol; --fields puts several sort keys under a hash key")
            }
            Self::Rethinkdb if batch > 1 => Err("--batch is for the Redis protocol"),
            _ => Ok(()),
        }
    }
}

impl Route {
    /// Asks a Pegasus meta server where a table's partitions are.
    ///
    /// # Errors
    /// If it does not answer, or not as expected.
    pub fn to_pegasus_table(meta: SocketAddr, table: &str) -> anyhow::Result<Self> {
        pegasus::Route::ask(meta, table).map(Self::Pegasus)
    }

    /// Reads say the read mode, if there is one.
    pub fn to_rethinkdb_table(nodes: Vec<SocketAddr>, table: &str, read_mode: Option<&str>) -> Self {
        Self::Rethinkdb(rethinkdb::Route::new(nodes, table, read_mode))
    }

    /// Asks a server that speaks the Redis protocol who leads which slots, after a greeting.
    ///
    /// # Errors
    /// If it does not answer, or not as expected.
    pub fn to_redis_cluster(
        server: SocketAddr,
        tls: Option<&ClientTls>,
        greeting: &[Vec<String>],
    ) -> anyhow::Result<Self> {
        redis_cluster::Route::ask(server, tls, greeting).map(Self::RedisCluster)
    }

    /// To servers of Redis that know nothing of each other: keys are spread by the hash of a slot modulo the number of servers.
    pub fn over_redis_servers(servers: Vec<SocketAddr>) -> Self {
        Self::RedisCluster(redis_cluster::Route::over(servers))
    }

    pub fn protocol(&self) -> Protocol {
        match self {
            Self::Any(_) => Protocol::Redis,
            Self::Memcached(_) => Protocol::Memcached,
            Self::Etcd(_) => Protocol::Etcd,
            Self::Rethinkdb(_) => Protocol::Rethinkdb,
            Self::RedisCluster(_) => Protocol::RedisCluster,
            Self::Pegasus(_) => Protocol::Pegasus,
        }
    }

    /// What writes the requests of records that look like this.
    pub fn encoder(&self, shape: RecordShape, batch: usize) -> Box<dyn Encoder> {
        match self {
            Self::Any(_) => Box::new(redis::Encoder::new(shape, batch, None)),
            Self::Memcached(_) => Box::new(memcached::Encoder::new(shape)),
            Self::Etcd(_) => Box::new(etcd::Encoder::new(shape)),
            Self::Rethinkdb(route) => Box::new(rethinkdb::Encoder::new(route, shape)),
            Self::RedisCluster(route) => Box::new(redis::Encoder::new(shape, batch, Some(route.clone()))),
            Self::Pegasus(route) => Box::new(pegasus::Encoder::new(route.clone(), shape)),
        }
    }

    /// All places.
    pub fn addresses(&self) -> &[SocketAddr] {
        match self {
            Self::Any(addresses) | Self::Memcached(addresses) | Self::Etcd(addresses) => addresses,
            Self::Rethinkdb(route) => &route.nodes,
            Self::RedisCluster(route) => &route.nodes,
            Self::Pegasus(route) => &route.nodes,
        }
    }

    /// Where the links of a client lead.
    pub fn links(&self, client: usize) -> Vec<SocketAddr> {
        match self {
            Self::RedisCluster(_) | Self::Pegasus(_) => self.addresses().to_vec(),
            _ => vec![self.addresses()[client % self.addresses().len()]],
        }
    }
}

/// Writes the requests of operations.
pub trait Encoder {
    /// What each link begins with.
    fn opening(&self) -> Vec<u8> {
        Vec::new()
    }

    /// The link over which operations on a record go.
    fn link_of(&mut self, _number: u64) -> usize {
        0
    }

    /// The number of the next request, where the protocol has such.
    fn next(&self) -> Option<i32> {
        None
    }

    /// Appends one request that reads the record `number`.
    fn read(&mut self, number: u64, values: &mut Values, out: &mut Vec<u8>);

    /// Appends one request that writes the record `number`: all of it if it is an insert.
    fn write(&mut self, number: u64, is_insert: bool, values: &mut Values, out: &mut Vec<u8>);

    /// Appends one query over all records, where [`Protocol::check_mix`] lets it through.
    fn map_reduce(&mut self, _out: &mut Vec<u8>) {
        unreachable!("{NOT_SENT}")
    }

    /// Appends the requests of one operation on the record `number`. Returns how many replies will come, and the number of
    /// the first request where the protocol has such.
    fn encode(
        &mut self,
        operation: Operation,
        number: u64,
        values: &mut Values,
        out: &mut Vec<u8>,
    ) -> (usize, Option<i32>) {
        let first = self.next();
        let (reads, writes) = match operation {
            Operation::Read => (true, false),
            Operation::Insert | Operation::Update => (false, true),
            Operation::ReadModifyWrite => (true, true),
            Operation::MapReduce => {
                self.map_reduce(out);
                return (1, first);
            }
            Operation::Scan => unreachable!("{NOT_SENT}"),
        };
        if reads {
            self.read(number, values, out);
        }
        if writes {
            self.write(number, operation == Operation::Insert, values, out);
        }
        (usize::from(reads) + usize::from(writes), first)
    }

    /// What takes the replies of one link.
    fn counter(&self) -> Box<dyn ReplyCounter>;
}

/// Takes the replies of one link, as far apart as it must.
pub trait ReplyCounter {
    /// Takes bytes and returns the replies that ended in them.
    fn take(&mut self, bytes: &[u8]) -> Replies<'_>;

    /// Of all replies so far.
    fn errors(&mut self) -> &mut Errors;
}

/// Replies that have come.
pub struct Replies<'a> {
    pub count: usize,
    /// The requests that they answer, where the protocol says so; else they come in order.
    pub numbers: Option<&'a [i32]>,
    /// How many records each of them says are not there, if it is that of a read. What it is of another request means nothing.
    pub absent: &'a [u32],
}

impl<'a> Replies<'a> {
    fn to(numbers: &'a [i32], absent: &'a [u32]) -> Self {
        Self { count: numbers.len(), numbers: Some(numbers), absent }
    }
}

/// Replies that say that something went wrong.
#[derive(Default)]
pub struct Errors {
    pub count: u64,
    pub last: Option<String>,
}

impl Errors {
    fn add(&mut self, error: String) {
        self.count += 1;
        self.last = Some(error);
    }
}

pub use redis::ReplyCounter as GreetingReplies;
pub use resp::request;
