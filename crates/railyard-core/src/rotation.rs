//! Replacing a bearer token or a signing secret without an instant at which a receiver refuses us.
//!
//! A rotation has two times. From `active_from` on the new ones are in effect where there is room for one: the token,
//! and S3's signature header. Until `overlap_until` Standard Webhooks carries the signatures of both, from the moment
//! that the rotation is known. After that the old ones are wiped.
//!
//! ```text
//!    rotated          active_from            overlap_until
//!       |  token, S3: old   |  token, S3: new     |  new
//!       |  Standard: both   |  Standard: both     |  new      (the old ones are wiped)
//! ```

use std::time::Duration;

use jiff::Timestamp;

/// How far ahead a rotation may take effect.
pub const ACTIVE_FROM_AHEAD_MAX: Duration = Duration::from_secs(30 * 24 * 3600);
/// How far back the asked time may lie and still mean *at once*: clocks differ.
pub const ACTIVE_FROM_BACK_MAX: Duration = Duration::from_secs(300);
/// From taking effect to the end of the overlap, where nothing is said.
pub const OVERLAP_S_DEFAULT: u32 = 24 * 3600;
/// The longest overlap.
pub const OVERLAP_S_MAX: u32 = 30 * 24 * 3600;

/// Which of the two a rotation replaces.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Parts {
    /// The bearer token.
    pub token: bool,
    /// The signing secret.
    pub secret: bool,
}

/// A rotation whose overlap has not ended when it was last looked at.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Unfinished {
    /// What it replaces.
    pub parts: Parts,
    /// When that takes effect.
    pub active_from: Timestamp,
    /// When its overlap ends.
    pub overlap_until: Timestamp,
    /// Whether what is asked now brings the very same values: a repeat, or a change of its times.
    pub same: bool,
}

/// What somebody asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Asked {
    /// What to replace.
    pub parts: Parts,
    /// When it shall take effect; at once if nothing is said.
    pub active_from: Option<Timestamp>,
    /// How long the overlap goes on after that, in seconds.
    pub overlap_s: u32,
}

/// What to write.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Planned {
    /// When it takes effect.
    pub active_from: Timestamp,
    /// When its overlap ends.
    pub overlap_until: Timestamp,
    /// First end the unfinished rotation: what it brought becomes what is replaced now.
    pub promote: bool,
}

/// Why there is no such rotation.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RotationError {
    /// `active_from` lies back.
    #[error("lies more than 300 seconds in the past")]
    Past,
    /// `active_from` lies far ahead.
    #[error("lies more than 30 days ahead")]
    FarAhead,
    /// An earlier rotation has not taken effect, and what it would have brought would be lost unsaid.
    #[error("an earlier rotation takes effect at {0} and replaces more than this one; name both token and secret")]
    WouldLose(Timestamp),
}

/// What a rotation does beside an unfinished one:
///
/// - the same values again: only the times change, `active_from` only while it lies ahead;
/// - the unfinished one has not taken effect: it is replaced, and nothing was ever signed with what it brought;
/// - it has: what it brought is what is replaced now, and what it replaced is gone at once.
///
/// # Errors
/// [`RotationError`].
pub fn plan(unfinished: Option<Unfinished>, asked: Asked, now: Timestamp) -> Result<Planned, RotationError> {
    let active_from = match asked.active_from {
        Some(at) if now.duration_since(at).unsigned_abs() > ACTIVE_FROM_BACK_MAX && at < now => {
            return Err(RotationError::Past);
        }
        Some(at) if at > now && at.duration_since(now).unsigned_abs() > ACTIVE_FROM_AHEAD_MAX => {
            return Err(RotationError::FarAhead);
        }
        Some(at) => at.max(now),
        None => now,
    };
    let (active_from, promote) = match unfinished {
        None => (active_from, false),
        Some(before) if before.overlap_until <= now => (active_from, true),
        Some(before) if before.same => {
            (if before.active_from <= now { before.active_from } else { active_from }, false)
        }
        Some(before) if before.active_from <= now => (active_from, true),
        Some(before) => {
            let loses = (before.parts.token && !asked.parts.token) || (before.parts.secret && !asked.parts.secret);
            if loses {
                return Err(RotationError::WouldLose(before.active_from));
            }
            (active_from, false)
        }
    };
    let from = active_from.max(now);
    let overlap_until = from.saturating_add(Duration::from_secs(asked.overlap_s.into())).unwrap_or(Timestamp::MAX);
    Ok(Planned { active_from, overlap_until, promote })
}

#[cfg(test)]
mod tests {
    use super::*;

    const BOTH: Parts = Parts { token: true, secret: true };
    const SECRET: Parts = Parts { token: false, secret: true };

    fn at(second: i64) -> Timestamp {
        Timestamp::from_second(second).unwrap()
    }

    fn asked(parts: Parts, active_from: Option<i64>) -> Asked {
        Asked { parts, active_from: active_from.map(at), overlap_s: 100 }
    }

    fn planned(active_from: i64, overlap_until: i64, promote: bool) -> Result<Planned, RotationError> {
        Ok(Planned { active_from: at(active_from), overlap_until: at(overlap_until), promote })
    }

    #[test]
    fn times_have_bounds() {
        let now = at(1_000_000);
        let plan = |from| plan(None, asked(SECRET, from), now);
        assert_eq!(plan(None), planned(1_000_000, 1_000_100, false));
        assert_eq!(plan(Some(999_700)), planned(1_000_000, 1_000_100, false), "a clock that is behind");
        assert_eq!(plan(Some(999_699)), Err(RotationError::Past));
        assert_eq!(plan(Some(1_000_000 + 30 * 86_400)), planned(3_592_000, 3_592_100, false));
        assert_eq!(plan(Some(1_000_001 + 30 * 86_400)), Err(RotationError::FarAhead));
        assert_eq!(plan(Some(-9_999_999_999)), Err(RotationError::Past));
        assert_eq!(plan(Some(253_402_207_100)), Err(RotationError::FarAhead));
    }

    #[test]
    fn a_second_rotation_within_an_overlap_is_defined() {
        let before =
            |parts, from, same| Some(Unfinished { parts, active_from: at(from), overlap_until: at(900), same });
        let now = at(500);
        // Not in effect yet: replaced, unless that would lose something unsaid.
        assert_eq!(plan(before(SECRET, 600, false), asked(BOTH, Some(700)), now), planned(700, 800, false));
        assert_eq!(plan(before(BOTH, 600, false), asked(SECRET, None), now), Err(RotationError::WouldLose(at(600))));
        // In effect: what it brought is replaced now.
        assert_eq!(plan(before(BOTH, 400, false), asked(SECRET, None), now), planned(500, 600, true));
        // The same again: its times.
        assert_eq!(plan(before(SECRET, 600, true), asked(SECRET, None), now), planned(500, 600, false));
        assert_eq!(plan(before(SECRET, 400, true), asked(SECRET, Some(700)), now), planned(400, 600, false));
        // Over, and not wiped yet.
        assert_eq!(plan(before(BOTH, 400, false), asked(SECRET, None), at(900)), planned(900, 1000, true));
    }
}
