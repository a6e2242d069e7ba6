use super::*;
use proptest::prelude::*;

fn s(seconds: u64) -> Duration {
    Duration::from_secs(seconds)
}

/// One call from start to end at one instant; false if it did not get through.
fn call(breaker: &mut Breaker, verdict: Verdict, now: Duration) -> bool {
    match breaker.admit(now) {
        Ok(pass) => {
            breaker.report(pass, verdict, now);
            true
        }
        Err(_) => false,
    }
}

fn open_at(now: Duration) -> Breaker {
    let mut breaker = Breaker::new(Policy::default());
    for _ in 0..10 {
        assert!(call(&mut breaker, Verdict::Failure, now));
    }
    breaker
}

#[test]
fn s3_41_opens_at_half_of_ten_half_opens_after_five_seconds_closes_after_three() {
    let mut breaker = Breaker::new(Policy::default());
    for n in 0..9 {
        let verdict = if n % 2 == 0 { Verdict::Failure } else { Verdict::Success };
        assert!(call(&mut breaker, verdict, s(1)));
    }
    assert_eq!(breaker.seen(s(1)), Seen::Closed { calls: 9, failures: 5 });
    assert!(call(&mut breaker, Verdict::Success, s(2)));
    assert_eq!(breaker.seen(s(2)), Seen::Open { remaining_ms: 5000 });
    assert_eq!(breaker.look(s(6)), Err(s(7)));
    for n in 0..3 {
        assert_eq!(breaker.look(s(7)), Ok(()), "probe {n}");
        assert!(call(&mut breaker, Verdict::Success, s(7)));
    }
    assert_eq!(breaker.seen(s(7)), Seen::Closed { calls: 0, failures: 0 });
}

#[test]
fn a_failing_probe_opens_it_again_and_only_three_are_out_at_once() {
    let mut breaker = open_at(s(0));
    let probes: Vec<Pass> = (0..3).map(|_| breaker.admit(s(5)).unwrap()).collect();
    assert_eq!(breaker.admit(s(5)), Err(s(5) + PROBE_WAIT));
    let mut probes = probes.into_iter();
    breaker.report(probes.next().unwrap(), Verdict::Failure, s(6));
    assert_eq!(breaker.look(s(6)), Err(s(11)));
    // The other two belong to a stretch that is over.
    for probe in probes {
        breaker.report(probe, Verdict::Success, s(11));
    }
    assert_eq!(breaker.seen(s(11)), Seen::Open { remaining_ms: 0 });
}

#[test]
fn s3_27_deferrals_are_neutral() {
    let mut breaker = Breaker::new(Policy::default());
    for _ in 0..100 {
        assert!(call(&mut breaker, Verdict::Neutral, s(1)));
    }
    assert!(breaker.is_blank(s(1)));
    // A neutral probe gives its place to another and decides nothing.
    let mut breaker = open_at(s(0));
    for _ in 0..10 {
        assert!(call(&mut breaker, Verdict::Neutral, s(5)));
    }
    assert_eq!(breaker.seen(s(5)), Seen::HalfOpen { in_flight: 0, succeeded: 0 });
}

#[test]
fn stragglers_do_not_count_against_the_probes() {
    let mut breaker = Breaker::new(Policy::default());
    let straggler = breaker.admit(s(0)).unwrap();
    for _ in 0..10 {
        call(&mut breaker, Verdict::Failure, s(0));
    }
    let probe = breaker.admit(s(5)).unwrap();
    breaker.report(straggler, Verdict::Failure, s(5));
    assert_eq!(breaker.seen(s(5)), Seen::HalfOpen { in_flight: 1, succeeded: 0 });
    breaker.report(probe, Verdict::Success, s(5));
    assert_eq!(breaker.seen(s(5)), Seen::HalfOpen { in_flight: 0, succeeded: 1 });
}

#[test]
fn old_failures_are_forgotten() {
    let mut breaker = Breaker::new(Policy::default());
    for _ in 0..9 {
        call(&mut breaker, Verdict::Failure, s(1));
    }
    assert!(call(&mut breaker, Verdict::Failure, s(40)));
    assert_eq!(breaker.seen(s(40)), Seen::Closed { calls: 1, failures: 1 });
    assert!(breaker.is_blank(s(100)));
}

#[test]
fn what_is_shown() {
    let seen = serde_json::to_string(&Seen::Open { remaining_ms: 5 }).unwrap();
    assert_eq!(seen, r#"{"state":"open","remaining_ms":5}"#);
}

proptest! {
    /// Against a list that remembers everything.
    #[test]
    fn opens_exactly_when_the_window_says_so(steps in proptest::collection::vec((0_u64..4000, 0_u8..3), 1..200)) {
        let policy = Policy { failure_percent: 40, calls_min: 5, ..Policy::default() };
        let mut breaker = Breaker::new(policy);
        let mut now = Duration::ZERO;
        let mut calls: Vec<(u64, bool)> = Vec::new();
        for (ms, kind) in steps {
            now += Duration::from_millis(ms);
            let verdict = [Verdict::Success, Verdict::Failure, Verdict::Neutral][usize::from(kind)];
            prop_assert!(call(&mut breaker, verdict, now));
            if verdict != Verdict::Neutral {
                calls.push((now.as_secs(), verdict == Verdict::Failure));
            }
            let window: Vec<bool> =
                calls.iter().filter(|(second, _)| second + 30 > now.as_secs()).map(|(_, failed)| *failed).collect();
            let failures = window.iter().filter(|failed| **failed).count();
            let open = window.len() >= 5 && failures > 0 && failures * 100 >= window.len() * 40;
            prop_assert_eq!(matches!(breaker.seen(now), Seen::Open { .. }), open);
            if open {
                break;
            }
        }
    }

    /// Never more probes out than allowed, whatever comes back in whatever order.
    #[test]
    fn probes_are_bounded(steps in proptest::collection::vec((0_u64..3000, 0_u8..4, any::<prop::sample::Index>()), 1..200)) {
        let mut breaker = open_at(Duration::ZERO);
        let mut now = Duration::ZERO;
        let mut out: Vec<Pass> = Vec::new();
        for (ms, kind, which) in steps {
            now += Duration::from_millis(ms);
            if kind == 3 || out.is_empty() {
                if let Ok(pass) = breaker.admit(now) {
                    out.push(pass);
                }
            } else {
                let pass = out.swap_remove(which.index(out.len()));
                breaker.report(pass, [Verdict::Success, Verdict::Failure, Verdict::Neutral][usize::from(kind)], now);
            }
            if let Seen::HalfOpen { in_flight, succeeded } = breaker.seen(now) {
                prop_assert!(in_flight + succeeded <= 3);
            }
        }
    }
}
