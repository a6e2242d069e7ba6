//! What a call is signed with. Built once when credentials are loaded; a set that cannot sign does not exist, so
//! nothing can be sent unsigned by forgetting to look.

use jiff::Timestamp;
use railyard_core::headers::value_is_valid;
use railyard_core::signing::{flowcatalyst, standard};
use zeroize::Zeroizing;

/// Which signatures a set of credentials asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Schemes {
    /// S3's two headers.
    pub flowcatalyst: bool,
    /// The three of Standard Webhooks; has no effect with a secret that is not base64.
    pub standard: bool,
}

impl Default for Schemes {
    fn default() -> Self {
        Self { flowcatalyst: true, standard: true }
    }
}

/// One secret, or two while they are being rotated.
#[derive(Clone)]
pub struct SigningSecrets {
    /// Signs until `next` takes over.
    pub current: Zeroizing<String>,
    /// What a rotation brings.
    pub next: Option<NextSecrets>,
}

/// What a rotation brings, a new token, a new secret or both; the other one stays.
#[derive(Clone)]
pub struct NextSecrets {
    /// The new token.
    pub bearer_token: Option<Zeroizing<String>>,
    /// The new secret.
    pub signing_secret: Option<Zeroizing<String>>,
    /// From when on they are in effect where there is room for one: the token, and S3's signature.
    pub active_from: Timestamp,
    /// Until when Standard Webhooks carries the old secret's signature as well.
    pub overlap_until: Timestamp,
}

/// Why a set of credentials is none.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CredentialsError {
    /// Everybody could sign with it.
    #[error("the signing secret is empty")]
    EmptySecret,
    /// A control character, a newline at the end above all.
    #[error("the bearer token has a character that cannot stand in a header")]
    BearerToken,
    /// Both schemes are off, or the only one cannot be used with this secret.
    #[error("no signature scheme is left: one is off, and the other is off or needs a base64 secret")]
    NothingSigns,
}

/// What a call carries to show where it comes from.
#[derive(Clone)]
pub struct Credentials {
    bearer_token: Option<Zeroizing<String>>,
    secrets: SigningSecrets,
    schemes: Schemes,
}

impl Credentials {
    /// Takes a set as it is stored.
    ///
    /// # Errors
    /// Nothing could be signed with it, or not for long.
    pub fn new(
        bearer_token: Option<Zeroizing<String>>,
        secrets: SigningSecrets,
        schemes: Schemes,
    ) -> Result<Self, CredentialsError> {
        let next = secrets.next.as_ref();
        let (next_token, next) =
            (next.and_then(|next| next.bearer_token.as_ref()), next.and_then(|next| next.signing_secret.as_ref()));
        if bearer_token.iter().chain(next_token).any(|token| !value_is_valid(token)) {
            return Err(CredentialsError::BearerToken);
        }
        for secret in std::iter::once(&secrets.current).chain(next) {
            if secret.is_empty() {
                return Err(CredentialsError::EmptySecret);
            }
            let standard = schemes.standard && standard::key_of(secret).is_some();
            if !schemes.flowcatalyst && !standard {
                return Err(CredentialsError::NothingSigns);
            }
        }
        Ok(Self { bearer_token, secrets, schemes })
    }

    /// A set with one secret, no token and both schemes.
    ///
    /// # Errors
    /// As [`Credentials::new`].
    pub fn with_secret(secret: &str) -> Result<Self, CredentialsError> {
        let secrets = SigningSecrets { current: Zeroizing::new(secret.to_owned()), next: None };
        Self::new(None, secrets, Schemes::default())
    }

    /// Goes out as `Authorization: Bearer …` in an attempt that starts at `at`.
    pub(crate) fn bearer_token(&self, at: Timestamp) -> Option<&str> {
        let next = self.in_effect(at).and_then(|next| next.bearer_token.as_ref());
        next.or(self.bearer_token.as_ref()).map(|token| token.as_str())
    }

