//! How long a connection may be silent.

use bytes::BytesMut;
use std::io;
use std::pin::Pin;
use std::time::{Duration, Instant};
use tokio::io::{AsyncRead, AsyncReadExt};
use tokio::time::Sleep;

/// Ends reading from a connection on which nothing has arrived for some time. It is set on only when it has run out: to start a timer
/// for each read would be a good part of what a request costs.
pub(crate) struct IdleTimer {
    limit: Duration,
    heard: Instant,
    timer: Pin<Box<Sleep>>,
}

impl IdleTimer {
    pub(crate) fn new(limit: Duration) -> Self {
        Self { limit, heard: Instant::now(), timer: Box::pin(tokio::time::sleep(limit)) }
    }

    /// Reads what has arrived, once something has.
    ///
    /// # Errors
    /// [`io::ErrorKind::TimedOut`] when nothing has arrived for as long as is allowed.
    pub(crate) async fn read(&mut self, from: &mut (impl AsyncRead + Unpin), into: &mut BytesMut) -> io::Result<usize> {
        loop {
            tokio::select! {
                biased;
                read = from.read_buf(into) => {
                    self.heard = Instant::now();
                    return read;
                }
                () = self.timer.as_mut() => {
                    if self.heard.elapsed() >= self.limit {
                        return Err(io::ErrorKind::TimedOut.into());
                    }
                    self.timer.as_mut().reset((self.heard + self.limit).into());
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tokio::io::AsyncWriteExt;

    #[tokio::test]
    async fn a_connection_ends_when_it_was_silent_for_long_and_not_when_it_is_old() {
        let limit = Duration::from_millis(50);
        let (mut one, mut other) = tokio::io::duplex(64);
        let (mut idle, mut input) = (IdleTimer::new(limit), BytesMut::new());
        for _ in 0..5 {
            // What waits when the time is over counts as well.
            tokio::time::sleep(limit).await;
            one.write_all(b"a").await.unwrap();
            assert_eq!(idle.read(&mut other, &mut input).await.unwrap(), 1);
        }
        let began = Instant::now();
        let error = idle.read(&mut other, &mut input).await.unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::TimedOut);
        assert!(began.elapsed() > limit / 2);
        assert_eq!(&input[..], b"aaaaa");
    }
}
