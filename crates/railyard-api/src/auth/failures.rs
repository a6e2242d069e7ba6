//! Failed tries by address: a bounded memory of who guesses.

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

/// Failures of one address in one window before it has to wait.
const FAILURES_MAX: u32 = 20;
/// After its first failure an address starts afresh in this time.
const WINDOW: Duration = Duration::from_secs(60);
/// Addresses remembered. Beyond that the one whose window is oldest is forgotten.
const ADDRESSES_MAX: usize = 4096;

#[derive(Debug, Default)]
pub(super) struct Failures {
    by_address: Mutex<HashMap<IpAddr, Window>>,
}

#[derive(Clone, Copy, Debug)]
struct Window {
    since: Instant,
    failures: u32,
}

impl Failures {
    /// Counts a failure.
    ///
    /// # Errors
    /// The seconds to wait, for an address that has failed too often.
    pub(super) fn count(&self, peer: IpAddr) -> Result<(), u32> {
        self.count_at(peer, Instant::now())
    }

    fn count_at(&self, peer: IpAddr, now: Instant) -> Result<(), u32> {
        let address = network(peer);
        let mut by_address = self.by_address.lock().unwrap_or_else(PoisonError::into_inner);
        let known = by_address.get(&address).copied().filter(|window| now.duration_since(window.since) < WINDOW);
        let window = match known {
            Some(window) => Window { failures: window.failures.saturating_add(1), ..window },
            None => Window { since: now, failures: 1 },
        };
        if by_address.len() >= ADDRESSES_MAX && !by_address.contains_key(&address) {
            by_address.retain(|_, window| now.duration_since(window.since) < WINDOW);
            if by_address.len() >= ADDRESSES_MAX
                && let Some(oldest) = by_address.iter().min_by_key(|(_, window)| window.since).map(|(ip, _)| *ip)
            {
                by_address.remove(&oldest);
            }
        }
        by_address.insert(address, window);
        if window.failures <= FAILURES_MAX {
            return Ok(());
        }
        let left = WINDOW.saturating_sub(now.duration_since(window.since));
        Err(u32::try_from(left.as_secs()).unwrap_or(u32::MAX).max(1))
    }
}

/// Whoever has one IPv6 address has the 2^64 beside it.
fn network(peer: IpAddr) -> IpAddr {
    match peer.to_canonical() {
        IpAddr::V4(address) => IpAddr::V4(address),
        IpAddr::V6(address) => {
            let [a, b, c, d, ..] = address.segments();
            IpAddr::V6([a, b, c, d, 0, 0, 0, 0].into())
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_waits_after_its_failures_and_starts_afresh() {
        let failures = Failures::default();
        let (peer, other) = ("10.0.0.1".parse().unwrap(), "10.0.0.2".parse().unwrap());
        let start = Instant::now();
        for _ in 0..FAILURES_MAX {
            assert_eq!(failures.count_at(peer, start), Ok(()));
        }
        assert_eq!(failures.count_at(peer, start + Duration::from_secs(20)), Err(40));
        assert_eq!(failures.count_at(other, start), Ok(()));
        assert_eq!(failures.count_at(peer, start + WINDOW), Ok(()));
    }

    #[test]
    fn an_ipv6_network_counts_as_one_and_the_memory_is_bounded() {
        let failures = Failures::default();
        let start = Instant::now();
        for n in 0..=FAILURES_MAX {
            let peer = format!("2001:db8::{n:x}").parse().unwrap();
            assert_eq!(failures.count_at(peer, start).is_ok(), n < FAILURES_MAX);
        }
        for n in 0..10_000_u32 {
            let _ = failures.count_at(IpAddr::V4(n.into()), start + Duration::from_millis(u64::from(n)));
        }
        assert!(failures.by_address.lock().unwrap().len() <= ADDRESSES_MAX);
    }
}
