//! RESP2 and RESP3, as far as servers need them: requests in, replies out.

mod parse;
mod reply;
mod skip;

pub use parse::{ARGUMENT_OVERHEAD, Frame, ParseError, ParseLimits, Parsed, parse};
pub use reply::{LONGEST_REPLY_BYTES, Protocol, Reply};
pub use skip::reply_length;
