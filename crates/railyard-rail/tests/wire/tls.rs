//! Certificates that must not be believed: not one byte of the request goes out, and the error names the check.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use railyard_core::limiter::Permit;
use railyard_core::{CallOutcome, ErrorCode};
use railyard_rail::{Client, ClientError, HttpOptions};
use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, DnType, IsCa, KeyPair, SanType};
use rustls::ServerConfig;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, PrivatePkcs8KeyDer};
use tokio_rustls::TlsAcceptor;

use crate::client::{always, deliver_as, deliver_with, message, options, retryable};
use crate::gate::boottime;
use crate::receiver::{Act, Receiver, SLOW};

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
        self.acting(Act::answer(200, ""), change).await
    }

    async fn acting(&self, act: Act, change: impl FnOnce(&mut CertificateParams)) -> Receiver {
        let mut params = CertificateParams::default();
        params.subject_alt_names = vec![SanType::IpAddress("127.0.0.1".parse().unwrap())];
        change(&mut params);
        let key = KeyPair::generate().unwrap();
        let certificate = params.signed_by(&key, &self.issuer).unwrap();
        receiver(certificate.der().clone(), &key, act).await
    }

    /// One with slow handshakes.
    async fn slow(&self) -> Receiver {
        self.acting(Act::Slow(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n".to_vec()), |_| {}).await
    }
}

fn client_with(root: &Path) -> Result<Client, ClientError> {
    let mut options = options();
    options.extra_roots = vec![root.to_owned()];
    Client::new(&options)
}

async fn receiver(certificate: CertificateDer<'static>, key: &KeyPair, act: Act) -> Receiver {
    let key = PrivateKeyDer::Pkcs8(PrivatePkcs8KeyDer::from(key.serialize_der()));
    let config = ServerConfig::builder_with_provider(Arc::new(rustls::crypto::ring::default_provider()))
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_no_client_auth()
        .with_single_cert(vec![certificate], key)
        .unwrap();
    let acceptor = TlsAcceptor::from(Arc::new(config));
    Receiver::script(vec![act], Some(acceptor)).await
}

async fn call(client: &Client, receiver: &Receiver) -> CallOutcome {
    deliver_with(client, &message(&https(receiver)), always()).await.outcome
}

fn https(receiver: &Receiver) -> String {
    format!("https://127.0.0.1:{}/", receiver.port())
}

/// From now on, for half as long as a slow handshake takes.
async fn in_a_slot(client: &Client, receiver: &Receiver, payload: &'static str) -> CallOutcome {
    let mut message = message(&https(receiver));
    message.payload = Bytes::from_static(payload.as_bytes());
    let permit = Permit { not_before: Duration::ZERO, not_after: boottime() + SLOW / 2 };
    deliver_as(client, &message, always(), Some(permit)).await.outcome
}

/// Not even the head of a request without a body; the connection is the next call's.
#[tokio::test]
async fn a_connection_that_comes_after_its_slot_sends_nothing_and_is_kept() {
    let authority = Authority::new("root");
    for payload in ["{}", ""] {
        let (client, receiver) = (authority.client(), authority.slow().await);
        let _claim = client.claim(&format!("https://127.0.0.1:{}", receiver.port()));
        let late = in_a_slot(&client, &receiver, payload).await;
        assert!(matches!(late, CallOutcome::NotStarted { code: ErrorCode::PermitBurnt, .. }), "{late:?}");
        assert!(receiver.seen()[0].bytes.is_empty());
        let outcome = in_a_slot(&client, &receiver, payload).await;
        assert!(matches!(outcome, CallOutcome::Delivered(_)), "{outcome:?}");
        assert_eq!(receiver.seen().len(), 1);
    }
}

#[tokio::test]
async fn a_claimed_connection_is_open_before_the_slot() {
    let authority = Authority::new("root");
    let (client, receiver) = (authority.client(), authority.slow().await);
    let claim = client.claim(&format!("https://127.0.0.1:{}", receiver.port()));
    for connections in 1..=2 {
        client.open(&claim).await;
        client.keep_open(&claim).await;
        assert_eq!(receiver.seen().len(), connections);
        let outcome = in_a_slot(&client, &receiver, "{}").await;
        assert!(matches!(outcome, CallOutcome::Delivered(_)), "{outcome:?}");
    }
    assert_eq!(receiver.seen().len(), 2);
}

/// What opens connections is held to the guard as well.
#[tokio::test]
async fn s3_47_no_connection_is_opened_ahead_to_a_refused_address() {
    let receiver = Receiver::start(Act::answer(200, "")).await;
    let client = Client::new(&HttpOptions::default()).unwrap();
    for host in ["127.0.0.1", "localhost"] {
        let claim = client.claim(&format!("http://{host}:{}", receiver.port()));
        client.open(&claim).await;
    }
    assert!(receiver.seen().is_empty());
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
    let receiver = receiver(certificate.der().clone(), &key, Act::answer(200, "")).await;
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
