//! S3-47 and the certificates: what is refused before a connection is made, or before a byte of the request is sent.

use std::net::{IpAddr, Ipv6Addr};
use std::path::PathBuf;

use railyard_core::OutboxId;
use railyard_node::Node;
use railyard_store::StoreError;
use railyard_testkit::FakeRail;
use railyard_testkit::fake_rail::Cert;

use crate::world::{SOON, World};

/// A node that may call what these networks hold, and no other private address.
async fn guarded(world: &World, allowed: &[&str]) -> Node {
    world
        .node_with(|options| options.http.allow_networks = allowed.iter().map(|net| net.parse().unwrap()).collect())
        .await
}

/// The one attempt of a job to this target that is delivered at most once: its state, code and text.
async fn refused(world: &World, id: OutboxId) -> String {
    assert_eq!(world.ended(id).await.status.as_str(), "ERROR");
    let mut attempts = world.attempts(id).await;
    // What came too late to be begun is no attempt.
    attempts.retain(|attempt| attempt.state.as_str() != "NOT_STARTED");
    assert_eq!((attempts.len(), attempts[0].response_code), (1, None));
    attempts[0].error_message.clone().unwrap_or_default()
}

/// Targets that are neither http nor https, or have a password in them, are refused when the job is accepted.
#[tokio::test]
async fn s3_47_targets_of_other_kinds_are_refused_at_creation() {
    let world = World::new().await;
    for target in [
        "ftp://example.com/",
        "file:///etc/passwd",
        "gopher://127.0.0.1:6379/_FLUSHALL",
        "javascript:alert(1)",
        "//example.com/",
        "example.com",
        "",
        "http://",
        "https://user:password@example.com/",
        "http://exa\nmple.com/",
        "http://example.com/a b",
    ] {
        let job = world.draft(target, "{}");
        let named = job.validate().unwrap_err();
        assert_eq!(named.iter().map(|error| error.field.as_str()).collect::<Vec<_>>(), ["targetUrl"], "{target:?}");
        let refused = world.enqueue(&[job]).await;
        assert!(matches!(&refused, Err(StoreError::Invalid { field, .. }) if field == "target_url"), "{target:?}");
    }
    assert_eq!(world.one::<i64>("SELECT count(*) FROM dispatch_job").await, 0);
}

/// Every disguise of an inner address is refused on the address that would be connected to: no connection is made.
#[tokio::test(flavor = "multi_thread")]
async fn s3_47_private_addresses_are_refused_in_every_disguise() {
    let world = World::new().await;
    let rail = FakeRail::start().await;
    let node = guarded(&world, &[]).await;
    let port = rail.address().port();
    let mut jobs = Vec::new();
    for host in [
        "127.0.0.1",
        "127.1",
        "0x7f.1",
        "2130706433",
        "017700000001",
        "0",
        "localhost",
        "LOCALHOST",
        "[::1]",
        "[::]",
        "[::ffff:127.0.0.1]",
        "[::127.0.0.1]",
        "[64:ff9b::7f00:1]",
        "[2002:7f00:1::]",
        "169.254.169.254",
        "10.0.0.1",
        "172.16.0.1",
        "192.168.1.1",
        "100.64.0.1",
        "[fe80::1]",
        "[fd00:ec2::254]",
    ] {
        let id = world.hook(&format!("http://{host}:{port}/"), "{}", |job| job.max_attempts = 1).await;
        jobs.push((host, id));
    }
    for (host, id) in jobs {
        let told = refused(&world, id).await;
        assert!(told.starts_with("ADDRESS_REFUSED") && told.contains("allow_networks"), "{host}: {told}");
    }
    // Not every system knows the name with a dot; none may connect to it.
    let dotted = world.hook(&format!("http://localhost.:{port}/"), "{}", |job| job.max_attempts = 1).await;
    refused(&world, dotted).await;
    assert!(rail.connections().is_empty());
    node.stop(SOON).await;
    let open = guarded(&world, &["127.0.0.0/8"]).await;
    let id = world.hook(&rail.url(), "{}", |_| {}).await;
    assert_eq!(world.ended(id).await.status.as_str(), "COMPLETED", "the receiver was there all the time");
    open.stop(SOON).await;
}

