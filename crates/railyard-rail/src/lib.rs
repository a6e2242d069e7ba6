//! HTTP out: the only part of Railyard that calls a receiver. It writes nothing and decides nothing about the queue;
//! it takes a message whose intent is committed, makes one call, and says what came of it.
//!
//! One call, in order ([`client::Client::call`]):
//!
//! 1. payment rails check the payload ([`railyard_core::payment`]); a bad one never reaches the network;
//! 2. [`request`] builds the target and the headers, and signs with a fresh timestamp;
//! 3. the caller's leave to write is asked once ([`gate`]): lease good, deadline not near;
//! 4. the connection is made, or an idle one taken, or one that [`warm`] opened before the call's slot; [`guard`] judges
//!    the address that is really connected to;
//! 5. [`gate`] asks again at the moment that the body's bytes are handed out, and aborts the connection if not;
//! 6. [`answer`] reads at most 16 KiB; [`failure`] names what went wrong; `core::classify` says what it means.
//!
//! One deadline covers all of it. There is no task of our own: dropping the future of a call ends the call.
//!
//! [`endpoints`] is apart from that: it holds the places and the breaker of each endpoint, which a group needs before
//! its intent is committed.

pub mod answer;
pub mod client;
pub mod clock;
pub mod credentials;
pub mod endpoints;
pub mod failure;
pub mod gate;
pub mod guard;
pub mod options;
pub mod request;
mod resolver;
mod tls;
pub mod warm;

pub use client::{Call, Called, Client, ClientError};
pub use credentials::{Credentials, CredentialsError, NextSecrets, Schemes, SigningSecrets};
pub use endpoints::{Endpoints, Look, Place, Refused};
pub use gate::MayWrite;
pub use options::{ConfigError, HttpOptions, LimitOptions, RailOptions};
pub use warm::Claim;
