//! The last look before bytes leave, and the body that takes it.
//!
//! A process may be stopped for a minute between any two instructions and go on as if nothing had happened. So the
//! leave to write is not asked when a call begins but when its bytes are handed over: at each poll of the body. hyper
//! keeps the request's head in its buffer until the first piece of the body is there, so a refusal at the first
//! poll means that not one byte went out.
//!
//! What remains open, and no sender can close:
//! - a stop between the look and the write that follows it, a few microseconds later in the same task;
//! - a stop while hyper holds up to about 400 KB of a body that was handed over and the receiver is slow to read:
//!   those bytes may still be written before the call's deadline, which has passed, ends the connection.
//!
//! A payload of no bytes has no poll: its look is taken right before the request is given to the client, and again when a
//! connection that had to be made is there.
//!
//! A call under a limit has a slot: the request is given to the client when the slot begins, and its first bytes are
//! refused once it is over. They are not held back in the body: hyper would send the head by itself. With [`crate::warm`],
//! the connection is there before the slot.
//!
//! Both attempts are on record then, and the receiver can refuse the older one by its attempt header.

use std::pin::Pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use http_body::{Body, Frame, SizeHint};
use railyard_core::ErrorCode;
use railyard_core::limiter::Permit;

use crate::clock::BootInstant;

/// The caller's leave to write: its lease is good and the attempt's deadline is not near, on [`BootInstant`]'s clock.
/// Asked many times, from whichever thread writes; it must be quick and must not block.
pub type MayWrite = Arc<dyn Fn() -> Result<(), ErrorCode> + Send + Sync>;

/// Bytes handed out at one look. Small enough that the last piece of a big payload is looked at late.
const PIECE_BYTES: usize = 16 * 1024;

/// One call's gate, shared by the call and its body.
pub(crate) struct Gate {
    may_write: MayWrite,
    deadline: BootInstant,
    permit: Option<Permit>,
    /// The payload has no bytes, so that it is never polled.
    silent: bool,
    handed_out: AtomicBool,
    refused: OnceLock<ErrorCode>,
}

impl Gate {
    pub(crate) fn new(may_write: MayWrite, deadline: BootInstant, permit: Option<Permit>, silent: bool) -> Arc<Self> {
        let (handed_out, refused) = (AtomicBool::new(false), OnceLock::new());
        Arc::new(Self { may_write, deadline, permit, silent, handed_out, refused })
    }

    /// How long until the first byte may go.
    pub(crate) fn wait(&self) -> Duration {
        self.permit.map_or(Duration::ZERO, |permit| BootInstant::at(permit.not_before).wait())
    }

    /// Whether the call may no longer start. A call that has started goes on.
    fn is_too_late(&self) -> bool {
        !self.handed_out() && self.permit.is_some_and(|permit| BootInstant::at(permit.not_after).has_passed())
    }

    fn leave(&self) -> Result<(), ErrorCode> {
        match () {
            () if self.deadline.has_passed() => Err(ErrorCode::DeadlineTooClose),
            () if self.is_too_late() => Err(ErrorCode::PermitBurnt),
            () => (self.may_write)(),
        }
    }

    /// Asks once. The first refusal is remembered.
    pub(crate) fn look(&self) -> Result<(), WriteRefused> {
        self.leave().map_err(|code| WriteRefused(*self.refused.get_or_init(|| code)))
    }

    /// Asked when a connection is there: whether the request may go out on it. Not remembered: the request may have gone
    /// out on another one that became free first, and then it was sent. A call that failed by this has it in its error.
    pub(crate) fn connected(&self) -> Result<(), WriteRefused> {
        match self.silent {
            true => self.leave().map_err(WriteRefused),
            false if self.is_too_late() => Err(WriteRefused(ErrorCode::PermitBurnt)),
            false => Ok(()),
        }
    }

    /// Whether any byte of the body was handed to the connection, so that the receiver may have got some.
    pub(crate) fn handed_out(&self) -> bool {
        self.handed_out.load(Ordering::Acquire)
    }

    /// Why writing was refused, if it was.
    pub(crate) fn refused(&self) -> Option<ErrorCode> {
        self.refused.get().copied()
    }
}

/// Ends the connection from inside.
#[derive(Clone, Copy, Debug, thiserror::Error)]
#[error("may not write: {0}")]
pub(crate) struct WriteRefused(pub(crate) ErrorCode);

/// A payload that goes out through a gate.
pub(crate) struct GatedBody {
    rest: Bytes,
    gate: Arc<Gate>,
}

impl GatedBody {
    pub(crate) fn new(payload: Bytes, gate: Arc<Gate>) -> Self {
        Self { rest: payload, gate }
    }
}

impl Body for GatedBody {
    type Data = Bytes;
    type Error = WriteRefused;

    fn poll_frame(mut self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, WriteRefused>>> {
        if self.rest.is_empty() {
            return Poll::Ready(None);
        }
        if let Err(refused) = self.gate.look() {
            return Poll::Ready(Some(Err(refused)));
        }
        // Set before the bytes leave this function: from here on the receiver may have them.
        self.gate.handed_out.store(true, Ordering::Release);
        let length = self.rest.len().min(PIECE_BYTES);
        let piece = self.rest.split_to(length);
        Poll::Ready(Some(Ok(Frame::data(piece))))
    }

    fn is_end_stream(&self) -> bool {
        self.rest.is_empty()
    }

    fn size_hint(&self) -> SizeHint {
        SizeHint::with_exact(u64::try_from(self.rest.len()).unwrap_or(u64::MAX))
    }
}
