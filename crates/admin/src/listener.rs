use std::net::SocketAddr;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinSet;
use tokio_rustls::TlsAcceptor;
use tokio_rustls::server::TlsStream;

/// Accepts HTTP connections, over TLS if there is an acceptor.
pub struct AdminListener {
    listener: TcpListener,
    tls: Option<TlsAcceptor>,
    /// Handshakes under way, each of which may come to nothing.
    handshakes: JoinSet<Option<(AdminStream, SocketAddr)>>,
}

/// How long a TLS handshake may take.
const HANDSHAKE: Duration = Duration::from_secs(10);
/// Handshakes at one time; who comes then waits.
const HANDSHAKES: usize = 64;

impl AdminListener {
    pub fn new(listener: TcpListener, tls: Option<TlsAcceptor>) -> Self {
        Self { listener, tls, handshakes: JoinSet::new() }
    }
}

/// A connection, encrypted or not.
pub enum AdminStream {
    Plain(TcpStream),
    Tls(Box<TlsStream<TcpStream>>),
}

impl axum::serve::Listener for AdminListener {
    type Io = AdminStream;
    type Addr = SocketAddr;

    async fn accept(&mut self) -> (AdminStream, SocketAddr) {
        loop {
            let accepted = tokio::select! {
                Some(outcome) = self.handshakes.join_next() => match outcome {
                    Ok(Some(connection)) => return connection,
                    Ok(None) | Err(_) => continue,
                },
                accepted = self.listener.accept(), if self.handshakes.len() < HANDSHAKES => accepted,
            };
            match accepted {
                Ok((stream, address)) => match self.tls.clone() {
                    None => return (AdminStream::Plain(stream), address),
                    Some(acceptor) => _ = self.handshakes.spawn(handshake(acceptor, stream, address)),
                },
                Err(error) => {
                    tracing::warn!(%error, "an admin connection could not be accepted");
                    tokio::time::sleep(Duration::from_millis(100)).await;
                }
            }
        }
    }

    fn local_addr(&self) -> std::io::Result<SocketAddr> {
        self.listener.local_addr()
    }
}

async fn handshake(acceptor: TlsAcceptor, stream: TcpStream, address: SocketAddr) -> Option<(AdminStream, SocketAddr)> {
    let stream = tokio::time::timeout(HANDSHAKE, acceptor.accept(stream)).await.ok()?.ok()?;
    Some((AdminStream::Tls(Box::new(stream)), address))
}

impl AsyncRead for AdminStream {
    fn poll_read(self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<std::io::Result<()>> {
        match self.get_mut() {
            Self::Plain(stream) => Pin::new(stream).poll_read(cx, buf),
            Self::Tls(stream) => Pin::new(stream).poll_read(cx, buf),
        }
    }
}

impl AsyncWrite for AdminStream {
    fn poll_write(self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<std::io::Result<usize>> {
        match self.get_mut() {
            Self::Plain(stream) => Pin::new(stream).poll_write(cx, buf),
            Self::Tls(stream) => Pin::new(stream).poll_write(cx, buf),
        }
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<std::io::Result<()>> {
        match self.get_mut() {
            Self::Plain(stream) => Pin::new(stream).poll_flush(cx),
            Self::Tls(stream) => Pin::new(stream).poll_flush(cx),
        }
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<std::io::Result<()>> {
        match self.get_mut() {
            Self::Plain(stream) => Pin::new(stream).poll_shutdown(cx),
            Self::Tls(stream) => Pin::new(stream).poll_shutdown(cx),
        }
    }
}
