//! Certificates, good and bad, made anew for each receiver.

use std::net::SocketAddr;
use std::sync::Arc;

use rcgen::{BasicConstraints, CertificateParams, DnType, IsCa, Issuer, KeyPair, KeyUsagePurpose, date_time_ymd};
use rustls::crypto::ring;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use rustls::{ClientConfig, RootCertStore, ServerConfig};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio_rustls::{TlsAcceptor, TlsConnector};

/// A server certificate with the authority that clients are told to trust.
#[derive(Debug)]
pub struct Cert {
    ca_pem: String,
    chain: Vec<CertificateDer<'static>>,
    key: PrivateKeyDer<'static>,
}

impl Cert {
    /// Valid, for `localhost` and `127.0.0.1`.
    pub fn good() -> Cert {
        Cert::signed(&["localhost", "127.0.0.1"], (2020, 4096))
    }

    /// Signed by the right authority for the right names, but over since 2021.
    pub fn expired() -> Cert {
        Cert::signed(&["localhost", "127.0.0.1"], (2020, 2021))
    }

    /// Signed by the right authority, but for another host.
    pub fn wrong_host() -> Cert {
        Cert::signed(&["elsewhere.example"], (2020, 4096))
    }

    /// For the right names, but signed by itself and not by the authority.
    pub fn self_signed() -> Cert {
        let (ca, _) = authority();
        let key = KeyPair::generate().expect("ring makes keys");
        let cert = params(&["localhost", "127.0.0.1"], (2020, 4096)).self_signed(&key).expect("valid parameters");
        Cert::new(ca, cert.der().clone(), &key)
    }

    /// The authority to trust, as PEM; of a self-signed certificate one that did not sign it.
    pub fn ca_pem(&self) -> &str {
        &self.ca_pem
    }

    pub(super) fn acceptor(&self) -> TlsAcceptor {
        let config = ServerConfig::builder_with_provider(Arc::new(ring::default_provider()))
            .with_safe_default_protocol_versions()
            .expect("the provider speaks TLS 1.2 and 1.3")
            .with_no_client_auth()
            .with_single_cert(self.chain.clone(), self.key.clone_key())
            .expect("key and certificate were made together");
        TlsAcceptor::from(Arc::new(config))
    }

    fn signed(names: &[&str], years: (i32, i32)) -> Cert {
        let (ca, issuer) = authority();
        let key = KeyPair::generate().expect("ring makes keys");
        let cert = params(names, years).signed_by(&key, &issuer).expect("valid parameters");
        Cert::new(ca, cert.der().clone(), &key)
    }

    fn new(ca_pem: String, leaf: CertificateDer<'static>, key: &KeyPair) -> Cert {
        let key = PrivateKeyDer::try_from(key.serialize_der()).expect("rcgen writes PKCS#8");
        Cert { ca_pem, chain: vec![leaf], key }
    }
}

/// An authority whose certificates nodes show each other, for example.
pub struct Authority {
    pem: String,
    issuer: Issuer<'static, KeyPair>,
}

impl Authority {
    /// A new one, trusted by nobody yet.
    #[expect(clippy::new_without_default, reason = "each one is another authority")]
    pub fn new() -> Authority {
        let (pem, issuer) = authority();
        Authority { pem, issuer }
    }

    /// Its own certificate, as PEM.
    pub fn pem(&self) -> &str {
        &self.pem
    }

    /// A certificate for these names and its key, both as PEM.
    ///
    /// # Panics
    /// When a name is not one.
    pub fn issue(&self, names: &[&str]) -> (String, String) {
        let key = KeyPair::generate().expect("ring makes keys");
        let cert = params(names, (2020, 4096)).signed_by(&key, &self.issuer).expect("valid parameters");
        (cert.pem(), key.serialize_pem())
    }

    /// A client that shows a certificate of this authority for `name`, to servers of that name whose certificates are
    /// another authority's.
    ///
    /// # Panics
    /// When the name is not one.
    pub fn client(&self, name: &str, trusts: &Authority) -> TlsClient {
        let (own, key) = self.issue(&[name]);
        let own = CertificateDer::from_pem_slice(own.as_bytes()).expect("it was just made");
        let key = PrivateKeyDer::from_pem_slice(key.as_bytes()).expect("it was just made");
        let mut roots = RootCertStore::empty();
        let root = CertificateDer::from_pem_slice(trusts.pem.as_bytes()).expect("an authority's own certificate");
        roots.add(root).expect("an authority's own certificate");
        let config = ClientConfig::builder_with_provider(Arc::new(ring::default_provider()))
            .with_safe_default_protocol_versions()
            .expect("the provider speaks TLS 1.2 and 1.3")
            .with_root_certificates(roots)
            .with_client_auth_cert(vec![own], key)
            .expect("key and certificate were made together");
        let server = ServerName::try_from(name.to_owned()).expect("a plain name");
        TlsClient { connector: TlsConnector::from(Arc::new(config)), server }
    }
}

/// Somebody with a certificate, who calls a server.
#[derive(Clone)]
pub struct TlsClient {
    connector: TlsConnector,
    server: ServerName<'static>,
}

impl TlsClient {
    /// Connects. In TLS 1.3 the server's opinion of the client's certificate comes after that, with its first bytes.
    ///
    /// # Errors
    /// There is no server, or its certificate is not trusted.
    pub async fn connect(&self, to: SocketAddr) -> std::io::Result<impl AsyncRead + AsyncWrite + Unpin + use<>> {
        let stream = TcpStream::connect(to).await?;
        self.connector.connect(self.server.clone(), stream).await
    }
}

/// A new authority and its certificate as PEM.
fn authority() -> (String, Issuer<'static, KeyPair>) {
    let key = KeyPair::generate().expect("ring makes keys");
    let mut params = params(&[], (2020, 4096));
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
    params.distinguished_name.push(DnType::CommonName, "a test's authority");
    let pem = params.self_signed(&key).expect("valid parameters").pem();
    (pem, Issuer::new(params, key))
}

fn params(names: &[&str], (from, to): (i32, i32)) -> CertificateParams {
    let names: Vec<String> = names.iter().map(|name| (*name).to_owned()).collect();
    let mut params = CertificateParams::new(names).expect("plain names");
    params.not_before = date_time_ymd(from, 1, 1);
    params.not_after = date_time_ymd(to, 1, 1);
    params
}
