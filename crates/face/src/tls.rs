use rustls_pki_types::pem::PemObject;
use rustls_pki_types::{CertificateDer, PrivateKeyDer};
use std::fmt;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use tokio::net::TcpStream;
use tokio_rustls::TlsAcceptor;
use tokio_rustls::server::TlsStream;

/// What a node shows clients that speak TLS: its certificate, and that it has the key.
#[derive(Clone)]
pub struct Tls(TlsAcceptor);

/// Why a certificate and its key cannot be used.
#[derive(Debug)]
pub struct TlsError {
    path: PathBuf,
    reason: String,
}

impl fmt::Display for TlsError {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{}: {}", self.path.display(), self.reason)
    }
}

impl Tls {
    /// From files in PEM format.
    ///
    /// # Errors
    /// If the files cannot be read, or do not fit each other.
    pub fn load(certificate: &Path, key: &Path) -> Result<Self, TlsError> {
        let refuse = |path: &Path, error: &dyn fmt::Display| TlsError { path: path.into(), reason: error.to_string() };
        let chain = CertificateDer::pem_file_iter(certificate)
            .and_then(Iterator::collect::<Result<Vec<_>, _>>)
            .map_err(|error| refuse(certificate, &error))?;
        let private_key = PrivateKeyDer::from_pem_file(key).map_err(|error| refuse(key, &error))?;
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let config = rustls::ServerConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .and_then(|builder| builder.with_no_client_auth().with_single_cert(chain, private_key))
            .map_err(|error| refuse(certificate, &error))?;
        Ok(Self(TlsAcceptor::from(Arc::new(config))))
    }

    pub(crate) async fn accept(&self, stream: TcpStream) -> io::Result<TlsStream<TcpStream>> {
        self.0.accept(stream).await
    }
}

/// Whether what a client has sent begins as TLS does: with a record of a handshake, of any version.
pub fn begins_tls(bytes: &[u8]) -> bool {
    bytes.starts_with(&[0x16, 0x03])
}
