use crate::buffers;
use bytes::{BufMut, BytesMut};
use std::future::{Future, poll_fn};
use std::io;
use std::pin::pin;
use std::task::Poll;
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

/// Room for what one read may bring, where it is not lent.
const READ_BYTES: usize = 16 << 10;

/// A read that fills its room is followed by another one at once, until there are this many bytes. The commands of a pipeline that are
/// read together are sent to their partitions together.
const READ_AT_ONCE: usize = 64 << 10;

/// Bytes written at a time.
const WRITE_BYTES: usize = 1 << 20;

/// What a connection reads into.
pub trait Input: BufMut {
    /// Makes room for a read.
    fn make_room(&mut self);
    /// Lets go of the room if nothing is in it.
    fn drop_room(&mut self);
}

impl Input for Vec<u8> {
    fn make_room(&mut self) {
        buffers::take(self);
    }

    fn drop_room(&mut self) {
        if self.is_empty() {
            buffers::give_back(self);
        }
    }
}

impl Input for BytesMut {
    fn make_room(&mut self) {
        self.reserve(READ_BYTES);
    }

    fn drop_room(&mut self) {
        if self.is_empty() {
            *self = Self::new();
        }
    }
}

/// Waits for bytes and appends them. Returns how many; 0 at the end. Room for them is taken only once there are some, so that
/// an idle connection has none.
///
/// Cancellation: nothing is lost.
///
/// # Errors
/// Those of the socket.
pub(crate) async fn read<B: Input + Unpin>(stream: &mut TcpStream, input: &mut B) -> io::Result<usize> {
    loop {
        // The future that `readable` makes is a place in a list of waiting tasks, which costs more than the rest of a short read.
        poll_fn(|cx| stream.poll_read_ready(cx)).await?;
        let mut bytes = 0;
        loop {
            input.make_room();
            let room = input.chunk_mut().len();
            // Readiness may be a mere guess, as it is for a new connection. This way it is known to be over when a read did not
            // fill the room.
            let attempt = poll_fn(|cx| match pin!(stream.read_buf(input)).poll(cx) {
                Poll::Ready(outcome) => Poll::Ready(Some(outcome)),
                Poll::Pending => Poll::Ready(None),
            });
            match attempt.await {
                Some(Ok(read)) if read == room && bytes + read < READ_AT_ONCE => bytes += read,
                Some(Ok(read)) => return Ok(bytes + read),
                // What was read comes first; the error comes again.
                Some(Err(_)) | None if bytes > 0 => return Ok(bytes),
                Some(Err(error)) => return Err(error),
                None => break,
            }
        }
        input.drop_room();
        // Or tokio wants others to have their turn, and would say no more than that for ever.
        tokio::task::yield_now().await;
    }
}

/// Writes as many of `bytes` as there is room for, no more than [`WRITE_BYTES`], without waiting. Returns how many; 0 if there is no
/// room.
///
/// # Errors
/// Those of the socket.
pub(crate) fn try_write(stream: &TcpStream, bytes: &[u8]) -> io::Result<usize> {
    match stream.try_write(&bytes[..bytes.len().min(WRITE_BYTES)]) {
        Ok(0) if !bytes.is_empty() => Err(io::ErrorKind::WriteZero.into()),
        Err(error) if error.kind() == io::ErrorKind::WouldBlock => Ok(0),
        outcome => outcome,
    }
}

/// Writes all of `bytes`. Other tasks run between pieces of [`WRITE_BYTES`], since a client that reads as fast as this writes
/// never has it wait.
///
/// # Errors
/// Those of the socket, and [`no_longer_read`] if the client takes none of them for as long as `patience`.
pub(crate) async fn write(stream: &mut TcpStream, mut bytes: &[u8], patience: Duration) -> io::Result<()> {
    while !bytes.is_empty() {
        // Nearly always the socket's buffer has room, and no timer is needed.
        let written = match try_write(stream, bytes)? {
            0 => {
                let piece = &bytes[..bytes.len().min(WRITE_BYTES)];
                let written = tokio::time::timeout(patience, stream.write(piece)).await;
                match written.map_err(|_| no_longer_read())?? {
                    0 => return Err(io::ErrorKind::WriteZero.into()),
                    written => written,
                }
            }
            written => written,
        };
        bytes = &bytes[written..];
        if !bytes.is_empty() {
            tokio::task::yield_now().await;
        }
    }
    Ok(())
}

/// The error of a client that takes too long to read.
pub fn no_longer_read() -> io::Error {
    io::Error::new(io::ErrorKind::TimedOut, "the client does not read its replies")
}

#[cfg(test)]
mod tests {
    use super::*;
    use tokio::net::TcpListener;
    use tokio::task::coop::{consume_budget, has_budget_remaining};

    async fn connect() -> (TcpStream, TcpStream) {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let client = TcpStream::connect(listener.local_addr().unwrap()).await.unwrap();
        (client, listener.accept().await.unwrap().0)
    }

    /// It once tried again and again without letting anything else run, when a task had had its turn for long enough.
    #[tokio::test]
    async fn a_read_ends_when_the_task_has_used_up_its_turn() {
        let (mut client, mut stream) = connect().await;
        for round in 1..=3 {
            client.write_all(b"PING\r\n").await.unwrap();
            stream.readable().await.unwrap();
            while has_budget_remaining() {
                consume_budget().await;
            }
            let (mut lent, mut owned) = (Vec::new(), BytesMut::new());
            let bytes = match round {
                2 => read(&mut stream, &mut owned).await,
                _ => read(&mut stream, &mut lent).await,
            };
            assert_eq!(bytes.unwrap(), 6, "round {round}");
        }
    }

    /// A pipeline that was a little longer than the room of a read was once read in two pieces, or one command at a time.
    #[tokio::test]
    async fn what_has_arrived_is_read_together() {
        let (mut client, mut stream) = connect().await;
        for (sent, kept) in [(READ_BYTES + 700, 0), (READ_BYTES + 700, 1_000), (READ_AT_ONCE / 2, READ_BYTES - 1)] {
            let (mut input, mut owned) = (vec![1; kept], BytesMut::zeroed(kept));
            for round in 0..2 {
                client.write_all(&vec![7; sent]).await.unwrap();
                let mut arrived = vec![0; sent];
                while stream.peek(&mut arrived).await.unwrap() < sent {
                    tokio::task::yield_now().await;
                }
                let bytes = match round {
                    0 => read(&mut stream, &mut input).await,
                    _ => read(&mut stream, &mut owned).await,
                };
                assert_eq!(bytes.unwrap(), sent, "round {round} after {kept}");
            }
            assert_eq!((input.len(), owned.len()), (kept + sent, kept + sent));
        }
        // More than that comes in several pieces, so that others have their turn.
        client.write_all(&vec![7; 4 * READ_AT_ONCE]).await.unwrap();
        let mut input = Vec::new();
        while input.len() < 4 * READ_AT_ONCE {
            assert!(read(&mut stream, &mut input).await.unwrap() <= 2 * READ_AT_ONCE);
        }
        drop(client);
        assert_eq!(read(&mut stream, &mut input).await.unwrap(), 0);
    }

    #[tokio::test]
    async fn a_client_that_reads_nothing_is_given_up() {
        let (_client, mut stream) = connect().await;
        let outcome = write(&mut stream, &vec![0; 64 << 20], Duration::from_millis(50)).await;
        assert_eq!(outcome.unwrap_err().kind(), io::ErrorKind::TimedOut);
    }
}
