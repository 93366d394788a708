//! Requests that a node makes to servers of others because a client asks for it: bounded in time, size and number, and kept from
//! addresses that only the node can reach.
//!
//! Read first: [`Fetcher`] (making requests), [`reach`] (which addresses they go to).

#![warn(missing_docs)]

mod fetcher;
pub mod reach;
mod request;

pub use fetcher::{ANSWER_BYTES, Fetcher, LONGEST};
pub use reach::Reach;
pub use request::{Answer, Failure, Request};
