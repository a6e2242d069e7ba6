//! RailCaller: takes one begun message, makes one call, says what came of it.
//!
//! Owns nothing between calls. It looks at the lease, the deadline, the expiry and the credentials last of all, and
//! the rail looks again at the very poll that hands out the bytes. If it dies in a call, nobody knows the outcome:
//! the in-flight row stays, and the Reaper reads it.

use std::convert::Infallible;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::time::Duration;

use jiff::Timestamp;
use ractor::{Actor, ActorProcessingErr, ActorRef, RpcReplyPort};
use railyard_core::limiter::Permit;
use railyard_core::limits::NOT_STARTED_WAIT;
use railyard_core::{CallOutcome, ErrorCode, Message, NodeId};
use railyard_rail::{Call, Credentials, MayWrite};
use railyard_store::clock::boottime;

use super::cache_keeper::Credential;
use super::governor;
use super::limiter::Turn;
use super::rail_caller_pool;
use super::settler::answer;
use crate::context::Context;
use crate::limits::LimitSet;

/// Between the last look and the bytes' way out, nothing of ours should take longer.
const WRITE_MARGIN: Duration = Duration::from_millis(50);

/// So long before its slot, a call looks at everything else.
const BEFORE_SLOT: Duration = Duration::from_millis(10);

/// How often a switch is looked at while a connection is being made.
const LEAVE_EVERY: Duration = Duration::from_millis(100);

/// A call to make.
pub(crate) struct Job {
    pub(crate) message: Message,
    /// The membership it was begun under.
    pub(crate) node: NodeId,
    /// Before the begin was sent, on `boottime`.
    pub(crate) since: Duration,
    /// When its first byte may leave, under a limit.
    pub(crate) permit: Option<Permit>,
    /// The switch of its rail, which has no limit.
    pub(crate) switch: Option<Arc<LimitSet>>,
}

/// What came of it.
#[derive(Debug)]
pub(crate) struct Result {
    pub(crate) outcome: CallOutcome,
    pub(crate) latency: Option<Duration>,
    /// When the outcome was known, on `boottime`.
    pub(crate) ended_at: Duration,
}

/// One call.
#[derive(ractor_cluster::RactorMessage)]
pub(crate) struct Msg(pub(crate) Box<Job>, pub(crate) RpcReplyPort<Result>);

/// The actor.
pub(crate) struct RailCaller;

/// Its state.
pub(crate) struct State {
    context: Context,
    pool: ActorRef<rail_caller_pool::Msg>,
}

impl Actor for RailCaller {
    type Msg = Msg;
    type State = State;
    type Arguments = (Context, ActorRef<rail_caller_pool::Msg>);

    async fn pre_start(
        &self,
        _: ActorRef<Msg>,
        (context, pool): Self::Arguments,
    ) -> std::result::Result<State, ActorProcessingErr> {
        Ok(State { context, pool })
    }

    async fn handle(
        &self,
        myself: ActorRef<Msg>,
        Msg(job, reply): Msg,
        state: &mut State,
    ) -> std::result::Result<(), ActorProcessingErr> {
        railyard_store::failpoint::reached("before_call");
        let running = Running::start(&state.context);
        let (outcome, latency) = call(&state.context, &job).await;
        drop(running);
        railyard_store::failpoint::reached("after_call");
        if let Some(latency) = latency {
            let rail = job.message.rail_type.as_str();
            state
                .context
                .metrics
                .dispatch_latency_ms
                .with_label_values(&[rail])
                .observe(latency.as_secs_f64() * 1000.0);
        }
        answer(reply, Result { outcome, latency, ended_at: boottime() });
        state.pool.cast(rail_caller_pool::Msg::Idle(myself))?;
        Ok(())
    }
}

/// Counts a call for as long as it runs, however it ends.
struct Running<'a>(&'a Context);

impl<'a> Running<'a> {
    fn start(context: &'a Context) -> Self {
        context.metrics.calls_in_flight.inc();
        Self(context)
    }
}

impl Drop for Running<'_> {
    fn drop(&mut self) {
        self.0.metrics.calls_in_flight.dec();
    }
}

