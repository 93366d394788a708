//! What the faces' connections have in common: how they are accepted, buffers that they lend each other, how they read and write
//! sockets, with TLS or without, and how they are kept from waiting for each other before they have said who they are; and what
//! they tell of the process that they are in.

#![warn(missing_docs)]

pub mod buffers;
mod client_memory;
mod clients;
mod descriptors;
mod patient;
mod process;
mod socket;
mod stream;
mod tls;

pub use client_memory::{ClientMemory, ClientShare};
pub use clients::accept_clients;
pub use patient::Patient;
pub use process::resident_bytes;
pub use socket::{Input, no_longer_read};
pub use stream::{Stream, flush};
pub use tessera_transport::{Handshakes, accept};
pub use tls::{Tls, TlsError, begins_tls};
