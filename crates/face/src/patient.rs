use crate::socket::no_longer_read;
use std::io::{self, IoSlice};
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::time::Sleep;

/// A stream that fails with [`no_longer_read`] if the other side takes nothing of what is written for too long, for those who write
/// to streams without a limit of their own.
pub struct Patient<S> {
    stream: S,
    patience: Duration,
    /// Ends the wait for the other side, while there is one.
    limit: Option<Pin<Box<Sleep>>>,
}

impl<S: Unpin> Patient<S> {
    /// Waits for as long as `patience`.
    pub fn new(stream: S, patience: Duration) -> Self {
        Self { stream, patience, limit: None }
    }

    fn within<T>(
        &mut self,
        cx: &mut Context<'_>,
        write: impl FnOnce(Pin<&mut S>, &mut Context<'_>) -> Poll<io::Result<T>>,
    ) -> Poll<io::Result<T>> {
        let written = write(Pin::new(&mut self.stream), cx);
        if written.is_ready() {
            self.limit = None;
            return written;
        }
        let limit = self.limit.get_or_insert_with(|| Box::pin(tokio::time::sleep(self.patience)));
        limit.as_mut().poll(cx).map(|()| Err(no_longer_read()))
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for Patient<S> {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, into: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_read(cx, into)
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for Patient<S> {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        self.within(cx, |stream, cx| stream.poll_write(cx, bytes))
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        pieces: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        self.within(cx, |stream, cx| stream.poll_write_vectored(cx, pieces))
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.within(cx, AsyncWrite::poll_flush)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.within(cx, AsyncWrite::poll_shutdown)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

    #[tokio::test]
    async fn only_who_takes_nothing_is_given_up() {
        let (near, mut far) = tokio::io::duplex(8);
        // The reader below takes longer than this in all, and much less from one byte to the next, also on a busy machine.
        let mut patient = Patient::new(near, Duration::from_secs(1));
        let slow = async {
            let mut byte = [0];
            for _ in 0..16 {
                tokio::time::timeout(Duration::from_secs(20), far.read_exact(&mut byte)).await.unwrap().unwrap();
                tokio::time::timeout(Duration::from_millis(100), std::future::pending::<()>()).await.unwrap_err();
            }
        };
        let (written, ()) = tokio::join!(patient.write_all(&[0; 24]), slow);
        written.unwrap();
        let written = tokio::time::timeout(Duration::from_secs(20), patient.write_all(&[0; 24])).await;
        assert_eq!(written.expect("it does not wait for ever").unwrap_err().kind(), io::ErrorKind::TimedOut);
    }
}
