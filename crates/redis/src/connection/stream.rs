use super::buffers;
use std::future::{Future, poll_fn};
use std::io;
use std::pin::pin;
use std::task::Poll;
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio_rustls::server::TlsStream;

/// A connection's bytes, encrypted or not.
pub(crate) enum Stream {
    Plain(TcpStream),
    Tls(Box<TlsStream<TcpStream>>),
    /// Replies stay where they are: another node asked.
    Nowhere,
}

impl Stream {
    /// Waits for bytes and appends them. Returns how many; 0 at the end.
    ///
    /// A plain stream takes room for them only once there are some, so that an idle connection has no buffer.
    pub(crate) async fn read(&mut self, buffer: &mut Vec<u8>) -> io::Result<usize> {
        match self {
            Self::Plain(stream) => loop {
                stream.readable().await?;
                buffers::take(buffer);
                // Readiness may be a mere guess, as it is for a new connection: then the room is given back.
                let attempt = poll_fn(|cx| match pin!(stream.read_buf(buffer)).poll(cx) {
                    Poll::Ready(outcome) => Poll::Ready(Some(outcome)),
                    Poll::Pending => Poll::Ready(None),
                });
                match attempt.await {
                    Some(outcome) => return outcome,
                    None if buffer.is_empty() => buffers::give_back(buffer),
                    None => {}
                }
                // Or tokio wants others to have their turn, and would say no more than that for ever.
                tokio::task::yield_now().await;
            },
            Self::Nowhere => Ok(0),
            Self::Tls(stream) => {
                buffers::take(buffer);
                stream.read_buf(buffer).await
            }
        }
    }

    /// Writes all of `bytes`; fails if the client takes none of them for as long as `patience`.
    pub(crate) async fn write(&mut self, mut bytes: &[u8], patience: Duration) -> io::Result<()> {
        if let Self::Plain(stream) = self {
            // Nearly always the socket's buffer has room, and no timer is needed.
            match stream.try_write(bytes) {
                Ok(written) => bytes = &bytes[written..],
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                Err(error) => return Err(error),
            }
        }
        while !bytes.is_empty() {
            let write = async {
                match self {
                    Self::Plain(stream) => stream.write(bytes).await,
                    Self::Tls(stream) => stream.write(bytes).await,
                    Self::Nowhere => Ok(bytes.len()),
                }
            };
            match tokio::time::timeout(patience, write).await {
                Ok(Ok(0)) => return Err(io::ErrorKind::WriteZero.into()),
                Ok(Ok(written)) => bytes = &bytes[written..],
                Ok(Err(error)) => return Err(error),
                Err(_) => return Err(io::Error::new(io::ErrorKind::TimedOut, "the client does not read its replies")),
            }
        }
        if let Self::Tls(stream) = self {
            stream.flush().await?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tokio::net::TcpListener;
    use tokio::task::coop::{consume_budget, has_budget_remaining};

    /// It once tried again and again without letting anything else run, when a task had had its turn for long enough.
    #[tokio::test]
    async fn a_read_ends_when_the_task_has_used_up_its_turn() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let mut client = TcpStream::connect(listener.local_addr().unwrap()).await.unwrap();
        let mut stream = Stream::Plain(listener.accept().await.unwrap().0);
        for round in 1..=3 {
            client.write_all(b"PING\r\n").await.unwrap();
            let Stream::Plain(plain) = &stream else { unreachable!() };
            plain.readable().await.unwrap();
            while has_budget_remaining() {
                consume_budget().await;
            }
            let mut buffer = Vec::new();
            assert_eq!(stream.read(&mut buffer).await.unwrap(), 6, "round {round}");
        }
    }
}
