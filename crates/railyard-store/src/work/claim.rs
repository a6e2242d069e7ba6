//! Statement 4, second half: take the heads of the listed lanes out of pending and put them in flight.

use jiff::Timestamp;
use railyard_core::mode::Mode;
use railyard_core::{AttemptId, Epoch, Lane, NodeId, OutboxId, ParticipantId, PartitionId, SequenceId};
use std::time::Duration;
use tokio_postgres::Row;
use tokio_postgres::types::ToSql;
use uuid::Uuid;

use super::{Batch, Done};
use crate::error::StoreError;

/// A head is begun when the fence was taken, it is due and unheld, its rail runs, its group has nothing in flight and the
/// partition is ours.
///
/// Planned once and for all, so nothing in it is left to estimates: `OFFSET 0` keeps each test a look-up of its own for
/// each lane (as a join it may read a whole index), rows are taken by their place, and what the node gave is found again
/// by position.
pub(crate) const CLAIM: &str = "
WITH head AS MATERIALIZED (
  SELECT p.place
  FROM unnest($2::text[], $3::bigint[], $4::smallint[], $5::bigint[], $6::text[], $7::text[])
    AS g(participant_id, probe, partition_id, epoch, endpoint, rail_type)
  CROSS JOIN LATERAL (
    SELECT q.ctid AS place, q.next_attempt_at, q.endpoint, q.rail_type FROM payment_outbox_pending q
    WHERE q.participant_id = g.participant_id AND q.sequence_id >= g.probe ORDER BY q.sequence_id LIMIT 1) p
  WHERE current_setting('railyard.fence', true) = $1::uuid::text
    AND p.next_attempt_at <= clock_timestamp() AND p.endpoint = g.endpoint AND p.rail_type = g.rail_type
    AND EXISTS (SELECT 1 FROM partition_lease l
                WHERE l.partition_id = g.partition_id AND l.owner = $1 AND l.epoch = g.epoch OFFSET 0)
    AND NOT EXISTS (SELECT 1 FROM group_hold h WHERE h.participant_id = g.participant_id OFFSET 0)
    AND NOT EXISTS (SELECT 1 FROM in_flight f WHERE f.participant_id = g.participant_id OFFSET 0)
    AND NOT EXISTS (SELECT 1 FROM rail_switch s WHERE s.kind = 'rail' AND s.name = p.rail_type AND s.paused OFFSET 0)
  UNION ALL
  SELECT p.place
  FROM unnest($9::uuid[], $10::smallint[], $11::bigint[]) AS g(outbox_id, partition_id, epoch)
  CROSS JOIN LATERAL (
    SELECT q.ctid AS place, q.participant_id, q.next_attempt_at, q.rail_type FROM payment_outbox_pending q
    WHERE q.outbox_id = g.outbox_id LIMIT 1) p
  WHERE current_setting('railyard.fence', true) = $1::uuid::text
    AND p.participant_id IS NULL AND p.next_attempt_at <= clock_timestamp()
    AND EXISTS (SELECT 1 FROM partition_lease l
                WHERE l.partition_id = g.partition_id AND l.owner = $1 AND l.epoch = g.epoch OFFSET 0)
    AND NOT EXISTS (SELECT 1 FROM rail_switch s WHERE s.kind = 'rail' AND s.name = p.rail_type AND s.paused OFFSET 0)
), taken AS (
  DELETE FROM payment_outbox_pending p WHERE p.ctid = ANY (ARRAY(SELECT place FROM head)) RETURNING p.*
), given AS (
  SELECT t.*, array_position($2::text[], t.participant_id) AS nth, array_position($9::uuid[], t.outbox_id) AS nth_single
  FROM taken t
)
INSERT INTO in_flight (attempt_id, outbox_id, participant_id, sequence_id, partition_id, epoch, node_id, rail_type,
  endpoint, mode, on_unknown, max_attempts, timeout_ms, attempt_no, failures, zombies, claimed_at, call_deadline,
  created_at)
SELECT coalesce(($8::uuid[])[nth], ($12::uuid[])[nth_single]), outbox_id, participant_id, sequence_id, partition_id,
  coalesce(($5::bigint[])[nth], ($11::bigint[])[nth_single]), $1, rail_type, endpoint, mode,
  (SELECT r.on_unknown FROM rail r WHERE r.rail_type = g.rail_type), max_attempts, timeout_ms, attempt_count + 1,
  failures, zombies, clock_timestamp(), clock_timestamp() + (timeout_ms + $13::bigint) * interval '1 millisecond',
  created_at
FROM given g
RETURNING attempt_id, outbox_id, participant_id, sequence_id, partition_id, epoch, attempt_no, failures, max_attempts,
  mode, rail_type, endpoint, timeout_ms, claimed_at, known_success, pg_current_xact_id()::text AS transaction";

/// The batch's lanes, column by column.
pub(crate) struct Params {
    node: Uuid,
    attempts: Vec<Uuid>,
    group_attempts: Vec<Uuid>,
    groups: Vec<String>,
    probes: Vec<i64>,
    group_partitions: Vec<i16>,
    group_epochs: Vec<i64>,
    endpoints: Vec<String>,
    rails: Vec<String>,
    single_attempts: Vec<Uuid>,
    singles: Vec<Uuid>,
    single_partitions: Vec<i16>,
    single_epochs: Vec<i64>,
    slack_ms: i64,
}

