//! The client against receivers that misbehave: raw sockets, so that what is on the wire is seen as it is and
//! answers may be as broken as they like.

#![allow(clippy::unwrap_used, reason = "a helper that fails is a test that fails")]

mod answers;
mod client;
mod deadlines;
mod failures;
mod gate;
mod receiver;
mod sent;
mod tls;
