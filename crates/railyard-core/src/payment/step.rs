//! The steps of phase A, by name: a payment that is not accepted says at which of them it ended.

/// What is done with a payment before it waits for its time, in this order (S0).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Step {
    /// Every field is looked at.
    Validate,
    /// What was left out is filled in, by the database's clock.
    Enrich,
    /// Limits, cut-offs, blocked parties.
    ApplyRules,
    /// What its execution needs is put together.
    BuildContext,
    /// The planner gives it its time, on condition that it is accepted.
    AssignSlot,
    /// It is written as SCHEDULED.
    Persist,
    /// Its context is written.
    SaveContext,
    /// It takes its place in its debtor's order, READY.
    Enqueue,
}

impl Step {
    /// All of them, in their order.
    pub const ALL: [Self; 8] = [
        Self::Validate,
        Self::Enrich,
        Self::ApplyRules,
        Self::BuildContext,
        Self::AssignSlot,
        Self::Persist,
        Self::SaveContext,
        Self::Enqueue,
    ];

    /// As it is told to callers.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Validate => "VALIDATE",
            Self::Enrich => "ENRICH",
            Self::ApplyRules => "APPLY_RULES",
            Self::BuildContext => "BUILD_CONTEXT",
            Self::AssignSlot => "ASSIGN_SLOT",
            Self::Persist => "PERSIST",
            Self::SaveContext => "SAVE_CONTEXT",
            Self::Enqueue => "ENQUEUE",
        }
    }
}
