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

/// What may be said of the nodes' clocks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Trust {
    /// At most one is wrong at a time, which must change nothing.
    MostClocks,
    /// All may be wrong at once. What has long to live goes on living, since it has longer than clocks are off.
    NoClock,
}

#[derive(Clone, Copy, Debug)]
pub struct Table {
    pub name: &'static str,
    /// How it is made.
    pub options: &'static str,
    pub promise: Promise,
}

impl Table {
    /// How many it has, as far as nobody changes that.
    pub fn replicas(&self) -> u8 {
        let text = self.options.split("--replicas ").nth(1).and_then(|rest| rest.split(' ').next());
        text.and_then(|text| text.parse().ok()).expect("every table says how many replicas it has")
    }

    /// Where power is cut it may lose its newest writes.
    pub fn is_soft(&self) -> bool {
        self.options.contains("--durability soft")
    }

    /// Keys with one tag are in one partition.
    pub fn has_tags(&self) -> bool {
        self.options.contains("redis-slots")
    }
}

const fn table(name: &'static str, options: &'static str) -> Table {
    Table { name, options, promise: Promise::Everything }
}

pub const TABLES: &[Table] = &[
    table("rocks", "--engine rocksdb --durability hard --replicas 3 --partitioner redis-slots"),
    table("memory", "--engine memory --durability hard --replicas 3 --partitioner redis-slots"),
    table("pair", "--engine rocksdb --durability hard --replicas 2 --partitioner redis-slots"),
    table("soft", "--engine memory --durability soft --replicas 2"),
];

/// Where power is cut, RocksDB may have flushed more than the log of such a table has kept, or less.
pub const LAXER: Table = table("laxer", "--engine rocksdb --durability soft --replicas 3 --partitioner redis-slots");

/// The table that holds large values only.
pub const LARGE: &str = "large";

/// Tables that promise less, or in other ways. Their processes end one at a time.
pub const OTHERS: &[Table] = &[
    table("volatile", "--engine memory --durability none --replicas 3 --partitioner redis-slots"),
    LAXER,
    table(LARGE, "--engine rocksdb --durability hard --replicas 3"),
    Table {
        name: "single",
        options: "--engine rocksdb --durability hard --replicas 3 --acks single",
        promise: Promise::UntilRead,
    },
    Table {
        name: "lone",
        options: "--engine memory --durability soft --replicas 3 --acks single",
        promise: Promise::UntilRead,
    },
];

/// Tables for transactions alone.
pub const TRANSACTIONS: &[Table] = &[
    table("rocks", "--engine rocksdb --durability hard --replicas 3"),
    table("pair", "--engine memory --durability soft --replicas 2 --partitioner redis-slots"),
];

/// Tables with a replica on each of seven nodes.
pub const SEVEN: &[Table] =
    &[table("seven", "--engine rocksdb --durability hard --replicas 7 --partitioner redis-slots")];

/// Tables of a cluster whose nodes come and go.
pub const MEMBERS: &[Table] = &[
    table("five", "--engine rocksdb --durability hard --replicas 5 --partitioner redis-slots"),
    table("three", "--engine memory --durability hard --replicas 3 --partitioner redis-slots"),
    table("pair", "--engine rocksdb --durability hard --replicas 2"),
];

/// Tables of nodes that have next to nothing in their caches.
pub const COLD: &[Table] = &[
    table("rocks", "--engine rocksdb --durability hard --replicas 3 --partitioner redis-slots"),
    table("pair", "--engine rocksdb --durability soft --replicas 2 --partitioner redis-slots"),
];

/// Tables of nodes with little memory.
pub const CACHES: &[Table] = &[
    Table {
        name: "cache",
        options: "--engine memory --durability soft --replicas 3 --when-full evict",
        promise: Promise::Cache,
    },
    table("rocks", "--engine rocksdb --durability hard --replicas 3 --partitioner redis-slots"),
];
