//! Changefeeds: streams of what changes in tables.
//!
//! The argument of `changes` becomes [`Subject`](crate::stream::Subject)s: ranges of documents with what is made of each, or the first
//! rows of an order. A feed subscribes to the [`ChangeLog`](crate::change_log::ChangeLog) of each table, and what comes there becomes
//! messages for each subject ([`range`], [`window`]). It has no thread: whoever asks the stream for rows drives it, and is told to
//! wait where nothing has come.
//!
//! **Initial values and changes meet without a gap and without a double.** The log is opened first; documents are read after that,
//! and each page tells up to which change of its part it shows them. A change of a document that a page has shown counts only if it
//! came after that page. Where pages are in the order of primary keys, it is enough to remember where each page ended; where they
//! come by a secondary index, in which a document may move from one place to another between two pages, the documents themselves are
//! remembered until the log has passed the last page ([`seen`]).

mod message;
mod options;
mod range;
mod rows;
mod seen;
mod squash;
mod tail;
mod token;
mod window;

pub use options::FeedOptions;
pub use rows::FeedRows;
pub use token::read_resume_token;
