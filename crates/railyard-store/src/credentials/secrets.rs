//! The secret half: packed, sealed, and opened again for the node's cache.

use serde::{Deserialize, Serialize};
use tokio_postgres::Row;
use uuid::Uuid;
use zeroize::Zeroizing;

use railyard_core::CredentialsId;

use super::{CREDENTIALS_MAX, NewCredentials};
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

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Packed<'a> {
    bearer_token: &'a str,
    signing_secret: &'a str,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Unpacked {
    bearer_token: String,
    signing_secret: String,
}

pub(super) fn pack(new: &NewCredentials) -> Zeroizing<Vec<u8>> {
    let packed = Packed { bearer_token: &new.bearer_token, signing_secret: &new.signing_secret };
    Zeroizing::new(serde_json::to_vec(&packed).expect("two strings are always JSON"))
}

/// Everything there is, deleted sets among it: the start of a node's cache.
///
/// # Errors
/// Errors of the database: whoever asked keeps what it knew and waits.
pub async fn load_all(store: &Store, keys: &MasterKeys) -> Result<Vec<(CredentialsId, Looked)>, StoreError> {
    let conn = store.api().await?;
    let sql = format!(
        "SELECT credentials_id, schemes, key_id, sealed, deleted_at IS NOT NULL AS deleted FROM dispatch_credentials \
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
    let sql = "SELECT credentials_id, schemes, key_id, sealed, deleted_at IS NOT NULL AS deleted \
               FROM dispatch_credentials WHERE credentials_id = $1";
    let statement = conn.prepare_cached(sql).await?;
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
    // The parser's own message would quote what it read.
    let Ok(Unpacked { bearer_token, signing_secret }) = serde_json::from_slice(&plain) else {
        return Ok(Looked::Unreadable { detail: format!("credentials {id} hold no secrets") });
    };
    let (bearer_token, signing_secret) = (Zeroizing::new(bearer_token), Zeroizing::new(signing_secret));
    Ok(Looked::Found(Secrets { bearer_token, signing_secret, schemes }))
}