    /// What a rotation has brought, once it is in effect.
    fn in_effect(&self, at: Timestamp) -> Option<&NextSecrets> {
        self.secrets.next.as_ref().filter(|next| next.active_from <= at)
    }

    /// Overwrites the token and the secrets with asterisks: receivers that answer with what they were sent must not
    /// bring them into the record. A secret that is cut off at the end is overwritten as well.
    pub(crate) fn redact(&self, text: &mut [u8]) {
        let next = self.secrets.next.iter().flat_map(|next| next.bearer_token.iter().chain(&next.signing_secret));
        for secret in self.bearer_token.iter().chain([&self.secrets.current]).chain(next) {
            redact(text, secret.as_bytes());
        }
    }

    /// S3's headers for an attempt that starts at `at`, if the scheme is on.
    pub(crate) fn flowcatalyst(&self, at: Timestamp, body: &[u8]) -> Option<flowcatalyst::Signed> {
        let next = self.in_effect(at).and_then(|next| next.signing_secret.as_ref());
        let secret = next.unwrap_or(&self.secrets.current);
        self.schemes.flowcatalyst.then(|| flowcatalyst::sign(secret.as_bytes(), at, body))
    }

    /// The signature of Standard Webhooks, if the scheme is on and a secret can be used with it. The newer secret's
    /// signature comes first.
    pub(crate) fn standard(&self, id: &str, at: Timestamp, body: &[u8]) -> Option<String> {
        if !self.schemes.standard {
            return None;
        }
        let next = self.secrets.next.as_ref().filter(|next| next.signing_secret.is_some());
        let only_next = next.is_some_and(|next| next.overlap_until <= at);
        let current = (!only_next).then_some(&self.secrets.current);
        let keys: Vec<Zeroizing<Vec<u8>>> = next
            .and_then(|next| next.signing_secret.as_ref())
            .into_iter()
            .chain(current)
            .filter_map(|secret| standard::key_of(secret).map(Zeroizing::new))
            .collect();
        (!keys.is_empty()).then(|| standard::sign(&keys, id, at, body))
    }
}

/// Shorter secrets are words that any text may hold, and shorter beginnings of a secret give nothing away.
const REDACTED_BYTES_MIN: usize = 8;

fn redact(text: &mut [u8], secret: &[u8]) {
    if secret.len() < REDACTED_BYTES_MIN {
        return;
    }
    let mut from = 0;
    while from + REDACTED_BYTES_MIN <= text.len() {
        let length = secret.len().min(text.len() - from);
        if text[from..from + length] == secret[..length] {
            text[from..from + length].fill(b'*');
            from += length;
        } else {
            from += 1;
        }
    }
}

impl std::fmt::Debug for SigningSecrets {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("SigningSecrets").field("next", &self.next).finish_non_exhaustive()
    }
}

impl std::fmt::Debug for NextSecrets {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("NextSecrets").field("active_from", &self.active_from).finish_non_exhaustive()
    }
}

impl std::fmt::Debug for Credentials {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Credentials")
            .field("bearer_token", &self.bearer_token.is_some())
            .field("secrets", &self.secrets)
            .field("schemes", &self.schemes)
            .finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const BASE64: &str = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw";

    fn at(second: i64) -> Timestamp {
        Timestamp::from_second(second).unwrap()
    }

    fn next(token: Option<&str>, secret: Option<&str>) -> NextSecrets {
        let [bearer_token, signing_secret] =
            [token, secret].map(|text| text.map(|text| Zeroizing::new(text.to_owned())));
        NextSecrets { bearer_token, signing_secret, active_from: at(100), overlap_until: at(200) }
    }

    fn rotating() -> Credentials {
        let next = next(None, Some("bmV3IHNlY3JldA=="));
        let secrets = SigningSecrets { current: Zeroizing::new(BASE64.to_owned()), next: Some(next) };
        Credentials::new(None, secrets, Schemes::default()).unwrap()
    }

