//! Which jobs: the same words in the query of a search and in the body of a replay.

use railyard_core::settlement::EndStatus;
use railyard_store::jobs::{Filter, JobStatus, METADATA_FILTERS_MAX};
use utoipa::openapi::Object;

use crate::fields::{Fields, rfc3339};
use crate::openapi::shape::{Shape, map, text, time};
use crate::openapi::words;
use crate::query::{Pairs, UNSTORABLE, VALUE_CHARS_MAX, is_storable};

/// What a search's query says.
pub(super) fn of_query(pairs: &mut Pairs) -> Filter {
    let moment = "a time like 2025-10-04T15:00:00Z (a `+` is written %2B in a query)";
    let filter = Filter {
        status: pairs.word("status", &JobStatus::ALL, JobStatus::as_str),
        unreplayed: false,
        source: pairs.text("source"),
        kind: pairs.text("type"),
        group: pairs.text("groupId"),
        external_id: pairs.text("externalId"),
        created_after: pairs.parsed("createdAfter", moment, rfc3339),
        created_before: pairs.parsed("createdBefore", moment, rfc3339),
        metadata: pairs.prefixed("metadata."),
    };
    if filter.metadata.len() > METADATA_FILTERS_MAX {
        pairs.error("metadata", format!("has more than {METADATA_FILTERS_MAX} entries"));
    }
    filter
}

/// A replay's filter, as a schema.
pub(super) fn schema() -> Object {
    let value = || text(VALUE_CHARS_MAX);
    Shape::new("Which jobs; without fields all that ended in ERROR.")
        .optional("status", words::end_without_success())
        .optional("source", value())
        .optional("type", value())
        .optional("groupId", value())
        .optional("externalId", value())
        .optional("createdAfter", time())
        .optional("createdBefore", time())
        .optional("metadata", map(value(), value(), METADATA_FILTERS_MAX))
        .build()
}

/// What a replay's filter says.
pub(super) fn of_fields(fields: &mut Fields<'_>) -> Filter {
    let filter = Filter {
        status: fields.word("status", &EndStatus::WITHOUT_SUCCESS, EndStatus::as_str).map(JobStatus::Ended),
        unreplayed: true,
        source: value(fields, "source"),
        kind: value(fields, "type"),
        group: value(fields, "groupId"),
        external_id: value(fields, "externalId"),
        created_after: fields.time("createdAfter"),
        created_before: fields.time("createdBefore"),
        metadata: fields.map("metadata"),
    };
    if filter.metadata.len() > METADATA_FILTERS_MAX {
        fields.error("metadata", format!("has more than {METADATA_FILTERS_MAX} entries"));
    }
    if filter.metadata.iter().any(|(key, value)| !is_storable(key) || !is_storable(value)) {
        fields.error("metadata", UNSTORABLE);
    }
    filter
}

/// Text that is looked for.
fn value(fields: &mut Fields<'_>, name: &str) -> Option<String> {
    let value = fields.text(name);
    if value.as_ref().is_some_and(|value| !is_storable(value)) {
        fields.error(name, UNSTORABLE);
    }
    value
}
