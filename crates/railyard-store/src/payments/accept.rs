//! Phase A for many payments at once, each answered for itself, by the step at which it ended.

use std::collections::{HashMap, HashSet};
use std::time::{Duration, Instant};

use jiff::Timestamp;
use railyard_core::ParticipantId;
use railyard_core::job::FieldError;
use railyard_core::payment::{Payment, Step};

use super::prepare::{Looked, Prepared, look, prepare};
use super::write::{Written, place};
use crate::connect::Store;
use crate::error::StoreError;

/// After this, payments of a call that have to be tried one by one are to come again.
const PATIENCE: Duration = Duration::from_secs(10);

/// Where a payment stands now.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Enqueued {
    /// Its debtor's group.
    pub group: ParticipantId,
    /// Not before, as far as rules allow.
    pub requested: Timestamp,
    /// When it is to be executed.
    pub scheduled: Timestamp,
    /// Its place in the order in which its group's payments were accepted.
    pub acceptance_no: i64,
}

/// What became of one payment of a call.
#[derive(Clone, Debug, PartialEq)]
pub enum Accepted {
    /// It is SCHEDULED, and READY in the queue.
    Enqueued(Enqueued),
    /// The same content was accepted under its id before.
    Repeated,
    /// Other content was accepted under its id before.
    Conflict,
    /// It is not right, and will not be.
    Refused {
        /// Where that was found.
        step: Step,
        /// Each field that is wrong.
        errors: Vec<FieldError>,
    },
    /// It may be accepted if the same is sent again. Whether it was, if the database went away, the same call finds out.
    Later {
        /// How far it came.
        step: Step,
        /// Why no further.
        detail: String,
    },
    /// We failed at it.
    Failed {
        /// How far it came.
        step: Step,
        /// Why no further; for our log.
        detail: String,
    },
}

/// An error and where it was met.
#[derive(Debug)]
pub(super) struct StepError {
    pub(super) step: Step,
    pub(super) error: StoreError,
}

impl StepError {
    pub(super) fn at(step: Step) -> impl Fn(StoreError) -> Self {
        move |error| Self { step, error }
    }

    pub(super) fn into_answer(self) -> Accepted {
        let step = self.step;
        match self.error.why_later() {
            Some(why) => Accepted::Later { step, detail: why.to_owned() },
            None => Accepted::Failed { step, detail: self.error.to_string() },
        }
    }
}

/// Accepts what can be accepted, `actor` being who asked for it. Answers in the order of the payments; an id that stands
/// there twice is the first one's.
pub async fn accept(store: &Store, payments: &[Payment], actor: &str) -> Vec<Accepted> {
    let mut first: HashMap<&str, usize> = HashMap::new();
    let echoes: Vec<usize> = payments
        .iter()
        .enumerate()
        .map(|(index, payment)| *first.entry(payment.payment_id.as_str()).or_insert(index))
        .collect();
    let firsts: Vec<usize> = (0..payments.len()).filter(|index| echoes[*index] == *index).collect();
    let mut answers: HashMap<usize, Accepted> = HashMap::with_capacity(payments.len());
    let mut ready = Vec::new();
    let asked: Vec<&Payment> = firsts.iter().map(|index| &payments[*index]).collect();
    match look(store, &asked).await {
        Ok(looked) => sort(&looked, payments, firsts, &mut answers, &mut ready),
        Err(error) => {
            let answer = error.into_answer();
            answers.extend(firsts.into_iter().map(|index| (index, answer.clone())));
        }
    }
    enqueue(store, ready, actor, &mut answers).await;
    let echo = |index: usize| {
        let of_first = answers.get(&echoes[index]).cloned().unwrap_or_else(not_tried);
        match echoes[index] == index {
            true => of_first,
            false => echoed(&of_first, payments[index].content_hash() == payments[echoes[index]].content_hash()),
        }
    };
    (0..payments.len()).map(echo).collect()
}

/// Answers what is known or refused; the rest is ready to be enqueued.
fn sort(
    looked: &Looked,
    payments: &[Payment],
    firsts: Vec<usize>,
    answers: &mut HashMap<usize, Accepted>,
    ready: &mut Vec<(usize, Prepared)>,
) {
    for index in firsts {
        let payment = &payments[index];
        let answer = match looked.known.get(&payment.payment_id) {
            Some(hash) if *hash == payment.content_hash() => Accepted::Repeated,
            Some(_) => Accepted::Conflict,
            None => match prepare(looked, payment.clone()) {
                Ok(prepared) => {
                    ready.push((index, prepared));
                    continue;
                }
                Err((step, errors)) => Accepted::Refused { step, errors },
            },
        };
        answers.insert(index, answer);
    }
}

/// All at once; if that fails for a reason that may be one payment's alone, one by one.
async fn enqueue(store: &Store, ready: Vec<(usize, Prepared)>, actor: &str, answers: &mut HashMap<usize, Accepted>) {
    let (indices, prepared): (Vec<usize>, Vec<Prepared>) = ready.into_iter().unzip();
    match place(store, &prepared, actor).await {
        Ok(written) => answers.extend(indices.into_iter().zip(written.into_iter().map(answer))),
        Err(failed) if prepared.len() == 1 || matches!(failed.error, StoreError::Unavailable { .. }) => {
            let answer = failed.into_answer();
            answers.extend(indices.into_iter().map(|index| (index, answer.clone())));
        }
        Err(_) => {
            let started = Instant::now();
            // What stands behind one of its debtor that comes again must not be accepted before it.
            let mut held: HashSet<&ParticipantId> = HashSet::new();
            for (index, one) in indices.into_iter().zip(&prepared) {
                if started.elapsed() > PATIENCE {
                    break;
                }
                if held.contains(&one.group) {
                    answers.insert(index, not_tried());
                    continue;
                }
                let answer = match place(store, std::slice::from_ref(one), actor).await {
                    Ok(mut written) => written.pop().map_or_else(not_tried, answer),
                    Err(failed) => failed.into_answer(),
                };
                if matches!(answer, Accepted::Later { .. }) {
                    held.insert(&one.group);
                }
                answers.insert(index, answer);
            }
        }
    }
}

fn answer(written: Written) -> Accepted {
    match written {
        Written::Enqueued(enqueued) => Accepted::Enqueued(enqueued),
        Written::Known { same: true } => Accepted::Repeated,
        Written::Known { same: false } => Accepted::Conflict,
    }
}

/// The answer to a payment whose id stands there a second time.
fn echoed(of_first: &Accepted, same: bool) -> Accepted {
    match of_first {
        Accepted::Enqueued(_) | Accepted::Repeated if same => Accepted::Repeated,
        Accepted::Enqueued(_) | Accepted::Repeated => Accepted::Conflict,
        Accepted::Conflict | Accepted::Refused { .. } | Accepted::Later { .. } | Accepted::Failed { .. } => {
            let detail = "stands behind another one with its id that was not accepted".to_owned();
            Accepted::Later { step: Step::Validate, detail }
        }
    }
}

fn not_tried() -> Accepted {
    let detail = "was not tried: what stands before it took too long, or comes again".to_owned();
    Accepted::Later { step: Step::AssignSlot, detail }
}
