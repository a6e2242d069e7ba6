//! Rotation: the new token or secret beside the old one, and the end of the old one. What is planned is the core's.
//! Times are judged by the database's clock; the row's lock puts rotations of one set in a line.

use jiff::Timestamp;
use railyard_core::CredentialsId;
use railyard_core::job::FieldError;
use railyard_core::rotation::{self, Asked, OVERLAP_S_MAX, Parts, RotationError, Unfinished};
use railyard_core::signing::standard;
use serde_json::json;
use tokio_postgres::Row;
use uuid::Uuid;
use zeroize::{Zeroize, Zeroizing};

use super::secrets::{Packed, PackedNext};
use super::{COLUMNS, CredentialsError, CredentialsRow, Scheme, check_secret, check_token, row, tell_nodes};
use crate::audit::{self, Entry};
use crate::connect::{Conn, Store};
use crate::crypt::MasterKeys;
use crate::error::StoreError;
use crate::row::words;
use crate::transaction::{begin, end};

/// What a person gives to replace what is there. Never part of `Debug`.
pub struct Rotation {
    /// The new token, if it is replaced.
    pub bearer_token: Option<Zeroizing<String>>,
    /// The new secret, if it is replaced.
    pub signing_secret: Option<Zeroizing<String>>,
    /// When they take effect; at once if nothing is said.
    pub active_from: Option<Timestamp>,
    /// How long the overlap goes on after that, in seconds.
    pub overlap_s: u32,
}

impl Rotation {
    /// Everything that is wrong with it, whatever stands in the database.
    ///
    /// # Errors
    /// A list that repeats no secret.
    pub fn validate(&self) -> Result<(), Vec<FieldError>> {
        let mut found = Vec::new();
        if self.bearer_token.is_none() && self.signing_secret.is_none() {
            for field in ["bearerToken", "signingSecret"] {
                found
                    .push(FieldError { field: field.to_owned(), detail: "is missing: name one of the two".to_owned() });
            }
        }
        found.extend(self.bearer_token.as_ref().and_then(|token| check_token(token)));
        found.extend(self.signing_secret.as_ref().and_then(|secret| check_secret(secret)));
        if self.overlap_s > OVERLAP_S_MAX {
            let detail = format!("is not between 0 and {OVERLAP_S_MAX}");
            found.push(FieldError { field: "overlapSeconds".to_owned(), detail });
        }
        if found.is_empty() { Ok(()) } else { Err(found) }
    }

    fn parts(&self) -> Parts {
        Parts { token: self.bearer_token.is_some(), secret: self.signing_secret.is_some() }
    }

    fn packed(&self) -> PackedNext {
        PackedNext {
            bearer_token: self.bearer_token.as_ref().map(|token| token.to_string()),
            signing_secret: self.signing_secret.as_ref().map(|secret| secret.to_string()),
        }
    }
}

const LOCKED: &str = "
    SELECT schemes, key_id, sealed, active_from, overlap_until, clock_timestamp() AS now
    FROM dispatch_credentials WHERE credentials_id = $1 AND deleted_at IS NULL FOR UPDATE";

/// Replaces the token, the secret or both; none if there is no such set. The same values again change the times only.
///
/// # Errors
/// [`StoreError::Invalid`] for `active_from` out of bounds, for a secret that Standard Webhooks cannot use where the
/// set signs with it, and for what is in use already; [`StoreError::Conflict`] if an earlier rotation would be lost;
/// [`crate::crypt::CryptError`] if this process cannot open the set; errors of the database.
pub async fn rotate(
    store: &Store,
    keys: &MasterKeys,
    id: CredentialsId,
    rotation: &Rotation,
    actor: &str,
) -> Result<Option<CredentialsRow>, CredentialsError> {
    let conn = begin(store, "").await?;
    // What this process cannot open is no error of the database: the transaction ends all the same.
    let result = rotate_in(&conn, keys, id, rotation, actor).await;
    match result {
        Ok(done) => Ok(end(conn, Ok(done)).await?),
        Err(CredentialsError::Store(error)) => Ok(end(conn, Err(error)).await?),
        Err(error @ CredentialsError::Crypt(_)) => {
            let undone = StoreError::Conflict { detail: "cannot be opened".to_owned() };
            drop(end::<()>(conn, Err(undone)).await);
            Err(error)
        }
    }
}