    #[test]
    fn sets_that_cannot_sign_do_not_exist() {
        let make = |token: Option<&str>, secret: &str, flowcatalyst, standard| {
            let token = token.map(|token| Zeroizing::new(token.to_owned()));
            let secrets = SigningSecrets { current: Zeroizing::new(secret.to_owned()), next: None };
            Credentials::new(token, secrets, Schemes { flowcatalyst, standard }).err()
        };
        assert_eq!(make(None, "", true, true), Some(CredentialsError::EmptySecret));
        assert_eq!(make(None, "plain", false, true), Some(CredentialsError::NothingSigns));
        assert_eq!(make(None, BASE64, false, false), Some(CredentialsError::NothingSigns));
        assert_eq!(make(Some("token\n"), "plain", true, true), Some(CredentialsError::BearerToken));
        assert_eq!(make(Some("token"), "plain", true, true), None);
        assert_eq!(make(None, BASE64, false, true), None);
    }

    #[test]
    fn a_rotation_switches_one_scheme_and_doubles_the_other() {
        let credentials = rotating();
        let old = Credentials::with_secret(BASE64).unwrap();
        let new = Credentials::with_secret("bmV3IHNlY3JldA==").unwrap();
        for (second, signer) in [(99, &old), (100, &new), (300, &new)] {
            assert_eq!(credentials.flowcatalyst(at(second), b"x"), signer.flowcatalyst(at(second), b"x"));
        }
        let both = |second| {
            let of = |credentials: &Credentials| credentials.standard("id", at(second), b"x").unwrap();
            format!("{} {}", of(&new), of(&old))
        };
        assert_eq!(credentials.standard("id", at(50), b"x").unwrap(), both(50));
        assert_eq!(credentials.standard("id", at(199), b"x").unwrap(), both(199));
        assert_eq!(credentials.standard("id", at(200), b"x"), new.standard("id", at(200), b"x"));
        let mut only_token = Credentials::with_secret(BASE64).unwrap();
        only_token.bearer_token = Some(Zeroizing::new("old".to_owned()));
        only_token.secrets.next = Some(next(Some("new"), None));
        assert_eq!([99, 100, 300].map(|second| only_token.bearer_token(at(second)).unwrap()), ["old", "new", "new"]);
        for second in [50, 150, 300] {
            assert_eq!(only_token.standard("id", at(second), b"x"), old.standard("id", at(second), b"x"));
            assert_eq!(only_token.flowcatalyst(at(second), b"x"), old.flowcatalyst(at(second), b"x"));
        }
    }

    #[test]
    fn s3_44_an_echo_is_overwritten_in_its_length() {
        let mut credentials = rotating();
        credentials.bearer_token = Some(Zeroizing::new("sk_live_4242".to_owned()));
        let redacted = |text: &str| {
            let mut bytes = text.as_bytes().to_vec();
            credentials.redact(&mut bytes);
            String::from_utf8(bytes).unwrap()
        };
        let stars = "*".repeat(BASE64.len());
        assert_eq!(
            redacted(&format!("{{\"auth\":\"Bearer sk_live_4242\",\"s\":\"{BASE64}\"}}")),
            format!("{{\"auth\":\"Bearer ************\",\"s\":\"{stars}\"}}")
        );
        assert_eq!(redacted("sk_live_4242sk_live_4242"), "*".repeat(24));
        assert_eq!(redacted("cut off: sk_live_"), "cut off: ********");
        assert_eq!(redacted("cut off: sk_live"), "cut off: sk_live");
        assert_eq!(redacted("sk_live_4343 is another"), "sk_live_4343 is another");
        assert_eq!(redacted(""), "");
    }

    #[test]
    fn s3_44_debug_shows_no_secret() {
        let mut credentials = rotating();
        credentials.bearer_token = Some(Zeroizing::new("sk_live".to_owned()));
        let text = format!("{credentials:?}");
        for secret in ["sk_live", BASE64, "bmV3IHNlY3JldA=="] {
            assert!(!text.contains(secret), "{text}");
        }
    }
}