/// A name with two addresses is judged address by address: the allowed one is tried, the other never.
#[tokio::test(flavor = "multi_thread")]
async fn trap_a_name_with_two_addresses_is_judged_by_each() {
    let world = World::new().await;
    let rail = FakeRail::start().await;
    let found: Vec<IpAddr> =
        tokio::net::lookup_host("localhost:0").await.unwrap().map(|address| address.ip()).collect();
    let node = guarded(&world, &["::1/128"]).await;
    let target = format!("http://localhost:{}/", rail.address().port());
    let id = world.hook(&target, "{}", |job| job.max_attempts = 1).await;
    let told = refused(&world, id).await;
    // Only IPv4 is listened on: whoever tried that address as well would have been answered.
    let expected = match found.contains(&IpAddr::V6(Ipv6Addr::LOCALHOST)) {
        true => "CONNECT_",
        false => "ADDRESS_REFUSED",
    };
    assert!(told.contains(expected), "{told}, of {found:?}");
    assert!(rail.connections().is_empty());
    node.stop(SOON).await;
}

/// A receiver that may be called cannot lead the call to an address that may not.
#[tokio::test(flavor = "multi_thread")]
async fn trap_a_redirect_to_an_inner_address_is_not_followed() {
    let world = World::new().await;
    let inner = FakeRail::start().await;
    let rail = FakeRail::start().await.redirect(307, &inner.url()).redirect(308, "http://169.254.169.254/latest");
    let node = guarded(&world, &["127.0.0.0/8"]).await;
    for n in 0..2 {
        let id = world.hook(&rail.url(), format!("{n}"), |_| {}).await;
        assert_eq!(world.ended(id).await.status.as_str(), "ERROR");
        assert_eq!(world.history(id).await, ["FAILED/REDIRECT_REFUSED"]);
    }
    assert!(inner.connections().is_empty());
    node.stop(SOON).await;
}

/// A file that goes with the test.
pub(crate) struct Roots(pub(crate) PathBuf);

impl Roots {
    pub(crate) fn of(rails: &[&FakeRail]) -> Self {
        let path = std::env::temp_dir().join(format!("railyard-roots-{}.pem", uuid::Uuid::new_v4()));
        let pem: String = rails.iter().map(|rail| rail.ca_pem()).collect();
        std::fs::write(&path, pem).unwrap();
        Self(path)
    }
}

impl Drop for Roots {
    fn drop(&mut self) {
        // The test has ended either way.
        drop(std::fs::remove_file(&self.0));
    }
}

/// Certificates that are expired, self-signed or another host's: not one byte of a request is sent, it is tried again
/// within the budget, and the error names the check. A good one of the same kind is delivered to.
#[tokio::test(flavor = "multi_thread")]
async fn trap_bad_certificates_get_no_byte_of_the_request() {
    let world = World::new().await;
    let good = FakeRail::tls(Cert::good()).await;
    let bad = [
        ("expired", FakeRail::tls(Cert::expired()).await),
        ("authority", FakeRail::tls(Cert::self_signed()).await),
        ("host", FakeRail::tls(Cert::wrong_host()).await),
    ];
    let roots = Roots::of(&[&good, &bad[0].1, &bad[1].1, &bad[2].1]);
    let node = world
        .node_with(|options| {
            options.http.allow_networks = vec!["127.0.0.0/8".parse().unwrap(), "::1/128".parse().unwrap()];
            options.http.extra_roots = vec![roots.0.clone()];
        })
        .await;
    for (word, rail) in &bad {
        let id = world.hook(&rail.url(), "{}", |job| job.max_attempts = 2).await;
        assert_eq!(world.ended(id).await.status.as_str(), "ERROR", "{word}");
        let attempts = world.attempts(id).await;
        assert_eq!(attempts[0].error_code.as_deref(), Some("TLS_FAILED"), "{word}");
        for attempt in &attempts {
            let told = attempt.error_message.clone().unwrap_or_default();
            assert!(told.contains(word), "{word}: {told}");
        }
        assert_eq!(attempts.len(), 2, "{word}: retried within the budget");
        assert!(!rail.connections().is_empty() && rail.exchanges().is_empty(), "{word}");
        assert!(rail.connections().iter().all(|connection| connection.bytes == 0), "{word}");
    }
    let id = world.hook(&good.url(), "{}", |_| {}).await;
    assert_eq!(world.ended(id).await.status.as_str(), "COMPLETED");
    assert_eq!(good.exchanges().len(), 1);
    node.stop(SOON).await;
}
