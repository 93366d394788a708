//! The tables of a run, and what each promises.

/// What must hold of a table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Promise {
    /// All that clients see has an order, and nothing acknowledged is lost.
    Everything,
    /// What is acknowledged may be lost as long as nobody has read it.
    UntilRead,
    /// A record may be gone at any time, but an older one never comes back.
    Cache,
    /// It serves again.
    Service,
}

#[derive(Clone, Copy, Debug)]
pub struct Table {
    pub name: &'static str,
    /// How it is made.
    pub options: &'static str,
    pub promise: Promise,
}

impl Table {
    /// Keys with one tag are in one partition.
    pub fn has_tags(&self) -> bool {
        self.options.contains("redis-slots")
    }
}

const fn table(name: &'static str, options: &'static str) -> Table {
    Table { name, options, promise: Promise::Everything }
}

/// Where power is cut this one may lose its newest writes.
pub const SOFT: &str = "soft";

pub const TABLES: &[Table] = &[
    table("rocks", "--engine rocksdb --durability hard --replicas 3 --partitioner redis-slots"),
    table("memory", "--engine memory --durability hard --replicas 3 --partitioner redis-slots"),
    table("pair", "--engine rocksdb --durability hard --replicas 2 --partitioner redis-slots"),
    table(SOFT, "--engine memory --durability soft --replicas 2"),
];
