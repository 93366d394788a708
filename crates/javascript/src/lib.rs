//! JavaScript that queries bring along (`r.js`), in processes that can be killed.
//!
//! A loop inside a function that is built into an engine asks nobody whether it is to go on, and an engine has faults. So programs
//! never run in the node's process: [`Workers`] starts the node's own binary again, which [serves](serve()) as a worker that can
//! compute and do nothing else ([`confine`]). What a worker says is taken as what anybody might say: it is
//! bounded and checked ([`message`]).
//!
//! Read first: [`pool`] (who gets a worker, and for how long), [`worker`] (one of them, as the node sees it), [`serve()`] (the other end),
//! [`engine`] (programs and functions), [`convert`] (values).

#![warn(missing_docs)]

mod confine;
mod convert;
mod engine;
mod message;
mod pool;
mod programs;
mod serve;
mod worker;

pub use message::MESSAGE_BYTES;
pub use pool::Counts;
pub use programs::Workers;
pub use serve::serve;
pub use worker::{LONGEST, Launch};
