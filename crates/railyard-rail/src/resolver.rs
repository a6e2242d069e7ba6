//! Name resolution with the address guard in it: what comes out is what is connected to, so a name cannot change
//! between the check and the connection.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;

use reqwest::dns::{Addrs, Name, Resolve, Resolving};

use crate::guard::{AddressRefused, Guard};

/// The system's resolver behind a guard.
pub(crate) struct GuardedResolver {
    pub(crate) guard: Arc<Guard>,
    /// The configured proxy's name: the operator chose it, and it may well be inside.
    pub(crate) exempt: Option<String>,
}

/// The resolver failed, or knows no such name.
#[derive(Debug, thiserror::Error)]
#[error("no address for {name}: {cause}")]
pub(crate) struct LookupFailed {
    name: String,
    cause: io::Error,
}

impl Resolve for GuardedResolver {
    fn resolve(&self, name: Name) -> Resolving {
        let guard = Arc::clone(&self.guard);
        let exempt = self.exempt.as_deref() == Some(name.as_str());
        Box::pin(async move {
            let name = name.as_str().to_owned();
            // Port 0 is replaced by the URL's. The system's resolver runs on a thread of the runtime's pool and cannot
            // be stopped: a call whose deadline passes leaves its look-up to end by itself, after some seconds.
            let looked_up = tokio::net::lookup_host((name.as_str(), 0)).await.map(Vec::from_iter);
            let found = looked_up.map_err(|cause| LookupFailed { name: name.clone(), cause })?;
            let (allowed, refused) = judge(&guard, found, exempt);
            match (allowed.is_empty(), refused) {
                (true, Some(why)) => Err(why.into()),
                (true, None) => {
                    let cause = io::Error::new(io::ErrorKind::NotFound, "the answer is empty");
                    Err(LookupFailed { name, cause }.into())
                }
                (false, _) => Ok(Box::new(allowed.into_iter()) as Addrs),
            }
        })
    }
}

/// The addresses of an answer that may be connected to, in its order, and why another one may not.
fn judge(guard: &Guard, found: Vec<SocketAddr>, exempt: bool) -> (Vec<SocketAddr>, Option<AddressRefused>) {
    let mut refused = None;
    let mut allowed = Vec::new();
    for address in found {
        match guard.check(address.ip()) {
            Err(why) if !exempt => refused = Some(why),
            Ok(()) | Err(_) => allowed.push(address),
        }
    }
    (allowed, refused)
}

#[cfg(test)]
mod tests {
    use super::*;

    async fn resolve(name: &str, resolver: &GuardedResolver) -> Result<usize, String> {
        match resolver.resolve(name.parse().unwrap()).await {
            Ok(found) => Ok(found.count()),
            Err(error) if error.is::<AddressRefused>() => Err("refused".to_owned()),
            Err(error) if error.is::<LookupFailed>() => Err("unknown".to_owned()),
            Err(error) => panic!("unexpected: {error}"),
        }
    }

    #[test]
    fn s3_47_a_name_with_two_addresses_is_judged_by_each() {
        let found = ["10.0.0.1:0", "1.1.1.1:0", "[::1]:0", "[2606:4700::1111]:0"].map(|text| text.parse().unwrap());
        let (allowed, refused) = judge(&Guard::new(&[]), found.to_vec(), false);
        assert_eq!(allowed, [found[1], found[3]]);
        assert!(refused.is_some());
        assert_eq!(judge(&Guard::new(&[]), found.to_vec(), true).0, found);
    }

    #[tokio::test]
    async fn s3_47_names_are_judged_by_their_addresses() {
        let guard = Arc::new(Guard::new(&[]));
        let resolver = GuardedResolver { guard: Arc::clone(&guard), exempt: None };
        assert_eq!(resolve("localhost", &resolver).await, Err("refused".to_owned()));
        // Some systems do not know the name with a dot at its end; those that do must not let it through.
        assert!(resolve("localhost.", &resolver).await.is_err());
        assert_eq!(resolve("no-such-name.invalid", &resolver).await, Err("unknown".to_owned()));
        let proxied = GuardedResolver { guard, exempt: Some("localhost".to_owned()) };
        assert!(resolve("localhost", &proxied).await.is_ok());
    }
}