async fn rotate_in(
    conn: &Conn,
    keys: &MasterKeys,
    id: CredentialsId,
    rotation: &Rotation,
    actor: &str,
) -> Result<Option<CredentialsRow>, CredentialsError> {
    let Some(locked) = conn.query_opt(LOCKED, &[&id.0]).await? else { return Ok(None) };
    let schemes = words(&locked, "schemes", Scheme::parse)?;
    if let Some(secret) = &rotation.signing_secret
        && schemes.contains(&Scheme::Standard)
        && standard::key_of(secret).is_none()
    {
        return Err(invalid("signing_secret", "is not base64, which standard-webhooks needs").into());
    }
    let mut packed = open(&locked, keys, id)?;
    let given = rotation.packed();
    let times: (Option<Timestamp>, Option<Timestamp>) =
        (locked.try_get("active_from")?, locked.try_get("overlap_until")?);
    let unfinished = packed.next.as_ref().zip(times.0.zip(times.1)).map(|(next, (active_from, overlap_until))| {
        let parts = Parts { token: next.bearer_token.is_some(), secret: next.signing_secret.is_some() };
        Unfinished { parts, active_from, overlap_until, same: *next == given }
    });
    let asked = Asked { parts: rotation.parts(), active_from: rotation.active_from, overlap_s: rotation.overlap_s };
    let planned = rotation::plan(unfinished, asked, locked.try_get("now")?).map_err(refused)?;
    if planned.promote {
        packed.settle();
    }
    for (field, old, new) in [
        ("bearer_token", &packed.bearer_token, &given.bearer_token),
        ("signing_secret", &packed.signing_secret, &given.signing_secret),
    ] {
        if new.as_ref() == Some(old) {
            return Err(invalid(field, "is the one in use").into());
        }
    }
    packed.next = Some(given);
    let sealed = keys.seal(id.0, &packed.bytes())?;
    let sql = format!(
        "UPDATE dispatch_credentials SET key_id = $2, sealed = $3, active_from = $4, overlap_until = $5,
           updated_at = clock_timestamp() WHERE credentials_id = $1 RETURNING {COLUMNS}"
    );
    let values = [&planned.active_from, &planned.overlap_until];
    let stored = conn.query_one(&sql, &[&id.0, &sealed.key_id, &sealed.bytes, values[0], values[1]]).await?;
    let detail = Some(json!({
        "credentialsId": id, "bearerToken": asked.parts.token, "signingSecret": asked.parts.secret,
        "activeFrom": planned.active_from.to_string(), "overlapUntil": planned.overlap_until.to_string(),
    }));
    audit::append(conn, &Entry { detail, ..Entry::new("credentials.rotate", actor) }).await?;
    tell_nodes(conn).await?;
    Ok(Some(row(&stored)?))
}

fn open(row: &Row, keys: &MasterKeys, id: CredentialsId) -> Result<Packed, CredentialsError> {
    let plain = keys.open(id.0, row.try_get("key_id")?, row.try_get("sealed")?)?;
    let unreadable = || StoreError::Unreadable { detail: format!("credentials {id} hold no secrets") };
    Ok(Packed::read(&plain).ok_or_else(unreadable)?)
}

fn invalid(field: &str, detail: &str) -> StoreError {
    StoreError::Invalid { field: field.to_owned(), detail: detail.to_owned(), ordinal: 1 }
}

fn refused(error: RotationError) -> StoreError {
    match error {
        RotationError::Past | RotationError::FarAhead => invalid("active_from", &error.to_string()),
        RotationError::WouldLose(_) => StoreError::Conflict { detail: error.to_string() },
    }
}

/// Rotations whose overlap has ended and whose old token and secret are still sealed beside the new ones.
const OVER: &str = "
    SELECT credentials_id, key_id, sealed, overlap_until FROM dispatch_credentials
    WHERE overlap_until < clock_timestamp() AND deleted_at IS NULL ORDER BY overlap_until LIMIT 100";

const WIPE: &str = "
    UPDATE dispatch_credentials SET key_id = $3, sealed = $4, active_from = NULL, overlap_until = NULL
    WHERE credentials_id = $1 AND overlap_until = $2 AND deleted_at IS NULL";

/// Wipes what rotations have replaced once their overlap is over. Changes nothing about what is signed, so nobody is
/// told. Returns how many sets it wiped; what this process cannot open is left to one that can.
///
/// # Errors
/// Errors of the database.
pub async fn wipe_retired(store: &Store, keys: &MasterKeys) -> Result<usize, StoreError> {
    let conn = store.api().await?;
    let mut wiped = 0;
    for row in conn.query(OVER, &[]).await? {
        let id = CredentialsId(row.try_get::<_, Uuid>("credentials_id")?);
        let overlap_until: Timestamp = row.try_get("overlap_until")?;
        let Ok(mut packed) = open(&row, keys, id) else { continue };
        packed.settle();
        let Ok(sealed) = keys.seal(id.0, &packed.bytes()) else { continue };
        packed.zeroize();
        let values = (&sealed.key_id, &sealed.bytes);
        // Rotated again meanwhile: another time stands there.
        let count = conn.execute(WIPE, &[&id.0, &overlap_until, values.0, values.1]).await?;
        wiped += usize::try_from(count).unwrap_or(0);
    }
    conn.ok();
    Ok(wiped)
}
