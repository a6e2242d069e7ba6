//! `[secrets]`: where the master keys come from. The keys themselves are never in the configuration, which is shown,
//! copied and checked in.

use std::path::PathBuf;

use serde::Deserialize;

use super::Problems;

/// `[secrets]`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct Secrets {
    /// Newest first: the first one seals, all open.
    pub(crate) master_keys: Vec<MasterKeySource>,
}

/// One of `secrets.master_keys`: a name, and a file or an environment variable that holds the key as 64 hex digits or
/// as base64 of 32 bytes.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct MasterKeySource {
    /// Stored beside what the key sealed; never use one for another key.
    pub(crate) id: String,
    /// A file that holds the key.
    #[serde(default)]
    pub(crate) key_file: Option<PathBuf>,
    /// An environment variable that holds the key.
    #[serde(default)]
    pub(crate) key_env: Option<String>,
}

impl Secrets {
    pub(super) fn check(&self, problems: &mut Problems) {
        for (index, key) in self.master_keys.iter().enumerate() {
            let name = |field: &str| format!("secrets.master_keys[{index}]{field}");
            let plain = key.id.bytes().all(|b| b.is_ascii_alphanumeric() || b"._-".contains(&b));
            if key.id.is_empty() || key.id.len() > 32 || !plain {
                problems.add(&name(".id"), "is not 1 to 32 letters, digits, '.', '_' or '-'");
            }
            if self.master_keys[..index].iter().any(|before| before.id == key.id) {
                problems.add(&name(".id"), "stands there twice");
            }
            if key.key_file.is_some() == key.key_env.is_some() {
                problems.add(&name(""), "needs one of key_file and key_env");
            }
        }
    }
}
