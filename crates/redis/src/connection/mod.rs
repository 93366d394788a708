//! The life of a connection.
//!
//! **A pipeline** is what one read brought: all its commands are parsed and carried out before the replies go out in
//! one write. Commands take effect in the order in which they came. Reads run at once, where the connection lives;
//! adjacent GETs run as one batch, so that their cache misses overlap. Writes are collected too; before the next read and at the
//! end they are sent to the partitions' loops together and waited for, so a client reads its own writes.
//!
//! **Memory** of a connection is bounded: a command by the limits on what may be sent, replies by writing them out
//! whenever they exceed [`REPLY_BYTES`](output::REPLY_BYTES), one reply by [`LONGEST_REPLY_BYTES`](crate::resp::LONGEST_REPLY_BYTES), and an
//! idle connection has no buffers at all. While a client does not take its replies, nothing more is read from it or carried out for
//! it.
//!
//! **Time** that others wait for a connection of their thread is bounded by its turns; see [`turn`]. How long a client waits for what
//! cannot be done now is bounded by its commands' [`patience`].

mod admission;
mod batch;
mod cluster_command;
mod databases;
mod dispatch;
mod execute;
mod forwarding;
mod frame;
mod gets;
mod http;
mod large_hashes;
mod metering;
mod open_transaction;
mod output;
mod over_partitions;
mod partitions;
mod patience;
mod pipeline;
mod point_reads;
mod replies;
mod scan_position;
mod server_commands;
mod session;
mod session_options;
mod table_commands;
#[cfg(test)]
mod tests;
mod transactions;
mod turn;
mod watches;

use crate::clients::Client;
use crate::commands::CommandError;
use crate::resp::{Frame, Reply};
use crate::server::RedisServer;
use batch::Batch;
pub(crate) use forwarding::carry_out;
use forwarding::{PendingForwards, Reach};
use patience::Patience;
use replies::Replies;
use session::Session;
use std::io;
use std::ops::Range;
use std::sync::Arc;
use std::time::Instant;
use tessera_face::{ClientShare, Stream};
use turn::Turn;

pub(crate) struct Connection {
    server: Arc<RedisServer>,
    client: Arc<Client>,
    /// `None` for commands of another node: replies stay where they are.
    stream: Option<Stream>,
    session: Session,
    memory: Arc<ClientShare>,
    input: Vec<u8>,
    output: Replies,
    /// Writes that are not sent yet.
    writes: Batch,
    /// Commands for other nodes that are not sent yet.
    forwards: PendingForwards,
    reach: Reach,
    /// Room for the arguments of the command being parsed.
    frame: Frame,
    /// Keys of GETs that wait to be run as a batch, as ranges of the input.
    gets: Vec<Range<usize>>,
    turn: Turn,
    /// When the commands that are carried out were read.
    arrived: Instant,
    patience: Patience,
    /// How many fields of a hash are read at a time.
    page: usize,
    /// Pending writes whose replies hold values.
    returning: usize,
    closing: bool,
}

impl Connection {
    pub(crate) fn new(server: Arc<RedisServer>, client: Arc<Client>, stream: Option<Stream>) -> Self {
        let (session, arrived) = (Session::new(&server), Instant::now());
        let memory = server.config.client_memory.join_with(client.end.clone());
        Self {
            memory,
            server,
            client,
            stream,
            session,
            input: Vec::new(),
            output: Replies::default(),
            writes: Batch::default(),
            forwards: PendingForwards::default(),
            reach: Reach::Cluster,
            frame: Frame::default(),
            gets: Vec::new(),
            turn: Turn::default(),
            arrived,
            patience: Patience::since(arrived),
            page: large_hashes::LONGEST_PAGE,
            returning: 0,
            closing: false,
        }
    }

    /// Serves until the client leaves, errs, is killed or stops reading.
    pub(crate) async fn run(mut self) {
        let (client, memory) = (self.client.clone(), self.memory.clone());
        self.session.show(&client);
        let serve = async {
            while !self.closing {
                let Some(stream) = &mut self.stream else { break };
                if stream.read(&mut self.input).await? == 0 || !self.memory.begin() {
                    break;
                }
                self.note_arrival();
                self.process().await?;
                self.patience.note_replies(&self.output);
                if self.patience.may_have_run_out() {
                    self.note_whether_patience_ran_out().await;
                }
                if let Some(written) = self.write_at_once()? {
                    self.write_rest(written).await?;
                }
                self.memory.answered();
            }
            Ok::<(), io::Error>(())
        };
        tokio::select! {
            biased;
            outcome = serve => {
                if let Err(error) = outcome {
                    tracing::debug!(client = client.id, %error, "connection lost");
                }
            }
            () = client.end.notified() => if memory.is_evicted() {
                tracing::warn!(
                    client = client.id,
                    address = %client.address,
                    bytes = memory.bytes(),
                    "clients hold more than `clients.memory_limit_bytes`, and this one, which holds the most, is closed"
                );
            }
        }
    }

    fn reply(&mut self) -> Reply<'_> {
        self.output.writer(self.session.protocol)
    }

    /// Answers a command that failed.
    fn refuse(&mut self, error: &CommandError) {
        self.output.error(self.session.protocol, error);
    }
}
