//! The command table: what the server supports, in one place. COMMAND and `docs/redis-commands.md` are made from it.

use super::call::{Call, Outcome};
use super::{expiry, field_expiry, generic, hashes, hscan, lcs, strings};
use crate::resp::Reply;
use std::collections::HashMap;
use std::sync::LazyLock;

/// One command.
pub struct Command {
    /// In lower case.
    pub name: &'static str,
    /// Number of arguments with the name; negative for at least so many.
    pub arity: i32,
    /// What the command may do, and where it is allowed.
    pub flags: Flags,
    /// Which of the arguments are keys.
    pub keys: Keys,
    /// The subcommands that have one key, which is their first argument, each with the number of arguments of the whole.
    pub subcommands: &'static [(&'static str, i32)],
    /// How the command is carried out when its keys are in several partitions.
    pub fan_out: FanOut,
    /// The group under which Redis documents the command.
    pub group: Group,
    /// The version of Redis whose behaviour it follows.
    pub since: &'static str,
    /// What the command does, in a sentence for `COMMAND DOCS`.
    pub summary: &'static str,
    /// What carries the command out.
    pub run: Run,
    /// What differs from Redis, on purpose.
    pub difference: Option<&'static str>,
}

/// What a command may do, and where it is allowed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Flags {
    /// May change records.
    pub write: bool,
    /// May read records.
    pub read: bool,
    /// Takes time independent of what is stored.
    pub fast: bool,
    /// Concerns the server rather than records.
    pub admin: bool,
    /// May be used before authentication.
    pub no_auth: bool,
    /// May stand between MULTI and EXEC.
    pub in_multi: bool,
}

/// Which arguments are keys.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Keys {
    /// No argument is a key.
    None,
    /// The argument at this position.
    One(usize),
    /// The first two arguments.
    Two,
    /// From the first argument on, every so many.
    Every(usize),
}

/// What a command with keys in several partitions does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FanOut {
    /// It must be atomic, so it is refused.
    Refuse,
    /// Each partition does its part; the integer replies are added.
    Sum,
    /// Each partition does its part; every reply is OK.
    AllOk,
    /// Reads of many partitions, put together in the order asked.
    Gather,
}

/// The groups under which Redis documents its commands.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Group {
    /// Commands about the connection.
    Connection,
    /// Commands about the server.
    Server,
    /// Commands about keys of any type.
    Generic,
    /// Commands about strings.
    String,
    /// Commands about hashes.
    Hash,
    /// Commands about transactions.
    Transactions,
}

impl Group {
    /// The word for the group in `COMMAND DOCS`.
    pub fn name(self) -> &'static str {
        match self {
            Self::Connection => "connection",
            Self::Server => "server",
            Self::Generic => "generic",
            Self::String => "string",
            Self::Hash => "hash",
            Self::Transactions => "transactions",
        }
    }
}

