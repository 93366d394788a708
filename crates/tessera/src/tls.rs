use crate::config::TlsSection;
use crate::exit::ExitError;
use rustls_pki_types::pem::PemObject;
use rustls_pki_types::{CertificateDer, PrivateKeyDer};
use std::sync::Arc;
use tokio_rustls::TlsAcceptor;

/// The acceptor that the configuration asks for, if it does.
///
/// # Errors
/// If the files cannot be read, or do not fit each other.
pub fn acceptor(section: &TlsSection) -> Result<Option<TlsAcceptor>, ExitError> {
    if section.certificate.as_os_str().is_empty() {
        return Ok(None);
    }
    let refuse = |path: &std::path::Path, error: &dyn std::fmt::Display| {
        ExitError::Config(format!("tls: {}: {error}", path.display()))
    };
    let chain = CertificateDer::pem_file_iter(&section.certificate)
        .and_then(Iterator::collect::<Result<Vec<_>, _>>)
        .map_err(|error| refuse(&section.certificate, &error))?;
    let key = PrivateKeyDer::from_pem_file(&section.key).map_err(|error| refuse(&section.key, &error))?;
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config = rustls::ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .and_then(|builder| builder.with_no_client_auth().with_single_cert(chain, key))
        .map_err(|error| refuse(&section.certificate, &error))?;
    Ok(Some(TlsAcceptor::from(Arc::new(config))))
}
