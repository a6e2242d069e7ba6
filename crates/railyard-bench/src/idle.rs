//! What nodes do by the clock, told from what they do for messages. Pure.

use std::collections::HashMap;

/// Calls of each statement in some time, by the server's id of it.
#[derive(Clone, Debug, Default)]
pub(crate) struct Calls {
    pub(crate) seconds: f64,
    pub(crate) by_query: HashMap<i64, Counted>,
}

/// One statement.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Counted {
    pub(crate) calls: f64,
    pub(crate) rows: f64,
}

/// Calls of `run` without those that idle nodes make as well: of each statement seen in `idle` as many as it makes there
/// in the same time, but never more than there were, since a busy machine's clocks come late. What finds nothing while
/// idle and something under load looks for work; it counts with all its calls, those in vain among them.
pub(crate) fn without_idle(run: &Calls, idle: &Calls) -> f64 {
    let left = run.by_query.iter().map(|(query, counted)| match idle.by_query.get(query) {
        Some(alone) if !looks_for_work(counted, alone) && idle.seconds > 0.0 => {
            (counted.calls - alone.calls / idle.seconds * run.seconds).max(0.0)
        }
        Some(_) | None => counted.calls,
    });
    left.sum()
}

fn looks_for_work(run: &Counted, idle: &Counted) -> bool {
    idle.rows < 0.5 && run.rows > 0.5
}

#[cfg(test)]
mod tests {
    use super::*;

    const RENEW: i64 = 1;
    const LOOK: i64 = 2;
    const BEGIN: i64 = 3;
    const SETTLE: i64 = 4;

    fn calls(seconds: f64, counted: &[(i64, f64, f64)]) -> Calls {
        let by_query = counted.iter().map(|(query, calls, rows)| (*query, Counted { calls: *calls, rows: *rows }));
        Calls { seconds, by_query: by_query.collect() }
    }

    #[test]
    fn the_clocks_own_are_left_out_and_looks_for_work_count() {
        let idle = calls(5.0, &[(RENEW, 5.0, 5.0), (LOOK, 10.0, 0.0), (BEGIN, 1.0, 0.0)]);
        let run = calls(10.0, &[(RENEW, 10.0, 10.0), (LOOK, 60.0, 900.0), (BEGIN, 102.0, 0.0), (SETTLE, 100.0, 100.0)]);
        assert!((without_idle(&run, &idle) - (60.0 + 100.0 + 100.0)).abs() < 1e-9);
    }

    #[test]
    fn clocks_that_came_late_take_nothing_from_the_rest() {
        let idle = calls(5.0, &[(RENEW, 50.0, 50.0)]);
        let run = calls(10.0, &[(RENEW, 30.0, 30.0), (SETTLE, 100.0, 100.0)]);
        assert!((without_idle(&run, &idle) - 100.0).abs() < 1e-9);
        assert!((without_idle(&run, &Calls::default()) - 130.0).abs() < 1e-9);
    }
}
