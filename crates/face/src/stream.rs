use crate::socket::{self, Input, no_longer_read};
use crate::tls::Tls;
use std::future::poll_fn;
use std::io::{self, IoSlice};

use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;
use tessera_transport::Handshakes;
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _, ReadBuf};
use tokio::net::TcpStream;
use tokio_rustls::server::TlsStream;

/// How long what a client still sends is read after the last reply to it.
const LINGER: Duration = Duration::from_secs(5);

/// A connection's bytes, over TLS or as they are.
pub enum Stream {
    /// As they are.
    Plain(TcpStream),
    /// Over TLS.
    Tls(Box<TlsStream<TcpStream>>),
}

impl Stream {
    /// Takes a connection in, over TLS if there is a certificate. How long the client takes for the handshake, and how many others
    /// do so at the same time, is bounded by [`Handshakes`]; see [`Self::accept_as_one_of`].
    ///
    /// # Errors
    /// If the client speaks no TLS, or none that both sides know.
    pub async fn accept(stream: TcpStream, tls: Option<&Tls>) -> io::Result<Self> {
        match tls {
            None => Ok(Self::Plain(stream)),
            Some(tls) => Ok(Self::Tls(Box::new(tls.accept(stream).await?))),
        }
    }

    /// Takes a connection in, with a handshake of TLS as one of `handshakes` if there is a certificate. Without one there is nothing
    /// to wait for.
    ///
    /// Cancellation: the handshake is given up.
    ///
    /// # Errors
    /// Those of [`Self::accept`] and of [`Handshakes::run`].
    pub async fn accept_as_one_of(handshakes: &Handshakes, stream: TcpStream, tls: Option<&Tls>) -> io::Result<Self> {
        match tls {
            None => Self::accept(stream, None).await,
            Some(tls) => handshakes.run(Self::accept(stream, Some(tls))).await,
        }
    }

    /// Waits for bytes and appends them. Returns how many; 0 at the end.
    ///
    /// A plain stream takes room for them only once there are some, so that an idle connection has no buffer.
    ///
    /// Cancellation: nothing is lost.
    ///
    /// # Errors
    /// Those of the socket, and of TLS.
    pub async fn read<B: Input + Unpin>(&mut self, input: &mut B) -> io::Result<usize> {
        match self {
            Self::Plain(stream) => socket::read(stream, input).await,
            Self::Tls(stream) => {
                input.make_room();
                stream.read_buf(input).await
            }
        }
    }

    /// Writes as many of `bytes` as there is room for at once: of a plain stream nearly always all of few, over TLS none. Returns how many.
    ///
    /// # Errors
    /// Those of the socket.
    #[inline]
    pub fn try_write(&self, bytes: &[u8]) -> io::Result<usize> {
        match self {
            Self::Plain(stream) => socket::try_write(stream, bytes),
            Self::Tls(_) => Ok(0),
        }
    }

    /// Writes as many of `bytes` as there is room for, without waiting. Returns how many.
    ///
    /// # Errors
    /// Those of the socket and of TLS.
    pub async fn write_at_once(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let Self::Tls(stream) = self else { return self.try_write(bytes) };
        let written = poll_fn(|cx| match Pin::new(&mut *stream).poll_write(cx, bytes) {
            Poll::Ready(written) => Poll::Ready(written),
            Poll::Pending => Poll::Ready(Ok(0)),
        })
        .await?;
        // What does not leave now leaves with what is written next.
        poll_fn(|cx| match Pin::new(&mut *stream).poll_flush(cx) {
            Poll::Ready(flushed) => Poll::Ready(flushed),
            Poll::Pending => Poll::Ready(Ok(())),
        })
        .await?;
        Ok(written)
    }

    /// Whether bytes have come that were not read.
    pub async fn has_input(&self) -> bool {
        let (socket, is_kept) = match self {
            Self::Plain(stream) => (stream, false),
            // What was decrypted and is not read yet keeps TLS from reading more.
            Self::Tls(stream) => (stream.get_ref().0, !stream.get_ref().1.wants_read()),
        };
        let mut byte = [0];
        let mut byte = ReadBuf::new(&mut byte);
        let peeked = poll_fn(|cx| match socket.poll_peek(cx, &mut byte) {
            Poll::Ready(peeked) => Poll::Ready(peeked.is_ok_and(|bytes| bytes > 0)),
            Poll::Pending => Poll::Ready(false),
        });
        is_kept || peeked.await
    }

