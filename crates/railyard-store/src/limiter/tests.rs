//! The database decides as the core does, and the switch is part of both.

use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use railyard_core::limiter::{Ask, Denial, Grant, Limit, Row, Unused, grant, take_back};
use railyard_core::rail::PAYMENT_WEBHOOK;

use super::{grant_at, take_back_at};
use crate::holds::Decision;
use crate::rails;
use crate::testing::TestStore;

const KEYS: [&str; 2] = ["global", "rail:payment_webhook"];

fn limit(starts: u32, window_ms: u64) -> Limit {
    Limit { starts, window: Duration::from_millis(window_ms) }
}

fn keys() -> Vec<String> {
    KEYS.map(str::to_owned).into()
}

async fn rows(test: &TestStore) -> Vec<Option<Row>> {
    let found = test.sql.query("SELECT limit_key, next_at, asked_at, paused FROM rail_limiter", &[]).await.unwrap();
    let us = |row: &tokio_postgres::Row, column: &str| row.get::<_, Timestamp>(column).as_microsecond();
    let one = |key: &str| {
        let row = found.iter().find(|row| row.get::<_, &str>("limit_key") == key)?;
        Some(Row { next_us: us(row, "next_at"), asked_us: us(row, "asked_at"), paused: row.get("paused") })
    };
    KEYS.iter().map(|key| one(key)).collect()
}

/// Two limits, 400 questions at moments that jump about, rows that vanish: each answer and each row as the core has it.
#[tokio::test]
async fn the_database_decides_as_the_core_does() {
    let test = TestStore::new().await;
    let conn = test.store.work().await.unwrap();
    let limits = [limit(400, 1000), limit(50, 2500)];
    let seed = 7_u64;
    let mut random = seed;
    let mut roll = |n: u64| {
        random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (random >> 33) % n
    };
    let mut now = Timestamp::from_second(1_800_000_000).unwrap();
    let mut model: Vec<Option<Row>> = vec![None; 2];
    let mut seen = std::collections::BTreeMap::new();
    let mut alone = None;
    for step in 0..400 {
        now += match roll(12) {
            0 => SignedDuration::from_millis(-i64::try_from(roll(3000)).unwrap()),
            1 => SignedDuration::from_millis(i64::try_from(roll(5000)).unwrap()),
            _ => SignedDuration::from_micros(i64::try_from(roll(60_000)).unwrap()),
        };
        match roll(25) {
            0 => {
                test.sql.batch_execute("DELETE FROM rail_limiter WHERE limit_key = 'global'").await.unwrap();
                model[0] = None;
            }
            1 if model[1].is_some() => {
                let paused = roll(2) == 0;
                test.sql
                    .execute("UPDATE rail_limiter SET paused = $1 WHERE limit_key LIKE 'rail:%'", &[&paused])
                    .await
                    .unwrap();
                if let Some(row) = &mut model[1] {
                    row.paused = paused;
                }
            }
            _ => {}
        }
        let ask = Ask { limits: &limits, want: u32::try_from(1 + roll(20)).unwrap(), burn: roll(40) == 0 };
        let expected = grant(&mut model, &ask, now.as_microsecond());
        let answered = grant_at(&conn, &keys(), &ask, Some(now)).await.unwrap().answer;
        assert_eq!(answered, expected, "question {step}");
        assert_eq!(rows(&test).await, model, "rows after question {step}");
        let kind = match expected {
            Grant::Slots { .. } => "slots",
            Grant::Denied { why, .. } => why.as_str(),
        };
        *seen.entry(kind).or_insert(0) += 1;
        if let Grant::Slots { now_us, first_us, count: 1, .. } = expected {
            alone = Some(Unused { slot_us: first_us, granted_us: now_us });
        }
        // The last one that was granted alone comes back, before or after its time, others behind it or not.
        if let Some(unused) = alone
            && roll(2) == 0
        {
            let back = now + SignedDuration::from_millis(i64::try_from(roll(400)).unwrap());
            let expected = take_back(&mut model, &limits, unused, back.as_microsecond());
            assert_eq!(take_back_at(&conn, &keys(), &limits, unused, Some(back)).await.unwrap(), expected);
            assert_eq!(rows(&test).await, model, "rows after question {step} and the slot that came back");
            *seen.entry(if expected { "back" } else { "too late" }).or_insert(0) += 1;
        }
    }
    for kind in ["slots", "back", "too late"].into_iter().chain(Denial::ALL.map(Denial::as_str)) {
        assert!(seen.get(kind).is_some_and(|times| *times >= 5), "{kind} hardly came: {seen:?}");
    }
}

/// A pause is in the limiter's row as well as in the switch, and a row that is lost meanwhile comes back paused.
#[tokio::test]
async fn a_pause_pauses_the_limiter_and_outlives_its_row() {
    let test = TestStore::new().await;
    let key = "rail:payment_webhook";
    let decision = || Decision { actor: "test", reason: "because" };
    assert!(!test.store.limiter_paused(key).await.unwrap().answer);
    rails::switch(&test.store, PAYMENT_WEBHOOK, true, decision()).await.unwrap();
    assert!(test.store.limiter_paused(key).await.unwrap().answer);
    test.sql.batch_execute("TRUNCATE rail_limiter").await.unwrap();
    assert!(test.store.limiter_paused(key).await.unwrap().answer, "a lost row forgets the switch");
    test.sql.batch_execute("TRUNCATE rail_limiter").await.unwrap();
    let (limits, names) = ([limit(50, 1000)], [key.to_owned()]);
    let ask = Ask { limits: &limits, want: 1, burn: false };
    let made = test.store.limiter_grant(&names, &ask).await.unwrap().answer;
    assert!(matches!(made, Grant::Denied { why: Denial::Made, .. }), "{made:?}");
    let paused = test.store.limiter_grant(&names, &ask).await.unwrap().answer;
    assert!(matches!(paused, Grant::Denied { why: Denial::Paused, .. }), "{paused:?}");
    rails::switch(&test.store, PAYMENT_WEBHOOK, false, decision()).await.unwrap();
    let after = test.store.limiter_grant(&names, &ask).await.unwrap().answer;
    assert!(matches!(after, Grant::Denied { why: Denial::Full, .. }), "{after:?}");
}

/// A grant that waits for the pause's row sees it once it is committed.
#[tokio::test]
async fn a_grant_that_waits_for_a_pause_is_denied() {
    let test = TestStore::new().await;
    let (limits, names) = ([limit(50, 1000)], ["rail:payment_webhook".to_owned()]);
    let ask = Ask { limits: &limits, want: 1, burn: false };
    test.store.limiter_grant(&names, &ask).await.unwrap();
    test.sql.batch_execute("UPDATE rail_limiter SET next_at = clock_timestamp()").await.unwrap();
    let mut other = test.db.connect().await;
    let pausing = other.transaction().await.unwrap();
    pausing.execute(super::PAUSE, &[&"payment_webhook"]).await.unwrap();
    let committed = async {
        test.waiting(1).await;
        pausing.commit().await.unwrap();
    };
    let (granted, ()) = tokio::join!(test.store.limiter_grant(&names, &ask), committed);
    assert!(matches!(granted.unwrap().answer, Grant::Denied { why: Denial::Paused, .. }));
}
