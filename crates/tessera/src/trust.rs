//! Whose certificates the CLI trusts: those of the authorities that this machine trusts, or those that the user names: that of the
//! authority that has signed a node's certificate, or the node's own.
//!
//! rustls takes no certificate of which it does not know who has signed it, and none of an authority for a server, which one that its
//! owner has signed usually is (`openssl req -x509` makes such ones). Here such a certificate is taken if it is, byte for byte, one of
//! those that are trusted. Its name and its validity are looked at as ever.

use crate::exit::ExitError;
use rustls::client::WebPkiServerVerifier;
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::server::ParsedCertificate;
use rustls::{
    CertificateError, ClientConfig, DigitallySignedStruct, Error, OtherError, RootCertStore, SignatureScheme,
};
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// The variable that names a file in the place of the system's, as OpenSSL and curl know it.
const SYSTEM_FILE: &str = "SSL_CERT_FILE";
/// Where systems keep the authorities that they trust: Debian and its kin, Fedora and its kin, openSUSE, Alpine and the BSDs.
const SYSTEM_FILES: [&str; 4] = [
    "/etc/ssl/certs/ca-certificates.crt",
    "/etc/pki/tls/certs/ca-bundle.crt",
    "/etc/ssl/ca-bundle.pem",
    "/etc/ssl/cert.pem",
];

/// TLS that trusts the certificates of a PEM file and no others, or, if none is named, those that this machine trusts.
///
/// # Errors
/// If the file cannot be used, or this machine has none.
pub(crate) fn client_config(cacert: Option<&Path>) -> Result<Arc<ClientConfig>, ExitError> {
    let (path, named_by) = match cacert {
        Some(path) => (path.to_path_buf(), "--cacert "),
        None => match std::env::var_os(SYSTEM_FILE).filter(|path| !path.is_empty()) {
            Some(path) => (PathBuf::from(path), "SSL_CERT_FILE="),
            None => (system_file(&SYSTEM_FILES)?, ""),
        },
    };
    let usage = |reason: String| ExitError::Usage(format!("{named_by}{}: {reason}", path.display()));
    let certificates = certificates(&path).map_err(usage)?;
    // One odd certificate among many of a system is no reason to trust none of them.
    let (roots, unusable) = roots(&certificates);
    match unusable.filter(|_| cacert.is_some() || roots.is_empty()) {
        Some(error) => Err(usage(error.to_string())),
        None => trusting(certificates, roots, false).map_err(|error| usage(error.to_string())),
    }
}

/// TLS with a node that this process has started with a certificate of a file. That is what it has to show; which names and dates stand in it
/// is for its clients to look at.
///
/// # Errors
/// If the file cannot be used.
pub(crate) fn client_config_of_own(certificate: &Path) -> Result<Arc<ClientConfig>, ExitError> {
    let usage = |reason: String| ExitError::Usage(format!("{}: {reason}", certificate.display()));
    let mut certificates = certificates(certificate).map_err(usage)?;
    certificates.truncate(1); // those behind it are of authorities
    let (roots, _) = roots(&certificates);
    trusting(certificates, roots, true).map_err(|error| usage(error.to_string()))
}

/// What stands in a PEM file, which is something.
fn certificates(path: &Path) -> Result<Vec<CertificateDer<'static>>, String> {
    let pem = std::fs::read(path).map_err(|error| error.to_string())?;
    let found: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(&pem).collect();
    let found = found.map_err(|error| error.to_string())?;
    if found.is_empty() { Err("there is no certificate in the file".into()) } else { Ok(found) }
}

/// The first of these files that there is.
fn system_file(files: &[&str]) -> Result<PathBuf, ExitError> {
    let found = files.iter().map(PathBuf::from).find(|path| path.is_file());
    found.ok_or_else(|| {
        ExitError::Usage(format!(
            "this machine has none of the files in which systems keep the authorities that they trust ({}); name the certificate to \
             trust with --cacert, or such a file with {SYSTEM_FILE}",
            files.join(", ")
        ))
    })
}

/// What can be used of these certificates, and why another one cannot.
fn roots(certificates: &[CertificateDer<'static>]) -> (RootCertStore, Option<Error>) {
    let (mut roots, mut unusable) = (RootCertStore::empty(), None);
    for certificate in certificates {
        unusable = roots.add(certificate.clone()).err().or(unusable);
    }
    (roots, unusable)
}

fn trusting(
    named: Vec<CertificateDer<'static>>,
    roots: RootCertStore,
    is_own: bool,
) -> Result<Arc<ClientConfig>, Error> {
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let by_authority = WebPkiServerVerifier::builder_with_provider(Arc::new(roots), provider.clone()).build();
    let by_authority = by_authority.map_err(|error| Error::General(error.to_string()))?;
    let config = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()?
        .dangerous() // what rustls calls any verifier that is not its own
        .with_custom_certificate_verifier(Arc::new(NamedOrSigned { by_authority, named, is_own }))
        .with_no_client_auth();
    Ok(Arc::new(config))
}

/// Takes what rustls takes, and the certificates that were named.
#[derive(Debug)]
struct NamedOrSigned {
    by_authority: Arc<WebPkiServerVerifier>,
    named: Vec<CertificateDer<'static>>,
    /// Whether those that were named are taken whatever stands in them.
    is_own: bool,
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
        if self.is_own && self.named.contains(certificate) {
            return Ok(ServerCertVerified::assertion());
        }
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
    fn the_first_file_of_the_system_is_used_and_a_system_without_one_is_told_of_the_way_on() {
        let directory = tempfile::TempDir::new().unwrap();
        let [first, second] = ["first.pem", "second.pem"].map(|name| directory.path().join(name));
        std::fs::write(&second, "").unwrap();
        let files = [first.to_str().unwrap(), second.to_str().unwrap()];
        assert_eq!(system_file(&files).unwrap(), second);
        let error = system_file(&files[..1]).unwrap_err().to_string();
        assert!(error.contains("--cacert") && error.contains("SSL_CERT_FILE") && error.contains(files[0]), "{error}");
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
        let verifier = NamedOrSigned { by_authority, named: vec![own.clone()], is_own: false };
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