/// What carries a command out.
#[derive(Clone, Copy)]
pub enum Run {
    /// In a transaction of its keys' partition.
    Keyed(fn(&mut Call<'_, '_>) -> Outcome),
    /// By whichever node is asked: it has no keys, and needs no partition.
    Plain(fn(&[&[u8]], &mut Reply<'_>) -> Outcome),
    /// By the connection.
    Session(SessionCommand),
}

/// Commands that concern the connection, the server or whole tables.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SessionCommand {
    /// `ACKS`, of Tessera: who must have a write before it is acknowledged.
    Acks,
    /// `ACL`.
    Acl,
    /// `AUTH`.
    Auth,
    /// `CLIENT`.
    Client,
    /// `CLUSTER`.
    Cluster,
    /// `COMMAND`.
    Command,
    /// `CONFIG`.
    Config,
    /// `DBSIZE`.
    DbSize,
    /// `DISCARD`.
    Discard,
    /// `DURABILITY`, of Tessera: what is promised for the connection's writes.
    Durability,
    /// `EXEC`.
    Exec,
    /// `FLUSHDB` and `FLUSHALL`.
    Flush,
    /// `HELLO`.
    Hello,
    /// `INFO`.
    Info,
    /// `KEYS`.
    Keys,
    /// `LATENCY`.
    Latency,
    /// `MEMORY`.
    Memory,
    /// `MULTI`.
    Multi,
    /// `OBJECT`.
    Object,
    /// `QUIT`.
    Quit,
    /// `RANDOMKEY`.
    RandomKey,
    /// `READS`, of Tessera: which replicas answer the connection's reads, and how sure the answers are.
    Reads,
    /// `RESET`.
    Reset,
    /// `SCAN`.
    Scan,
    /// `SELECT`, which chooses a table by its number.
    Select,
    /// `SLOWLOG`.
    SlowLog,
    /// `TABLE`, of Tessera: chooses a table by its name.
    Table,
    /// `UNWATCH`.
    Unwatch,
    /// `WATCH`.
    Watch,
}

const READ: Flags = Flags { read: true, write: false, fast: true, admin: false, no_auth: false, in_multi: true };
const SLOW_READ: Flags = Flags { fast: false, ..READ };
const WRITE: Flags = Flags { write: true, read: false, ..READ };
const SLOW_WRITE: Flags = Flags { fast: false, ..WRITE };
const PLAIN: Flags = Flags { read: false, ..READ };
const SESSION: Flags = Flags { in_multi: false, ..PLAIN };
const ADMIN: Flags = Flags { admin: true, ..SESSION };
const NO_AUTH: Flags = Flags { no_auth: true, ..SESSION };

#[allow(clippy::too_many_arguments, reason = "one per column of the table")]
const fn keyed(
    group: Group,
    name: &'static str,
    arity: i32,
    flags: Flags,
    keys: Keys,
    since: &'static str,
    run: fn(&mut Call<'_, '_>) -> Outcome,
    summary: &'static str,
) -> Command {
    Command {
        name,
        arity,
        flags,
        keys,
        subcommands: &[],
        fan_out: FanOut::Refuse,
        group,
        since,
        summary,
        run: Run::Keyed(run),
        difference: None,
    }
}

const fn plain(
    group: Group,
    name: &'static str,
    arity: i32,
    since: &'static str,
    run: fn(&[&[u8]], &mut Reply<'_>) -> Outcome,
    summary: &'static str,
) -> Command {
    Command {
        name,
        arity,
        flags: PLAIN,
        keys: Keys::None,
        subcommands: &[],
        fan_out: FanOut::Refuse,
        group,
        since,
        summary,
        run: Run::Plain(run),
        difference: None,
    }
}

const fn session(
    group: Group,
    name: &'static str,
    arity: i32,
    flags: Flags,
    since: &'static str,
    run: SessionCommand,
    summary: &'static str,
) -> Command {
    Command {
        name,
        arity,
        flags,
        keys: Keys::None,
        subcommands: &[],
        fan_out: FanOut::Refuse,
        group,
        since,
        summary,
        run: Run::Session(run),
        difference: None,
    }
}

impl Command {
    const fn fan_out(self, fan_out: FanOut) -> Self {
        Self { fan_out, ..self }
    }

    const fn keys(self, keys: Keys) -> Self {
        Self { keys, ..self }
    }

    const fn subcommands(self, subcommands: &'static [(&'static str, i32)]) -> Self {
        Self { subcommands, ..self }
    }

    const fn differs(self, difference: &'static str) -> Self {
        Self { difference: Some(difference), ..self }
    }

    /// Positions of the keys in a command of so many arguments.
    pub fn key_positions(&self, arguments: usize) -> impl Iterator<Item = usize> + use<> {
        let (from, to, step) = match self.keys {
            Keys::None => (1, 1, 1),
            Keys::One(at) => (at, arguments.min(at + 1), 1),
            Keys::Two => (1, arguments.min(3), 1),
            Keys::Every(step) => (1, arguments, step),
        };
        (from..to).step_by(step)
    }

    /// The place in [`COMMANDS`], of which the command is one.
    pub fn place(&'static self) -> usize {
        (std::ptr::from_ref(self).addr() - COMMANDS.as_ptr().addr()) / size_of::<Self>()
    }

