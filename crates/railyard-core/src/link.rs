//! What two nodes say to each other before anything else on a link, and who of two begins.
//!
//! ```text
//! dialer   -> acceptor   hello   magic, process id, nonce
//! acceptor -> dialer     hello
//! dialer   -> acceptor   proof   HMAC-SHA256 under the cookie, over the dialer's side and both hellos
//! acceptor -> dialer     proof   the same over the acceptor's side
//! ```
//!
//! Lengths are fixed, so a stranger can make a node keep [`HELLO_BYTES`] and no more. Whoever dials proves first: a
//! stranger learns nothing that he could guess the cookie from. A proof holds for these two nonces and this side only,
//! so neither a recording nor one's own proof sent back is worth anything.

use std::time::Duration;

use hmac::Mac;
use uuid::Uuid;

use crate::signing::keyed;

/// Length of a hello.
pub const HELLO_BYTES: usize = 8 + 16 + NONCE_BYTES;
/// Length of a proof.
pub const PROOF_BYTES: usize = 32;
/// Length of a hello's nonce.
pub const NONCE_BYTES: usize = 32;
/// Shortest cookie that is taken.
pub const COOKIE_BYTES_MIN: usize = 32;

/// The last byte is the version.
const MAGIC: [u8; 8] = *b"RYLINK\0\x01";

/// Longest wait between two dials of one peer.
const REDIAL_LONGEST: Duration = Duration::from_secs(5);

/// Who somebody on a link claims to be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Hello {
    /// Fresh at every start of a process.
    pub process: Uuid,
    /// Fresh on every link.
    pub nonce: [u8; NONCE_BYTES],
}

impl Hello {
    /// As sent.
    #[must_use]
    pub fn encode(&self) -> [u8; HELLO_BYTES] {
        let mut bytes = [0; HELLO_BYTES];
        bytes[..8].copy_from_slice(&MAGIC);
        bytes[8..24].copy_from_slice(self.process.as_bytes());
        bytes[24..].copy_from_slice(&self.nonce);
        bytes
    }

    /// Reads what [`Hello::encode`] wrote; `None` if it is something else.
    #[must_use]
    pub fn decode(bytes: &[u8; HELLO_BYTES]) -> Option<Self> {
        let nonce = bytes[24..].try_into().ok()?;
        let process = Uuid::from_slice(&bytes[8..24]).ok()?;
        (bytes[..8] == MAGIC).then_some(Self { process, nonce })
    }
}

/// Whose proof it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Side {
    /// Who opened the connection.
    Dialer,
    /// Who took it.
    Acceptor,
}

impl Side {
    fn label(self) -> &'static [u8] {
        match self {
            Self::Dialer => b"railyard link dialer",
            Self::Acceptor => b"railyard link acceptor",
        }
    }
}

/// That this side knows the cookie.
#[must_use]
pub fn proof(cookie: &[u8], side: Side, dialer: &Hello, acceptor: &Hello) -> [u8; PROOF_BYTES] {
    keyed(cookie, &[side.label(), &dialer.encode(), &acceptor.encode()]).finalize().into_bytes().into()
}

/// Whether `given` is that side's proof, in a time that does not depend on where it differs.
#[must_use]
pub fn proves(cookie: &[u8], side: Side, dialer: &Hello, acceptor: &Hello, given: &[u8; PROOF_BYTES]) -> bool {
    keyed(cookie, &[side.label(), &dialer.encode(), &acceptor.encode()]).verify_slice(given).is_ok()
}

/// The cookie of the sessions on top of a link: they show each other digests of it that are easier to guess from than
/// a [`proof`], so they are given another one.
#[must_use]
pub fn session_cookie(cookie: &[u8]) -> String {
    hex::encode(keyed(cookie, &[b"railyard link session"]).finalize().into_bytes())
}

/// Whether a process dials its peer or waits to be dialled: the younger one dials. It finds all others in the database
/// when it joins, while they may not have looked since; and two processes never dial each other at once.
#[must_use]
pub fn dials(me: Uuid, peer: Uuid) -> bool {
    me > peer
}

/// How long to wait after so many dials in a row that failed: 0.1 s, doubling up to 5 s, less up to a half of it;
/// `roll` is uniform in [0, 1).
///
/// ```
/// use std::time::Duration;
/// use railyard_core::link::redial_after;
/// assert_eq!(redial_after(1, 0.0), Duration::from_millis(100));
/// assert_eq!(redial_after(3, 0.0), Duration::from_millis(400));
/// assert_eq!(redial_after(99, 0.0), Duration::from_secs(5));
/// assert_eq!(redial_after(99, 0.5), Duration::from_millis(3750));
/// ```
#[must_use]
pub fn redial_after(failures: u32, roll: f64) -> Duration {
    let doubled = Duration::from_millis(100) * 2_u32.pow(failures.saturating_sub(1).min(10));
    doubled.min(REDIAL_LONGEST).mul_f64(1.0 - roll.clamp(0.0, 1.0) / 2.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    const COOKIE: &[u8] = b"0123456789abcdef0123456789abcdef";

    fn hello(byte: u8) -> Hello {
        Hello { process: Uuid::from_bytes([byte; 16]), nonce: [byte; NONCE_BYTES] }
    }

    #[test]
    fn a_hello_is_read_back_and_anything_else_refused() {
        let bytes = hello(7).encode();
        assert_eq!(Hello::decode(&bytes), Some(hello(7)));
        for place in 0..8 {
            let mut other = bytes;
            other[place] ^= 1;
            assert_eq!(Hello::decode(&other), None);
        }
    }

    #[test]
    fn a_proof_holds_for_its_side_nonces_and_cookie_alone() {
        let (a, b) = (hello(1), hello(2));
        let good = proof(COOKIE, Side::Dialer, &a, &b);
        assert!(proves(COOKIE, Side::Dialer, &a, &b, &good));
        assert!(!proves(COOKIE, Side::Acceptor, &a, &b, &good), "sent back");
        assert!(!proves(COOKIE, Side::Dialer, &a, &hello(3), &good), "recorded");
        assert!(!proves(b"another", Side::Dialer, &a, &b, &good));
        assert!(!session_cookie(COOKIE).contains("0123456789abcdef"));
    }

    #[test]
    fn of_two_exactly_one_dials() {
        let (older, younger) = (Uuid::from_u128(1), Uuid::from_u128(2));
        assert!(dials(younger, older) && !dials(older, younger) && !dials(older, older));
    }
}
