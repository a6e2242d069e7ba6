//! Credentials: a bearer token and a signing secret, sealed under a master key, never given out again but to the node
//! that signs with them.
//!
//! A deleted set leaves its row behind, emptied: jobs that still name it end in ERROR with that reason instead of
//! waiting for a look-up that never succeeds. Every change tells all nodes (`railyard_cache`) in its own transaction.

mod rotate;
mod secrets;
mod usage;

pub use rotate::{Rotation, rotate, wipe_retired};
pub use secrets::{Looked, NextSecrets, Scheme, Secrets, load, load_all};
pub use usage::Usage;

use jiff::Timestamp;
use railyard_core::CredentialsId;
use railyard_core::job::FieldError;
use railyard_core::signing::standard;
use serde_json::json;
use tokio_postgres::Row;
use uuid::Uuid;
use zeroize::Zeroizing;

use crate::audit::{self, Entry};
use crate::connect::{Conn, Store};
use crate::crypt::{CryptError, MasterKeys};
use crate::error::StoreError;
use crate::listen::CACHE_CHANNEL;
use crate::row::words;
use crate::transaction::{begin, end};
use secrets::Packed;

/// The one algorithm there is.
pub const ALGORITHM: &str = "HMAC_SHA256";
/// Most sets that an installation keeps: every node holds all of them in memory.
pub const CREDENTIALS_MAX: i64 = 10_000;
/// Bytes of a bearer token: it has to fit a header line.
pub const BEARER_TOKEN_BYTES_MAX: usize = 4096;
/// Bytes of a signing secret.
pub const SIGNING_SECRET_BYTES_MAX: usize = 1024;
/// Bytes of a name.
pub const NAME_BYTES_MAX: usize = 200;

const COLUMNS: &str = "credentials_id, name, algorithm, schemes, key_id, created_at, updated_at, \
    CASE WHEN overlap_until > clock_timestamp() THEN active_from END AS active_from, \
    CASE WHEN overlap_until > clock_timestamp() THEN overlap_until END AS overlap_until";

/// Why credentials could not be stored or read.
#[derive(Debug, thiserror::Error)]
pub enum CredentialsError {
    /// The database.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// The master keys.
    #[error(transparent)]
    Crypt(#[from] CryptError),
}

impl From<tokio_postgres::Error> for CredentialsError {
    fn from(error: tokio_postgres::Error) -> Self {
        Self::Store(error.into())
    }
}

/// What a person gives. Never part of `Debug`.
pub struct NewCredentials {
    /// For people.
    pub name: Option<String>,
    /// Goes out as `Authorization: Bearer …`.
    pub bearer_token: Zeroizing<String>,
    /// Signs; its bytes as given, and what it stands for as base64 for Standard Webhooks.
    pub signing_secret: Zeroizing<String>,
    /// Which signatures go out; at least one.
    pub schemes: Vec<Scheme>,
}

/// A set as it is shown: nothing secret.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CredentialsRow {
    /// Its id.
    pub credentials_id: CredentialsId,
    /// For people.
    pub name: Option<String>,
    /// [`ALGORITHM`].
    pub algorithm: String,
    /// Which signatures go out.
    pub schemes: Vec<Scheme>,
    /// The master key that seals it.
    pub key_id: String,
    /// When it was made.
    pub created_at: Timestamp,
    /// When it was last changed.
    pub updated_at: Timestamp,
    /// While a rotation is under way: when it takes effect, and when its overlap ends.
    pub rotation: Option<(Timestamp, Timestamp)>,
}

/// What became of a deletion.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Deletion {
    /// It is gone. Open jobs that name it, if `force` let there be any, end in ERROR.
    Deleted,
    /// Open work or a rail uses it, and `force` was not given.
    InUse(Usage),
    /// There is no such set, or it was deleted before.
    Unknown,
}

