//! Where a payment is, as its parties see it, and where its row in the queue is. Both tables refuse every other change
//! (`payment_status_guard`, `exec_queue_status_guard`), and a test of the store holds them to these.
//!
//! ```text
//! payment  SCHEDULED ─▶ ACCEPTED ─▶ PROCESSING
//!
//! queue    READY ─▶ CLAIMED ─▶ DISPATCHED ─▶ COMPLETED
//!            ▲         │            ├─▶ FAILED ─▶ DEAD_LETTER
//!            │         │            └─▶ DEAD_LETTER
//!            │         ├─▶ READY (not handed over; tried again)
//!            │         └─▶ DEAD_LETTER (not handed over, too often)
//!            ├─▶ DEAD_LETTER (failed more often than may be since that was lowered)
//!            └── FAILED, DEAD_LETTER (a person requeues it: a new run)
//!                       └─▶ DISPATCHED (a person replays its job: it follows the replay)
//! ```

/// Where a payment is in its business life (S0).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum PaymentStatus {
    /// Accepted, and waiting for its time.
    Scheduled,
    /// Executed: the rail has taken it.
    Accepted,
    /// Everybody concerned has been told. The end.
    Processing,
}

impl PaymentStatus {
    /// All of them.
    pub const ALL: [Self; 3] = [Self::Scheduled, Self::Accepted, Self::Processing];

    /// As stored and as sent.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Scheduled => "SCHEDULED",
            Self::Accepted => "ACCEPTED",
            Self::Processing => "PROCESSING",
        }
    }

    /// Reads what [`PaymentStatus::as_str`] wrote.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|status| status.as_str() == text)
    }

    /// Whether it may become this.
    #[must_use]
    pub fn may_become(self, next: Self) -> bool {
        match self {
            Self::Scheduled => next == Self::Accepted,
            Self::Accepted => next == Self::Processing,
            Self::Processing => false,
        }
    }
}

/// Where a row of the dispatch queue is (S0).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum QueueStatus {
    /// Waits for its time.
    Ready,
    /// A dispatcher has taken it and not handed it over yet.
    Claimed,
    /// The outbox has it.
    Dispatched,
    /// Executed. The end.
    Completed,
    /// Its run ended without success; whether there is another one is about to be decided.
    Failed,
    /// Nothing more is tried until a person requeues it.
    DeadLetter,
}

impl QueueStatus {
    /// All of them.
    pub const ALL: [Self; 6] =
        [Self::Ready, Self::Claimed, Self::Dispatched, Self::Completed, Self::Failed, Self::DeadLetter];

    /// As stored and as sent.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Ready => "READY",
            Self::Claimed => "CLAIMED",
            Self::Dispatched => "DISPATCHED",
            Self::Completed => "COMPLETED",
            Self::Failed => "FAILED",
            Self::DeadLetter => "DEAD_LETTER",
        }
    }

    /// Reads what [`QueueStatus::as_str`] wrote.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|status| status.as_str() == text)
    }

    /// Whether it may become this.
    #[must_use]
    pub fn may_become(self, next: Self) -> bool {
        match self {
            Self::Ready => matches!(next, Self::Claimed | Self::DeadLetter),
            // Not handed over, and tried again or not; or handed over.
            Self::Claimed => matches!(next, Self::Ready | Self::Dispatched | Self::DeadLetter),
            Self::Dispatched => matches!(next, Self::Completed | Self::Failed | Self::DeadLetter),
            Self::Failed => matches!(next, Self::Ready | Self::Dispatched | Self::DeadLetter),
            Self::DeadLetter => matches!(next, Self::Ready | Self::Dispatched),
            Self::Completed => false,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn s0_30_a_payment_goes_one_way() {
        let all = PaymentStatus::ALL;
        let steps: Vec<_> = all.iter().flat_map(|from| all.iter().map(move |to| (*from, *to))).collect();
        let allowed: Vec<_> = steps.into_iter().filter(|(from, to)| from.may_become(*to)).collect();
        use PaymentStatus::{Accepted, Processing, Scheduled};
        assert_eq!(allowed, [(Scheduled, Accepted), (Accepted, Processing)]);
    }

    #[test]
    fn words_are_read_as_they_are_written() {
        assert!(PaymentStatus::ALL.into_iter().all(|status| PaymentStatus::parse(status.as_str()) == Some(status)));
        assert!(QueueStatus::ALL.into_iter().all(|status| QueueStatus::parse(status.as_str()) == Some(status)));
        assert_eq!((PaymentStatus::parse("scheduled"), QueueStatus::parse("")), (None, None));
    }

    #[test]
    fn a_queue_row_ends_completed_or_waits_for_a_person() {
        let onward = |from: QueueStatus| QueueStatus::ALL.into_iter().filter(move |to| from.may_become(*to)).count();
        assert_eq!(onward(QueueStatus::Completed), 0);
        for status in QueueStatus::ALL {
            assert!(!status.may_become(status), "{status:?}");
            assert_eq!(onward(status) > 0, status != QueueStatus::Completed, "{status:?}");
        }
        // What has been handed over never waits for a dispatcher again by itself: the outbox owns its retries.
        assert!(!QueueStatus::Dispatched.may_become(QueueStatus::Ready));
        assert!(!QueueStatus::Dispatched.may_become(QueueStatus::Claimed));
    }
}