impl Params {
    pub(crate) fn of(node: NodeId, batch: &Batch) -> Self {
        let mut params = Self {
            node: node.0,
            attempts: batch.begin.iter().map(|request| request.attempt_id.0).collect(),
            group_attempts: Vec::new(),
            groups: Vec::new(),
            probes: Vec::new(),
            group_partitions: Vec::new(),
            group_epochs: Vec::new(),
            endpoints: Vec::new(),
            rails: Vec::new(),
            single_attempts: Vec::new(),
            singles: Vec::new(),
            single_partitions: Vec::new(),
            single_epochs: Vec::new(),
            slack_ms: i64::try_from(batch.slack.as_millis()).unwrap_or(i64::MAX),
        };
        for request in &batch.begin {
            let partition = i16::from(request.partition.0);
            match &request.lane {
                Lane::Group(group) => {
                    params.group_attempts.push(request.attempt_id.0);
                    params.groups.push(group.as_str().to_owned());
                    params.probes.push(request.probe.0);
                    params.group_partitions.push(partition);
                    params.group_epochs.push(request.epoch.0);
                    params.endpoints.push(request.head.endpoint.clone());
                    params.rails.push(request.head.rail_type.clone());
                }
                Lane::Single(id) => {
                    params.single_attempts.push(request.attempt_id.0);
                    params.singles.push(id.0);
                    params.single_partitions.push(partition);
                    params.single_epochs.push(request.epoch.0);
                }
            }
        }
        params
    }

    /// All of them.
    pub(crate) fn attempts(&self) -> &(dyn ToSql + Sync) {
        &self.attempts
    }

    pub(crate) fn as_sql(&self) -> [&(dyn ToSql + Sync); 13] {
        [
            &self.node,
            &self.groups,
            &self.probes,
            &self.group_partitions,
            &self.group_epochs,
            &self.endpoints,
            &self.rails,
            &self.group_attempts,
            &self.singles,
            &self.single_partitions,
            &self.single_epochs,
            &self.single_attempts,
            &self.slack_ms,
        ]
    }
}

/// An in-flight row as it was inserted.
#[derive(Clone, Debug)]
pub(crate) struct Claim {
    pub(crate) attempt_id: AttemptId,
    pub(crate) outbox_id: OutboxId,
    pub(crate) participant_id: Option<ParticipantId>,
    pub(crate) sequence_id: Option<SequenceId>,
    pub(crate) partition: PartitionId,
    pub(crate) epoch: Epoch,
    pub(crate) attempt_no: u32,
    pub(crate) failures: u32,
    pub(crate) max_attempts: u32,
    pub(crate) mode: Mode,
    pub(crate) rail_type: String,
    pub(crate) endpoint: String,
    pub(crate) timeout: Duration,
    pub(crate) claimed_at: Timestamp,
    pub(crate) known_success: bool,
}

/// Rows of in_flight, in any order. One that cannot be read does not keep the others from being called.
pub(crate) fn read(rows: &[Row], done: &mut Done) -> Result<Vec<Claim>, StoreError> {
    let mut claims = Vec::with_capacity(rows.len());
    for row in rows {
        match read_one(row) {
            Ok(claim) => claims.push(claim),
            Err(error) => drop(done.unreadable.insert(AttemptId(row.try_get("attempt_id")?), error.to_string())),
        }
    }
    Ok(claims)
}

fn read_one(row: &Row) -> Result<Claim, StoreError> {
    let mode: String = row.try_get("mode")?;
    let partition: i16 = row.try_get("partition_id")?;
    Ok(Claim {
        attempt_id: AttemptId(row.try_get("attempt_id")?),
        outbox_id: OutboxId(row.try_get("outbox_id")?),
        participant_id: row.try_get::<_, Option<String>>("participant_id")?.map(ParticipantId::new),
        sequence_id: row.try_get::<_, Option<i64>>("sequence_id")?.map(SequenceId),
        partition: PartitionId(u8::try_from(partition).map_err(|_| unreadable("partition_id", &partition))?),
        epoch: Epoch(row.try_get("epoch")?),
        attempt_no: count(row, "attempt_no")?,
        failures: count(row, "failures")?,
        max_attempts: count(row, "max_attempts")?,
        mode: Mode::parse(&mode).ok_or_else(|| unreadable("mode", &mode))?,
        rail_type: row.try_get("rail_type")?,
        endpoint: row.try_get("endpoint")?,
        timeout: Duration::from_millis(u64::from(count(row, "timeout_ms")?)),
        claimed_at: row.try_get("claimed_at")?,
        known_success: row.try_get("known_success")?,
    })
}

fn count(row: &Row, column: &str) -> Result<u32, StoreError> {
    let value: i32 = row.try_get(column)?;
    u32::try_from(value).map_err(|_| unreadable(column, &value))
}

fn unreadable(column: &str, value: &dyn std::fmt::Debug) -> StoreError {
    StoreError::Unreadable { detail: format!("{column} is {value:?}") }
}
