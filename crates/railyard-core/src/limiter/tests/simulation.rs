//! A cluster in simulated time: rows, nodes that ask and send, and everything that goes wrong. Times are microseconds of
//! true time; each node's monotonic clock and the database's clock have origins of their own.

#![expect(clippy::wildcard_enum_match_arm, reason = "one hole against all the others")]

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::time::Duration;

use super::super::{
    Ask, ClockWatch, Denial, Grant, HORIZON, LEAD, Limit, Permit, Row, SPENT, Unused, grant, take_back, us,
};

/// A guard that is left out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Hole {
    /// All guards are there.
    None,
    /// The slot's moment is taken to be the middle of the round trip.
    Midpoint,
    /// An answer that took longer than δ is used.
    SlowTrip,
    /// A slot is used however late it is: by a process that was stopped, or behind a slow begin.
    LateUse,
    /// gap = W / N.
    BareGap,
    /// Each row goes on from its own slot, not from the common one.
    OwnSlot,
    /// A missing row starts now.
    MissingNow,
    /// After the clock went back, a row starts now.
    BackNow,
    /// A row comes out of a crash without its last updates.
    RowKept,
    /// Nobody looks whether the clock went forward.
    ForwardUnseen,
    /// A step that another question has shown is not held against one that was under way.
    StepForgotten,
    /// A node that has just started asks at once.
    FreshNode,
    /// Slots lie as far ahead as there is demand, and a row that starts anew knows nothing of that.
    NoHorizon,
    /// A row takes a slot back although a call uses it.
    UsedAndBack,
    /// A row takes a slot back although others were granted behind it.
    BackBlind,
    /// A slot that came back is granted again for a moment before its own.
    BackEarly,
    /// No row takes anything back. It hides nothing, and costs slots.
    NothingBack,
}

/// What happens in a run, beside asking and sending.
#[derive(Clone, Copy, Debug)]
enum Fault {
    Freeze {
        node: usize,
        span: i64,
    },
    Crash,
    Step {
        by: i64,
    },
    Restart {
        node: usize,
    },
    /// The limit of the first row becomes this one at a node.
    Change {
        node: usize,
        starts: u32,
    },
}

#[derive(Clone, Copy, Debug)]
enum What {
    Ask { node: usize, set: usize, life: u32, moment: u64 },
    Execute(Question),
    Answer(Question, Grant, i64),
    Probe { node: usize, life: u32 },
    Send { node: usize, set: usize, life: u32, permit: Permit, unused: Unused },
    TakeBack { node: usize, set: usize, life: u32, unused: Unused },
    Fault(Fault),
}

/// One question for slots.
#[derive(Clone, Copy, Debug)]
struct Question {
    node: usize,
    set: usize,
    life: u32,
    sent: i64,
    burn: bool,
    /// Steps of the clock that its node had seen when it was sent.
    steps: u64,
}

struct Node {
    origin: i64,
    frozen_until: i64,
    life: u32,
    watch: ClockWatch,
    /// The steps of the clock that each set has burnt a window for.
    burnt: [u64; SETS.len()],
    /// The last moment that was set for a question.
    moments: [u64; SETS.len()],
    /// A row took a slot back since the last question was sent: the next one is due at once.
    nudged: [bool; SETS.len()],
    limits: [Limit; 2],
}

/// Rows that a question is about.
const SETS: [&[usize]; 3] = [&[0], &[1], &[0, 1]];

/// A run, and what the receiver saw.
pub(super) struct Simulation {
    hole: Hole,
    /// Nothing goes wrong, and one set of limits is asked for.
    calm: bool,
    /// One of so many slots finds nothing to begin.
    unused_one_of: usize,
    random: Random,
    events: BinaryHeap<Reverse<(i64, u64, usize)>>,
    pending: Vec<What>,
    order: u64,
    rows: [Option<Row>; 2],
    /// Rows as they were lately, oldest first.
    history: Vec<(i64, [Option<Row>; 2])>,
    clock: i64,
    nodes: Vec<Node>,
    /// Arrivals by row.
    pub(super) starts: [Vec<i64>; 2],
    pub(super) burnt: u64,
}

