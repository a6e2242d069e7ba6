//! Why a connection did not become a link.

use std::io;

/// By reason; the metrics' labels.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Refused {
    /// It does not know the cookie.
    Cookie,
    /// No certificate, or one that is not of our authority or name.
    Certificate,
    /// It did not show who it is in time.
    Deadline,
    /// It sent something else than a node would, or a frame that is too long.
    Frame,
    /// Too many are showing who they are already.
    Full,
    /// It went away.
    Closed,
    /// Another process than the one that was looked for, or this one itself.
    Stranger,
    /// Nobody listens there.
    Unreachable,
}

impl Refused {
    /// Those that a listener meets.
    pub(crate) const HANDSHAKES: [Self; 7] =
        [Self::Cookie, Self::Certificate, Self::Deadline, Self::Frame, Self::Full, Self::Closed, Self::Stranger];
    /// Those that a dialer meets.
    pub(crate) const DIALS: [Self; 7] =
        [Self::Cookie, Self::Certificate, Self::Deadline, Self::Frame, Self::Closed, Self::Stranger, Self::Unreachable];

    pub(crate) fn as_str(self) -> &'static str {
        match self {
            Self::Cookie => "cookie",
            Self::Certificate => "certificate",
            Self::Deadline => "deadline",
            Self::Frame => "frame",
            Self::Full => "full",
            Self::Closed => "closed",
            Self::Stranger => "stranger",
            Self::Unreachable => "unreachable",
        }
    }

    /// The topic of the dialer's log line, which is said once a minute.
    pub(crate) fn dial_topic(self) -> &'static str {
        match self {
            Self::Unreachable => "dial: unreachable",
            Self::Closed => "dial: closed",
            Self::Deadline => "dial: deadline",
            Self::Cookie | Self::Certificate | Self::Frame | Self::Full | Self::Stranger => "dial: refused",
        }
    }

    /// The topic of the listener's.
    pub(crate) fn topic(self) -> &'static str {
        match self {
            Self::Cookie => "link: cookie",
            Self::Certificate => "link: certificate",
            Self::Deadline => "link: deadline",
            Self::Frame => "link: frame",
            Self::Full => "link: full",
            Self::Closed => "link: closed",
            Self::Stranger => "link: stranger",
            Self::Unreachable => "link: gone",
        }
    }

    /// What an error of the connection means. TLS errors come wrapped in those of the connection.
    pub(crate) fn from_io(error: &io::Error) -> Self {
        let tls = error.get_ref().and_then(|inner| inner.downcast_ref::<rustls::Error>());
        match tls {
            Some(
                rustls::Error::InvalidCertificate(_)
                | rustls::Error::NoCertificatesPresented
                | rustls::Error::UnsupportedNameType
                | rustls::Error::AlertReceived(_),
            ) => Self::Certificate,
            Some(_) => Self::Frame,
            None => Self::Closed,
        }
    }
}
