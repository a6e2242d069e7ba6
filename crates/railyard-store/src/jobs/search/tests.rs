use railyard_core::Mode;
use railyard_core::job::NewJob;

use super::*;
use crate::jobs::create;
use crate::testing::TestStore;

async fn found(t: &TestStore, filter: &Filter) -> Vec<OutboxId> {
    let page = search(&t.store, filter, Page::Number { page: 0, size: 100 }).await.unwrap();
    let ids: Vec<OutboxId> = page.jobs.iter().map(|job| job.outbox_id).collect();
    assert_eq!(page.total, Some(u64::try_from(ids.len()).unwrap()), "{filter:?}");
    assert!(ids.windows(2).all(|pair| pair[0] > pair[1]), "newest first");
    if let Some(status) = filter.status {
        assert!(page.jobs.iter().all(|job| job.status == status), "{status:?}");
    }
    ids
}

/// Every job is found under the one status that it has, and under no other, wherever its message stands.
#[tokio::test]
async fn s3_08_a_status_finds_the_jobs_that_have_it() {
    let t = TestStore::new().await;
    let mut expected = Vec::new();
    let waiting = t.create(&t.job(Some("waits"))).await.outbox_id;
    expected.push((JobStatus::Pending, vec![waiting]));
    let mut later = t.job(Some("later"));
    later.scheduled_for = Some(t.one("SELECT clock_timestamp() + interval '1 hour'").await);
    expected[0].1.insert(0, t.create(&later).await.outbox_id);
    for (n, status) in JobStatus::ALL.into_iter().filter(|status| *status != JobStatus::Pending).enumerate() {
        let id = t.create(&t.job(Some(&format!("g{n}")))).await.outbox_id;
        t.begin(id).await;
        match status {
            JobStatus::Pending | JobStatus::InProgress => {}
            JobStatus::Failed => t.put_back(id, "RETRYABLE", 1).await,
            JobStatus::Ended(end) => t.finish(id, end.as_str(), false).await,
        }
        expected.push((status, vec![id]));
    }
    // A deferral is no failure.
    let deferred = t.create(&t.job(None)).await.outbox_id;
    t.begin(deferred).await;
    t.put_back(deferred, "DEFERRED", 0).await;
    expected[0].1.insert(0, deferred);
    for (status, ids) in expected {
        let filter = Filter { status: Some(status), ..Filter::default() };
        assert_eq!(found(&t, &filter).await, ids, "{status:?}");
    }
    assert_eq!(found(&t, &Filter::default()).await.len(), JobStatus::ALL.len() + 2);
}

/// Filters hold together, whatever the search begins with.
#[tokio::test]
async fn s3_08_s3_10_filters_hold_together() {
    let t = TestStore::new().await;
    let job = |source: &str, tenant: &str, priority: &str| {
        let mut job = t.job(Some(tenant));
        source.clone_into(&mut job.source);
        job.external_id = Some(format!("{source}-{tenant}"));
        job.metadata =
            [("tenant", tenant), ("priority", priority)].map(|(key, value)| (key.to_owned(), value.to_owned())).into();
        job
    };
    let a = t.create(&job("shop", "acme", "high")).await.outbox_id;
    let b = t.create(&job("shop", "acme", "low")).await.outbox_id;
    let c = t.create(&job("till", "acme", "high")).await.outbox_id;
    let d = t.create(&job("shop", "other", "high")).await.outbox_id;
    t.begin(d).await;
    t.finish(d, "ERROR", false).await;
    let entries = |entries: &[(&str, &str)]| Filter {
        metadata: entries.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect(),
        ..Filter::default()
    };
    assert_eq!(found(&t, &entries(&[("tenant", "acme")])).await, [c, b, a]);
    assert_eq!(found(&t, &entries(&[("tenant", "acme"), ("priority", "high")])).await, [c, a]);
    assert_eq!(found(&t, &entries(&[("priority", "high"), ("tenant", "acme"), ("x", "y")])).await, []);
    let text = |text: &str| Some(text.to_owned());
    let of_shop = Filter { source: text("shop"), ..entries(&[("priority", "high")]) };
    assert_eq!(found(&t, &of_shop).await, [d, a]);
    let failed = Filter { status: Some(JobStatus::Ended(EndStatus::Error)), ..of_shop.clone() };
    assert_eq!(found(&t, &failed).await, [d]);
    assert_eq!(found(&t, &Filter { group: text("acme"), ..failed }).await, []);
    let waiting = Filter { status: Some(JobStatus::Pending), kind: text("order.created"), ..of_shop };
    assert_eq!(found(&t, &waiting).await, [a]);
    assert_eq!(found(&t, &Filter { external_id: text("till-acme"), ..Filter::default() }).await, [c]);
    assert_eq!(found(&t, &Filter { group: text("other"), ..Filter::default() }).await, [d]);
}

/// `created_after` is part of the window and `created_before` is not, to the millisecond that a job shows.
#[tokio::test]
async fn s3_08_windows_of_time_join_without_gap_or_overlap() {
    let t = TestStore::new().await;
    let mut made = Vec::new();
    for _ in 0..3 {
        made.push(t.create(&t.job(None)).await);
        t.sql.batch_execute("SELECT pg_sleep(0.003)").await.unwrap();
    }
    let at = made[1].created_at;
    let before = Filter { created_before: Some(at), ..Filter::default() };
    let from = Filter { created_after: Some(at), ..Filter::default() };
    assert_eq!(found(&t, &before).await, [made[0].outbox_id]);
    assert_eq!(found(&t, &from).await, [made[2].outbox_id, made[1].outbox_id]);
    let exactly = Filter { created_before: Some(at + jiff::SignedDuration::from_micros(1)), ..from };
    assert_eq!(found(&t, &exactly).await, [made[1].outbox_id]);
    let never = Filter { created_after: Some(Timestamp::MAX), created_before: Some(Timestamp::MIN), ..exactly };
    assert_eq!(found(&t, &never).await, []);
}

/// Pages by number and by cursor meet every job of equal `created_at` once.
#[tokio::test]
async fn s3_08_pages_meet_each_job_once() {
    let t = TestStore::new().await;
    let jobs: Vec<NewJob> = (0..25).map(|_| NewJob { mode: Mode::Immediate, ..t.job(Some("g")) }).collect();
    let made = create(&t.store, &jobs).await.unwrap();
    let all: Vec<OutboxId> = made.iter().rev().map(|made| made.outbox_id).collect();
    for size in [1, 7, 24, 25, 26] {
        let (mut by_number, mut by_cursor) = (Vec::new(), Vec::new());
        for page in 0..=25 {
            let found = search(&t.store, &Filter::default(), Page::Number { page, size }).await.unwrap();
            assert_eq!(found.total, Some(25));
            by_number.extend(found.jobs.iter().map(|job| job.outbox_id));
        }
        let mut job = None;
        loop {
            let found = search(&t.store, &Filter::default(), Page::After { job, size }).await.unwrap();
            assert_eq!(found.total, None);
            by_cursor.extend(found.jobs.iter().map(|job| job.outbox_id));
            job = found.next;
            if job.is_none() {
                break;
            }
        }
        assert_eq!((&by_number, &by_cursor), (&all, &all), "{size}");
    }
}