impl Simulation {
    /// Three nodes, two limits, ten to thirty seconds, a fault about every two.
    pub(super) fn run(seed: u64, hole: Hole) -> Self {
        let mut random = Random(seed);
        let starts = [[50, 200], [10, 40], [3, 5], [50, 50]][random.below(4)];
        let limits = starts.map(|starts| Limit { starts, window: Duration::from_secs(1) });
        let mut run = Self::start(random, hole, limits);
        let end = run.random.between(10_000_000, 30_000_000);
        run.schedule_faults(end, starts);
        run.play(end);
        run
    }

    /// Three nodes and one limit for so long, in which nothing goes wrong; but one slot of so many is granted to a lane
    /// that has nothing to begin.
    pub(super) fn calm(seed: u64, hole: Hole, limit: Limit, span: Duration, unused_one_of: usize) -> Self {
        let mut run = Self::start(Random(seed), hole, [limit; 2]);
        (run.calm, run.unused_one_of) = (true, unused_one_of);
        run.play(us(span));
        run
    }

    fn start(random: Random, hole: Hole, limits: [Limit; 2]) -> Self {
        let mut run = Self {
            hole,
            calm: false,
            unused_one_of: 6,
            random,
            events: BinaryHeap::new(),
            pending: Vec::new(),
            order: 0,
            rows: [None, None],
            history: Vec::new(),
            clock: 1_700_000_000_000_000,
            nodes: Vec::new(),
            starts: [Vec::new(), Vec::new()],
            burnt: 0,
        };
        for number in 0..3 {
            let node = run.fresh(0, limits);
            run.nodes.push(node);
            run.wake(number, 0);
        }
        run
    }

    /// A node that has just started.
    fn fresh(&mut self, life: u32, limits: [Limit; 2]) -> Node {
        Node {
            origin: self.random.between(0, 1_000_000_000),
            frozen_until: 0,
            life,
            watch: ClockWatch::default(),
            burnt: [0; SETS.len()],
            moments: [0; SETS.len()],
            nudged: [false; SETS.len()],
            limits,
        }
    }

    /// The largest limit that a row ever had: what it is held to.
    pub(super) fn limits(&self) -> [Limit; 2] {
        self.nodes[0].limits
    }

    fn schedule_faults(&mut self, end: i64, starts: [u32; 2]) {
        let mut at = self.random.between(2_000_000, 4_000_000);
        while at < end {
            let node = self.random.below(3);
            let fault = match self.random.below(6) {
                0 => Fault::Freeze { node, span: self.random.between(10_000, 5_000_000) },
                1 => Fault::Crash,
                2 => Fault::Step { by: self.random.between(300_000, 5_000_000) },
                3 => Fault::Step { by: -self.random.between(10_000, 5_000_000) },
                4 => Fault::Restart { node },
                // The first node keeps the larger one, to which everything is held.
                _ => Fault::Change { node: 1 + node % 2, starts: (starts[0] / 2).max(1) },
            };
            self.at(at, What::Fault(fault));
            if matches!(fault, Fault::Step { .. }) && self.random.below(2) == 0 {
                // A node that starts right after it has not seen the clock before.
                let soon = at + self.random.between(0, 60_000);
                self.at(soon, What::Fault(Fault::Restart { node }));
            }
            at += self.random.between(100_000, 4_000_000);
        }
    }

    fn play(&mut self, end: i64) {
        while let Some(Reverse((now, _, index))) = self.events.pop() {
            if now > end {
                return;
            }
            let what = self.pending[index];
            match what {
                What::Ask { node, set, life, moment } if self.nodes[node].moments[set] == moment => {
                    self.ask(now, node, set, life);
                }
                What::Ask { .. } => {}
                What::Execute(question) => self.execute(now, question),
                What::Answer(question, ..) if self.is_frozen(now, question.node, question.life, index) => {}
                What::Answer(question, grant, label) => self.answer(now, question, grant, label),
                What::Probe { node, life } => self.probe(now, node, life),
                What::Send { node, life, .. } if self.is_frozen(now, node, life, index) => {}
                What::Send { node, set, life, permit, unused } => self.send(now, node, set, life, permit, unused),
                What::TakeBack { node, life, .. } if self.is_frozen(now, node, life, index) => {}
                What::TakeBack { node, set, life, unused } => self.take_back(now, node, set, life, unused),
                What::Fault(fault) => self.fault(now, fault),
            }
        }
    }