impl NewCredentials {
    /// Everything that is wrong with it.
    ///
    /// # Errors
    /// A list that repeats no secret.
    pub fn validate(&self) -> Result<(), Vec<FieldError>> {
        let mut found = Vec::new();
        let mut add = |field: &str, detail: &str| {
            found.push(FieldError { field: field.to_owned(), detail: detail.to_owned() });
        };
        if let Some(name) = &self.name
            && (name.trim().is_empty() || name.len() > NAME_BYTES_MAX || name.contains('\0'))
        {
            add("name", "is blank, has a NUL character or is longer than 200 bytes");
        }
        let secret = &self.signing_secret;
        if self.schemes.is_empty() {
            add("schemes", "names none: nothing is sent unsigned");
        } else if self.schemes == [Scheme::Standard] && standard::key_of(secret).is_none() {
            add("schemes", "leaves no signature: the secret is not base64, which standard-webhooks needs");
        }
        let secrets = check_token(&self.bearer_token).into_iter().chain(check_secret(&self.signing_secret));
        found.splice(0..0, secrets);
        if found.is_empty() { Ok(()) } else { Err(found) }
    }

    /// Those that are asked for and can be: Standard Webhooks needs a secret that is base64.
    fn effective_schemes(&self) -> Vec<Scheme> {
        let usable = |scheme: &Scheme| match scheme {
            Scheme::Flowcatalyst => true,
            Scheme::Standard => standard::key_of(&self.signing_secret).is_some(),
        };
        Scheme::ALL.into_iter().filter(|scheme| self.schemes.contains(scheme) && usable(scheme)).collect()
    }
}

/// What the tail of a copied line brings along would make every call refused, at the receiver.
fn check_token(token: &str) -> Option<FieldError> {
    let good =
        !token.is_empty() && token.len() <= BEARER_TOKEN_BYTES_MAX && token.bytes().all(|b| b.is_ascii_graphic());
    let detail = "is not 1 to 4096 printable ASCII characters without spaces";
    (!good).then(|| FieldError { field: "bearerToken".to_owned(), detail: detail.to_owned() })
}

/// As [`check_token`]: every signature would be wrong.
fn check_secret(secret: &str) -> Option<FieldError> {
    let detail = if secret.trim().is_empty() || secret.len() > SIGNING_SECRET_BYTES_MAX {
        "is blank or longer than 1024 bytes"
    } else if secret.trim().len() != secret.len() || secret.chars().any(char::is_control) {
        "has white space around it or a control character"
    } else {
        return None;
    };
    Some(FieldError { field: "signingSecret".to_owned(), detail: detail.to_owned() })
}

/// Seals and stores a set. The answer's `schemes` lacks Standard Webhooks where the secret does not allow it.
///
/// # Errors
/// [`StoreError::Conflict`] at [`CREDENTIALS_MAX`], [`CryptError`], errors of the database.
pub async fn create(
    store: &Store,
    keys: &MasterKeys,
    new: &NewCredentials,
    actor: &str,
) -> Result<CredentialsRow, CredentialsError> {
    let id = Uuid::now_v7();
    let packed = Packed {
        bearer_token: new.bearer_token.to_string(),
        signing_secret: new.signing_secret.to_string(),
        next: None,
    };
    let sealed = keys.seal(id, &packed.bytes())?;
    let conn = begin(store, "").await?;
    let result = insert(&conn, id, &sealed.key_id, &sealed.bytes, new, actor).await;
    Ok(end(conn, result).await?)
}

async fn insert(
    conn: &Conn,
    id: Uuid,
    key_id: &str,
    sealed: &[u8],
    new: &NewCredentials,
    actor: &str,
) -> Result<CredentialsRow, StoreError> {
    let count: i64 =
        conn.query_one("SELECT count(*) FROM dispatch_credentials WHERE deleted_at IS NULL", &[]).await?.try_get(0)?;
    if count >= CREDENTIALS_MAX {
        return Err(StoreError::Conflict { detail: format!("there are {count} credentials already; delete some") });
    }
    let schemes: Vec<&str> = new.effective_schemes().into_iter().map(Scheme::as_str).collect();
    let sql = format!(
        "INSERT INTO dispatch_credentials (credentials_id, name, algorithm, schemes, key_id, sealed)
         VALUES ($1, $2, '{ALGORITHM}', $3, $4, $5) RETURNING {COLUMNS}"
    );
    let stored = row(&conn.query_one(&sql, &[&id, &new.name, &schemes, &key_id, &sealed]).await?)?;
    let detail = Some(json!({ "credentialsId": id, "name": new.name }));
    audit::append(conn, &Entry { detail, ..Entry::new("credentials.create", actor) }).await?;
    tell_nodes(conn).await?;
    Ok(stored)
}

