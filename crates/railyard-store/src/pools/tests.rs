//! As many slots as the pool has, whoever asks; those of the dead come back, those in flight do not.

use railyard_core::AttemptId;
use uuid::Uuid;

use super::{PoolSpec, list, set};
use crate::testing::TestStore;

fn attempts(n: usize) -> Vec<AttemptId> {
    (0..n).map(|_| AttemptId(Uuid::new_v4())).collect()
}

async fn pool(test: &TestStore, concurrency: u32) {
    set(&test.store, &[PoolSpec { code: "P".to_owned(), concurrency }], "test").await.unwrap();
}

#[tokio::test]
async fn never_more_slots_than_the_pool_has_whoever_asks() {
    let test = TestStore::new().await;
    pool(&test, 5).await;
    let asks = (0..8).map(|_| async { test.store.pool_take("P", &attempts(2)).await.unwrap().1 });
    let taken: Vec<_> = futures_util::future::join_all(asks).await.into_iter().flatten().collect();
    assert!(taken.len() <= 5, "{taken:?}");
    let rest = test.store.pool_take("P", &attempts(9)).await.unwrap().1;
    let mut numbers: Vec<i32> = taken.iter().chain(&rest).map(|slot| slot.n).collect();
    numbers.sort_unstable();
    assert_eq!(numbers, [1, 2, 3, 4, 5]);
    assert_eq!(list(&test.store).await.unwrap()[0].in_use, 5);
    assert!(test.store.pool_take("P", &attempts(1)).await.unwrap().1.is_empty());
    let all: Vec<_> = taken.into_iter().chain(rest).collect();
    test.store.pool_free("P", &all).await.unwrap();
    assert_eq!(test.store.pool_take("P", &attempts(9)).await.unwrap().1.len(), 5);
}

#[tokio::test]
async fn a_change_holds_for_what_begins_from_now_on() {
    let test = TestStore::new().await;
    pool(&test, 3).await;
    let first = test.store.pool_take("P", &attempts(9)).await.unwrap().1;
    assert_eq!(first.len(), 3);
    pool(&test, 2).await;
    test.store.pool_free("P", &first[..2]).await.unwrap();
    let numbers: Vec<i32> =
        test.store.pool_take("P", &attempts(9)).await.unwrap().1.iter().map(|slot| slot.n).collect();
    assert!(numbers.iter().all(|n| *n <= 2), "{numbers:?}");
    pool(&test, 6).await;
    assert_eq!(test.store.pool_take("P", &attempts(9)).await.unwrap().1.len(), 6 - 1 - numbers.len());
    assert!(test.store.pool_take("unknown", &attempts(1)).await.unwrap().1.is_empty());
}

/// A slot is given up when its taker is gone, but not while its attempt may still be called.
#[tokio::test]
async fn what_the_dead_held_comes_back_unless_it_is_in_flight() {
    let test = TestStore::new().await;
    pool(&test, 2).await;
    let taken = test.store.pool_take("P", &attempts(2)).await.unwrap().1;
    let made = test.create(&test.job(Some("g"))).await;
    test.begin(made.outbox_id).await;
    let flying = "UPDATE in_flight SET attempt_id = $1";
    test.sql.execute(flying, &[&taken[0].attempt_id.0]).await.unwrap();
    assert!(test.store.pool_take("P", &attempts(2)).await.unwrap().1.is_empty(), "just taken");
    let age = "UPDATE pool_slot SET taken_at = taken_at - interval '11 seconds'";
    test.sql.batch_execute(age).await.unwrap();
    let again = test.store.pool_take("P", &attempts(2)).await.unwrap().1;
    assert_eq!(again.iter().map(|slot| slot.n).collect::<Vec<_>>(), [taken[1].n]);
    assert_eq!(test.store.pool_keep("P", taken[1]).await.unwrap(), None, "it is another's");
    assert!(test.store.pool_keep("P", taken[0]).await.unwrap().is_some());
    test.store.pool_free("P", &taken[1..]).await.unwrap();
    assert_eq!(list(&test.store).await.unwrap()[0].in_use, 2, "another's slot was freed");
}