    /// A stopped process goes on with the same instruction when it is let go.
    fn is_frozen(&mut self, now: i64, node: usize, life: u32, index: usize) -> bool {
        let until = self.nodes[node].frozen_until;
        let frozen = now < until && self.nodes[node].life == life;
        if frozen {
            self.at(until, self.pending[index]);
        }
        frozen
    }

    fn ask(&mut self, now: i64, node: usize, set: usize, life: u32) {
        if self.nodes[node].life != life || self.calm && set != 0 {
            return;
        }
        let until = self.nodes[node].frozen_until;
        if now < until {
            return self.ask_at(until, node, set);
        }
        let mono = self.mono(now, node);
        let window = SETS[set].iter().map(|row| self.nodes[node].limits[*row].window).max().unwrap_or_default();
        let wait = match self.hole {
            Hole::FreshNode => Some(Duration::ZERO),
            _ => self.nodes[node].watch.wait(mono, window),
        };
        match wait {
            Some(Duration::ZERO) => {
                let (there, asking) = (now + self.trip(), &mut self.nodes[node]);
                let burn = asking.watch.steps() != asking.burnt[set] && self.hole != Hole::ForwardUnseen;
                let steps = asking.watch.steps();
                asking.burnt[set] = steps;
                asking.nudged[set] = false;
                self.at(there, What::Execute(Question { node, set, life, sent: now, burn, steps }));
            }
            Some(wait) => self.ask_at(now + us(wait).max(1), node, set),
            None => self.ask_at(now + 20_000, node, set),
        }
    }

    fn execute(&mut self, now: i64, question: Question) {
        let Question { node, set, burn, .. } = question;
        let label = now + self.clock;
        let limits: Vec<Limit> =
            SETS[set].iter().map(|row| self.nodes[node].limits[*row]).map(|l| self.as_told(l)).collect();
        let mut rows: Vec<Option<Row>> = SETS[set].iter().map(|row| self.rows[*row]).collect();
        let want = 1 + u32::try_from(self.random.below(6)).unwrap();
        let granted = self.grant(&mut rows, &Ask { limits: &limits, want, burn }, label);
        for (row, new) in SETS[set].iter().zip(rows) {
            self.rows[*row] = new;
        }
        self.history.push((now, self.rows));
        let back = now + self.trip();
        self.at(back, What::Answer(question, granted, label));
    }

    fn as_told(&self, limit: Limit) -> Limit {
        match self.hole {
            // gap = (W + δ + ε) / N, so this window has gap = W / N.
            Hole::BareGap => Limit { window: limit.window - Duration::from_millis(70), ..limit },
            _ => limit,
        }
    }

    /// The code's own decision, with what the hole leaves out undone.
    fn grant(&self, rows: &mut [Option<Row>], ask: &Ask<'_>, label: i64) -> Grant {
        let before = rows.to_vec();
        let mut granted = grant(rows, ask, label);
        match (self.hole, granted) {
            (Hole::OwnSlot, Grant::Slots { count, .. }) => {
                for ((row, was), limit) in rows.iter_mut().flatten().zip(before.iter().flatten()).zip(ask.limits) {
                    row.next_us = was.next_us.max(label + us(LEAD)) + i64::from(count) * limit.gap_us();
                }
            }
            (Hole::MissingNow, Grant::Denied { why: Denial::Made, .. }) => {
                for (row, was) in rows.iter_mut().zip(&before) {
                    if let (Some(row), None) = (row, was) {
                        row.next_us = label;
                    }
                }
            }
            (Hole::BackNow, Grant::Denied { why: Denial::Reset, .. }) if !ask.burn => {
                for row in rows.iter_mut().flatten() {
                    row.next_us = label;
                }
            }
            (Hole::NoHorizon, Grant::Denied { why: Denial::Full, ask_us, .. }) => {
                let first_us = ask_us + us(HORIZON);
                if first_us < label + 5_000_000 {
                    for (row, limit) in rows.iter_mut().flatten().zip(ask.limits) {
                        row.next_us = first_us + limit.gap_us();
                    }
                    granted = Grant::Slots { now_us: label, first_us, spacing_us: 1, count: 1 };
                }
            }
            _ => {}
        }
        granted
    }

