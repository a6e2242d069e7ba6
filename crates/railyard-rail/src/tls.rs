//! TLS: the system's certificate authorities and those of the configuration; one crypto provider, named here and not
//! taken from whatever the process installed.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject;
use rustls::{CertificateError, ClientConfig, Error, RootCertStore};

/// Why the TLS configuration cannot be made.
#[derive(Debug, thiserror::Error)]
pub enum TlsError {
    /// A file of `extra_roots`.
    #[error("extra_roots: {}: {cause}", path.display())]
    ExtraRoot {
        /// Which.
        path: PathBuf,
        /// What is wrong with it.
        cause: String,
    },
    /// The crypto provider lacks what TLS 1.2 and 1.3 need: a build mistake.
    #[error("TLS cannot be set up: {0}")]
    Provider(#[from] Error),
}

/// Verifies receivers against the system's roots and `extra_roots` (PEM files).
pub(crate) fn client_config(extra_roots: &[PathBuf]) -> Result<ClientConfig, TlsError> {
    let mut roots = RootCertStore::empty();
    let native = rustls_native_certs::load_native_certs();
    for error in &native.errors {
        tracing::warn!(%error, "a certificate authority of the system cannot be read");
    }
    // Systems carry a few authorities that rustls does not take; the others are no worse for it.
    roots.add_parsable_certificates(native.certs);
    for path in extra_roots {
        add_extra(&mut roots, path).map_err(|cause| TlsError::ExtraRoot { path: path.clone(), cause })?;
    }
    if roots.is_empty() {
        tracing::warn!("no certificate authorities found: every https receiver will be refused as unknown");
    }
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let mut config = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()?
        .with_root_certificates(roots)
        .with_no_client_auth();
    config.alpn_protocols = vec![b"http/1.1".to_vec()];
    Ok(config)
}

fn add_extra(roots: &mut RootCertStore, path: &Path) -> Result<(), String> {
    let certificates: Vec<CertificateDer<'_>> = CertificateDer::pem_file_iter(path)
        .and_then(Iterator::collect)
        .map_err(|error| format!("is not a PEM file: {error}"))?;
    if certificates.is_empty() {
        return Err("has no certificate in it".to_owned());
    }
    for certificate in certificates {
        roots.add(certificate).map_err(|error| error.to_string())?;
    }
    Ok(())
}

/// Which check a handshake failed, in words for an operator.
pub(crate) fn explain(error: &Error) -> String {
    let Error::InvalidCertificate(problem) = error else {
        return format!("TLS handshake failed: {error}");
    };
    #[expect(
        clippy::wildcard_enum_match_arm,
        reason = "a list of another crate that may grow; the rest has its own words"
    )]
    let check = match problem {
        CertificateError::Expired | CertificateError::ExpiredContext { .. } => "it has expired",
        CertificateError::NotValidYet | CertificateError::NotValidYetContext { .. } => "it is not valid yet",
        CertificateError::NotValidForName | CertificateError::NotValidForNameContext { .. } => {
            "it is for another host (wrong host)"
        }
        CertificateError::UnknownIssuer => "its issuer is unknown (self-signed, or a private authority)",
        CertificateError::Revoked => "it was revoked",
        CertificateError::BadSignature => "its signature is wrong",
        _ => "it is not acceptable",
    };
    format!("certificate refused: {check}: {problem}")
}
