//! The steps a receiver takes, and the words in which a test writes them.

use std::collections::{HashMap, VecDeque};
use std::time::Duration;

use bytes::Bytes;
use serde_json::json;

use super::{FakeRail, Gate, Receipt, Reply};

/// Which requests a step is for, from narrow to wide.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(super) enum Scope {
    Message(String),
    BodyWith(String),
    Group(String),
    Path(String),
    EachMessage,
    Any,
}

/// One answer and what comes before it.
#[derive(Debug, Clone)]
pub(super) struct Step {
    pub(super) reply: Reply,
    pub(super) delay: Duration,
    pub(super) gate: Option<Gate>,
    /// `None`: for ever.
    times: Option<u32>,
}

impl Step {
    fn once(reply: Reply) -> Step {
        Step { reply, delay: Duration::ZERO, gate: None, times: Some(1) }
    }
}

/// Faults drawn by lot.
#[derive(Debug, Clone)]
struct Lottery {
    percent: u32,
    seed: u64,
    replies: Vec<Reply>,
}

/// All scopes with the steps that are left in them.
#[derive(Debug, Default)]
pub(super) struct Script {
    steps: HashMap<Scope, VecDeque<Step>>,
    /// What is left of `EachMessage`'s steps for the messages seen so far.
    each: HashMap<String, VecDeque<Step>>,
    seen: HashMap<String, u64>,
    lottery: Option<Lottery>,
    /// How long an answer takes that no step gives.
    pause: Duration,
}

/// Where the next step of a request stands.
enum Place {
    Of(Scope),
    OfMessage(String),
}

impl Script {
    /// The step for a complete request: of the narrowest scope that has one left, else by lot, else 200.
    pub(super) fn next(&mut self, request: &Receipt) -> Step {
        let message = request.message_key();
        let count = self.seen.entry(message.clone()).or_default();
        *count += 1;
        let count = *count;
        let scripted = self.place(request).and_then(|place| take(self.steps_at(&place)));
        scripted.unwrap_or_else(|| {
            let step = self.draw(&message, count).unwrap_or_else(|| Step::once(Reply::status(200)));
            Step { delay: self.pause, ..step }
        })
    }

    /// Whether the next step is not to read the body, which must be known when only the head is; if so, it is taken.
    pub(super) fn never_read(&mut self, head: &Receipt) -> bool {
        let Some(place) = self.place(head) else { return false };
        let steps = self.steps_at(&place);
        let chosen = steps.front().is_some_and(|step| step.reply == Reply::NeverRead);
        if chosen {
            take(steps);
        }
        chosen
    }

    fn place(&self, request: &Receipt) -> Option<Place> {
        let message = request.message_key();
        let has_steps = |scope: &Scope| self.steps.get(scope).is_some_and(|steps| !steps.is_empty());
        let narrow = [
            Scope::Message(message.clone()),
            self.body_scope(&request.body),
            Scope::Group(request.group().unwrap_or_default().to_owned()),
            Scope::Path(request.path.clone()),
        ];
        if let Some(scope) = narrow.into_iter().find(has_steps) {
            return Some(Place::Of(scope));
        }
        if has_steps(&Scope::EachMessage) && self.each.get(&message).is_none_or(|left| !left.is_empty()) {
            return Some(Place::OfMessage(message));
        }
        has_steps(&Scope::Any).then_some(Place::Of(Scope::Any))
    }

    fn steps_at(&mut self, place: &Place) -> &mut VecDeque<Step> {
        match place {
            Place::Of(scope) => self.steps.entry(scope.clone()).or_default(),
            Place::OfMessage(message) => {
                let template = self.steps.get(&Scope::EachMessage);
                self.each.entry(message.clone()).or_insert_with(|| template.cloned().unwrap_or_default())
            }
        }
    }

    fn body_scope(&self, body: &[u8]) -> Scope {
        let holds = |needle: &str| body.windows(needle.len().max(1)).any(|window| window == needle.as_bytes());
        let mut scopes = self.steps.keys();
        let found = scopes.find(|scope| matches!(scope, Scope::BodyWith(needle) if holds(needle)));
        found.cloned().unwrap_or(Scope::BodyWith(String::new()))
    }

