//! TLS to a node of whose certificate the CLI was told: that of the authority that has signed it, or the node's own.
//!
//! rustls takes no certificate of which it does not know who has signed it, and none of an authority for a server, which one that its
//! owner has signed usually is (`openssl req -x509` makes such ones). Here such a certificate is taken if it is, byte for byte, one of
//! those that the caller named. Its name and its validity are looked at as ever.

use rustls::client::WebPkiServerVerifier;
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::server::ParsedCertificate;
use rustls::{
    CertificateError, ClientConfig, ClientConnection, DigitallySignedStruct, Error, OtherError, RootCertStore,
    SignatureScheme, StreamOwned,
};
use std::fmt;
use std::io::{Read, Write};
use std::sync::Arc;
use ureq::unversioned::transport::{
    Buffers, ConnectionDetails, Connector, Either, LazyBuffers, NextTimeout, Transport, TransportAdapter,
};

/// Makes connections with TLS from those without.
#[derive(Debug)]
pub(crate) struct TlsConnector {
    config: Arc<ClientConfig>,
}

impl TlsConnector {
    /// Trusts these certificates only, of authorities or of nodes.
    ///
    /// # Errors
    /// If one of them is no certificate.
    pub(crate) fn trusting(certificates: Vec<CertificateDer<'static>>) -> Result<Self, Error> {
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let mut roots = RootCertStore::empty();
        for certificate in &certificates {
            roots.add(certificate.clone())?;
        }
        let by_authority = WebPkiServerVerifier::builder_with_provider(Arc::new(roots), provider.clone()).build();
        let by_authority = by_authority.map_err(|error| Error::General(error.to_string()))?;
        let config = ClientConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()?
            .dangerous() // what rustls calls any verifier that is not its own
            .with_custom_certificate_verifier(Arc::new(NamedOrSigned { by_authority, named: certificates }))
            .with_no_client_auth();
        Ok(Self { config: Arc::new(config) })
    }
}

impl<In: Transport> Connector<In> for TlsConnector {
    type Out = Either<In, TlsTransport>;

    fn connect(&self, details: &ConnectionDetails<'_>, chained: Option<In>) -> Result<Option<Self::Out>, ureq::Error> {
        let Some(plain) = chained else { return Ok(None) };
        if !details.needs_tls() || plain.is_tls() {
            return Ok(Some(Either::A(plain)));
        }
        let host = details.uri.host().unwrap_or_default();
        let host = host.strip_prefix('[').and_then(|host| host.strip_suffix(']')).unwrap_or(host);
        let name =
            ServerName::try_from(host.to_owned()).map_err(|_| ureq::Error::Tls("the address has no host name"))?;
        let mut connection = ClientConnection::new(self.config.clone(), name)?;
        let mut socket = TransportAdapter::new(plain.boxed(), details.current_time.clone());
        socket.set_timeout(details.timeout);
        connection.complete_io(&mut socket)?;
        let buffers = LazyBuffers::new(details.config.input_buffer_size(), details.config.output_buffer_size());
        Ok(Some(Either::B(TlsTransport { buffers, stream: StreamOwned { conn: connection, sock: socket } })))
    }
}

/// A connection with TLS.
pub(crate) struct TlsTransport {
    buffers: LazyBuffers,
    stream: StreamOwned<ClientConnection, TransportAdapter>,
}

impl fmt::Debug for TlsTransport {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("TlsTransport").finish_non_exhaustive()
    }
}

impl Transport for TlsTransport {
    fn buffers(&mut self) -> &mut dyn Buffers {
        &mut self.buffers
    }

    fn transmit_output(&mut self, amount: usize, timeout: NextTimeout) -> Result<(), ureq::Error> {
        self.stream.get_mut().set_timeout(timeout);
        Ok(self.stream.write_all(&self.buffers.output()[..amount])?)
    }

    fn await_input(&mut self, timeout: NextTimeout) -> Result<bool, ureq::Error> {
        self.stream.get_mut().set_timeout(timeout);
        let amount = self.stream.read(self.buffers.input_append_buf())?;
        self.buffers.input_appended(amount);
        Ok(amount > 0)
    }

    fn is_open(&mut self) -> bool {
        self.stream.get_mut().get_mut().is_open()
    }

    fn is_tls(&self) -> bool {
        true
    }
}

/// Takes what rustls takes, and the certificates that were named.
#[derive(Debug)]
struct NamedOrSigned {
    by_authority: Arc<WebPkiServerVerifier>,
    named: Vec<CertificateDer<'static>>,
}

