//! The secret half: packed, sealed, and opened again for the node's cache.

use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use tokio_postgres::Row;
use uuid::Uuid;
use zeroize::{Zeroize, ZeroizeOnDrop, Zeroizing};

use railyard_core::CredentialsId;

use super::CREDENTIALS_MAX;
use crate::connect::Store;
use crate::crypt::{CryptError, MasterKeys};
use crate::error::StoreError;
use crate::row::words;

/// A way to sign.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Scheme {
    /// S3's own: `X-FLOWCATALYST-SIGNATURE`.
    Flowcatalyst,
    /// Standard Webhooks: `webhook-signature`.
    Standard,
}

impl Scheme {
    /// All of them.
    pub const ALL: [Self; 2] = [Self::Flowcatalyst, Self::Standard];

    /// As stored and as sent.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Flowcatalyst => "flowcatalyst",
            Self::Standard => "standard-webhooks",
        }
    }

    /// Reads what `as_str` wrote.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|scheme| scheme.as_str() == text)
    }
}

/// What a call is signed with. Wiped when dropped, never part of `Debug`.
#[derive(Clone)]
pub struct Secrets {
    /// For `Authorization`.
    pub bearer_token: Zeroizing<String>,
    /// For the signatures.
    pub signing_secret: Zeroizing<String>,
    /// Which signatures go out.
    pub schemes: Vec<Scheme>,
    /// What replaces them, and when.
    pub next: Option<NextSecrets>,
}

/// What a rotation replaces, and when. Wiped when dropped, never part of `Debug`.
#[derive(Clone)]
pub struct NextSecrets {
    /// The new token, if it is replaced.
    pub bearer_token: Option<Zeroizing<String>>,
    /// The new secret, if it is replaced.
    pub signing_secret: Option<Zeroizing<String>>,
    /// From when on they are in effect where there is room for one.
    pub active_from: Timestamp,
    /// Until when what they replace signs beside them where there is room for two.
    pub overlap_until: Timestamp,
}

impl std::fmt::Debug for NextSecrets {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("NextSecrets").field("active_from", &self.active_from).finish_non_exhaustive()
    }
}

impl std::fmt::Debug for Secrets {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Secrets").field("schemes", &self.schemes).finish_non_exhaustive()
    }
}

/// What a look-up found.
#[derive(Clone, Debug)]
pub enum Looked {
    /// Here it is.
    Found(Secrets),
    /// It was deleted: jobs that name it end.
    Deleted,
    /// No row: it never was, or was rolled back. Not the same as deleted.
    Unknown,
    /// It is there and this process cannot open it: jobs that name it wait.
    Closed(CryptError),
    /// It is there and this version cannot read what it holds: jobs that name it wait, and others notice nothing.
    Unreadable {
        /// Which column; never a value.
        detail: String,
    },
}

/// What is sealed.
#[derive(Serialize, Deserialize, Zeroize, ZeroizeOnDrop)]
#[serde(rename_all = "camelCase")]
pub(super) struct Packed {
    pub(super) bearer_token: String,
    pub(super) signing_secret: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) next: Option<PackedNext>,
}

/// What a rotation brings.
#[derive(Serialize, Deserialize, PartialEq, Eq, Zeroize, ZeroizeOnDrop)]
#[serde(rename_all = "camelCase")]
pub(super) struct PackedNext {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) bearer_token: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) signing_secret: Option<String>,
}

impl Packed {
    /// As bytes to be sealed.
    pub(super) fn bytes(&self) -> Zeroizing<Vec<u8>> {
        Zeroizing::new(serde_json::to_vec(self).expect("strings are always JSON"))
    }

    /// From opened bytes; none if they hold something else. The parser's own message would quote what it read.
    pub(super) fn read(plain: &[u8]) -> Option<Self> {
        serde_json::from_slice(plain).ok()
    }

    /// The rotation is over: what it brought is all there is.
    pub(super) fn settle(&mut self) {
        let Some(mut next) = self.next.take() else { return };
        for (old, new) in
            [(&mut self.bearer_token, next.bearer_token.take()), (&mut self.signing_secret, next.signing_secret.take())]
        {
            if let Some(new) = new {
                old.zeroize();
                *old = new;
            }
        }
    }
}

const COLUMNS: &str =
    "credentials_id, schemes, key_id, sealed, active_from, overlap_until, deleted_at IS NOT NULL AS deleted";

/// Everything there is, deleted sets among it: the start of a node's cache.
///
/// # Errors
/// Errors of the database: whoever asked keeps what it knew and waits.
pub async fn load_all(store: &Store, keys: &MasterKeys) -> Result<Vec<(CredentialsId, Looked)>, StoreError> {
    let conn = store.api().await?;
    let sql = format!(
        "SELECT {COLUMNS} FROM dispatch_credentials \
         ORDER BY deleted_at DESC NULLS FIRST LIMIT {}",
        2 * CREDENTIALS_MAX
    );
    let rows = conn.query(&sql, &[]).await?;
    conn.ok();
    rows.iter().map(|row| Ok((CredentialsId(row.try_get("credentials_id")?), looked(row, keys)?))).collect()
}

/// One set, for a job whose credentials the cache does not know.
///
/// # Errors
/// Errors of the database: the job waits.
pub async fn load(store: &Store, keys: &MasterKeys, id: CredentialsId) -> Result<Looked, StoreError> {
    let conn = store.api().await?;
    let sql = format!("SELECT {COLUMNS} FROM dispatch_credentials WHERE credentials_id = $1");
    let statement = conn.prepare_cached(&sql).await?;
    let found = conn.query_opt(&statement, &[&id.0]).await?;
    conn.ok();
    found.as_ref().map_or(Ok(Looked::Unknown), |row| looked(row, keys))
}

fn looked(row: &Row, keys: &MasterKeys) -> Result<Looked, StoreError> {
    if row.try_get("deleted")? {
        return Ok(Looked::Deleted);
    }
    let id: Uuid = row.try_get("credentials_id")?;
    let key_id: &str = row.try_get("key_id")?;
    let plain = match keys.open(id, key_id, row.try_get("sealed")?) {
        Ok(plain) => plain,
        Err(error) => return Ok(Looked::Closed(error)),
    };
    let schemes = match words(row, "schemes", Scheme::parse) {
        Ok(schemes) => schemes,
        Err(StoreError::Unreadable { detail }) => return Ok(Looked::Unreadable { detail }),
        Err(error) => return Err(error),
    };
    let Some(mut packed) = Packed::read(&plain) else {
        return Ok(Looked::Unreadable { detail: format!("credentials {id} hold no secrets") });
    };
    let times: (Option<Timestamp>, Option<Timestamp>) = (row.try_get("active_from")?, row.try_get("overlap_until")?);
    let next = packed.next.as_mut().zip(times.0.zip(times.1)).map(|(next, (active_from, overlap_until))| NextSecrets {
        bearer_token: next.bearer_token.take().map(Zeroizing::new),
        signing_secret: next.signing_secret.take().map(Zeroizing::new),
        active_from,
        overlap_until,
    });
    let bearer_token = Zeroizing::new(std::mem::take(&mut packed.bearer_token));
    let signing_secret = Zeroizing::new(std::mem::take(&mut packed.signing_secret));
    Ok(Looked::Found(Secrets { bearer_token, signing_secret, schemes, next }))
}