/// The set with this id; none if it is unknown or deleted.
///
/// # Errors
/// Errors of the database.
pub async fn get(store: &Store, id: CredentialsId) -> Result<Option<CredentialsRow>, StoreError> {
    let conn = store.api().await?;
    let sql = format!("SELECT {COLUMNS} FROM dispatch_credentials WHERE credentials_id = $1 AND deleted_at IS NULL");
    let found = conn.query_opt(&sql, &[&id.0]).await?;
    conn.ok();
    found.as_ref().map(row).transpose()
}

/// All sets that are not deleted, oldest first; at most [`CREDENTIALS_MAX`].
///
/// # Errors
/// Errors of the database.
pub async fn list(store: &Store) -> Result<Vec<CredentialsRow>, StoreError> {
    let conn = store.api().await?;
    let sql = format!(
        "SELECT {COLUMNS} FROM dispatch_credentials WHERE deleted_at IS NULL \
         ORDER BY created_at, credentials_id LIMIT {CREDENTIALS_MAX}"
    );
    let found = conn.query(&sql, &[]).await?;
    conn.ok();
    found.iter().map(row).collect()
}

/// Deletes a set: the secrets leave the database, the row stays as a tombstone. Refused while open work, a rail or a
/// subscription uses it. Forced, open work ends in ERROR at its next attempt, its subscriptions are disabled, and rails
/// keep it as their default: what relies on that is refused until they are given another. Work accepted in the same
/// moment is not seen; it ends like forced work.
///
/// # Errors
/// Errors of the database.
pub async fn delete(store: &Store, id: CredentialsId, force: bool, actor: &str) -> Result<Deletion, StoreError> {
    let conn = begin(store, "SET LOCAL statement_timeout = '30s'").await?;
    let result = delete_in(&conn, id, force, actor).await;
    end(conn, result).await
}

async fn delete_in(conn: &Conn, id: CredentialsId, force: bool, actor: &str) -> Result<Deletion, StoreError> {
    let lock = "SELECT name FROM dispatch_credentials WHERE credentials_id = $1 AND deleted_at IS NULL FOR UPDATE";
    let Some(found) = conn.query_opt(lock, &[&id.0]).await? else { return Ok(Deletion::Unknown) };
    let name: Option<String> = found.try_get(0)?;
    let used = usage::usage(conn, id).await?;
    if used.is_used() && !force {
        return Ok(Deletion::InUse(used));
    }
    // Nothing is sent unsigned: whoever has a subscription without credentials gets no events.
    let mute = "UPDATE event_subscription SET enabled = false, updated_at = clock_timestamp() \
                WHERE credentials_id = $1 AND enabled";
    conn.execute(mute, &[&id.0]).await?;
    let empty = "UPDATE dispatch_credentials SET sealed = '', active_from = NULL, overlap_until = NULL, \
                 deleted_at = clock_timestamp(), updated_at = clock_timestamp() WHERE credentials_id = $1";
    conn.execute(empty, &[&id.0]).await?;
    let detail = Some(json!({ "credentialsId": id, "name": name, "force": force, "openWork": used.open_work,
                               "rails": used.rails, "subscriptions": used.subscriptions }));
    audit::append(conn, &Entry { detail, ..Entry::new("credentials.delete", actor) }).await?;
    tell_nodes(conn).await?;
    Ok(Deletion::Deleted)
}

async fn tell_nodes(conn: &Conn) -> Result<(), StoreError> {
    conn.execute("SELECT pg_notify($1, 'credentials')", &[&CACHE_CHANNEL]).await?;
    Ok(())
}

fn row(row: &Row) -> Result<CredentialsRow, StoreError> {
    let times: (Option<Timestamp>, Option<Timestamp>) = (row.try_get("active_from")?, row.try_get("overlap_until")?);
    Ok(CredentialsRow {
        credentials_id: CredentialsId(row.try_get("credentials_id")?),
        name: row.try_get("name")?,
        algorithm: row.try_get("algorithm")?,
        schemes: words(row, "schemes", Scheme::parse)?,
        key_id: row.try_get("key_id")?,
        created_at: row.try_get("created_at")?,
        updated_at: row.try_get("updated_at")?,
        rotation: times.0.zip(times.1),
    })
}

#[cfg(test)]
mod tests;
