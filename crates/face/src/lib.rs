//! What the faces' connections have in common: buffers that they lend each other, and how they read and write sockets.

pub mod buffers;
mod socket;

pub use socket::{Input, no_longer_read, read, write};