    /// Whether the command takes this many arguments, its name included.
    pub fn takes(&self, arguments: usize) -> bool {
        let given = i32::try_from(arguments).unwrap_or(i32::MAX);
        if self.arity >= 0 { given == self.arity } else { given >= -self.arity }
    }
}

const FIELD_ORDER: &str = "Fields come in the order of their names, not of insertion.";
const NUMBERED: &str = "Numbers name tables; see TABLE.";

use Group::{Connection, Generic, Hash, Server, String as Str, Transactions};
use Keys::{Every, One, Two};
use SessionCommand as S;

/// Every command that the server knows.
pub static COMMANDS: &[Command] = &[
    // Connection
    session(Connection, "auth", -2, NO_AUTH, "6.0.0", S::Auth, "Authenticates the connection"),
    session(Connection, "client", -2, SESSION, "2.4.0", S::Client, "Names, lists and ends connections").differs(
        "GETNAME, SETNAME, SETINFO, ID, INFO, LIST, KILL, NO-EVICT, NO-TOUCH; no CACHING, TRACKING, PAUSE, REPLY. LIST and KILL need the right to administer.",
    ),
    plain(Connection, "echo", 2, "1.0.0", generic::echo, "Returns its argument"),
    session(Connection, "hello", -1, NO_AUTH, "6.0.0", S::Hello, "Chooses the protocol version"),
    plain(Connection, "ping", -1, "1.0.0", generic::ping, "Answers PONG"),
    session(Connection, "quit", -1, NO_AUTH, "1.0.0", S::Quit, "Ends the connection"),
    session(Connection, "reset", 1, NO_AUTH, "6.2.0", S::Reset, "Makes the connection as new"),
    session(Connection, "select", 2, SESSION, "1.0.0", S::Select, "Chooses a table by its number").differs(NUMBERED),
    session(
        Connection,
        "table",
        -1,
        SESSION,
        "Tessera",
        S::Table,
        "Chooses a table by its name; alone, names the chosen one",
    )
    .differs("Tessera's own: TABLE name."),
    session(
        Connection,
        "durability",
        -1,
        SESSION,
        "Tessera",
        S::Durability,
        "Chooses when writes of this connection are answered",
    )
    .differs("Tessera's own: DURABILITY hard|soft|none|table; alone, tells the present one."),
    session(Connection, "acks", -1, SESSION, "Tessera", S::Acks, "Chooses whose word writes of this connection wait for")
        .differs("Tessera's own: ACKS majority|single|table; alone, tells the present one."),
    session(Connection, "reads", -1, SESSION, "Tessera", S::Reads, "Chooses how sure reads of this connection are")
        .differs("Tessera's own: READS single|majority|outdated; alone, tells the present one. READS LAG key: by how many milliseconds the replica on this node may be behind."),
    // Server
    session(Server, "acl", -2, SESSION, "6.0.0", S::Acl, "Tells about users and changes them")
        .differs("WHOAMI, USERS, LIST, GETUSER, SETUSER, DELUSER, CAT; all but WHOAMI and CAT need the right to administer. Commands are allowed by the categories @read, @write, @admin and @all, everywhere or in (table:NAME ...) and (database:NAME ...); not by patterns of keys. A user has one password or none."),
    session(Server, "cluster", -2, SESSION, "3.0.0", S::Cluster, "Tells where slots are")
        .differs("INFO, KEYSLOT, MYID, NODES, SHARDS, SLOTS on tables with the partitioner redis-slots. Every node answers every key, unless the connection says CLUSTER REDIRECTS on (Tessera's own): then keys led elsewhere are answered with MOVED."),
    session(Server, "command", -1, SESSION, "2.8.13", S::Command, "Tells about commands")
        .differs("COUNT, DOCS, GETKEYS, INFO, LIST."),
    session(Server, "config", -2, ADMIN, "2.0.0", S::Config, "Reads and changes settings of the running node")
        .differs("GET and SET for the settings that exist here, RESETSTAT; no REWRITE."),
    session(Server, "dbsize", 1, SLOW_READ_SESSION, "1.0.0", S::DbSize, "Counts keys")
        .differs("Expired keys count until they are removed. On RocksDB tables an estimate for partitions of more than 10,000 keys, or of more than 16 MiB."),
    session(Server, "flushall", -1, WRITE_SESSION, "1.0.0", S::Flush, "Deletes all keys of the chosen table")
        .differs("Concerns the chosen table only, as FLUSHDB."),
    session(Server, "flushdb", -1, WRITE_SESSION, "1.0.0", S::Flush, "Deletes all keys of the chosen table"),
    session(Server, "info", -1, SESSION, "1.0.0", S::Info, "Tells about the node"),
    session(Server, "latency", -2, ADMIN, "2.8.13", S::Latency, "Tells about slow events")
        .differs("LATEST, HISTORY, RESET, DOCTOR; events are slow commands."),
    session(Server, "memory", -2, SLOW_READ_MULTI, "4.0.0", S::Memory, "Tells how much memory a key takes")
        .subcommands(&[("usage", -3)])
        .differs("USAGE; an estimate on RocksDB tables."),
    session(Server, "slowlog", -2, ADMIN, "2.2.12", S::SlowLog, "Lists slow commands")
        .differs("GET, LEN, RESET."),
    plain(Server, "time", 1, "2.6.0", generic::time, "Tells the time"),
    // Generic
    keyed(Generic, "copy", -3, SLOW_WRITE, Two, "6.2.0", generic::copy, "Copies a key")
        .differs("DB takes the number of the connection's table only."),
    keyed(Generic, "del", -2, SLOW_WRITE, Every(1), "1.0.0", generic::del, "Deletes keys")
        .fan_out(FanOut::Sum),
    keyed(Generic, "exists", -2, READ, Every(1), "1.0.0", generic::exists, "Counts existing keys")
        .fan_out(FanOut::Sum),
    keyed(Generic, "expire", -3, WRITE, One(1), "1.0.0", expiry::expire, "Sets a key's time to live in seconds"),
    keyed(Generic, "expireat", -3, WRITE, One(1), "1.2.0", expiry::expireat, "Sets the Unix time at which a key ends"),
    keyed(
        Generic,
        "expiretime",
        2,
        READ,
        One(1),
        "7.0.0",
        expiry::expiretime,
        "Tells the Unix time at which a key ends",
    ),
    session(Generic, "keys", 2, SLOW_READ_SESSION, "1.0.0", S::Keys, "Lists keys that match a pattern")
        .differs("Refused beyond 1,000,000 matches; use SCAN."),
    session(Generic, "object", -2, SLOW_READ_MULTI, "2.2.3", S::Object, "Tells how a key is stored")
        .subcommands(&[("encoding", 3), ("digest", 3)])
        .differs("ENCODING, with the name that Redis would give a value of that size; DIGEST, Tessera's own, a digest of what is there."),
    keyed(Generic, "persist", 2, WRITE, One(1), "2.2.0", expiry::persist, "Removes a key's time to live"),
    keyed(Generic, "pexpire", -3, WRITE, One(1), "2.6.0", expiry::pexpire, "Sets a key's time to live in milliseconds"),
    keyed(
        Generic,
        "pexpireat",
        -3,
        WRITE,
        One(1),
        "2.6.0",
        expiry::pexpireat,
        "Sets the Unix time in milliseconds at which a key ends",
    ),
    keyed(
        Generic,
        "pexpiretime",
        2,
        READ,
        One(1),
        "7.0.0",
        expiry::pexpiretime,
        "Tells the Unix time in milliseconds at which a key ends",
    ),
    keyed(Generic, "pttl", 2, READ, One(1), "2.6.0", expiry::pttl, "Tells a key's time to live in milliseconds"),
    session(Generic, "randomkey", 1, SLOW_READ_SESSION, "1.0.0", S::RandomKey, "Returns some key"),
    keyed(Generic, "rename", 3, SLOW_WRITE, Two, "1.0.0", generic::rename, "Renames a key"),
    keyed(
        Generic,
        "renamenx",
        3,
        SLOW_WRITE,
        Two,
        "1.0.0",
        generic::renamenx,
        "Renames a key unless the new name is taken",
    ),
    session(Generic, "scan", -2, SLOW_READ_SESSION, "2.8.0", S::Scan, "Lists keys page by page")
        .differs("Pages go partition by partition in the order of hashes; COUNT is a lower bound."),
    keyed(Generic, "touch", -2, READ, Every(1), "3.2.1", generic::exists, "Counts existing keys")
        .fan_out(FanOut::Sum),
    keyed(Generic, "ttl", 2, READ, One(1), "1.0.0", expiry::ttl, "Tells a key's time to live in seconds"),
    keyed(Generic, "type", 2, READ, One(1), "1.0.0", generic::type_of, "Tells what a key holds"),
    keyed(Generic, "unlink", -2, WRITE, Every(1), "4.0.0", generic::del, "Deletes keys")
        .fan_out(FanOut::Sum),
    // Strings
    keyed(Str, "append", 3, WRITE, One(1), "2.0.0", strings::append, "Appends to a string"),
    keyed(Str, "decr", 2, WRITE, One(1), "1.0.0", strings::decr, "Subtracts one"),
    keyed(Str, "decrby", 3, WRITE, One(1), "1.0.0", strings::decrby, "Subtracts an integer"),
    keyed(Str, "get", 2, READ, One(1), "1.0.0", strings::get, "Returns a string"),
    keyed(Str, "getdel", 2, WRITE, One(1), "6.2.0", strings::getdel, "Returns a string and deletes it"),
    keyed(Str, "getex", -2, WRITE, One(1), "6.2.0", strings::getex, "Returns a string and changes its time to live"),
    keyed(Str, "getrange", 4, READ, One(1), "2.4.0", strings::getrange, "Returns a part of a string"),
    keyed(Str, "getset", 3, WRITE, One(1), "1.0.0", strings::getset, "Sets a string and returns the old one"),
    keyed(Str, "incr", 2, WRITE, One(1), "1.0.0", strings::incr, "Adds one"),
    keyed(Str, "incrby", 3, WRITE, One(1), "1.0.0", strings::incrby, "Adds an integer"),
    keyed(Str, "incrbyfloat", 3, WRITE, One(1), "2.6.0", strings::incrbyfloat, "Adds a floating-point number"),
    keyed(Str, "lcs", -3, SLOW_READ, Two, "7.0.0", lcs::lcs, "Finds the longest common subsequence"),
    keyed(Str, "mget", -2, READ, Every(1), "1.0.0", strings::mget, "Returns several strings")
        .fan_out(FanOut::Gather),
    keyed(Str, "mset", -3, WRITE, Every(2), "1.0.1", strings::mset, "Sets several strings")
        .fan_out(FanOut::AllOk),
    keyed(Str, "msetnx", -3, WRITE, Every(2), "1.0.1", strings::msetnx, "Sets several strings unless one exists"),
    keyed(
        Str,
        "psetex",
        4,
        WRITE,
        One(1),
        "2.6.0",
        strings::psetex,
        "Sets a string with a time to live in milliseconds",
    ),
    keyed(Str, "set", -3, WRITE, One(1), "1.0.0", strings::set, "Sets a string"),
    keyed(Str, "setex", 4, WRITE, One(1), "2.0.0", strings::setex, "Sets a string with a time to live in seconds"),
    keyed(Str, "setnx", 3, WRITE, One(1), "1.0.0", strings::setnx, "Sets a string unless the key exists"),
    keyed(Str, "setrange", 4, WRITE, One(1), "2.2.0", strings::setrange, "Overwrites a part of a string"),
    keyed(Str, "strlen", 2, READ, One(1), "2.2.0", strings::strlen, "Tells a string's length"),
    keyed(Str, "substr", 4, READ, One(1), "1.0.0", strings::getrange, "Returns a part of a string"),
    // Hashes
    keyed(Hash, "hdel", -3, WRITE, One(1), "2.0.0", hashes::hdel, "Deletes fields"),
    keyed(Hash, "hexists", 3, READ, One(1), "2.0.0", hashes::hexists, "Tells whether a field exists"),
    keyed(Hash, "hexpire", -6, WRITE, One(1), "7.4.0", field_expiry::hexpire, "Sets fields' time to live in seconds"),
    keyed(
        Hash,
        "hexpireat",
        -6,
        WRITE,
        One(1),
        "7.4.0",
        field_expiry::hexpireat,
        "Sets the Unix time at which fields end",
    ),
    keyed(
        Hash,
        "hexpiretime",
        -5,
        READ,
        One(1),
        "7.4.0",
        field_expiry::hexpiretime,
        "Tells the Unix time at which fields end",
    ),
    keyed(Hash, "hget", 3, READ, One(1), "2.0.0", hashes::hget, "Returns a field"),
    keyed(Hash, "hgetall", 2, SLOW_READ, One(1), "2.0.0", hashes::hgetall, "Returns all fields and values")
        .differs(FIELD_ORDER),
    keyed(Hash, "hgetdel", -5, WRITE, One(1), "8.0.0", field_expiry::hgetdel, "Returns fields and deletes them"),
    keyed(
        Hash,
        "hgetex",
        -5,
        WRITE,
        One(1),
        "8.0.0",
        field_expiry::hgetex,
        "Returns fields and changes their time to live",
    ),
    keyed(Hash, "hincrby", 4, WRITE, One(1), "2.0.0", hashes::hincrby, "Adds an integer to a field"),
    keyed(
        Hash,
        "hincrbyfloat",
        4,
        WRITE,
        One(1),
        "2.6.0",
        hashes::hincrbyfloat,
        "Adds a floating-point number to a field",
    ),
    keyed(Hash, "hkeys", 2, SLOW_READ, One(1), "2.0.0", hashes::hkeys, "Returns all fields").differs(FIELD_ORDER),
    keyed(Hash, "hlen", 2, SLOW_READ, One(1), "2.0.0", hashes::hlen, "Counts fields")
        .differs("Takes time proportional to the number of fields."),
    keyed(Hash, "hmget", -3, READ, One(1), "2.0.0", hashes::hmget, "Returns several fields"),
    keyed(Hash, "hmset", -4, WRITE, One(1), "2.0.0", hashes::hmset, "Sets several fields"),
    keyed(Hash, "hpersist", -5, WRITE, One(1), "7.4.0", field_expiry::hpersist, "Removes fields' time to live"),
    keyed(
        Hash,
        "hpexpire",
        -6,
        WRITE,
        One(1),
        "7.4.0",
        field_expiry::hpexpire,
        "Sets fields' time to live in milliseconds",
    ),
    keyed(
        Hash,
        "hpexpireat",
        -6,
        WRITE,
        One(1),
        "7.4.0",
        field_expiry::hpexpireat,
        "Sets the Unix time in milliseconds at which fields end",
    ),
    keyed(
        Hash,
        "hpexpiretime",
        -5,
        READ,
        One(1),
        "7.4.0",
        field_expiry::hpexpiretime,
        "Tells the Unix time in milliseconds at which fields end",
    ),
    keyed(Hash, "hpttl", -5, READ, One(1), "7.4.0", field_expiry::hpttl, "Tells fields' time to live in milliseconds"),
    keyed(Hash, "hrandfield", -2, SLOW_READ, One(1), "6.2.0", hashes::hrandfield, "Returns random fields")
        .differs("A negative count beyond 1,048,576 is refused."),
    keyed(Hash, "hscan", -3, SLOW_READ, One(1), "2.8.0", hscan::hscan, "Lists fields page by page")
        .differs("Pages go in the order of names; names that share seven bytes after those that all share are in one page."),
    keyed(Hash, "hset", -4, WRITE, One(1), "2.0.0", hashes::hset, "Sets fields").differs("Not under the empty key."),
    keyed(Hash, "hsetex", -6, WRITE, One(1), "8.0.0", field_expiry::hsetex, "Sets fields with a time to live"),
    keyed(Hash, "hsetnx", 4, WRITE, One(1), "2.0.0", hashes::hsetnx, "Sets a field unless it exists"),
    keyed(Hash, "hstrlen", 3, READ, One(1), "3.2.0", hashes::hstrlen, "Tells the length of a field's value"),
    keyed(Hash, "httl", -5, READ, One(1), "7.4.0", field_expiry::httl, "Tells fields' time to live in seconds"),
    keyed(Hash, "hvals", 2, SLOW_READ, One(1), "2.0.0", hashes::hvals, "Returns all values").differs(FIELD_ORDER),
    // Transactions
    session(Transactions, "discard", 1, SESSION, "2.0.0", S::Discard, "Forgets the queued commands"),
    session(Transactions, "exec", 1, SESSION, "1.2.0", S::Exec, "Runs the queued commands as one")
        .differs("If one command exceeds a limit, none takes effect."),
    session(Transactions, "multi", 1, SESSION, "1.2.0", S::Multi, "Begins to queue commands")
        .differs("Commands on whole tables or the connection cannot be queued. A transaction has at most 100,000 commands, and as many bytes as one write may have."),
    session(Transactions, "unwatch", 1, PLAIN, "2.2.0", S::Unwatch, "Forgets watched keys"),
    session(Transactions, "watch", -2, SESSION, "2.2.0", S::Watch, "Lets EXEC fail if keys are changed meanwhile")
        .keys(Every(1))
        .differs("On several nodes, EXEC does nothing either if another node leads the partition of a watched key by then, or the key was watched more than ten minutes or 100,000 watched keys ago."),
];

