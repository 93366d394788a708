//! A connection to a server, with TLS or without.

use rustls::pki_types::ServerName;
use rustls::{ClientConfig, ClientConnection};
use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

/// Makes the settings of TLS: they trust the certificates of a PEM file, or, if none is named, those that this machine trusts.
pub type Trust = fn(Option<&Path>) -> anyhow::Result<Arc<ClientConfig>>;

/// How long a server may take to take a connection, and to answer what comes before the first request.
const PATIENCE: Duration = Duration::from_secs(5);

/// What to ask oneself where a server does not answer what is said to it without TLS.
pub const EXPECTS_TLS: &str = "does it expect TLS (--tls)?";

/// TLS to servers whose certificates have this name.
#[derive(Clone, Debug)]
pub struct ClientTls {
    pub config: Arc<ClientConfig>,
    pub name: ServerName<'static>,
}

/// A connection over a socket of the standard library, or of mio.
pub enum Socket<S> {
    Plain(S),
    Tls(Box<Session<S>>),
}

/// A connection with TLS. Reading waits for no write: a server that waits until its answers are taken takes nothing meanwhile.
pub struct Session<S> {
    connection: ClientConnection,
    stream: S,
}

impl Socket<TcpStream> {
    /// Connects, and shakes hands if there is TLS.
    ///
    /// # Errors
    /// If the server does not take the connection, or is not whom it should be.
    pub fn connect(address: SocketAddr, tls: Option<&ClientTls>) -> io::Result<Self> {
        let mut stream = TcpStream::connect_timeout(&address, PATIENCE)?;
        stream.set_nodelay(true)?;
        stream.set_read_timeout(Some(PATIENCE))?;
        let Some(ClientTls { config, name }) = tls else { return Ok(Self::Plain(stream)) };
        let connection = ClientConnection::new(config.clone(), name.clone());
        let mut connection = connection.map_err(io::Error::other)?;
        while connection.is_handshaking() {
            connection.complete_io(&mut stream)?;
        }
        Ok(Self::Tls(Box::new(Session { connection, stream })))
    }
}

impl<S> Socket<S> {
    /// The socket below.
    pub fn stream(&mut self) -> &mut S {
        match self {
            Self::Plain(stream) => stream,
            Self::Tls(session) => &mut session.stream,
        }
    }

    /// The same connection over the same socket, turned into another kind.
    pub fn map<T>(self, turn: impl FnOnce(S) -> T) -> Socket<T> {
        match self {
            Self::Plain(stream) => Socket::Plain(turn(stream)),
            Self::Tls(session) => {
                let Session { connection, stream } = *session;
                Socket::Tls(Box::new(Session { connection, stream: turn(stream) }))
            }
        }
    }

    /// Whether a read that has not filled its buffer has emptied the socket. A session gives what one record holds.
    pub fn is_emptied_by_short_reads(&self) -> bool {
        matches!(self, Self::Plain(_))
    }
}

impl<S: Read> Read for Socket<S> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        match self {
            Self::Plain(stream) => stream.read(buffer),
            Self::Tls(session) => session.read(buffer),
        }
    }
}

impl<S: Read> Session<S> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        loop {
            match self.connection.reader().read(buffer) {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                outcome => return outcome,
            }
            if self.connection.read_tls(&mut self.stream)? == 0 {
                return Ok(0);
            }
            self.connection.process_new_packets().map_err(|error| io::Error::new(io::ErrorKind::InvalidData, error))?;
        }
    }
}

impl<S: Write> Write for Socket<S> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match self {
            Self::Plain(stream) => stream.write(bytes),
            Self::Tls(session) => session.write(bytes),
        }
    }

    /// What a session has taken may not have been sent yet.
    fn flush(&mut self) -> io::Result<()> {
        match self {
            Self::Plain(stream) => stream.flush(),
            Self::Tls(session) => session.flush(),
        }
    }
}

impl<S: Write> Session<S> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.flush()?;
        self.connection.writer().write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        while self.connection.wants_write() {
            if self.connection.write_tls(&mut self.stream)? == 0 {
                return Err(io::ErrorKind::WriteZero.into());
            }
        }
        Ok(())
    }
}
