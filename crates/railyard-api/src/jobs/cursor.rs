//! A place in a list, as callers carry it: opaque to them, and good for the search that it came from alone.
//!
//! A version, an id or two, and a digest of the search, in base64url. It holds no secret and proves nothing: whoever
//! makes one up begins at another place of what they may read anyway.

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use railyard_core::OutboxId;
use railyard_store::jobs::{Filter, JobStatus};
use sha2::{Digest, Sha256};
use uuid::Uuid;

/// Changes when what an id means for a list changes.
const VERSION: u8 = 1;
const DIGEST_BYTES: usize = 4;
const ID_BYTES: usize = 16;

/// The cursor of a walk that stands at these jobs.
pub(crate) fn write<const N: usize>(ids: [OutboxId; N], filter: &Filter) -> String {
    let mut bytes = vec![VERSION];
    for id in ids {
        bytes.extend_from_slice(id.0.as_bytes());
    }
    bytes.extend_from_slice(&digest(filter));
    URL_SAFE_NO_PAD.encode(bytes)
}

/// The jobs that a cursor of this search stands at; none if it is of another search, or none at all.
pub(crate) fn read<const N: usize>(text: &str, filter: &Filter) -> Option<[OutboxId; N]> {
    let bytes = URL_SAFE_NO_PAD.decode(text).ok()?;
    let rest = bytes.strip_prefix(&[VERSION])?.strip_suffix(&digest(filter))?;
    if rest.len() != N * ID_BYTES {
        return None;
    }
    let mut ids = [OutboxId(Uuid::nil()); N];
    for (id, bytes) in ids.iter_mut().zip(rest.chunks_exact(ID_BYTES)) {
        *id = OutboxId(Uuid::from_slice(bytes).ok()?);
    }
    Some(ids)
}

/// The place of a list that goes job by job; none for its beginning.
///
/// # Errors
/// What is wrong with it.
pub(crate) fn job(text: &str, filter: &Filter) -> Result<Option<OutboxId>, &'static str> {
    match text {
        "" => Ok(None),
        text => match read(text, filter) {
            Some([id]) => Ok(Some(id)),
            None => Err("is not a cursor of this list: take nextCursor of its last answer"),
        },
    }
}

fn digest(filter: &Filter) -> [u8; DIGEST_BYTES] {
    let Filter { status, unreplayed, source, kind, group, external_id, created_after, created_before, metadata } =
        filter;
    let mut metadata = metadata.clone();
    metadata.sort_unstable();
    // Each by its name, so that a field that comes in later, or is called otherwise, breaks no walk under way.
    let text = serde_json::json!({
        "status": status.map(JobStatus::as_str), "unreplayed": unreplayed, "source": source, "type": kind,
        "groupId": group, "externalId": external_id, "createdAfter": created_after.map(|at| at.as_nanosecond().to_string()),
        "createdBefore": created_before.map(|at| at.as_nanosecond().to_string()), "metadata": metadata,
    })
    .to_string();
    let mut digest = [0; DIGEST_BYTES];
    digest.copy_from_slice(&Sha256::digest(text.as_bytes())[..DIGEST_BYTES]);
    digest
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cursor_is_good_for_its_own_search_alone() {
        let id = OutboxId(Uuid::now_v7());
        let entry = |key: &str, value: &str| (key.to_owned(), value.to_owned());
        let filter = Filter { metadata: vec![entry("a", "1"), entry("b", "2")], ..Filter::default() };
        let text = write([id], &filter);
        assert_eq!(read(&text, &filter), Some([id]));
        let turned = Filter { metadata: vec![entry("b", "2"), entry("a", "1")], ..Filter::default() };
        assert_eq!(read(&text, &turned), Some([id]), "the same search in other words");
        let other = Filter { source: Some("shop".to_owned()), ..filter.clone() };
        assert_eq!(read::<1>(&text, &other), None);
        assert_eq!(read::<2>(&text, &filter), None);
        for nonsense in ["", "x", "AAAA", &text[1..], &format!("{text}=")] {
            assert_eq!(read::<1>(nonsense, &filter), None, "{nonsense}");
        }
    }
}
