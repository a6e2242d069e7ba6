//! The certificates are good or bad in exactly the way that their names say.
#![allow(clippy::unwrap_used, reason = "a failed unwrap is a failed test")]

use std::sync::Arc;
use std::time::Duration;

use railyard_testkit::fake_rail::Cert;
use railyard_testkit::{FakeRail, eventually};
use rustls::crypto::ring;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, ServerName};
use rustls::{ClientConfig, RootCertStore};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;

/// Sends a request as a client that trusts the receiver's authority.
async fn send(rail: &FakeRail) -> std::io::Result<String> {
    let mut roots = RootCertStore::empty();
    roots.add(CertificateDer::from_pem_slice(rail.ca_pem().as_bytes()).unwrap()).unwrap();
    let config = ClientConfig::builder_with_provider(Arc::new(ring::default_provider()))
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_root_certificates(roots)
        .with_no_client_auth();
    let tcp = TcpStream::connect(rail.address()).await?;
    let name = ServerName::try_from("localhost").unwrap();
    let mut tls = TlsConnector::from(Arc::new(config)).connect(name, tcp).await?;
    tls.write_all(b"POST / HTTP/1.1\r\nContent-Length: 1\r\nConnection: close\r\n\r\nx").await?;
    let mut answer = String::new();
    tls.read_to_string(&mut answer).await?;
    Ok(answer)
}

#[tokio::test]
async fn a_good_certificate_is_accepted() {
    let rail = FakeRail::tls(Cert::good()).await.status(202);
    assert!(rail.url().starts_with("https://localhost:"));
    assert!(send(&rail).await.unwrap().starts_with("HTTP/1.1 202"));
    assert_eq!(rail.receipts()[0].text(), "x");
}

#[tokio::test]
async fn bad_certificates_are_refused_for_their_own_reason_and_nothing_is_sent() {
    let expected =
        [(Cert::expired(), "Expired"), (Cert::wrong_host(), "NotValidForName"), (Cert::self_signed(), "UnknownIssuer")];
    for (cert, reason) in expected {
        let rail = FakeRail::tls(cert).await;
        let error = send(&rail).await.unwrap_err();
        assert!(format!("{error:?}").contains(reason), "{reason}: {error:?}");
        let noticed = || async { rail.connections().first().is_some_and(|c| c.tls_error.is_some()) };
        eventually(Duration::from_secs(5), "the receiver saw the failure", noticed).await;
        assert_eq!(rail.connections()[0].bytes, 0);
        assert_eq!(rail.exchanges().len(), 0);
    }
}

#[tokio::test]
async fn faults_reach_through_tls() {
    let rail = FakeRail::tls(Cert::good()).await.reset().silence();
    assert!(send(&rail).await.is_err());
    assert!(tokio::time::timeout(Duration::from_millis(200), send(&rail)).await.is_err());
    let noticed = || async { rail.receipts().get(1).is_some_and(|receipt| receipt.client_aborted) };
    eventually(Duration::from_secs(5), "the client's end was seen", noticed).await;
}
