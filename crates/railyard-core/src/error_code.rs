//! Why an attempt did not succeed: one closed list, stored in `error_code` and documented in README.md.

use std::fmt;

/// A stable code. Its text is what operators search for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ErrorCode {
    /// The whole call's deadline passed (S2-14).
    DispatchTimeout,
    /// The receiver took the connection attempt and never answered it.
    ConnectTimeout,
    /// The port is closed.
    ConnectRefused,
    /// Any other failure to connect.
    ConnectFailed,
    /// The name has no address, or the resolver failed.
    DnsFailed,
    /// The TLS handshake or the certificate; the detail says which check.
    TlsFailed,
    /// The address is not one that this installation may call.
    AddressRefused,
    /// The connection broke after the request may have been read.
    ConnectionReset,
    /// The receiver closed without an answer.
    ConnectionClosed,
    /// What came back is not HTTP.
    ProtocolError,
    /// An answer with this status that is a failure.
    HttpStatus(u16),
    /// 3xx: never followed, never a success.
    RedirectRefused(u16),
    /// 410: the receiver is gone for good.
    Gone,
    /// 429.
    RateLimited,
    /// 503 with Retry-After.
    ServiceUnavailable,
    /// 2xx with `{"ack":false}`.
    NotAcknowledged,
    /// The rail's code is on its list of terminal codes, or its answer says that a retry is useless.
    RailRefused,
    /// S2-13: amount is not a decimal above zero.
    InvalidAmount,
    /// S2-13: currency is not three capital letters.
    InvalidCurrency,
    /// S2-13: destination is blank.
    InvalidDestination,
    /// The payload is not a JSON object.
    InvalidPayload,
    /// The credentials were deleted by force.
    CredentialsDeleted,
    /// The credentials could not be looked up just now.
    CredentialsUnavailable,
    /// The rail is not in this node's configuration.
    RailUnknown,
    /// The target or a header cannot be sent as it stands.
    InvalidRequest,
    /// The attempts that the job may have are spent (S2-22).
    RetryCeilingExceeded,
    /// The job's `expiresAt` passed.
    Expired,
    /// This node's lease was not good at the moment of the call.
    LeaseLost,
    /// Too little time was left before the in-flight row's deadline.
    DeadlineTooClose,
    /// The slot that a limit gave passed before the call could start.
    PermitBurnt,
    /// The endpoint's breaker opened between the turn and the call.
    CircuitOpen,
    /// The commit of the begin was lost; this process can prove that nothing was sent.
    CommitLost,
}

impl ErrorCode {
    /// The call was written and its answer never read: the receiver may have acted on it. A repeat after one of
    /// these is a marked duplicate.
    #[must_use]
    pub fn answer_lost(self) -> bool {
        matches!(self, Self::DispatchTimeout | Self::ConnectionReset | Self::ConnectionClosed | Self::ProtocolError)
    }

    /// A call without an answer that speaks against its endpoint, and not against the message or this node.
    #[must_use]
    pub fn blames_endpoint(self) -> bool {
        self.answer_lost()
            || matches!(
                self,
                Self::ConnectTimeout | Self::ConnectRefused | Self::ConnectFailed | Self::DnsFailed | Self::TlsFailed
            )
    }
}

impl fmt::Display for ErrorCode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::DispatchTimeout => "DISPATCH_TIMEOUT",
            Self::ConnectTimeout => "CONNECT_TIMEOUT",
            Self::ConnectRefused => "CONNECT_REFUSED",
            Self::ConnectFailed => "CONNECT_FAILED",
            Self::DnsFailed => "DNS_FAILED",
            Self::TlsFailed => "TLS_FAILED",
            Self::AddressRefused => "ADDRESS_REFUSED",
            Self::ConnectionReset => "CONNECTION_RESET",
            Self::ConnectionClosed => "CONNECTION_CLOSED",
            Self::ProtocolError => "PROTOCOL_ERROR",
            Self::HttpStatus(status) => return write!(f, "HTTP_{status}"),
            Self::RedirectRefused(_) => "REDIRECT_REFUSED",
            Self::Gone => "GONE",
            Self::RateLimited => "RATE_LIMITED",
            Self::ServiceUnavailable => "SERVICE_UNAVAILABLE",
            Self::NotAcknowledged => "NOT_ACKNOWLEDGED",
            Self::RailRefused => "RAIL_REFUSED",
            Self::InvalidAmount => "INVALID_AMOUNT",
            Self::InvalidCurrency => "INVALID_CURRENCY",
            Self::InvalidDestination => "INVALID_DESTINATION",
            Self::InvalidPayload => "INVALID_PAYLOAD",
            Self::CredentialsDeleted => "CREDENTIALS_DELETED",
            Self::CredentialsUnavailable => "CREDENTIALS_UNAVAILABLE",
            Self::RailUnknown => "RAIL_UNKNOWN",
            Self::InvalidRequest => "INVALID_REQUEST",
            Self::RetryCeilingExceeded => "RETRY_CEILING_EXCEEDED",
            Self::Expired => "EXPIRED",
            Self::LeaseLost => "LEASE_LOST",
            Self::DeadlineTooClose => "DEADLINE_TOO_CLOSE",
            Self::PermitBurnt => "PERMIT_BURNT",
            Self::CircuitOpen => "CIRCUIT_OPEN",
            Self::CommitLost => "COMMIT_LOST",
        })
    }
}
