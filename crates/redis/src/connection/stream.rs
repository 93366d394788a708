use std::io;
use std::time::Duration;
use tessera_face::buffers;
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
            Self::Plain(stream) => tessera_face::read(stream, buffer).await,
            Self::Nowhere => Ok(0),
            Self::Tls(stream) => {
                buffers::take(buffer);
                stream.read_buf(buffer).await
            }
        }
    }

    /// Writes all of `bytes`; fails if the client takes none of them for as long as `patience`.
    pub(crate) async fn write(&mut self, mut bytes: &[u8], patience: Duration) -> io::Result<()> {
        let stream = match self {
            Self::Plain(stream) => return tessera_face::write(stream, bytes, patience).await,
            Self::Tls(stream) => stream,
            Self::Nowhere => return Ok(()),
        };
        while !bytes.is_empty() {
            let written = tokio::time::timeout(patience, stream.write(bytes)).await;
            match written.map_err(|_| tessera_face::no_longer_read())?? {
                0 => return Err(io::ErrorKind::WriteZero.into()),
                written => bytes = &bytes[written..],
            }
        }
        stream.flush().await
    }
}
