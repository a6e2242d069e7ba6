//! What the proxy looks for in the statements that pass: the one around which it cuts, the one that marks.

use std::fmt;

use super::{Cut, Moment};

type Matches = Box<dyn Fn(&str) -> bool + Send>;

/// Waits for statements, as often as it was set.
struct Trap {
    matches: Matches,
    moment: Moment,
    manner: Cut,
    left: u32,
}

/// Both, at most one of each.
#[derive(Default)]
pub(super) struct Watch {
    trap: Option<Trap>,
    mark: Option<Matches>,
}

impl fmt::Debug for Watch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let left = self.trap.as_ref().map(|trap| (trap.moment, trap.left));
        f.debug_struct("Watch").field("trap", &left).field("mark", &self.mark.is_some()).finish()
    }
}

impl Watch {
    /// Replaces the trap; `times` 0 takes it away.
    pub(super) fn set_trap(&mut self, moment: Moment, manner: Cut, times: u32, matches: Matches) {
        self.trap = (times > 0).then_some(Trap { matches, moment, manner, left: times });
    }

    pub(super) fn set_mark(&mut self, matches: Matches) {
        self.mark = Some(matches);
    }

    /// Whether this statement marks its connection.
    pub(super) fn marks(&self, sql: &str) -> bool {
        self.mark.as_ref().is_some_and(|matches| matches(sql))
    }

    /// Springs the trap if this statement is meant.
    pub(super) fn spring(&mut self, sql: &str) -> Option<(Moment, Cut)> {
        let trap = self.trap.as_mut().filter(|trap| (trap.matches)(sql))?;
        let sprung = (trap.moment, trap.manner);
        trap.left -= 1;
        if trap.left == 0 {
            self.trap = None;
        }
        Some(sprung)
    }
}

/// Whether a statement, alone or as the last of several, commits.
pub(super) fn is_commit(sql: &str) -> bool {
    let last = sql.trim().trim_end_matches(';').rsplit(';').next().unwrap_or_default();
    last.split_whitespace().next().is_some_and(|word| word.eq_ignore_ascii_case("commit"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn commits_are_told_from_other_statements() {
        for sql in ["COMMIT", "commit;", " Commit ", "insert into t values (1); COMMIT", "COMMIT AND CHAIN"] {
            assert!(is_commit(sql), "{sql}");
        }
        for sql in ["", "select 'commit'", "commit_log", "BEGIN", "COMMIT; select 1"] {
            assert!(!is_commit(sql), "{sql}");
        }
    }
}