/// Whether rustls refuses a certificate for nothing but who has signed it, or that an authority has it. It looks at the validity before
/// that.
fn is_about_authorities(error: &Error) -> bool {
    match error {
        Error::InvalidCertificate(CertificateError::UnknownIssuer) => true,
        Error::InvalidCertificate(CertificateError::Other(OtherError(reason))) => {
            reason.downcast_ref::<webpki::Error>() == Some(&webpki::Error::CaUsedAsEndEntity)
        }
        _ => false,
    }
}

impl ServerCertVerifier for NamedOrSigned {
    fn verify_server_cert(
        &self,
        certificate: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        name: &ServerName<'_>,
        ocsp_response: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        match self.by_authority.verify_server_cert(certificate, intermediates, name, ocsp_response, now) {
            Err(error) if is_about_authorities(&error) && self.named.contains(certificate) => {
                rustls::client::verify_server_name(&ParsedCertificate::try_from(certificate)?, name)?;
                Ok(ServerCertVerified::assertion())
            }
            outcome => outcome,
        }
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        self.by_authority.verify_tls12_signature(message, certificate, signature)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        self.by_authority.verify_tls13_signature(message, certificate, signature)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.by_authority.supported_verify_schemes()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::path::Path;
    use std::process::Command;
    use std::time::Duration;

    /// A certificate that its owner has signed, or the named authority.
    fn certificate(directory: &Path, name: &str, authority: Option<&str>) -> CertificateDer<'static> {
        let path = directory.join(name);
        let file = |name: &str, kind: &str| directory.join(format!("{name}.{kind}"));
        let mut openssl = Command::new("openssl");
        openssl
            .args(["req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-days", "2"])
            .args(["-subj", &format!("/CN={name}"), "-addext", "subjectAltName=DNS:node.example", "-keyout"])
            .arg(file(name, "key"));
        if let Some(authority) = authority {
            openssl.args(["-addext", "basicConstraints=critical,CA:FALSE", "-CA"]).arg(file(authority, "pem"));
            openssl.arg("-CAkey").arg(file(authority, "key"));
        }
        run(openssl.arg("-out").arg(file(name, "pem")));
        run(Command::new("openssl")
            .args(["x509", "-outform", "DER", "-in"])
            .arg(file(name, "pem"))
            .arg("-out")
            .arg(&path));
        std::fs::read(path).unwrap().into()
    }

    fn run(command: &mut Command) {
        let made = command.output().unwrap();
        assert!(made.status.success(), "{}", String::from_utf8_lossy(&made.stderr));
    }

    #[test]
    fn a_certificate_that_was_named_still_has_to_be_valid_and_of_that_name() {
        let directory = tempfile::TempDir::new().unwrap();
        let [own, other] = ["own", "other"].map(|name| certificate(directory.path(), name, None));
        check(&own, &other);
        certificate(directory.path(), "authority", None);
        let [own, other] = ["signed", "another"].map(|name| certificate(directory.path(), name, Some("authority")));
        check(&own, &other);
    }

    /// That `own` is taken if it was named, and nothing else is.
    fn check(own: &CertificateDer<'static>, other: &CertificateDer<'static>) {
        let mut roots = RootCertStore::empty();
        roots.add(own.clone()).unwrap();
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let by_authority = WebPkiServerVerifier::builder_with_provider(Arc::new(roots), provider).build().unwrap();
        let verifier = NamedOrSigned { by_authority, named: vec![own.clone()] };
        let verify = |certificate: &CertificateDer<'_>, name: &'static str, days: u64| {
            let now = UnixTime::since_unix_epoch(
                Duration::from_secs(UnixTime::now().as_secs()) + Duration::from_secs(days * 86_400),
            );
            let name = ServerName::try_from(name).unwrap();
            verifier.verify_server_cert(certificate, &[], &name, &[], now).map(|_| ())
        };
        assert_eq!(verify(own, "node.example", 0), Ok(()));
        let refused = |outcome: Result<(), Error>| match outcome {
            Err(Error::InvalidCertificate(reason)) => reason,
            outcome => panic!("{outcome:?}"),
        };
        assert!(matches!(refused(verify(own, "node.example", 3)), CertificateError::ExpiredContext { .. }));
        assert!(matches!(
            refused(verify(own, "elsewhere.example", 0)),
            CertificateError::NotValidForNameContext { .. }
        ));
        assert!(is_about_authorities(&Error::InvalidCertificate(refused(verify(other, "node.example", 0)))));
    }
}
