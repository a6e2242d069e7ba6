//! Which addresses may be called. A receiver's URL comes from outside, and inside the firewall stand databases,
//! metadata services and this process itself.
//!
//! Every address is judged twice over: names when they are resolved, on the very addresses that are then connected
//! to (`resolver.rs`), and literal addresses before the call, since those never reach a resolver. What an
//! address is, is decided on its numbers: the URL parser has undone `0x7f.1`, `2130706433` and `127.1` by then.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use ipnet::IpNet;
use url::{Host, Url};

/// IPv4 ranges that are not receivers on the internet.
const REFUSED_V4: &[(&str, &str)] = &[
    ("0.0.0.0/8", "of this network"),
    ("10.0.0.0/8", "private"),
    ("100.64.0.0/10", "behind a carrier's NAT"),
    ("127.0.0.0/8", "a loopback address"),
    ("168.63.129.16/32", "a cloud's metadata service"),
    ("169.254.0.0/16", "link-local, where metadata services are"),
    ("172.16.0.0/12", "private"),
    ("192.0.0.0/24", "reserved for protocols"),
    ("192.0.2.0/24", "for documentation"),
    ("192.88.99.0/24", "a 6to4 relay"),
    ("192.168.0.0/16", "private"),
    ("198.18.0.0/15", "for benchmarks"),
    ("198.51.100.0/24", "for documentation"),
    ("203.0.113.0/24", "for documentation"),
    ("224.0.0.0/4", "multicast"),
    ("240.0.0.0/4", "reserved or broadcast"),
];

/// IPv6 ranges with a name; whatever else lies outside of [`GLOBAL_V6`] is refused without one.
const REFUSED_V6: &[(&str, &str)] = &[
    ("::/128", "unspecified"),
    ("::1/128", "a loopback address"),
    ("::/96", "an IPv4-compatible address"),
    ("64:ff9b::/96", "translated by NAT64"),
    ("64:ff9b:1::/48", "translated by NAT64"),
    ("100::/64", "a black hole"),
    ("2001::/23", "reserved for protocols, Teredo among them"),
    ("2001:db8::/32", "for documentation"),
    ("2002::/16", "a 6to4 address"),
    ("3fff::/20", "for documentation"),
    ("fc00::/7", "private"),
    ("fe80::/10", "link-local"),
    ("fec0::/10", "site-local"),
    ("ff00::/8", "multicast"),
];

/// The only part of IPv6 that is handed out as global unicast.
const GLOBAL_V6: &str = "2000::/3";
/// Its last four bytes are an IPv4 address, and that is where it leads.
const NAT64: &str = "64:ff9b::/96";

/// An address that may not be called.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{address} may not be called: it is {why}, and no network in allow_networks has it")]
pub struct AddressRefused {
    /// The address as it would have been connected to.
    pub address: IpAddr,
    /// What it is.
    pub why: &'static str,
}

/// Judges addresses.
#[derive(Clone, Debug)]
pub struct Guard {
    allowed: Vec<IpNet>,
    refused: Vec<(IpNet, &'static str)>,
    global_v6: IpNet,
    nat64: IpNet,
}

impl Guard {
    /// Refuses what is not public, but for these networks.
    #[must_use]
    pub fn new(allowed: &[IpNet]) -> Self {
        let net = |text: &str| text.parse::<IpNet>().expect("the table above holds networks");
        let refused = REFUSED_V4.iter().chain(REFUSED_V6).map(|(text, why)| (net(text), *why)).collect();
        Self { allowed: allowed.to_vec(), refused, global_v6: net(GLOBAL_V6), nat64: net(NAT64) }
    }

    /// Judges an address that is about to be connected to.
    ///
    /// # Errors
    /// It may not be called.
    pub fn check(&self, address: IpAddr) -> Result<(), AddressRefused> {
        // `::ffff:127.0.0.1` is only another way to write 127.0.0.1: the kernel connects to the latter.
        let plain = address.to_canonical();
        if let Some(inner) = self.translated(plain) {
            // An operator who allows NAT64 has not allowed 127.0.0.1 behind it.
            self.check_plain(plain)?;
            return self.check_plain(IpAddr::V4(inner)).map_err(|refused| AddressRefused { address, ..refused });
        }
        self.check_plain(plain)
    }

    /// Judges the host of a URL where it is a literal address; a name is judged when it is resolved.
    ///
    /// # Errors
    /// It may not be called.
    pub fn check_literal(&self, url: &Url) -> Result<(), AddressRefused> {
        match url.host() {
            Some(Host::Ipv4(address)) => self.check(IpAddr::V4(address)),
            Some(Host::Ipv6(address)) => self.check(IpAddr::V6(address)),
            // The connector takes as an address whatever parses as one, so the same is done here.
            Some(Host::Domain(name)) => match name.parse::<IpAddr>() {
                Ok(address) => self.check(address),
                Err(_) => Ok(()),
            },
            None => Ok(()),
        }
    }

