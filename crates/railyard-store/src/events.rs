//! Events: stored with the jobs of everybody who wants them, in one transaction (`publish_events`).

use jiff::Timestamp;
use railyard_core::ParticipantId;
use railyard_core::event::NewEvent;
use serde_json::Value;
use tokio_postgres::types::ToSql;

use crate::connect::Store;
use crate::error::StoreError;
use crate::jobs::Placed;
use crate::jobs::each::{Together, lanes, one_statement, place};

pub mod subscriptions;

/// One statement whatever the number of events.
const PUBLISH: &str = "
    SELECT p.* FROM publish_events((
      SELECT array_agg(ROW(e.external_id, e.type, e.source, e.subject, e.data, e.time, e.correlation_id, e.message_group,
        e.deduplication_id, e.metadata)::event_item)
      FROM unnest($1::text[], $2::text[], $3::text[], $4::text[], $5::bytea[], $6::timestamptz[], $7::text[], $8::text[],
        $9::text[], $10::jsonb[]) AS e(external_id, type, source, subject, data, time, correlation_id, message_group,
        deduplication_id, metadata)
      WHERE set_config('lock_timeout', $11, true) <> '')) p
    ORDER BY p.ordinal";

/// Stores what can be stored of the events, each with its jobs. Answers in their order; `outbox_id` is the event's id,
/// and there is no number: each subscriber's group has its own.
///
/// # Errors
/// [`StoreError::Unavailable`] if nothing is known to be stored: whether anything is, the same call with the same keys
/// finds out.
pub async fn publish(store: &Store, events: &[NewEvent]) -> Result<Vec<Placed>, StoreError> {
    let lane = |event: &NewEvent| event.message_group.as_deref().map(ParticipantId::new);
    place(&Events { store, events }, lanes(events.iter().map(lane)), events.len()).await
}

struct Events<'a> {
    store: &'a Store,
    events: &'a [NewEvent],
}

impl Together for Events<'_> {
    async fn together(&self, indices: &[usize], lock_timeout_ms: u32) -> Result<Vec<Placed>, StoreError> {
        let some: Vec<&NewEvent> = indices.iter().map(|index| &self.events[*index]).collect();
        let texts = |of: fn(&NewEvent) -> Option<&str>| some.iter().map(|event| of(event)).collect::<Vec<_>>();
        let external_ids = texts(|event| event.external_id.as_deref());
        let kinds = texts(|event| Some(&event.kind));
        let sources = texts(|event| Some(&event.source));
        let subjects = texts(|event| event.subject.as_deref());
        let data: Vec<Option<&[u8]>> = some.iter().map(|event| event.data.as_deref()).collect();
        let times: Vec<Option<Timestamp>> = some.iter().map(|event| event.time).collect();
        let correlations = texts(|event| event.correlation_id.as_deref());
        let groups = texts(|event| event.message_group.as_deref());
        let keys = texts(|event| event.deduplication_id.as_deref());
        let metadata: Vec<Option<Value>> = some.iter().map(|event| metadata(event)).collect();
        let lock_timeout = lock_timeout_ms.to_string();
        let parameters: [&(dyn ToSql + Sync); 11] = [
            &external_ids,
            &kinds,
            &sources,
            &subjects,
            &data,
            &times,
            &correlations,
            &groups,
            &keys,
            &metadata,
            &lock_timeout,
        ];
        one_statement(self.store, PUBLISH, &parameters).await
    }
}

/// An empty map and none are the same event.
fn metadata(event: &NewEvent) -> Option<Value> {
    let entries = || event.metadata.iter().map(|(key, value)| (key.clone(), Value::from(value.as_str())));
    (!event.metadata.is_empty()).then(|| Value::Object(entries().collect()))
}
