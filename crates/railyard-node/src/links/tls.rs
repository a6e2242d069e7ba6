//! Mutual TLS 1.3 between nodes: each shows a certificate of the same authority that carries the name all nodes share.
//!
//! Files are read at start and again when what is in them has changed, which is how certificates are renewed; a pair
//! that cannot be used leaves the last good one in place.

#[cfg(test)]
mod tests;

use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};

use arc_swap::ArcSwap;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use rustls::server::{ParsedCertificate, WebPkiClientVerifier};
use rustls::{ClientConfig, RootCertStore, ServerConfig};
use sha2::{Digest, Sha256};
use tokio::net::TcpStream;
use tokio_rustls::{TlsAcceptor, TlsConnector};

use super::options::TlsFiles;
use super::refused::Refused;
use super::stream::Connection;

/// One pair of configurations.
struct Tls {
    acceptor: TlsAcceptor,
    connector: TlsConnector,
    name: ServerName<'static>,
}

/// The newest that could be used.
pub(crate) struct Reloading {
    files: TlsFiles,
    current: ArcSwap<Tls>,
    /// Digest of the files' contents when they were read last, good or bad.
    seen: Mutex<[u8; 32]>,
}

impl Reloading {
    /// # Errors
    /// What cannot be used, with the file's path.
    pub(crate) fn load(files: TlsFiles) -> Result<Self, String> {
        let contents = Contents::read(&files)?;
        let seen = Mutex::new(contents.digest());
        let current = ArcSwap::from_pointee(contents.tls(&files)?);
        Ok(Self { files, current, seen })
    }

    /// Reads the files again. True: there is something new in use.
    ///
    /// # Errors
    /// What has changed and cannot be used; said once per change.
    pub(crate) fn refresh(&self) -> Result<bool, String> {
        let contents = Contents::read(&self.files)?;
        let digest = contents.digest();
        let seen = std::mem::replace(&mut *self.seen.lock().unwrap_or_else(PoisonError::into_inner), digest);
        if seen == digest {
            return Ok(false);
        }
        self.current.store(Arc::new(contents.tls(&self.files)?));
        Ok(true)
    }

    /// The server's side. The caller sets the deadline.
    pub(crate) async fn accept(&self, stream: TcpStream) -> Result<Box<dyn Connection>, Refused> {
        let tls = self.current.load_full();
        let stream = tls.acceptor.accept(stream).await.map_err(|error| Refused::from_io(&error))?;
        let shown = stream.get_ref().1.peer_certificates().and_then(<[_]>::first);
        let shown = shown.ok_or(Refused::Certificate)?;
        let parsed = ParsedCertificate::try_from(shown).map_err(|_| Refused::Certificate)?;
        rustls::client::verify_server_name(&parsed, &tls.name).map_err(|_| Refused::Certificate)?;
        Ok(Box::new(stream))
    }

    /// The client's side. That the server refuses our certificate shows at the first read only.
    pub(crate) async fn connect(&self, stream: TcpStream) -> Result<Box<dyn Connection>, Refused> {
        let tls = self.current.load_full();
        let connected = tls.connector.connect(tls.name.clone(), stream).await;
        Ok(Box::new(connected.map_err(|error| Refused::from_io(&error))?))
    }
}

/// What stands in the files.
struct Contents {
    certificate: Vec<u8>,
    key: zeroize::Zeroizing<Vec<u8>>,
    authority: Vec<u8>,
}

impl Contents {
    fn read(files: &TlsFiles) -> Result<Self, String> {
        let read = |path: &Path| std::fs::read(path).map_err(|error| format!("{}: {error}", path.display()));
        Ok(Self {
            certificate: read(&files.certificate)?,
            key: read(&files.key)?.into(),
            authority: read(&files.authority)?,
        })
    }

    fn digest(&self) -> [u8; 32] {
        let mut digest = Sha256::new();
        for part in [&self.certificate, &*self.key, &self.authority] {
            digest.update(Sha256::digest(part));
        }
        digest.finalize().into()
    }

    fn tls(&self, files: &TlsFiles) -> Result<Tls, String> {
        let wrong = |path: &Path, what: &dyn std::fmt::Display| format!("{}: {what}", path.display());
        let own = certificates(&self.certificate).map_err(|what| wrong(&files.certificate, &what))?;
        let key = || PrivateKeyDer::from_pem_slice(&self.key).map_err(|_| wrong(&files.key, &"no key in PEM"));
        let mut roots = RootCertStore::empty();
        for root in certificates(&self.authority).map_err(|what| wrong(&files.authority, &what))? {
            roots.add(root).map_err(|error| wrong(&files.authority, &error))?;
        }
        let roots = Arc::new(roots);
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let versions = [&rustls::version::TLS13];
        let verifier = WebPkiClientVerifier::builder_with_provider(Arc::clone(&roots), Arc::clone(&provider))
            .build()
            .map_err(|error| wrong(&files.authority, &error))?;
        let server = ServerConfig::builder_with_provider(Arc::clone(&provider))
            .with_protocol_versions(&versions)
            .map_err(|error| error.to_string())?
            .with_client_cert_verifier(verifier)
            .with_single_cert(own.clone(), key()?)
            .map_err(|error| wrong(&files.certificate, &error))?;
        let client = ClientConfig::builder_with_provider(provider)
            .with_protocol_versions(&versions)
            .map_err(|error| error.to_string())?
            .with_root_certificates(roots)
            .with_client_auth_cert(own, key()?)
            .map_err(|error| wrong(&files.certificate, &error))?;
        let name = ServerName::try_from(files.name.clone()).map_err(|_| format!("{}: is no host name", files.name))?;
        Ok(Tls { acceptor: Arc::new(server).into(), connector: Arc::new(client).into(), name })
    }
}

fn certificates(pem: &[u8]) -> Result<Vec<CertificateDer<'static>>, String> {
    let found: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(pem).collect();
    match found {
        Ok(found) if !found.is_empty() => Ok(found),
        Ok(_) | Err(_) => Err("no certificate in PEM".to_owned()),
    }
}
