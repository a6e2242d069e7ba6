//! The life of a lane in memory: one message at a time, events in, effects out.
//!
//! ```text
//!            Hinted            PlaceTaken            Begun              CallEnded            Settled(next)
//!  Resting ─────────▶ Waiting ───────────▶ Beginning ──────▶ Calling ──────────▶ Settling ──────────────▶ Calling
//!     ▲                  │ Refused             │ NothingToBegin    │ CallLost         │ Settled(none)
//!     │                  │     ▲               │ BeginFailed       │                  │ Drained, SettleFailed
//!     └──────────────────┴─────┼───────────────┴───────────────────┴──────────────────┤
//!                              └──────────────────────────────────────────────────────┘ More
//! ```
//!
//! The database has the last word on every arrow: a begin that returns nothing, or a settle that finds its row gone,
//! only brings the lane back to rest. What a crashed lane held in memory stands in the in-flight row.

use crate::message::Message;
use crate::settlement::Settlement;

/// Where a lane is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum GroupState {
    /// Nothing is known to do.
    Resting,
    /// Due, and waiting for a place at its endpoint.
    Waiting,
    /// Has a place; intent is being committed.
    Beginning,
    /// Intent is committed; the rail has the message.
    Calling,
    /// The outcome is being committed.
    Settling,
}

/// What happened.
#[derive(Clone, Debug)]
pub enum Event {
    /// The store says that the lane may have something due.
    Hinted,
    /// The endpoint has a place for it.
    PlaceTaken,
    /// It gets none: breaker open, stopping.
    Refused,
    /// Intent is committed.
    Begun(Box<Message>),
    /// The head is not due, held, in flight elsewhere, or not ours.
    NothingToBegin,
    /// The begin did not get through; whatever became of it, this process will not call.
    BeginFailed,
    /// The rail is done with it.
    CallEnded(Box<Settlement>),
    /// The caller died with the message: nobody knows. The in-flight row stays and the Reaper reads it.
    CallLost,
    /// The outcome is committed; the group's next was begun with it, if there was one.
    Settled(Option<Box<Message>>),
    /// The outcome is committed; the group has more that is due, and gave its place up for others.
    More,
    /// The outcome is committed and the group was found to have nothing else that is due.
    Drained,
    /// The outcome could not be written: the in-flight row stays and the Reaper reads it.
    SettleFailed,
}

/// What to do now.
#[derive(Clone, Debug)]
pub enum Effect {
    /// Wait for a place at the endpoint.
    TakePlace,
    /// Commit intent.
    Begin,
    /// Give it to the rail.
    Call(Box<Message>),
    /// Commit the outcome.
    Settle(Box<Settlement>),
    /// Give the place and the credit back; say whether the store should be asked what stands at the head.
    Rest {
        /// Nothing was found to begin: the hint has to be put right, or taken away.
        tidy: bool,
    },
}

/// An event that has no meaning in a state. The lane is broken and must end: the database still knows everything.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{event} in state {state:?}")]
pub struct Illegal {
    /// Where the lane was.
    pub state: GroupState,
    /// What came.
    pub event: &'static str,
}

impl Event {
    /// Its name, for errors and tests.
    #[must_use]
    pub fn name(&self) -> &'static str {
        match self {
            Self::Hinted => "Hinted",
            Self::PlaceTaken => "PlaceTaken",
            Self::Refused => "Refused",
            Self::Begun(_) => "Begun",
            Self::NothingToBegin => "NothingToBegin",
            Self::BeginFailed => "BeginFailed",
            Self::CallEnded(_) => "CallEnded",
            Self::CallLost => "CallLost",
            Self::Settled(_) => "Settled",
            Self::More => "More",
            Self::Drained => "Drained",
            Self::SettleFailed => "SettleFailed",
        }
    }
}

impl GroupState {
    /// All states.
    pub const ALL: [Self; 5] = [Self::Resting, Self::Waiting, Self::Beginning, Self::Calling, Self::Settling];

