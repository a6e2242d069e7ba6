//! Trouble with the database: counted each time, said once a minute. During an outage every part of a node meets it
//! several times a second, and a log full of the same line hides the others.

use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use tokio::time::Instant;

/// Between two lines about the same trouble.
const QUIET: Duration = Duration::from_secs(60);

/// What was said last, by topic. Bounded by the topics, which are named in the code.
#[derive(Default)]
pub(crate) struct Troubles {
    topics: Mutex<HashMap<&'static str, Topic>>,
}

struct Topic {
    said_at: Instant,
    unsaid: u64,
}

impl Troubles {
    /// Whether this one is to be said, and how many were not since the last that was.
    pub(crate) fn met(&self, topic: &'static str, now: Instant) -> Option<u64> {
        let mut topics = self.topics.lock().unwrap_or_else(PoisonError::into_inner);
        match topics.get_mut(topic) {
            Some(known) if now.saturating_duration_since(known.said_at) < QUIET => {
                known.unsaid += 1;
                None
            }
            Some(known) => {
                known.said_at = now;
                Some(std::mem::take(&mut known.unsaid))
            }
            None => {
                topics.insert(topic, Topic { said_at: now, unsaid: 0 });
                Some(0)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_is_said_at_once_and_the_next_after_a_minute() {
        let (troubles, start) = (Troubles::default(), Instant::now());
        assert_eq!(troubles.met("database", start), Some(0));
        for second in 1..60 {
            assert_eq!(troubles.met("database", start + Duration::from_secs(second)), None);
        }
        assert_eq!(troubles.met("reaper", start + Duration::from_secs(59)), Some(0), "another topic");
        assert_eq!(troubles.met("database", start + Duration::from_secs(60)), Some(59));
        assert_eq!(troubles.met("database", start + Duration::from_secs(61)), None);
    }
}