    fn answer(&mut self, now: i64, question: Question, grant: Grant, label: i64) {
        let Question { node, set, life, sent, steps, .. } = question;
        if self.nodes[node].life != life {
            return;
        }
        let (sent, replied) = (self.mono(sent, node), self.mono(now, node));
        let watch = &mut self.nodes[node].watch;
        let usable = match self.hole {
            Hole::ForwardUnseen => true,
            Hole::StepForgotten => !watch.answered(sent, replied, label),
            _ => watch.usable(steps, sent, replied, label),
        };
        let again = match grant {
            Grant::Denied { .. } if self.nodes[node].nudged[set] => 0,
            Grant::Slots { now_us, first_us, spacing_us, count } => {
                for slot in 0..i64::from(count) {
                    let unused = Unused { slot_us: first_us + slot * spacing_us, granted_us: now_us };
                    match self.permit(sent, replied, unused.slot_us - now_us) {
                        _ if !usable => self.burnt += 1,
                        None => self.give_back(now, node, set, life, unused),
                        Some(_) if self.random.below(self.unused_one_of) == 0 => {
                            let later = if self.calm { 5_000 } else { 400_000 };
                            let found = now + self.random.between(0, later);
                            self.at(found, What::TakeBack { node, set, life, unused });
                        }
                        Some(permit) => self.use_permit(now, node, set, life, permit, unused),
                    }
                }
                0
            }
            Grant::Denied { now_us, ask_us, .. } => (ask_us - now_us).clamp(0, 5_000_000),
        };
        let pause = self.random.between(0, 3_000);
        self.ask_at(now + again + pause, node, set);
    }

    fn permit(&self, sent: Duration, replied: Duration, ahead: i64) -> Option<Permit> {
        let span = Duration::from_micros(u64::try_from(ahead).unwrap());
        match self.hole {
            Hole::Midpoint => {
                let middle = sent + (replied - sent) / 2;
                // Else as it should be: an answer that took too long is burnt.
                Permit::of(sent, replied, ahead)?;
                Some(Permit { not_before: middle + span, not_after: middle + span + Duration::from_millis(50) })
            }
            Hole::SlowTrip => {
                let not_before = replied + span;
                Some(Permit { not_before, not_after: not_before.max(sent + span + Duration::from_millis(50)) })
            }
            _ => Permit::of(sent, replied, ahead),
        }
    }

    /// Intent takes a moment to be committed; then the call starts at either end of its slot, or within.
    fn use_permit(&mut self, now: i64, node: usize, set: usize, life: u32, permit: Permit, unused: Unused) {
        let origin = self.nodes[node].origin;
        let (first, last) = (us(permit.not_before) - origin, us(permit.not_after) - origin);
        let begun = now + self.random.between(1_000, 40_000);
        let chosen = match self.random.below(3) {
            0 => first,
            1 => last,
            _ => self.random.between(first, last.max(first + 1)),
        };
        self.at(chosen.max(begun), What::Send { node, set, life, permit, unused });
        if self.hole == Hole::UsedAndBack {
            self.give_back(now, node, set, life, unused);
        }
    }

    fn send(&mut self, now: i64, node: usize, set: usize, life: u32, permit: Permit, unused: Unused) {
        if self.nodes[node].life != life {
            return;
        }
        if self.mono(now, node) > permit.not_after && self.hole != Hole::LateUse {
            return self.give_back(now, node, set, life, unused);
        }
        let way = if self.random.below(2) == 0 { 0 } else { 20_000 };
        for row in SETS[set] {
            self.starts[*row].push(now + way);
        }
    }

    /// Says so to the row, which is a trip away.
    fn give_back(&mut self, now: i64, node: usize, set: usize, life: u32, unused: Unused) {
        self.burnt += 1;
        let there = now + self.trip();
        self.at(there, What::TakeBack { node, set, life, unused });
    }

