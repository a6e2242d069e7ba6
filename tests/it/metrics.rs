//! `config/metrics.md` and a scrape of a node at work are the same list.

use std::collections::{BTreeMap, BTreeSet};

use railyard_testkit::{FakeRail, Gate, NodeProcess, eventually_ok};

use crate::fleet::Fleet;
use crate::world::SOON;

/// Type and labels, by name.
type Metrics = BTreeMap<String, (String, BTreeSet<String>)>;

/// The table's rows.
fn documented() -> Metrics {
    let table = concat!(env!("CARGO_MANIFEST_DIR"), "/../config/metrics.md");
    let text = std::fs::read_to_string(table).unwrap();
    let rows = text.lines().filter_map(|line| line.strip_prefix("| `"));
    rows.map(|row| {
        let cells: Vec<&str> = row.split('|').map(str::trim).collect();
        let labels = cells[2].split(',').map(|label| label.trim().trim_matches('`').to_owned());
        let labels = labels.filter(|label| !label.is_empty()).collect();
        (cells[0].trim_end_matches('`').to_owned(), (cells[1].to_owned(), labels))
    })
    .collect()
}

/// What a scrape shows. A histogram's own label is left out.
async fn scraped(node: &NodeProcess) -> Metrics {
    let text = node.http().get("/metrics").await.unwrap().text();
    let mut metrics = Metrics::new();
    for line in text.lines() {
        if let Some(typed) = line.strip_prefix("# TYPE ") {
            let (name, kind) = typed.split_once(' ').unwrap();
            metrics.insert(name.to_owned(), (kind.to_owned(), BTreeSet::new()));
        } else if let Some((name, sample)) = line.split_once('{') {
            let family = ["_bucket", "_sum", "_count"].iter().find_map(|part| name.strip_suffix(part)).unwrap_or(name);
            let name = if metrics.contains_key(name) { name } else { family };
            let (_, known) = metrics.get_mut(name).unwrap();
            let mut parts: Vec<&str> = sample.split("=\"").collect();
            parts.pop();
            let labels = parts.iter().filter_map(|part| part.rsplit(',').next());
            known.extend(labels.filter(|label| *label != "le").map(str::to_owned));
        }
    }
    metrics
}

#[tokio::test(flavor = "multi_thread")]
async fn metrics_are_documented_and_what_is_documented_is_there() {
    let fleet = Fleet::new().await;
    let gate = Gate::closed();
    let rail = FakeRail::start().await;
    let slow = FakeRail::start().await.otherwise().hold_until(&gate);
    let node = fleet.ready("n0").await;
    fleet.payment(&rail.url(), "quick", "k0").by(&fleet.world.sql).await.unwrap();
    fleet.all_completed(1).await;
    fleet.payment(&slow.url(), "slow", "k1").timeout_ms(20_000).by(&fleet.world.sql).await.unwrap();
    let documented = documented();
    assert!(documented.len() > 50, "{documented:?}");
    // A group is named while it is at work, and looked at every second.
    eventually_ok(SOON, "all that is documented is in a scrape", || async {
        let scraped = scraped(&node).await;
        let missing: Vec<_> = documented.keys().filter(|name| !scraped.contains_key(*name)).collect();
        if missing.is_empty() { Ok(()) } else { Err(format!("missing: {missing:?}")) }
    })
    .await;
    let scraped = scraped(&node).await;
    for (name, shown) in &scraped {
        assert_eq!(Some(shown), documented.get(name), "{name}: left what a scrape shows, right config/metrics.md");
    }
    gate.open();
}
