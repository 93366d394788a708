//! ReQL: reading, checking and evaluating queries of RethinkDB's language.
//!
//! Pure: it knows no socket, no consensus and no partition. A request is read ([`Request`]), its term tree is checked and
//! made into a plan once ([`Query::prepare`]), and the plan runs ([`Prepared::run`]) to a value or a stream, asking a
//! [`Source`] for data. Evaluation runs on the caller's thread and blocks it where the source does; a [`Pacer`] is asked
//! every few hundred steps whether the query goes on, and may make it wait, so that a long query gives way to others and
//! one without end can be stopped. What bounds a query: terms are nested [`MAX_TERM_DEPTH`] deep at most, values as deep as
//! `tessera_document` allows, arrays and groups are as long as the option `array_limit` says, streams are read in batches.

#![warn(missing_docs)]

mod account;
mod call;
mod cells;
mod change_log;
mod cluster;
mod compared;
mod definition;
mod env;
mod error;
mod evaluate;
mod feed;
mod function;
mod gathered;
mod geometry;
mod http;
mod index;
mod json;
mod key;
mod lazy;
mod memory;
mod monitor;
mod node;
mod permitted;
mod plan;
mod point;
mod printed;
mod profile;
mod query;
mod run_script;
mod scan;
mod script;
mod selection;
mod size;
mod source;
mod stored;
mod stream;
mod system;
mod term;
mod terms;
mod time;
mod together;
mod uuid;
mod val;
mod value;
mod write_hook;

pub use account::{Account, AccountChange, Administrator, NewPassword, Place, Requester};
pub use cells::{Cells, cell_bounds};
pub use change_log::{ChangeLog, DocumentChange, Entry, Interest, LogEvent, Reached, Resume, StampedPage, Unread};
pub use cluster::{
    Process, ReplicaState, Server, ServerStatus, Shape, ShardConfig, ShardStatus, TableChange, TableConfig,
};
pub use env::{DEFAULT_ARRAY_LIMIT, Env, MAX_TEXT_BYTES, Pacer, Stop, Wait};
pub use error::{Error, ErrorKind, Result, Step};
pub use feed::read_resume_token;
pub use function::{Body, Function, Scope};
pub use gathered::{Replacement, Together};
pub use http::{HttpAnswer, HttpClient, HttpFailure, HttpRequest};
pub use index::cell_keys;
pub use json::{Json, JsonError, parse as parse_json};
pub use key::{MAX_PRIMARY_KEY_BYTES, primary_bound, primary_key, secondary_key};
pub use lazy::Lazy;
pub use memory::MemorySource;
pub use monitor::{LogLine, Monitor, NodeStatistics, QueryJob, Rate, TableStatistics};
pub use point::{Point, PointWrite};
pub use profile::Profile;
pub use query::{Answer, Batches, Cursor, Failure, Prepared, Query, Request, Stage, write_answer, write_row};
pub use scan::{
    DatabaseInfo, IndexDefinition, IndexInfo, KeyRange, Order, Page, Position, ReadMode, Scan, TableInfo, TableOptions,
};
pub use script::{Script, ScriptEngine, ScriptFailure, ScriptSource, Scripted};
pub use source::{Change, Conflict, Durability, Evaluated, Lifetime, Source, Write, Written, evaluate_page};
pub use stream::{Partial, Pipeline, Run};
pub use system::WithSystemTables;
pub use term::MAX_TERM_DEPTH;
pub use terms::writes::answer_of_one;
pub use write_hook::WriteHook;
