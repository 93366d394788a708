//! Threads that work for the face as long as it is there.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{Builder, JoinHandle};

/// A thread that learns when it is to end, and is waited for then.
pub(crate) struct Background {
    ending: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Background {
    /// Starts a thread of this name. What it works is given what says whether it is to end; it is unparked when it is.
    ///
    /// # Errors
    /// If the thread cannot be started.
    pub(crate) fn start(name: &str, work: impl FnOnce(Arc<AtomicBool>) + Send + 'static) -> io::Result<Self> {
        let ending = Arc::new(AtomicBool::new(false));
        let is_ending = ending.clone();
        let thread = Builder::new().name(name.into()).spawn(move || work(is_ending))?;
        Ok(Self { ending, thread: Some(thread) })
    }
}

impl Drop for Background {
    fn drop(&mut self) {
        self.ending.store(true, Ordering::Release);
        if let Some(thread) = self.thread.take() {
            thread.thread().unpark();
            let _ = thread.join();
        }
    }
}