    /// By seed, message and how often it came: the same faults in a rerun, whatever the interleaving.
    fn draw(&self, message: &str, count: u64) -> Option<Step> {
        let lottery = self.lottery.as_ref()?;
        let mut number = lottery.seed ^ count.wrapping_mul(0x9e37_79b9_7f4a_7c15);
        for byte in message.bytes() {
            number = splitmix(number ^ u64::from(byte));
        }
        if number % 100 >= u64::from(lottery.percent) || lottery.replies.is_empty() {
            return None;
        }
        let place = usize::try_from((number >> 32) % lottery.replies.len() as u64).expect("less than a length");
        Some(Step::once(lottery.replies[place].clone()))
    }
}

fn take(steps: &mut VecDeque<Step>) -> Option<Step> {
    let first = steps.front_mut()?;
    let step = first.clone();
    match &mut first.times {
        None => {}
        Some(left) if *left > 1 => *left -= 1,
        Some(_) => {
            steps.pop_front();
        }
    }
    Some(step)
}

fn splitmix(seed: u64) -> u64 {
    let mut z = seed.wrapping_add(0x9e37_79b9_7f4a_7c15);
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

/// Scopes: the steps that follow are for these requests, until the next scope.
impl FakeRail {
    /// For one message, by its `Idempotency-Key`.
    pub fn for_message(mut self, key: impl Into<String>) -> FakeRail {
        self.scope = Scope::Message(key.into());
        self
    }

    /// For requests whose body holds this text.
    pub fn for_body_with(mut self, text: impl Into<String>) -> FakeRail {
        self.scope = Scope::BodyWith(text.into());
        self
    }

    /// For one group, by `X-Railyard-Group`.
    pub fn for_group(mut self, group: impl Into<String>) -> FakeRail {
        self.scope = Scope::Group(group.into());
        self
    }

    /// For one path, query included.
    pub fn for_path(mut self, path: impl Into<String>) -> FakeRail {
        self.scope = Scope::Path(path.into());
        self
    }

    /// For each message by itself: every message goes through these steps from the first on.
    pub fn each_message(mut self) -> FakeRail {
        self.scope = Scope::EachMessage;
        self
    }

    /// For everything that no narrower scope answers; the scope at the start.
    pub fn otherwise(mut self) -> FakeRail {
        self.scope = Scope::Any;
        self
    }

    /// Forgets every step and the lottery: back to 200 for all.
    pub fn forget_script(self) -> FakeRail {
        *self.script() = Script::default();
        self
    }
}

/// Steps: what is answered, in turn.
impl FakeRail {
    /// Any answer, once.
    pub fn reply(self, reply: Reply) -> FakeRail {
        self.script().steps.entry(self.scope.clone()).or_default().push_back(Step::once(reply));
        self
    }

    /// 200 with an empty body, once.
    pub fn ok(self) -> FakeRail {
        self.status(200)
    }

    /// 200 from here on.
    pub fn then_ok(self) -> FakeRail {
        self.status(200).forever()
    }

    /// 500, `n` times.
    pub fn fails(self, n: u32) -> FakeRail {
        if n == 0 { self } else { self.status(500).times(n) }
    }

    /// Any status with an empty body, once.
    pub fn status(self, status: u16) -> FakeRail {
        self.reply(Reply::status(status))
    }

    /// A JSON answer, once.
    pub fn json(self, status: u16, body: &serde_json::Value) -> FakeRail {
        self.reply(Reply::json(status, body))
    }

    /// 200 `{"ack":false,"delaySeconds":n}`: the receiver is not ready and says when it will be.
    pub fn defers(self, delay_seconds: u32) -> FakeRail {
        self.json(200, &json!({ "ack": false, "delaySeconds": delay_seconds }))
    }

    /// 422 with a rail code, as a payment rail refuses.
    pub fn rejects(self, rail_code: &str) -> FakeRail {
        self.json(422, &json!({ "railCode": rail_code }))
    }

    /// A status (429, 503) with a raw `Retry-After` value: seconds, a date, or nonsense.
    pub fn retry_after(self, status: u16, value: &str) -> FakeRail {
        self.reply(Reply::status(status).with_header("Retry-After", value))
    }

    /// A redirect status (301, 302, 307, 308) to another URL.
    pub fn redirect(self, status: u16, to: &str) -> FakeRail {
        self.reply(Reply::status(status).with_header("Location", to))
    }

    /// The request is read, then the connection is reset.
    pub fn reset(self) -> FakeRail {
        self.reply(Reply::Reset)
    }

    /// The request is read, then the connection is closed without an answer.
    pub fn close(self) -> FakeRail {
        self.reply(Reply::Close)
    }

    /// A 200 whose body breaks off.
    pub fn truncate_body(self) -> FakeRail {
        self.reply(Reply::TruncatedBody { status: 200 })
    }

    /// A 200 whose body comes a byte each interval.
    pub fn drip(self, every: Duration) -> FakeRail {
        self.reply(Reply::Drip { status: 200, every })
    }

    /// A head that comes a byte each interval.
    pub fn slow_head(self, every: Duration) -> FakeRail {
        self.reply(Reply::SlowHead { every })
    }

    /// The request's body is never read.
    pub fn never_read(self) -> FakeRail {
        self.reply(Reply::NeverRead)
    }

    /// The request is read and nothing is answered.
    pub fn silence(self) -> FakeRail {
        self.reply(Reply::Silence)
    }

    /// An answer that is no HTTP.
    pub fn garbage(self) -> FakeRail {
        self.reply(Reply::Garbage)
    }

    /// 200 with a body of `n` bytes.
    pub fn big(self, n: usize) -> FakeRail {
        self.reply(Reply::status(200).with_body(vec![b'x'; n]))
    }

    /// A status with a body of NUL, invalid UTF-8 and control bytes.
    pub fn nul_body(self, status: u16) -> FakeRail {
        self.reply(Reply::status(status).with_body(&b"\0bad \xff\xfe\x1b[31m \xed\xa0\x80 \0"[..]))
    }

    /// Where no step is left: `percent` of the requests fail, by lot, with 500, 503, a reset or an early close.
    pub fn fails_randomly(self, percent: u32, seed: u64) -> FakeRail {
        let replies = vec![Reply::status(500), Reply::status(503), Reply::Reset, Reply::Close];
        self.replies_randomly(percent, seed, replies)
    }

    /// Where no step is left: `percent` of the requests get one of `replies`, by lot. The lot depends on the seed,
    /// the message and how often it came, so a rerun with the same seed draws the same.
    pub fn replies_randomly(self, percent: u32, seed: u64, replies: Vec<Reply>) -> FakeRail {
        self.script().lottery = Some(Lottery { percent, seed, replies });
        self
    }

    /// Where no step is left: every answer takes this long.
    pub fn takes(self, pause: Duration) -> FakeRail {
        self.script().pause = pause;
        self
    }
}

/// Adverbs: they change the step before them. In a scope without one they make a 200 for ever first.
impl FakeRail {
    /// The step is taken this many times.
    pub fn times(self, n: u32) -> FakeRail {
        self.change(|step| step.times = Some(n.max(1)))
    }

    /// The step is taken for ever; what follows it in this scope is never reached.
    pub fn forever(self) -> FakeRail {
        self.change(|step| step.times = None)
    }

    /// The answer begins this long after the request is complete, unless the client goes away meanwhile.
    pub fn delay(self, delay: Duration) -> FakeRail {
        self.change(|step| step.delay = delay)
    }

    /// The answer begins when the gate is open, unless the client goes away meanwhile.
    pub fn hold_until(self, gate: &Gate) -> FakeRail {
        self.change(|step| step.gate = Some(gate.clone()))
    }

    /// The answer carries this header.
    pub fn header(self, name: &str, value: &str) -> FakeRail {
        self.change(|step| step.reply = step.reply.clone().with_header(name, value))
    }

    /// The answer carries this body.
    pub fn body(self, body: impl Into<Bytes>) -> FakeRail {
        let body = body.into();
        self.change(|step| step.reply = step.reply.clone().with_body(body))
    }

    fn change(self, change: impl FnOnce(&mut Step)) -> FakeRail {
        let mut script = self.script();
        let steps = script.steps.entry(self.scope.clone()).or_default();
        if steps.is_empty() {
            steps.push_back(Step { times: None, ..Step::once(Reply::status(200)) });
        }
        change(steps.back_mut().expect("one was put there if there was none"));
        drop(script);
        self
    }
}