async fn call(context: &Context, job: &Job) -> (CallOutcome, Option<Duration>) {
    let message = &job.message;
    let Some(rail) = context.options.rails.get(&message.rail_type) else {
        let detail = format!("rail {} is not configured on this node", message.rail_type);
        return (not_started(ErrorCode::RailUnknown, detail), None);
    };
    // Also on a node that is stopping: it waits for its calls, and what is begun would have to wait for another begin.
    if let Some(permit) = job.permit {
        tokio::time::sleep(permit.not_before.saturating_sub(BEFORE_SLOT).saturating_sub(boottime())).await;
    }
    let now = database_now(job);
    if message.expires_at.is_some_and(|expires_at| expires_at <= now) {
        return (not_started(ErrorCode::Expired, "expiresAt passed before the call".to_owned()), None);
    }
    let credentials = match credentials(context, message).await {
        Ok(credentials) => credentials,
        Err(outcome) => return (outcome, None),
    };
    let looks = Arc::new(AtomicU32::new(0));
    if let Some(set) = &job.switch
        && !matches!(governor::permit(context, set).await, Some(Turn::Slot(_)))
    {
        return (not_started(ErrorCode::PermitBurnt, "its rail is stopped".to_owned()), None);
    }
    let may_write = switched_on(may_write(context, job), job.switch.clone(), Arc::clone(&looks));
    if let Err(code) = may_write() {
        return (
            not_started(code, format!("attempt {} of {} may not be sent now", message.attempt_no, message.outbox_id)),
            None,
        );
    }
    let may_write = reaching_the_last_check(may_write);
    // The signature's time: the database's clock as well, since receivers refuse what is minutes off.
    let call = Call { message, rail, credentials: &credentials, may_write, permit: job.permit, now: database_now(job) };
    let called = tokio::select! {
        called = context.client.call(call) => called,
        never = keep_leave(context, job.switch.as_ref(), &looks) => match never {},
    };
    (called.outcome, called.latency)
}

/// The database's clock, carried on from the moment of the claim. Never behind it.
fn database_now(job: &Job) -> Timestamp {
    let elapsed = boottime().saturating_sub(job.since);
    job.message.claimed_at.checked_add(elapsed).unwrap_or(job.message.claimed_at)
}

/// Asked at each write: the lease of this membership is good, and the call would end before others may give it up.
fn may_write(context: &Context, job: &Job) -> MayWrite {
    let lease = context.lease.clone();
    let node = job.node;
    // call_deadline is the claim plus timeout plus slack; what is left of the slack may be spent before the start.
    let start_by = (job.since + context.options.slack).saturating_sub(WRITE_MARGIN);
    let write_by = start_by + job.message.timeout;
    let started = Arc::new(std::sync::OnceLock::new());
    Arc::new(move || {
        let now = boottime();
        if !lease.is_good(node) {
            return Err(ErrorCode::LeaseLost);
        }
        // The first look decides whether there is time for the whole call; later ones only hold its end.
        let first = *started.get_or_init(|| now);
        if first > start_by || now > write_by { Err(ErrorCode::DeadlineTooClose) } else { Ok(()) }
    })
}

/// Looks before the first byte is out: ours, the client's, and that of the first piece.
const LOOKS_BEFORE_START: u32 = 3;

/// A call does not start long after its rail was found running. One that has started goes on.
fn switched_on(may_write: MayWrite, switch: Option<Arc<LimitSet>>, looks: Arc<AtomicU32>) -> MayWrite {
    let Some(set) = switch else { return may_write };
    Arc::new(move || {
        if looks.fetch_add(1, Ordering::Relaxed) < LOOKS_BEFORE_START && boottime() > set.leave_until() {
            return Err(ErrorCode::PermitBurnt);
        }
        may_write()
    })
}

/// Asks again and again while the connection is being made, which may take longer than a leave lasts.
async fn keep_leave(context: &Context, switch: Option<&Arc<LimitSet>>, looks: &AtomicU32) -> Infallible {
    if let Some(set) = switch {
        while looks.load(Ordering::Relaxed) < LOOKS_BEFORE_START {
            tokio::time::sleep(LEAVE_EVERY).await;
            governor::permit(context, set).await;
        }
    }
    std::future::pending().await
}

/// Where a stop is not seen any more: the leave is given and the bytes are not written yet.
fn reaching_the_last_check(may_write: MayWrite) -> MayWrite {
    // The client looks once before it connects; what it is given leave for at the second look is written next.
    let connected = AtomicBool::new(false);
    Arc::new(move || {
        let leave = may_write();
        if leave.is_ok() && connected.swap(true, Ordering::Relaxed) {
            railyard_store::failpoint::reached("last_check");
        }
        leave
    })
}

async fn credentials(context: &Context, message: &Message) -> std::result::Result<Arc<Credentials>, CallOutcome> {
    let Some(id) = message.credentials_id else {
        return Err(refused(ErrorCode::CredentialsDeleted, "the job names no credentials"));
    };
    match context.credentials.find(context, id).await {
        Credential::Good(credentials) => Ok(credentials),
        Credential::Deleted => Err(refused(ErrorCode::CredentialsDeleted, "its credentials were deleted by force")),
        Credential::Unavailable(detail) => Err(not_started(ErrorCode::CredentialsUnavailable, detail)),
    }
}

fn not_started(code: ErrorCode, detail: String) -> CallOutcome {
    CallOutcome::NotStarted { code, detail, after: NOT_STARTED_WAIT }
}

fn refused(code: ErrorCode, detail: &str) -> CallOutcome {
    CallOutcome::Failed { code, detail: detail.to_owned(), answer: None, retryable: false }
}
