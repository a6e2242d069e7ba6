//! Certificates that are exchanged while nodes run.

use std::net::SocketAddr;

use railyard_testkit::fake_rail::Authority;
use tempfile::TempDir;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};

use super::*;

fn write(dir: &TempDir, authority: &Authority, trusted: &str, name: &str) -> TlsFiles {
    let (certificate, key) = authority.issue(&[name]);
    let put = |file: &str, text: &str| {
        let path = dir.path().join(file);
        std::fs::write(&path, text).unwrap();
        path
    };
    TlsFiles {
        certificate: put("tls.crt", &certificate),
        key: put("tls.key", &key),
        authority: put("ca.crt", trusted),
        name: "railyard".to_owned(),
    }
}

/// One connection, a byte each way: a client whose certificate is refused hears of it with the first byte.
async fn meet(server: &Reloading, client: &Reloading) -> Result<(), Refused> {
    let listener = TcpListener::bind(SocketAddr::from(([127, 0, 0, 1], 0))).await.unwrap();
    let address = listener.local_addr().unwrap();
    let serving = async {
        let mut stream = server.accept(listener.accept().await.unwrap().0).await?;
        stream.write_all(b"x").await.map_err(|error| Refused::from_io(&error))?;
        stream.flush().await.map_err(|error| Refused::from_io(&error))
    };
    let calling = async {
        let mut stream = client.connect(TcpStream::connect(address).await.unwrap()).await?;
        stream.read_u8().await.map_err(|error| Refused::from_io(&error))
    };
    let (served, called) = tokio::join!(serving, calling);
    served.and(called.map(drop))
}

#[tokio::test]
async fn certificates_are_exchanged_without_a_restart() {
    let (old, new) = (Authority::new(), Authority::new());
    let (one, two) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let a = Reloading::load(write(&one, &old, old.pem(), "railyard")).unwrap();
    let b = Reloading::load(write(&two, &old, old.pem(), "railyard")).unwrap();
    assert_eq!(meet(&a, &b).await, Ok(()));
    assert_eq!(a.refresh(), Ok(false), "nothing has changed");

    let both = format!("{}{}", old.pem(), new.pem());
    write(&one, &new, &both, "railyard");
    assert_eq!(a.refresh(), Ok(true));
    assert_eq!(meet(&a, &b).await, Err(Refused::Certificate), "b does not know the new authority yet");
    assert_eq!(meet(&b, &a).await, Err(Refused::Certificate));
    write(&two, &old, &both, "railyard");
    assert_eq!(b.refresh(), Ok(true));
    assert_eq!(meet(&a, &b).await, Ok(()));
    assert_eq!(meet(&b, &a).await, Ok(()));

    // Half-written: said once, and the last good pair stays.
    std::fs::write(two.path().join("tls.crt"), "-----BEGIN").unwrap();
    assert!(b.refresh().unwrap_err().contains("tls.crt: no certificate"));
    assert_eq!(b.refresh(), Ok(false));
    assert_eq!(meet(&a, &b).await, Ok(()));
}

#[tokio::test]
async fn another_name_is_refused_on_either_side() {
    let authority = Authority::new();
    let (one, two) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let ours = Reloading::load(write(&one, &authority, authority.pem(), "railyard")).unwrap();
    let other = Reloading::load(write(&two, &authority, authority.pem(), "somebody-else")).unwrap();
    assert_eq!(meet(&ours, &other).await, Err(Refused::Certificate));
    assert_eq!(meet(&other, &ours).await, Err(Refused::Certificate));
}
