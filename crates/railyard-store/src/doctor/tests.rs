use super::*;
use crate::testing::TestStore;
use crate::{Store, StoreConfig};

fn at(text: &str) -> Timestamp {
    text.parse().unwrap()
}

#[tokio::test]
async fn a_good_database_passes_and_a_wrong_clock_is_told() {
    let t = TestStore::new().await;
    let now: Timestamp = t.one("SELECT clock_timestamp()").await;
    let checks = examine(&t.store, move || now).await;
    // Tests run without fsync.
    let bad: Vec<&Check> =
        checks.iter().filter(|check| check.grade != Grade::Good && check.name != "durability").collect();
    assert!(bad.is_empty(), "{bad:?}");
    assert_eq!(checks.len(), 10);
    let checks = examine(&t.store, || at("2020-01-01T00:00:00Z")).await;
    let clock = checks.iter().find(|check| check.name == "clock").unwrap();
    assert_eq!(clock.grade, Grade::Warning, "{}", clock.detail);
}

#[tokio::test]
async fn rights_beyond_the_role_and_missing_steps_are_told() {
    let t = TestStore::new().await;
    t.sql.batch_execute("GRANT DELETE ON dispatch_job_outcome TO railyard_runtime").await.unwrap();
    t.sql.batch_execute("DELETE FROM refinery_schema_history WHERE version = 8").await.unwrap();
    let checks = examine(&t.store, || at("2020-01-01T00:00:00Z")).await;
    for (name, word) in [("rights", "dispatch_job_outcome"), ("schema", "railyard migrate")] {
        let check = checks.iter().find(|check| check.name == name).unwrap();
        assert_eq!(check.grade, Grade::Bad);
        assert!(check.detail.contains(word), "{}", check.detail);
    }
}

#[tokio::test]
async fn a_database_that_is_away_is_one_bad_check() {
    let mut config = StoreConfig::at("postgres://nobody@127.0.0.1:1/none");
    config.acquire_timeout = Duration::from_millis(500);
    let checks = examine(&Store::new(config).unwrap(), || at("2020-01-01T00:00:00Z")).await;
    assert_eq!(checks.len(), 1);
    assert_eq!(checks[0].grade, Grade::Bad);
}
