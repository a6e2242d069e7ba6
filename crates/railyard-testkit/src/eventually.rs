//! Waiting for a condition instead of sleeping: as short as possible, bounded, and with a reason when it fails.

use std::fmt::Debug;
use std::future::Future;
use std::panic::Location;
use std::time::{Duration, Instant};

/// Between two looks; it grows from the first to the second, so that quick conditions cost little time and slow
/// ones little work.
const LOOK_AFTER: Duration = Duration::from_millis(2);
const LOOK_AFTER_MAX: Duration = Duration::from_millis(50);

/// Waits until `condition` holds.
///
/// # Panics
/// At the deadline, with `what` and the caller's place.
#[track_caller]
pub fn eventually<F, Fut>(deadline: Duration, what: &str, mut condition: F) -> impl Future<Output = ()> + use<F, Fut>
where
    F: FnMut() -> Fut,
    Fut: Future<Output = bool>,
{
    eventually_some(deadline, what, move || {
        let look = condition();
        async move { look.await.then_some(()) }
    })
}

/// Waits until `look` finds something, and returns it.
///
/// # Panics
/// At the deadline, with `what` and the caller's place.
#[track_caller]
pub fn eventually_some<T, F, Fut>(
    deadline: Duration,
    what: &str,
    mut look: F,
) -> impl Future<Output = T> + use<T, F, Fut>
where
    F: FnMut() -> Fut,
    Fut: Future<Output = Option<T>>,
{
    eventually_ok(deadline, what, move || {
        let look = look();
        async move { look.await.ok_or("it did not happen") }
    })
}

/// Waits until `look` succeeds, and returns what it found.
///
/// # Panics
/// At the deadline, with `what`, the last look's error and the caller's place.
#[track_caller]
pub fn eventually_ok<T, E, F, Fut>(
    deadline: Duration,
    what: &str,
    mut look: F,
) -> impl Future<Output = T> + use<T, E, F, Fut>
where
    E: Debug,
    F: FnMut() -> Fut,
    Fut: Future<Output = Result<T, E>>,
{
    let place = Location::caller();
    let what = what.to_owned();
    async move {
        let started = Instant::now();
        let mut pause = LOOK_AFTER;
        loop {
            match look().await {
                Ok(found) => return found,
                Err(error) if started.elapsed() >= deadline => {
                    panic!("not within {deadline:?}: {what} ({place}): {error:?}")
                }
                Err(_) => {}
            }
            tokio::time::sleep(pause).await;
            pause = (pause * 2).min(LOOK_AFTER_MAX);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use super::*;

    #[tokio::test]
    async fn it_returns_as_soon_as_the_condition_holds() {
        let looks = Cell::new(0);
        let looks = &looks;
        eventually(Duration::from_secs(5), "the third look", || async move {
            looks.set(looks.get() + 1);
            looks.get() == 3
        })
        .await;
        assert_eq!(looks.get(), 3);
    }

    #[tokio::test]
    #[should_panic(expected = "a shut door")]
    async fn it_tells_the_last_error() {
        eventually_ok(Duration::from_millis(20), "the impossible", || async { Err::<(), _>("a shut door") }).await;
    }

    #[tokio::test]
    #[should_panic(expected = "not within 20ms: the impossible (crates/railyard-testkit/src/eventually.rs")]
    async fn it_names_what_did_not_happen_and_who_waited() {
        eventually(Duration::from_millis(20), "the impossible", || async { false }).await;
    }
}
