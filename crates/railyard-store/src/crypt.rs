//! Secrets at rest: AES-256-GCM under a master key that never enters the database.
//!
//! Every sealed value names the key that sealed it. Several keys may be known at once: the first one seals, all open,
//! so a master key is changed by putting a new one in front. A value is bound to the row it belongs to (associated
//! data): bytes copied from one row to another do not open. Errors name keys, never contents.

use std::fmt;

use aes_gcm::Aes256Gcm;
use aes_gcm::aead::{Aead, Generate, Key, KeyInit, Nonce, Payload};
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use uuid::Uuid;
use zeroize::Zeroizing;

/// Bytes of a master key.
pub const MASTER_KEY_BYTES: usize = 32;
/// Characters of a key's name.
pub const KEY_ID_CHARS_MAX: usize = 32;

/// The layout of sealed bytes: this, the nonce, the ciphertext with its tag.
const VERSION: u8 = 1;
const NONCE_BYTES: usize = 12;

/// Why something could not be sealed or opened.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CryptError {
    /// Sealed by a key that this process was not given.
    #[error("master key {key_id} is not among those configured")]
    UnknownKey {
        /// The missing key's name.
        key_id: String,
    },
    /// The key has the right name and other bytes, or the stored bytes were altered or belong to another row.
    #[error("what was sealed by master key {key_id} does not open: another key of that name, or altered bytes")]
    DoesNotOpen {
        /// The key's name.
        key_id: String,
    },
    /// A key cannot be used.
    #[error("master key {key_id}: {detail}")]
    Malformed {
        /// Its name.
        key_id: String,
        /// What is wrong; never repeats the key.
        detail: &'static str,
    },
    /// No key at all.
    #[error("no master key is configured")]
    NoKeys,
    /// The operating system gave no random bytes.
    #[error("no random bytes from the operating system")]
    NoRandomness,
}

/// A value as it is stored.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Sealed {
    /// Which key opens it.
    pub key_id: String,
    /// Version, nonce, ciphertext and tag.
    pub bytes: Vec<u8>,
}

/// The master keys of a process, newest first. Wiped when dropped.
pub struct MasterKeys {
    keys: Vec<MasterKey>,
}

/// A master key and its name.
pub struct MasterKey {
    id: String,
    cipher: Aes256Gcm,
}

impl MasterKey {
    /// Reads a key: 64 hex digits, or base64 of 32 bytes, with white space around it as files have.
    ///
    /// # Errors
    /// [`CryptError::Malformed`].
    pub fn read(id: &str, text: &str) -> Result<Self, CryptError> {
        let malformed = |detail| CryptError::Malformed { key_id: id.to_owned(), detail };
        if !is_key_id(id) {
            return Err(malformed("its name is not 1 to 32 letters, digits, '.', '_' or '-'"));
        }
        let text = text.trim();
        let bytes = from_hex(text).or_else(|| from_base64(text));
        let bytes = bytes.ok_or_else(|| malformed("it is neither 64 hex digits nor base64 of 32 bytes"))?;
        Ok(Self { id: id.to_owned(), cipher: Aes256Gcm::new(&Key::<Aes256Gcm>::from(*bytes)) })
    }

    /// A fresh key as 64 hex digits, for a first start.
    ///
    /// # Errors
    /// [`CryptError::NoRandomness`].
    pub fn generate() -> Result<Zeroizing<String>, CryptError> {
        let key = Key::<Aes256Gcm>::try_generate().map_err(|_| CryptError::NoRandomness)?;
        let bytes = Zeroizing::new(<[u8; MASTER_KEY_BYTES]>::from(key));
        Ok(Zeroizing::new(hex::encode(bytes.as_slice())))
    }
}