    fn check_plain(&self, address: IpAddr) -> Result<(), AddressRefused> {
        if self.allowed.iter().any(|net| net.contains(&address)) {
            return Ok(());
        }
        let named = self.refused.iter().find(|(net, _)| net.contains(&address)).map(|(_, why)| *why);
        let outside = address.is_ipv6() && !self.global_v6.contains(&address);
        match named.or(outside.then_some("not global unicast")) {
            Some(why) => Err(AddressRefused { address, why }),
            None => Ok(()),
        }
    }

    fn translated(&self, address: IpAddr) -> Option<Ipv4Addr> {
        match address {
            IpAddr::V6(v6) if self.nat64.contains(&address) => Some(last_four(v6)),
            IpAddr::V6(_) | IpAddr::V4(_) => None,
        }
    }
}

fn last_four(address: Ipv6Addr) -> Ipv4Addr {
    let bytes = address.octets();
    Ipv4Addr::new(bytes[12], bytes[13], bytes[14], bytes[15])
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refused(url: &str) -> bool {
        Guard::new(&[]).check_literal(&Url::parse(url).unwrap()).is_err()
    }

    #[test]
    fn s3_47_every_disguise_of_an_inner_address() {
        for host in [
            "127.0.0.1",
            "127.1",
            "127.0.1",
            "0x7f.1",
            "0x7f000001",
            "2130706433",
            "017700000001",
            "127.0.0.1.",
            "0",
            "0.0.0.0",
            "[::1]",
            "[::]",
            "[::ffff:127.0.0.1]",
            "[::ffff:7f00:1]",
            "[::127.0.0.1]",
            "[0:0:0:0:0:ffff:a00:1]",
            "[64:ff9b::7f00:1]",
            "[64:ff9b::808:808]",
            "[64:ff9b:1::a00:1]",
            "[2002:7f00:1::]",
            "[2001:0:4136:e378::]",
            "169.254.169.254",
            "[fe80::1]",
            "[fd00:ec2::254]",
            "[fec0::1]",
            "10.0.0.1",
            "172.16.0.1",
            "172.31.255.255",
            "192.168.1.1",
            "100.64.0.1",
            "100.100.100.200",
            "192.0.0.192",
            "168.63.129.16",
            "224.0.0.1",
            "239.255.255.255",
            "240.0.0.1",
            "255.255.255.255",
            "198.18.0.1",
            "192.0.2.1",
            "198.51.100.1",
            "203.0.113.1",
            "[2001:db8::1]",
            "[3fff::1]",
            "[ff02::1]",
            "[100::1]",
            "[4000::1]",
            "[5f00::1]",
            "%31%32%37.0.0.1",
            "\u{ff11}\u{ff12}\u{ff17}.0.0.1",
        ] {
            assert!(refused(&format!("http://{host}:8080/x")), "{host}");
        }
    }

    #[test]
    fn public_addresses_and_names_pass() {
        for host in [
            "1.1.1.1",
            "8.8.8.8",
            "172.32.0.1",
            "100.128.0.1",
            "223.255.255.255",
            "[2606:4700::1111]",
            "[::ffff:8.8.8.8]",
            "[2a00:1450::1]",
            "example.com",
            "localhost",
        ] {
            assert!(!refused(&format!("http://{host}/")), "{host}");
        }
    }

    #[test]
    fn the_allow_list_opens_what_it_names() {
        let allowed: Vec<IpNet> = ["127.0.0.0/8", "fd00:1::/32"].map(|net| net.parse().unwrap()).to_vec();
        let guard = Guard::new(&allowed);
        let passes = |text: &str| guard.check(text.parse().unwrap()).is_ok();
        assert!(passes("127.0.0.1") && passes("::ffff:127.0.0.1") && passes("fd00:1::5"));
        assert!(!passes("10.0.0.1") && !passes("::1") && !passes("fd00:2::5") && !passes("64:ff9b::7f00:1"));
    }

    #[test]
    fn allowing_nat64_opens_only_what_is_public_behind_it() {
        let guard = Guard::new(&["64:ff9b::/96".parse().unwrap()]);
        assert!(guard.check("64:ff9b::808:808".parse().unwrap()).is_ok());
        let refused = guard.check("64:ff9b::7f00:1".parse().unwrap()).unwrap_err();
        assert_eq!(refused.why, "a loopback address");
        assert_eq!(refused.address.to_string(), "64:ff9b::7f00:1");
    }
}