    /// The rows take it, and whoever gave it back asks again.
    fn take_back(&mut self, now: i64, node: usize, set: usize, life: u32, unused: Unused) {
        let label = now + self.clock;
        let limits: Vec<Limit> = SETS[set].iter().map(|row| self.nodes[node].limits[*row]).collect();
        let limits: Vec<Limit> = limits.into_iter().map(|limit| self.as_told(limit)).collect();
        let mut rows: Vec<Option<Row>> = SETS[set].iter().map(|row| self.rows[*row]).collect();
        let taken = match self.hole {
            Hole::NothingBack => false,
            Hole::BackBlind => {
                rows.iter_mut().flatten().for_each(|row| row.next_us = row.next_us.min(unused.slot_us.max(label)));
                true
            }
            _ => take_back(&mut rows, &limits, unused, label),
        };
        if self.hole == Hole::BackEarly && taken {
            rows.iter_mut().flatten().for_each(|row| row.next_us = row.next_us.min(label));
        }
        for (row, new) in SETS[set].iter().zip(rows) {
            self.rows[*row] = new;
        }
        if taken && self.nodes[node].life == life {
            self.nodes[node].nudged[set] = true;
            let back = now + self.trip();
            self.ask_at(back, node, set);
        }
    }

    /// A question that is due before counts no more.
    fn ask_at(&mut self, at: i64, node: usize, set: usize) {
        let asking = &mut self.nodes[node];
        asking.moments[set] += 1;
        let (life, moment) = (asking.life, asking.moments[set]);
        self.at(at, What::Ask { node, set, life, moment });
    }

    fn probe(&mut self, now: i64, node: usize, life: u32) {
        if self.nodes[node].life != life {
            return;
        }
        let start = now.max(self.nodes[node].frozen_until);
        let (there, back) = (start + self.trip(), self.trip());
        let (sent, replied) = (self.mono(start, node), self.mono(there + back, node));
        // It reads a clock that does not step on its way: a fault of this very moment is the next one's.
        self.nodes[node].watch.answered(sent, replied, start + self.clock + (there - start));
        self.at(there + back + 500_000, What::Probe { node, life });
    }

    fn fault(&mut self, now: i64, fault: Fault) {
        match fault {
            Fault::Freeze { node, span } => self.nodes[node].frozen_until = now + span,
            Fault::Crash => {
                self.rows = match self.hole {
                    Hole::RowKept => {
                        let lost = self.history.iter().rev().find(|(at, _)| *at < now - 146_000);
                        lost.map_or([None, None], |(_, rows)| *rows)
                    }
                    _ => [None, None],
                };
            }
            Fault::Step { by } => self.clock += by,
            Fault::Restart { node } => {
                let (life, limits) = (self.nodes[node].life + 1, self.nodes[node].limits);
                self.nodes[node] = self.fresh(life, limits);
                self.wake(node, now);
            }
            Fault::Change { node, starts } => self.nodes[node].limits[0].starts = starts,
        }
    }

    fn wake(&mut self, node: usize, now: i64) {
        let life = self.nodes[node].life;
        self.at(now, What::Probe { node, life });
        for set in 0..SETS.len() {
            let soon = now + self.random.between(0, 5_000);
            self.ask_at(soon, node, set);
        }
    }

    fn mono(&self, now: i64, node: usize) -> Duration {
        Duration::from_micros(u64::try_from(now + self.nodes[node].origin).unwrap())
    }

    /// One way between a node and the database.
    fn trip(&mut self) -> i64 {
        match self.random.below(20) {
            _ if self.calm => self.random.between(100, 4_000),
            0 => self.random.between(0, 200_000),
            1..=4 => self.random.between(0, 45_000),
            _ => self.random.between(100, 4_000),
        }
    }

    fn at(&mut self, at: i64, what: What) {
        self.order += 1;
        self.pending.push(what);
        self.events.push(Reverse((at, self.order, self.pending.len() - 1)));
    }
}

/// Everything that was granted before is over after this, by the constants alone.
const _: () = assert!(SPENT.as_millis() == HORIZON.as_millis() + 50 + 20);

/// `SplitMix64`.
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    fn below(&mut self, n: usize) -> usize {
        usize::try_from(self.next() % u64::try_from(n).unwrap()).unwrap()
    }

    fn between(&mut self, low: i64, high: i64) -> i64 {
        low + i64::try_from(self.next() % u64::try_from(high - low).unwrap()).unwrap()
    }
}
