//! Trying again, for calls that may be repeated: a job with its idempotency key.

use std::time::{Duration, Instant};

use super::{Answer, CallError};

/// First wait; doubles up to [`WAIT_MAX`].
const WAIT_FIRST: Duration = Duration::from_millis(100);
/// Longest wait between two tries.
const WAIT_MAX: Duration = Duration::from_secs(2);
/// Longest wait that the API may ask for.
const RETRY_AFTER_MAX: Duration = Duration::from_secs(30);

/// Tries of a request that the API fails on by itself, so that one of them does not hold up a whole file.
const FAULTS_MAX: u32 = 5;

/// How long an API that is away is tried again.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Patience {
    /// From the first try of a call.
    pub(crate) limit: Duration,
}

impl Patience {
    /// Repeats `call` until it is answered for good or the time is up. `on_wait` learns why it waits.
    ///
    /// # Errors
    /// The last try's.
    pub(crate) async fn call<F, Fut>(self, mut call: F, on_wait: impl Fn(&CallError)) -> Result<Answer, CallError>
    where
        F: FnMut() -> Fut,
        Fut: Future<Output = Result<Answer, CallError>>,
    {
        let began = Instant::now();
        let mut wait = WAIT_FIRST;
        let mut faults = 0;
        loop {
            let error = match call().await {
                Ok(answer) => return Ok(answer),
                Err(error) => error,
            };
            // Up to a half more, so that callers who failed together do not come back together.
            let pause = error.retry_after().map_or(wait, |asked| asked.min(RETRY_AFTER_MAX).max(wait));
            let pause = pause.mul_f64(1.0 + rand::random::<f64>() / 2.0);
            faults += u32::from(error.is_fault());
            let again = error.is_transient() || (error.is_fault() && faults < FAULTS_MAX);
            if !again || began.elapsed() + pause > self.limit {
                return Err(error);
            }
            on_wait(&error);
            tokio::time::sleep(pause).await;
            wait = (wait * 2).min(WAIT_MAX);
        }
    }
}