const SLOW_READ_SESSION: Flags = Flags { in_multi: false, ..SLOW_READ };
const SLOW_READ_MULTI: Flags = Flags { in_multi: false, ..SLOW_READ };
const WRITE_SESSION: Flags = Flags { in_multi: false, ..SLOW_WRITE };

/// By names that are padded to the length of a number: it is hashed and compared in a few instructions, and every command is
/// looked for here.
static BY_NAME: LazyLock<HashMap<u128, &'static Command, ahash::RandomState>> =
    LazyLock::new(|| COMMANDS.iter().filter_map(|command| Some((padded(command.name.as_bytes())?, command))).collect());

/// A name in lower case with zeros behind it; `None` if it is longer than any command's.
fn padded(name: &[u8]) -> Option<u128> {
    let mut padded = [0u8; size_of::<u128>()];
    padded.get_mut(..name.len())?.copy_from_slice(name);
    padded.make_ascii_lowercase();
    Some(u128::from_le_bytes(padded))
}

/// The command of that name, in any case.
pub fn find(name: &[u8]) -> Option<&'static Command> {
    let command = BY_NAME.get(&padded(name)?)?;
    // A name that ends with zeros is no command's.
    (command.name.len() == name.len()).then_some(command)
}

/// The table as Markdown: `docs/redis-commands.md`.
pub fn to_markdown() -> String {
    let mut text = String::from(
        "# Redis commands\n\nMade from the command table in `crates/redis/src/commands/table.rs` by `tessera commands`; a \
         test keeps it in step.\n\nCommands behave as in the version of Redis named, error texts included, except as \
         said in the last column.\n",
    );
    let mut group = None;
    for command in COMMANDS {
        if group != Some(command.group) {
            group = Some(command.group);
            text += &format!(
                "\n## {}\n\n| command | does | as in Redis | differs |\n|---|---|---|---|\n",
                command.group.name()
            );
        }
        let difference = command.difference.unwrap_or("");
        text +=
            &format!("| {} | {} | {} | {difference} |\n", command.name.to_uppercase(), command.summary, command.since);
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_found_in_any_case_and_once() {
        assert_eq!(BY_NAME.len(), COMMANDS.len());
        assert_eq!(find(b"GeT").map(|command| command.name), Some("get"));
        assert!(find(b"nosuch").is_none() && find(&[b'x'; 100]).is_none() && find(b"g\xff").is_none());
        for command in COMMANDS {
            // Names are compared with zeros behind them.
            assert!(find(format!("{}\0", command.name).as_bytes()).is_none(), "{} with a zero behind it", command.name);
        }
        assert!(find(b"").is_none() && find(&[0; 16]).is_none());
    }

    #[test]
    fn the_documentation_is_the_table() {
        let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/redis-commands.md");
        let committed = std::fs::read_to_string(path).unwrap_or_default();
        assert_eq!(committed, to_markdown(), "run `tessera commands > docs/redis-commands.md`");
    }
}
