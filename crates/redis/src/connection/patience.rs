//! How long commands wait for partitions that have no leader, or whose keys transactions hold: [`PATIENCE`], counted from when they
//! were read. What follows in a pipeline does not wait anew, however long the pipeline is, and while something waits, the replies to
//! the commands before it are sent.

use super::Connection;
use super::forwarding::Front;
use super::replies::Replies;
use std::future::Future;
use std::pin::pin;
use std::time::{Duration, Instant};
use tessera_store::{PATIENCE, Table};
use tessera_types::RequestError;

/// When something has taken this long, the replies before it are sent; and again after as long.
const HELD_BACK: Duration = Duration::from_millis(20);

/// Until when the commands of a connection wait that were read last.
pub(super) struct Patience {
    until: Instant,
    /// Whether replies to these commands that were sent said that something was not done.
    gave_up: bool,
    /// Whether it ran out in the middle of a pipeline.
    ran_out: bool,
}

impl Patience {
    /// Of commands that were read then.
    pub(super) fn since(arrived: Instant) -> Self {
        Self { until: arrived + PATIENCE, gave_up: false, ran_out: false }
    }

    /// When it is over.
    pub(super) fn until(&self) -> Instant {
        self.until
    }

    /// Notes what replies to these commands say.
    pub(super) fn note_replies(&mut self, replies: &Replies) {
        self.gave_up |= replies.say_undone();
    }

    /// Whether it may have run out.
    pub(super) fn may_have_run_out(&self) -> bool {
        self.ran_out || self.gave_up
    }
}

impl Connection {
    /// Notes that commands were read. Those that had come already when the ones before them were given up have no patience of their own:
    /// they belong to the same pipeline, of which a part at a time is read. Of a pipeline without an end, commands wait again after a
    /// while.
    pub(super) fn note_arrival(&mut self) {
        self.arrived = Instant::now();
        if self.patience.ran_out && self.arrived.saturating_duration_since(self.patience.until) < PATIENCE {
            self.patience.gave_up = false;
        } else {
            self.patience = Patience::since(self.arrived);
        }
    }

    /// Looks, before the replies are sent, whether patience ran out in the middle of a pipeline.
    pub(super) async fn note_whether_patience_ran_out(&mut self) {
        let is_over = Instant::now() >= self.patience.until;
        self.patience.ran_out = is_over
            && match &self.stream {
                Some(stream) => stream.has_input().await,
                None => false,
            };
    }

    /// Waits for what does not need the connection. If it takes long, replies are sent meanwhile: those to the commands before it, and
    /// those that are made at its `front`.
    pub(super) async fn wait_for<T>(&mut self, front: Option<&Front>, work: impl Future<Output = T>) -> T {
        let nothing_comes_before = self.output.is_empty() && front.is_none_or(Front::is_of_one);
        if nothing_comes_before || self.stream.is_none() {
            return work.await;
        }
        let mut work = pin!(work);
        loop {
            // On the heap: it is short-lived, and would make every connection larger.
            if let Ok(done) = Box::pin(tokio::time::timeout(HELD_BACK, work.as_mut())).await {
                return done;
            }
            if let Some(front) = front {
                self.output.append(front.take());
                self.output.note_complete();
            }
            self.send_what_is_complete().await;
        }
    }

    /// Waits until a partition holds nothing any more that transactions have in it by now.
    pub(super) async fn await_intents(&mut self, table: &Table, partition: u32) -> Result<(), RequestError> {
        let (server, until) = (self.server.clone(), self.patience.until());
        self.wait_for(None, server.store.await_intents(table, partition, until)).await
    }

    /// Sends as much as the client takes at once.
    async fn send_what_is_complete(&mut self) {
        let replies = self.output.complete_and_unsent();
        if let Some(stream) = self.stream.as_mut().filter(|_| !replies.is_empty()) {
            // Who sends the rest finds what is wrong with the stream.
            let sent = stream.write_at_once(replies).await.unwrap_or_default();
            self.output.note_sent(sent);
        }
    }
}
