//! Queries as they come in: a token (`i64`), the length of the text (`u32`), and the text. Numbers are little-endian.

use crate::memory::{self, Held, Kept};
use bytes::Buf as _;
use std::io;
use std::sync::Arc;
use tokio::io::{AsyncBufReadExt as _, AsyncRead, AsyncReadExt as _, BufReader};

/// A token and a length.
pub(crate) const HEAD_BYTES: usize = 12;
/// Read at once: a short query with its head. Each connection has as much.
pub(crate) const READ_BYTES: usize = 1024;

/// The queries of a connection, one after the other.
pub(crate) struct Frames<R> {
    reader: BufReader<R>,
    held: Arc<Held>,
    /// The longest query, in bytes.
    limit: usize,
}

/// What comes next.
pub(crate) enum Incoming {
    Query {
        token: i64,
        text: Vec<u8>,
        kept: Kept,
    },
    /// A query that is longer than it may be. What follows on the connection is its text, and nothing of it was read.
    TooLong {
        token: i64,
        length: usize,
    },
    /// The client has left.
    End,
}

impl<R: AsyncRead + Unpin> Frames<R> {
    pub(crate) fn new(reader: R, held: Arc<Held>, limit: usize) -> Self {
        Self { reader: BufReader::with_capacity(READ_BYTES, reader), held, limit }
    }

    /// The connection, without what was read of it and not taken.
    pub(crate) fn into_inner(self) -> R {
        self.reader.into_inner()
    }

    /// Waits for the next query.
    ///
    /// Cancellation: what has come of a query is lost, so that nothing can be read after it.
    ///
    /// # Errors
    /// Those of the stream in the midst of a query.
    pub(crate) async fn next(&mut self) -> io::Result<Incoming> {
        let mut head = [0; HEAD_BYTES];
        if self.reader.read_exact(&mut head).await.is_err() {
            return Ok(Incoming::End);
        }
        let mut fields = &head[..];
        let (token, length) = (fields.get_i64_le(), fields.get_u32_le() as usize);
        if length > self.limit {
            return Ok(Incoming::TooLong { token, length });
        }
        // Room is made as it comes: what is only announced takes no memory.
        let (mut text, mut kept) = (Vec::with_capacity(length.min(READ_BYTES)), self.held.keep(0));
        let mut rest = (&mut self.reader).take(length as u64);
        while text.len() < length {
            if rest.read_buf(&mut text).await? == 0 {
                return Ok(Incoming::End);
            }
            kept.change(text.capacity());
        }
        kept.change(memory::cost(&text));
        Ok(Incoming::Query { token, text, kept })
    }

    /// Waits until the client has left, if nothing has come of it that is not taken.
    ///
    /// Cancellation: nothing is lost.
    pub(crate) async fn left(&mut self) {
        if self.reader.fill_buf().await.is_ok_and(|bytes| !bytes.is_empty()) {
            std::future::pending().await
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tessera_face::ClientMemory;
    use tokio::io::{AsyncWriteExt as _, DuplexStream};

    fn head(token: i64, length: u32) -> Vec<u8> {
        [&token.to_le_bytes()[..], &length.to_le_bytes()].concat()
    }

    /// A connection that stays open, and that has brought `bytes`.
    async fn frames(bytes: &[u8]) -> (DuplexStream, Frames<DuplexStream>, Arc<ClientMemory>) {
        let (mut client, server) = tokio::io::duplex(1 << 20);
        client.write_all(bytes).await.unwrap();
        let memory = ClientMemory::new(0);
        (client, Frames::new(server, Held::new(memory.join()), 1 << 20), memory)
    }

    #[tokio::test]
    async fn queries_come_one_after_the_other() {
        let long = vec![b'x'; 100_000];
        let bytes = [&head(-1, 3)[..], b"[4]", &head(7, 0), &head(8, 100_000), &long].concat();
        let (client, mut frames, memory) = frames(&bytes).await;
        for (number, query) in [(-1, &b"[4]"[..]), (7, b""), (8, &long)] {
            let Incoming::Query { token, text, kept } = frames.next().await.unwrap() else { panic!("{number}") };
            assert_eq!((token, &text[..]), (number, query));
            assert_eq!(memory.used(), if number == 8 { 100_000 } else { 0 });
            drop(kept);
        }
        drop(client);
        assert!(matches!(frames.next().await.unwrap(), Incoming::End));
        assert_eq!(memory.used(), 0);
    }

    #[tokio::test]
    async fn a_query_that_is_too_long_is_refused_when_it_is_announced() {
        let (_client, mut frames, _) = frames(&head(5, (1 << 20) + 1)).await;
        let Incoming::TooLong { token, length } = frames.next().await.unwrap() else { panic!("it is too long") };
        assert_eq!((token, length), (5, (1 << 20) + 1));
    }

    #[tokio::test]
    async fn what_is_only_announced_takes_no_memory() {
        let announced = 1 << 20;
        for sent in [0, 1, 1000, 70_000] {
            let (_client, mut frames, memory) = frames(&[head(5, announced), vec![b'x'; sent]].concat()).await;
            let waits = tokio::time::timeout(std::time::Duration::ZERO, frames.next()).await.is_err();
            assert!(waits && memory.used() <= 2 * sent, "{sent}: {}", memory.used());
        }
    }
}
