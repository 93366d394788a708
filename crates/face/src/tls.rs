use rustls_pki_types::pem::PemObject;
use rustls_pki_types::{CertificateDer, PrivateKeyDer, UnixTime};
use std::fmt;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};
use tokio::net::TcpStream;
use tokio_rustls::TlsAcceptor;
use tokio_rustls::server::TlsStream;

/// What a node shows clients that speak TLS: its certificate, and that it has the key.
#[derive(Clone)]
pub struct Tls {
    acceptor: TlsAcceptor,
    ends: Option<SystemTime>,
}

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
        let ends = chain.iter().filter_map(end_of).min();
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let config = rustls::ServerConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .and_then(|builder| builder.with_no_client_auth().with_single_cert(chain, private_key))
            .map_err(|error| refuse(certificate, &error))?;
        Ok(Self { acceptor: TlsAcceptor::from(Arc::new(config)), ends })
    }

    /// When the certificate, or that of an authority beside it, is no longer valid. `None` if it does not tell.
    pub fn ends(&self) -> Option<SystemTime> {
        self.ends
    }

    pub(crate) async fn accept(&self, stream: TcpStream) -> io::Result<TlsStream<TcpStream>> {
        self.acceptor.accept(stream).await
    }
}

/// When a certificate is no longer valid. webpki tells that only who uses the certificate too late, so it is used at the end of time.
fn end_of(certificate: &CertificateDer<'_>) -> Option<SystemTime> {
    let end_of_time = UnixTime::since_unix_epoch(Duration::from_secs(u64::MAX));
    let usage = webpki::KeyUsage::server_auth();
    let certificate = webpki::EndEntityCert::try_from(certificate).ok()?;
    match certificate.verify_for_usage(&[], &[], &[], end_of_time, usage, None, None) {
        Err(webpki::Error::CertExpired { not_after, .. }) => {
            UNIX_EPOCH.checked_add(Duration::from_secs(not_after.as_secs()))
        }
        _ => None,
    }
}

/// Whether what a client has sent begins as TLS does: with a record of a handshake, of any version.
pub fn begins_tls(bytes: &[u8]) -> bool {
    bytes.starts_with(&[0x16, 0x03])
}
