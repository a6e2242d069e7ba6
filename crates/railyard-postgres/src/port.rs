//! Ports for servers that must come back at the same address after a restart.

use std::hash::{BuildHasher, Hasher, RandomState};
use std::net::{Ipv4Addr, TcpListener};

/// Below Linux's ephemeral range (32768 and up). In that range a client that keeps dialling a port nobody listens
/// on can be given the same port as its own and connect to itself, and the server can then not come back.
const FIRST: u16 = 20_000;
const LAST: u16 = 32_000;

/// A TCP port of 127.0.0.1 on which nothing listened a moment ago, outside the ephemeral range.
///
/// # Panics
/// When a thousand tries find none, which means the machine has no ports left.
pub fn free_port() -> u16 {
    for turn in 0..1_000_u16 {
        let mut hasher = RandomState::new().build_hasher();
        hasher.write_u16(turn);
        let span = u64::from(LAST - FIRST);
        let offset = u16::try_from(hasher.finish() % span).expect("less than the span, which is a u16");
        let port = FIRST + offset;
        if TcpListener::bind((Ipv4Addr::LOCALHOST, port)).is_ok() {
            return port;
        }
    }
    panic!("no free port between {FIRST} and {LAST}");
}
