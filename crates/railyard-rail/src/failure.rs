//! From an error of the client to one code of the closed list, and words that name what was wrong.
//!
//! Whether the receiver may have read the request matters more than the error itself: a failure to connect is just a
//! failure, but a connection that broke after bytes were handed out leaves the question open, and the record has to
//! say so ([`ErrorCode::answer_lost`]).

use std::error::Error;
use std::io;

use railyard_core::ErrorCode;

use crate::gate::WriteRefused;
use crate::guard::AddressRefused;
use crate::resolver::LookupFailed;
use crate::tls;

/// Why no answer came.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Failure {
    /// The code.
    pub code: ErrorCode,
    /// For people: names the check, never a secret and never the whole URL.
    pub detail: String,
}

impl Failure {
    fn new(code: ErrorCode, detail: impl Into<String>) -> Self {
        Self { code, detail: detail.into() }
    }
}

/// Why no connection was taken for this request, if that is what ended it.
pub(crate) fn refusal(error: &reqwest::Error) -> Option<ErrorCode> {
    chain(error).find_map(|error| error.downcast_ref::<WriteRefused>()).map(|refused| refused.0)
}

/// Reads the client's error. `sent`: bytes of the request may have reached the receiver.
pub(crate) fn of_call(error: &reqwest::Error, sent: bool) -> Failure {
    if let Some(failure) = chain(error).find_map(known) {
        // Bytes of the request cannot have gone out where there was no connection, and a broken stream is only
        // harmless before them.
        return if sent { after_sending(failure) } else { failure };
    }
    if error.is_builder() {
        return Failure::new(ErrorCode::InvalidRequest, "the request cannot be built");
    }
    if error.is_connect() {
        return match innermost_io(error) {
            Some(io) => connecting(io),
            None if error.is_timeout() => connect_timeout(),
            None => Failure::new(ErrorCode::ConnectFailed, "cannot connect"),
        };
    }
    let failure = match (chain(error).find_map(hyper_of), innermost_io(error)) {
        (Some(hyper), _) if hyper.is_parse() => {
            Failure::new(ErrorCode::ProtocolError, format!("what came back is not HTTP: {hyper}"))
        }
        (Some(hyper), _) if hyper.is_incomplete_message() => {
            Failure::new(ErrorCode::ConnectionClosed, "the receiver closed the connection without a whole answer")
        }
        (_, Some(io)) => broken(io),
        (Some(hyper), None) if hyper.is_canceled() || hyper.is_closed() => {
            Failure::new(ErrorCode::ConnectionClosed, "the connection was closed")
        }
        (_, None) => Failure::new(ErrorCode::ProtocolError, "the exchange broke off"),
    };
    if sent { failure } else { before_sending(failure) }
}

/// The deadline passed. Without a byte handed out there never was a connection.
pub(crate) fn deadline(sent: bool) -> Failure {
    if sent {
        Failure::new(ErrorCode::DispatchTimeout, "no answer within the timeout")
    } else {
        Failure::new(ErrorCode::ConnectTimeout, "no connection within the timeout")
    }
}

/// Writing stopped in the middle: the receiver has a part of the request, and no way to take it for the whole.
pub(crate) fn cut_short(why: ErrorCode) -> Failure {
    if why == ErrorCode::DeadlineTooClose {
        return Failure::new(ErrorCode::DispatchTimeout, "the timeout came while the payload was being written");
    }
    Failure::new(ErrorCode::ConnectionReset, format!("cut off while the payload was being written: {why}"))
}

fn connect_timeout() -> Failure {
    Failure::new(ErrorCode::ConnectTimeout, "no connection within the connect timeout")
}

/// Errors of our own and of TLS, wherever they stand in the chain.
fn known(error: &(dyn Error + 'static)) -> Option<Failure> {
    if let Some(refused) = error.downcast_ref::<AddressRefused>() {
        return Some(Failure::new(ErrorCode::AddressRefused, refused.to_string()));
    }
    if let Some(failed) = error.downcast_ref::<LookupFailed>() {
        return Some(Failure::new(ErrorCode::DnsFailed, failed.to_string()));
    }
    error.downcast_ref::<rustls::Error>().map(|tls| Failure::new(ErrorCode::TlsFailed, tls::explain(tls)))
}

fn connecting(error: &io::Error) -> Failure {
    #[expect(clippy::wildcard_enum_match_arm, reason = "io::ErrorKind is open; the rest has its own words")]
    match error.kind() {
        io::ErrorKind::ConnectionRefused => Failure::new(ErrorCode::ConnectRefused, "the port is closed"),
        io::ErrorKind::TimedOut => connect_timeout(),
        io::ErrorKind::UnexpectedEof | io::ErrorKind::ConnectionReset => {
            Failure::new(ErrorCode::TlsFailed, "the receiver broke off the TLS handshake")
        }
        _ => Failure::new(ErrorCode::ConnectFailed, format!("cannot connect: {error}")),
    }
}

fn broken(error: &io::Error) -> Failure {
    #[expect(clippy::wildcard_enum_match_arm, reason = "io::ErrorKind is open; the rest is a broken connection too")]
    match error.kind() {
        io::ErrorKind::UnexpectedEof => Failure::new(ErrorCode::ConnectionClosed, "the receiver closed the connection"),
        _ => Failure::new(ErrorCode::ConnectionReset, format!("the connection broke: {error}")),
    }
}

/// The same failures, where nothing had been sent yet, leave no question open.
fn before_sending(failure: Failure) -> Failure {
    if failure.code.answer_lost() {
        Failure::new(ErrorCode::ConnectFailed, format!("before anything was sent, {}", failure.detail))
    } else {
        failure
    }
}

/// A TLS alert that comes after the request is a connection that broke after the request.
fn after_sending(failure: Failure) -> Failure {
    if failure.code == ErrorCode::TlsFailed {
        Failure::new(ErrorCode::ConnectionReset, failure.detail)
    } else {
        failure
    }
}

fn io_of<'a>(error: &'a (dyn Error + 'static)) -> Option<&'a io::Error> {
    error.downcast_ref()
}

/// Layers wrap each other's errors as kind *other*; the one that knows is the last.
fn innermost_io<'a>(error: &'a (dyn Error + 'static)) -> Option<&'a io::Error> {
    chain(error).filter_map(io_of).last()
}

fn hyper_of<'a>(error: &'a (dyn Error + 'static)) -> Option<&'a hyper::Error> {
    error.downcast_ref()
}

/// An error and its causes. `io::Error` leaves the error that it wraps out of its own `source`.
fn chain<'a>(error: &'a (dyn Error + 'static)) -> impl Iterator<Item = &'a (dyn Error + 'static)> {
    std::iter::successors(Some(error), |error| {
        let error: &'a (dyn Error + 'static) = *error;
        match io_of(error).and_then(io::Error::get_ref) {
            Some(wrapped) => Some(wrapped as &(dyn Error + 'static)),
            None => error.source(),
        }
    })
}