    /// The next state and what to do in it.
    ///
    /// # Errors
    /// [`Illegal`] where the table has no arrow.
    pub fn apply(self, event: Event) -> Result<(Self, Effect), Illegal> {
        match (self, event) {
            (Self::Resting, Event::Hinted) | (Self::Settling, Event::More) => Ok((Self::Waiting, Effect::TakePlace)),
            (Self::Waiting, Event::PlaceTaken) => Ok((Self::Beginning, Effect::Begin)),
            (Self::Waiting, Event::Refused) => Ok((Self::Resting, Effect::Rest { tidy: false })),
            (Self::Beginning, Event::Begun(message)) => Ok((Self::Calling, Effect::Call(message))),
            (Self::Beginning, Event::NothingToBegin) | (Self::Settling, Event::Drained) => {
                Ok((Self::Resting, Effect::Rest { tidy: true }))
            }
            (Self::Calling, Event::CallEnded(settlement)) => Ok((Self::Settling, Effect::Settle(settlement))),
            (Self::Settling, Event::Settled(Some(message))) => Ok((Self::Calling, Effect::Call(message))),
            (Self::Beginning, Event::BeginFailed)
            | (Self::Calling, Event::CallLost)
            | (Self::Settling, Event::Settled(None) | Event::SettleFailed) => {
                Ok((Self::Resting, Effect::Rest { tidy: false }))
            }
            (state, event) => Err(Illegal { state, event: event.name() }),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{message, settlement};

    fn events() -> Vec<Event> {
        vec![
            Event::Hinted,
            Event::PlaceTaken,
            Event::Refused,
            Event::Begun(Box::new(message())),
            Event::NothingToBegin,
            Event::BeginFailed,
            Event::CallEnded(Box::new(settlement())),
            Event::CallLost,
            Event::Settled(Some(Box::new(message()))),
            Event::Settled(None),
            Event::More,
            Event::Drained,
            Event::SettleFailed,
        ]
    }

    /// Every state with every event: what the table says, and an error wherever it says nothing.
    #[test]
    fn the_whole_table() {
        let mut legal = Vec::new();
        for state in GroupState::ALL {
            for event in events() {
                let name = if matches!(event, Event::Settled(None)) { "Settled(none)" } else { event.name() };
                match state.apply(event) {
                    Ok((next, effect)) => legal.push(format!("{state:?} {name} -> {next:?} {}", effect_name(&effect))),
                    Err(illegal) => assert_eq!(illegal.state, state),
                }
            }
        }
        assert_eq!(
            legal,
            [
                "Resting Hinted -> Waiting TakePlace",
                "Waiting PlaceTaken -> Beginning Begin",
                "Waiting Refused -> Resting Rest",
                "Beginning Begun -> Calling Call",
                "Beginning NothingToBegin -> Resting Rest+tidy",
                "Beginning BeginFailed -> Resting Rest",
                "Calling CallEnded -> Settling Settle",
                "Calling CallLost -> Resting Rest",
                "Settling Settled -> Calling Call",
                "Settling Settled(none) -> Resting Rest",
                "Settling More -> Waiting TakePlace",
                "Settling Drained -> Resting Rest+tidy",
                "Settling SettleFailed -> Resting Rest",
            ]
        );
    }

    /// A call is only ever reached over a begin, and nothing but a settle follows an ended call.
    #[test]
    fn no_call_without_intent_and_none_before_the_outcome() {
        for state in GroupState::ALL {
            for event in events() {
                let name = event.name();
                if let Ok((next, Effect::Call(_))) = state.apply(event) {
                    assert!(matches!(name, "Begun" | "Settled"), "{name}");
                    assert_eq!(next, GroupState::Calling);
                }
            }
        }
    }

    fn effect_name(effect: &Effect) -> &'static str {
        match effect {
            Effect::TakePlace => "TakePlace",
            Effect::Begin => "Begin",
            Effect::Call(_) => "Call",
            Effect::Settle(_) => "Settle",
            Effect::Rest { tidy: true } => "Rest+tidy",
            Effect::Rest { tidy: false } => "Rest",
        }
    }
}