impl MasterKeys {
    /// The keys of a process, newest first: the first one seals, all open.
    ///
    /// # Errors
    /// [`CryptError::NoKeys`], [`CryptError::Malformed`] if two have the same name.
    pub fn new(newest_first: Vec<MasterKey>) -> Result<Self, CryptError> {
        for (index, key) in newest_first.iter().enumerate() {
            if newest_first[..index].iter().any(|before| before.id == key.id) {
                return Err(CryptError::Malformed { key_id: key.id.clone(), detail: "its name stands there twice" });
            }
        }
        if newest_first.is_empty() { Err(CryptError::NoKeys) } else { Ok(Self { keys: newest_first }) }
    }

    /// Their names, newest first: what an operator compares with the names in the database.
    #[must_use]
    pub fn ids(&self) -> Vec<&str> {
        self.keys.iter().map(|key| key.id.as_str()).collect()
    }

    /// Seals with the newest key. `owner` is the id of the row that the value belongs to.
    ///
    /// # Errors
    /// [`CryptError::NoRandomness`].
    pub fn seal(&self, owner: Uuid, plain: &[u8]) -> Result<Sealed, CryptError> {
        let newest = self.keys.first().ok_or(CryptError::NoKeys)?;
        let nonce = Nonce::<Aes256Gcm>::try_generate().map_err(|_| CryptError::NoRandomness)?;
        let aad = associated(owner);
        let payload = Payload { msg: plain, aad: &aad };
        let sealed = newest.cipher.encrypt(&nonce, payload).map_err(|_| CryptError::NoRandomness)?;
        let mut bytes = Vec::with_capacity(1 + NONCE_BYTES + sealed.len());
        bytes.push(VERSION);
        bytes.extend_from_slice(&nonce);
        bytes.extend_from_slice(&sealed);
        Ok(Sealed { key_id: newest.id.clone(), bytes })
    }

    /// Opens what any of the keys sealed for this row.
    ///
    /// # Errors
    /// [`CryptError::UnknownKey`], [`CryptError::DoesNotOpen`].
    pub fn open(&self, owner: Uuid, key_id: &str, bytes: &[u8]) -> Result<Zeroizing<Vec<u8>>, CryptError> {
        let key = self.keys.iter().find(|key| key.id == key_id);
        let key = key.ok_or_else(|| CryptError::UnknownKey { key_id: key_id.to_owned() })?;
        let refused = || CryptError::DoesNotOpen { key_id: key_id.to_owned() };
        let rest = bytes.strip_prefix(&[VERSION]).ok_or_else(refused)?;
        let (nonce, sealed) = rest.split_at_checked(NONCE_BYTES).ok_or_else(refused)?;
        let nonce = Nonce::<Aes256Gcm>::try_from(nonce).map_err(|_| refused())?;
        let aad = associated(owner);
        key.cipher.decrypt(&nonce, Payload { msg: sealed, aad: &aad }).map(Zeroizing::new).map_err(|_| refused())
    }
}

impl fmt::Debug for MasterKeys {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("MasterKeys").field("ids", &self.ids()).finish_non_exhaustive()
    }
}

fn associated(owner: Uuid) -> Vec<u8> {
    [b"railyard/credentials/1/".as_slice(), owner.as_bytes()].concat()
}

fn is_key_id(name: &str) -> bool {
    (1..=KEY_ID_CHARS_MAX).contains(&name.len())
        && name.bytes().all(|b| b.is_ascii_alphanumeric() || b"._-".contains(&b))
}

fn from_hex(text: &str) -> Option<Zeroizing<[u8; MASTER_KEY_BYTES]>> {
    let mut bytes = Zeroizing::new([0; MASTER_KEY_BYTES]);
    hex::decode_to_slice(text, bytes.as_mut_slice()).ok().map(|()| bytes)
}

fn from_base64(text: &str) -> Option<Zeroizing<[u8; MASTER_KEY_BYTES]>> {
    let decoded = Zeroizing::new(STANDARD.decode(text).ok()?);
    <[u8; MASTER_KEY_BYTES]>::try_from(decoded.as_slice()).ok().map(Zeroizing::new)
}