    /// Writes all of `bytes`.
    ///
    /// # Errors
    /// Those of the socket and of TLS, and [`no_longer_read`] if the client takes none of them for as long as `patience`.
    pub async fn write(&mut self, mut bytes: &[u8], patience: Duration) -> io::Result<()> {
        let stream = match self {
            Self::Plain(stream) => return socket::write(stream, bytes, patience).await,
            Self::Tls(stream) => stream,
        };
        while !bytes.is_empty() {
            let written = tokio::time::timeout(patience, stream.write(bytes)).await;
            match written.map_err(|_| no_longer_read())?? {
                0 => return Err(io::ErrorKind::WriteZero.into()),
                written => bytes = &bytes[written..],
            }
        }
        flush(stream, patience).await
    }

    /// Ends the connection in a way that lets the client read what was written, even if it has not sent everything yet: nothing more is
    /// written, and what the client sends is read and thrown away until it closes, for [`LINGER`] at most. If a socket is closed
    /// while bytes are on their way to it, the client is told that the connection was reset, and loses what it has not read.
    pub async fn linger(&mut self) {
        let client_closes = async {
            self.shutdown().await?;
            let mut thrown_away = Vec::new();
            while self.read(&mut thrown_away).await? > 0 {
                thrown_away.clear();
            }
            Ok::<(), io::Error>(())
        };
        // Whether the client closes, breaks the connection or takes too long, it is over.
        let _ = tokio::time::timeout(LINGER, client_closes).await;
    }
}

/// Has what was written leave, if it has not yet: TLS keeps back what the socket has no room for.
///
/// # Errors
/// Those of the socket and of TLS, and [`no_longer_read`] if the client takes none of it for as long as `patience`.
pub async fn flush(stream: &mut (impl AsyncWrite + Unpin), patience: Duration) -> io::Result<()> {
    tokio::time::timeout(patience, stream.flush()).await.map_err(|_| no_longer_read())?
}

impl AsyncRead for Stream {
    fn poll_read(self: Pin<&mut Self>, cx: &mut Context<'_>, into: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Self::Plain(stream) => Pin::new(stream).poll_read(cx, into),
            Self::Tls(stream) => Pin::new(stream).poll_read(cx, into),
        }
    }
}

impl AsyncWrite for Stream {
    fn poll_write(self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        match self.get_mut() {
            Self::Plain(stream) => Pin::new(stream).poll_write(cx, bytes),
            Self::Tls(stream) => Pin::new(stream).poll_write(cx, bytes),
        }
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        pieces: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        match self.get_mut() {
            Self::Plain(stream) => Pin::new(stream).poll_write_vectored(cx, pieces),
            Self::Tls(stream) => Pin::new(stream).poll_write_vectored(cx, pieces),
        }
    }

    fn is_write_vectored(&self) -> bool {
        match self {
            Self::Plain(stream) => stream.is_write_vectored(),
            Self::Tls(stream) => stream.is_write_vectored(),
        }
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Self::Plain(stream) => Pin::new(stream).poll_flush(cx),
            Self::Tls(stream) => Pin::new(stream).poll_flush(cx),
        }
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Self::Plain(stream) => Pin::new(stream).poll_shutdown(cx),
            Self::Tls(stream) => Pin::new(stream).poll_shutdown(cx),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustls_pki_types::pem::PemObject as _;
    use rustls_pki_types::{CertificateDer, ServerName};
    use std::path::{Path, PathBuf};
    use std::process::Command;
    use std::sync::Arc;
    use tokio::net::TcpListener;
    use tokio_rustls::TlsConnector;

    fn certificate(directory: &Path) -> (PathBuf, Tls) {
        let (certificate, key) = (directory.join("certificate.pem"), directory.join("key.pem"));
        let mut openssl = Command::new("openssl");
        openssl.args("req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -days 2 -subj /CN=node".split(' '));
        let extensions = ["-addext", "subjectAltName=DNS:localhost", "-addext", "basicConstraints=CA:FALSE"];
        openssl.args(extensions).arg("-keyout").arg(&key).arg("-out").arg(&certificate);
        let made = openssl.output().unwrap();
        assert!(made.status.success(), "{}", String::from_utf8_lossy(&made.stderr));
        let tls = Tls::load(&certificate, &key).unwrap();
        (certificate, tls)
    }

