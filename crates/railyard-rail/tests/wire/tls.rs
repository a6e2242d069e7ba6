//! Certificates that must not be believed: not one byte of the request goes out, and the error names the check.

use std::path::Path;
use std::sync::Arc;

use railyard_core::{CallOutcome, ErrorCode};
use railyard_rail::{Client, ClientError};
use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, DnType, IsCa, KeyPair, SanType};
use rustls::ServerConfig;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, PrivatePkcs8KeyDer};
use tokio_rustls::TlsAcceptor;

use crate::client::{always, deliver_with, message, options, retryable};
use crate::receiver::{Act, Receiver};

/// An authority that the client knows, and the directory with its certificate.
struct Authority {
    issuer: CertifiedIssuer<'static, KeyPair>,
    directory: tempfile::TempDir,
}

impl Authority {
    fn new(name: &str) -> Self {
        let mut params = CertificateParams::default();
        params.distinguished_name.push(DnType::CommonName, name);
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let issuer = CertifiedIssuer::self_signed(params, KeyPair::generate().unwrap()).unwrap();
        let directory = tempfile::tempdir().unwrap();
        std::fs::write(directory.path().join("root.pem"), issuer.pem()).unwrap();
        Self { issuer, directory }
    }

    fn client(&self) -> Client {
        client_with(&self.directory.path().join("root.pem")).unwrap()
    }

    /// A receiver with a certificate of this authority for 127.0.0.1, changed first.
    async fn receiver(&self, change: impl FnOnce(&mut CertificateParams)) -> Receiver {
        let mut params = CertificateParams::default();
        params.subject_alt_names = vec![SanType::IpAddress("127.0.0.1".parse().unwrap())];
        change(&mut params);
        let key = KeyPair::generate().unwrap();
        let certificate = params.signed_by(&key, &self.issuer).unwrap();
        receiver(certificate.der().clone(), &key).await
    }
}

fn client_with(root: &Path) -> Result<Client, ClientError> {
    let mut options = options();
    options.extra_roots = vec![root.to_owned()];
    Client::new(&options)
}

async fn receiver(certificate: CertificateDer<'static>, key: &KeyPair) -> Receiver {
    let key = PrivateKeyDer::Pkcs8(PrivatePkcs8KeyDer::from(key.serialize_der()));
    let config = ServerConfig::builder_with_provider(Arc::new(rustls::crypto::ring::default_provider()))
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_no_client_auth()
        .with_single_cert(vec![certificate], key)
        .unwrap();
    let acceptor = TlsAcceptor::from(Arc::new(config));
    Receiver::script(vec![Act::answer(200, "")], Some(acceptor)).await
}

async fn call(client: &Client, receiver: &Receiver) -> CallOutcome {
    let message = message(&format!("https://127.0.0.1:{}/", receiver.port()));
    deliver_with(client, &message, always()).await.outcome
}

async fn refused(client: &Client, receiver: &Receiver, check: &str) {
    let outcome = call(client, receiver).await;
    let (code, detail) = retryable(&outcome);
    assert_eq!((code, code.answer_lost()), (ErrorCode::TlsFailed, false));
    assert!(detail.contains(check), "{detail}");
    receiver.until("the connection is gone", |seen| seen.iter().all(|one| one.ended)).await;
    assert!(receiver.seen().iter().all(|one| one.bytes.is_empty()), "not one byte of the request");
}

#[tokio::test]
async fn a_certificate_of_a_known_authority_is_taken() {
    let authority = Authority::new("known");
    let receiver = authority.receiver(|_| {}).await;
    let outcome = call(&authority.client(), &receiver).await;
    assert!(matches!(outcome, CallOutcome::Delivered(_)), "{outcome:?}");
}

#[tokio::test]
async fn expired_and_not_yet_valid() {
    let authority = Authority::new("known");
    let expired = authority.receiver(|params| params.not_after = rcgen::date_time_ymd(2020, 1, 1)).await;
    refused(&authority.client(), &expired, "expired").await;
    let early = authority.receiver(|params| params.not_before = rcgen::date_time_ymd(3000, 1, 1)).await;
    refused(&authority.client(), &early, "not valid yet").await;
}

#[tokio::test]
async fn for_another_host() {
    let authority = Authority::new("known");
    let receiver = authority
        .receiver(|params| params.subject_alt_names = vec![SanType::DnsName("example.com".try_into().unwrap())])
        .await;
    refused(&authority.client(), &receiver, "wrong host").await;
}

#[tokio::test]
async fn self_signed_and_of_an_unknown_authority() {
    let authority = Authority::new("known");
    let key = KeyPair::generate().unwrap();
    let certificate = CertificateParams::new(vec!["127.0.0.1".to_owned()]).unwrap().self_signed(&key).unwrap();
    let receiver = receiver(certificate.der().clone(), &key).await;
    refused(&authority.client(), &receiver, "self-signed").await;
    let stranger = Authority::new("stranger").receiver(|_| {}).await;
    refused(&authority.client(), &stranger, "issuer is unknown").await;
}

#[tokio::test]
async fn a_receiver_that_does_not_speak_tls_or_hangs_up() {
    let client = Authority::new("known").client();
    for greeting in ["HTTP/1.1 400 Bad Request\r\n\r\n", "SSH-2.0-OpenSSH_9.6\r\n", ""] {
        let receiver = Receiver::start(Act::Greet(greeting.as_bytes().to_vec())).await;
        let outcome = call(&client, &receiver).await;
        let (code, detail) = retryable(&outcome);
        assert_eq!((code, code.answer_lost()), (ErrorCode::TlsFailed, false), "{greeting}: {detail}");
    }
}

#[test]
fn roots_that_are_none_are_named() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("empty.pem");
    std::fs::write(&path, "nothing").unwrap();
    for path in [path, directory.path().join("missing.pem")] {
        let error = client_with(&path).err().unwrap().to_string();
        assert!(error.contains("extra_roots") && error.contains(path.to_str().unwrap()), "{error}");
    }
}
