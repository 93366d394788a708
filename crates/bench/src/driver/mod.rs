//! How operations reach a server.

mod redis;

pub use redis::{Encoder, ReplyCounter};