#[cfg(test)]
mod tests {
    use super::*;

    const OLD: &str = "000102030405060708090a0b0c0d0e0f101112131415161718191a1b1c1d1e1f";
    const NEW: &str = "ICEiIyQlJicoKSorLC0uLzAxMjM0NTY3ODk6Ozw9Pj8=";

    fn keys(newest_first: &[(&str, &str)]) -> MasterKeys {
        MasterKeys::new(newest_first.iter().map(|(id, text)| MasterKey::read(id, text).unwrap()).collect()).unwrap()
    }

    #[test]
    fn opens_what_it_sealed_and_hides_it() {
        let keys = keys(&[("old", OLD)]);
        let owner = Uuid::from_u128(7);
        let sealed = keys.seal(owner, b"whsec_very_private").unwrap();
        assert!(!sealed.bytes.windows(5).any(|part| part == b"whsec"));
        assert_eq!(keys.open(owner, &sealed.key_id, &sealed.bytes).unwrap().as_slice(), b"whsec_very_private");
        assert_ne!(sealed.bytes, keys.seal(owner, b"whsec_very_private").unwrap().bytes, "nonces repeat");
    }

    #[test]
    fn a_new_key_in_front_seals_and_the_old_one_still_opens() {
        let owner = Uuid::from_u128(7);
        let before = keys(&[("old", OLD)]).seal(owner, b"x").unwrap();
        let both = keys(&[("new", NEW), ("old", OLD)]);
        assert_eq!(both.open(owner, &before.key_id, &before.bytes).unwrap().as_slice(), b"x");
        assert_eq!(both.seal(owner, b"x").unwrap().key_id, "new");
        let only_new = keys(&[("new", NEW)]);
        let refused = only_new.open(owner, &before.key_id, &before.bytes).unwrap_err();
        assert_eq!(refused, CryptError::UnknownKey { key_id: "old".to_owned() });
        assert!(refused.to_string().contains("old"));
    }

    #[test]
    fn any_altered_byte_and_any_other_row_is_refused() {
        let keys = keys(&[("old", OLD)]);
        let owner = Uuid::from_u128(7);
        let sealed = keys.seal(owner, b"secret").unwrap();
        for index in 0..sealed.bytes.len() {
            let mut altered = sealed.bytes.clone();
            altered[index] ^= 1;
            assert!(keys.open(owner, "old", &altered).is_err(), "byte {index}");
            assert!(keys.open(owner, "old", &sealed.bytes[..index]).is_err(), "cut at {index}");
        }
        assert!(keys.open(Uuid::from_u128(8), "old", &sealed.bytes).is_err());
        let impostor = self::keys(&[("old", NEW)]);
        let refused = impostor.open(owner, "old", &sealed.bytes).unwrap_err();
        assert_eq!(refused, CryptError::DoesNotOpen { key_id: "old".to_owned() });
    }

    #[test]
    fn text_that_is_no_key_is_refused_without_repeating_it() {
        assert_eq!(MasterKeys::new(Vec::new()).unwrap_err(), CryptError::NoKeys);
        for bad in ["", "private", &OLD[..60], &OLD.replace("00", "+0"), &NEW[4..]] {
            let refused = MasterKey::read("a", bad).err().unwrap();
            assert!(matches!(refused, CryptError::Malformed { .. }), "{bad}");
            assert!(!refused.to_string().contains("private"));
        }
        assert!(MasterKey::read("a b", OLD).is_err());
        let twice = vec![MasterKey::read("a", OLD).unwrap(), MasterKey::read("a", NEW).unwrap()];
        assert!(MasterKeys::new(twice).is_err());
    }

    #[test]
    fn a_generated_key_can_be_read() {
        let text = MasterKey::generate().unwrap();
        let made = keys(&[("a", &format!("{}\n", text.as_str()))]);
        assert_eq!(made.ids(), ["a"]);
        assert!(!format!("{made:?}").contains(text.as_str()));
    }
}
