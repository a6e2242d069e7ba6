//! The certificates that the manual makes for the links, and what becomes of links when others take their place.

use std::path::Path;
use std::process::Command;

use railyard_testkit::eventually;

use crate::linked::{LinkedFleet, linked_to, said};
use crate::world::SOON;

/// As an operator runs it.
fn make_certificates(folder: &Path) {
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("../k8s/components/links/make-certificates");
    let made = Command::new(script).arg(folder).output().unwrap();
    assert!(made.status.success(), "{}", String::from_utf8_lossy(&made.stderr));
}

/// Nodes link with what the script makes. Their files are replaced while they run, by those of another authority: the
/// link stands, and one that is made afterwards, by a node that knows the new authority alone, is taken.
#[tokio::test(flavor = "multi_thread")]
async fn links_form_with_the_manuals_certificates_and_outlive_their_replacement() {
    if Command::new("openssl").arg("version").output().is_err() {
        println!("skipped: no openssl");
        return;
    }
    let fleet = LinkedFleet::new().await;
    let folder = fleet.fleet.sandbox.home().join("certificates");
    make_certificates(&folder);
    let (a, b) = (fleet.mounted("a", &folder), fleet.mounted("b", &folder));
    fleet.start([&a, &b]).await;

    std::fs::remove_file(folder.join("ca.key")).unwrap();
    make_certificates(&folder);
    for node in [&a, &b] {
        eventually(SOON, "the new ones are read", || async {
            said(node, "the certificates of the links were read anew") > 0
        })
        .await;
        linked_to(node, 1).await;
        assert_eq!(said(node, "link ended"), 0, "the link stands");
    }
    b.restart().await;
    linked_to(&b, 1).await;
    linked_to(&a, 1).await;
}