    async fn connect() -> (TcpStream, TcpStream) {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let client = TcpStream::connect(listener.local_addr().unwrap()).await.unwrap();
        (client, listener.accept().await.unwrap().0)
    }

    async fn connect_with_tls() -> (tokio_rustls::client::TlsStream<TcpStream>, Stream) {
        let directory = tempfile::tempdir().unwrap();
        let (certificate, tls) = certificate(directory.path());
        let mut roots = rustls::RootCertStore::empty();
        roots.add(CertificateDer::from_pem_file(certificate).unwrap()).unwrap();
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let config = rustls::ClientConfig::builder_with_provider(provider).with_safe_default_protocol_versions();
        let config = config.unwrap().with_root_certificates(roots).with_no_client_auth();
        let (client, server) = connect().await;
        let connector = TlsConnector::from(Arc::new(config));
        let (client, server) = tokio::join!(
            connector.connect(ServerName::try_from("localhost").unwrap(), client),
            Stream::accept(server, Some(&tls))
        );
        (client.unwrap(), server.unwrap())
    }

    #[tokio::test]
    async fn bytes_arrive_over_tls_as_they_were_sent() {
        let (mut client, mut server) = connect_with_tls().await;
        let sent: Vec<u8> = (0..3_000_000_u32).flat_map(u32::to_le_bytes).collect();
        let answer = sent.clone();
        let serve = async move {
            let mut input = Vec::new();
            while input.len() < answer.len() {
                assert_ne!(server.read(&mut input).await.unwrap(), 0);
            }
            server.write(&input, Duration::from_secs(60)).await.unwrap();
            assert!(input == answer);
        };
        let ask = async {
            client.write_all(&sent).await.unwrap();
            client.flush().await.unwrap();
            let mut got = vec![0; sent.len()];
            client.read_exact(&mut got).await.unwrap();
            assert!(got == sent);
        };
        tokio::join!(serve, ask);
    }

    /// TLS keeps the end of what is written, and once waited without a limit for the client to take it.
    #[tokio::test]
    async fn a_client_that_reads_nothing_over_tls_is_given_up() {
        let (_client, mut server) = connect_with_tls().await;
        let outcome = tokio::time::timeout(Duration::from_secs(60), async {
            loop {
                if let Err(error) = server.write(&[0; 1000], Duration::from_millis(50)).await {
                    break error.kind();
                }
            }
        });
        assert_eq!(outcome.await.expect("it does not wait for ever"), io::ErrorKind::TimedOut);
    }

    #[tokio::test]
    async fn who_speaks_no_tls_does_not_come_in() {
        let directory = tempfile::tempdir().unwrap();
        let (_, tls) = certificate(directory.path());
        let handshakes = Handshakes::new(2, Duration::from_millis(50));
        let (mut client, server) = connect().await;
        client.write_all(b"PING\r\n").await.unwrap();
        let accept = async |server, tls| Stream::accept_as_one_of(&handshakes, server, tls).await;
        assert_eq!(accept(server, Some(&tls)).await.err().unwrap().kind(), io::ErrorKind::InvalidData);
        let (_silent, server) = connect().await;
        assert_eq!(accept(server, Some(&tls)).await.err().unwrap().kind(), io::ErrorKind::TimedOut);
        // Without a certificate there is nothing to wait for.
        let (_silent, server) = connect().await;
        assert!(matches!(accept(server, None).await, Ok(Stream::Plain(_))));
    }

    #[test]
    fn files_that_do_not_fit_are_named() {
        let directory = tempfile::tempdir().unwrap();
        let (file, _) = certificate(directory.path());
        let error = Tls::load(&file, &directory.path().join("none.pem")).err().unwrap().to_string();
        assert!(error.contains("none.pem: "), "{error}");
        let error = Tls::load(&file, &file).err().unwrap().to_string();
        assert!(error.contains("certificate.pem: "), "{error}");
    }
}
