//! The signals that tell a node to stop.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::watch;

/// A node that is told to stop while it starts goes on until it has started, and stops in order then. If that takes longer, because it waits for
/// other nodes or has a long log to read, the process ends.
const WHILE_STARTING: Duration = Duration::from_secs(5);

/// SIGINT and SIGTERM. They do not end the process by themselves from the moment at which this is made: a node that ended while it starts would leave the
/// file that its log has in shared memory.
pub struct StopSignals {
    told: watch::Receiver<Option<&'static str>>,
    has_started: Arc<AtomicBool>,
}

impl StopSignals {
    /// Takes the signals from now on.
    ///
    /// # Errors
    /// If the system has no thread for that.
    pub fn take() -> io::Result<Self> {
        let (tell, told) = watch::channel(None);
        let has_started = Arc::new(AtomicBool::new(false));
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        let (mut interrupt, mut terminate) = {
            let _within = runtime.enter();
            (signal(SignalKind::interrupt())?, signal(SignalKind::terminate())?)
        };
        let started = has_started.clone();
        let take = async move {
            let word = tokio::select! {
                _ = interrupt.recv() => "interrupted",
                _ = terminate.recv() => "told to terminate",
            };
            tell.send_replace(Some(word));
            tokio::time::sleep(WHILE_STARTING).await;
            if !started.load(Ordering::Acquire) {
                tracing::info!("{word} while starting, ending");
                std::process::exit(0);
            }
        };
        std::thread::Builder::new().name("signals".into()).spawn(move || runtime.block_on(take))?;
        Ok(Self { told, has_started })
    }

    /// The node has started: from now on, whoever looks at [`Self::told`] ends it.
    pub fn note_started(&self) {
        self.has_started.store(true, Ordering::Release);
    }

    /// Waits for a signal, and says in a word what it was. One that has come before counts.
    pub async fn told(&mut self) -> &'static str {
        loop {
            if let Some(word) = *self.told.borrow_and_update() {
                return word;
            }
            if self.told.changed().await.is_err() {
                // The thread has told what there was to tell, or has panicked.
                std::future::pending::<()>().await;
            }
        }
    }
}
