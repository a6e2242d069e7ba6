//! Statement 4: the lanes whose heads are to be put in flight, and the rows that come of it.

use jiff::Timestamp;
use railyard_core::mode::Mode;
use railyard_core::{AttemptId, Epoch, Lane, OutboxId, ParticipantId, PartitionId, SequenceId};
use std::time::Duration;
use tokio_postgres::Row;
use tokio_postgres::types::ToSql;
use uuid::Uuid;

use super::{BeginRequest, Done};
use crate::error::StoreError;

/// The batch's lanes, column by column: one element a lane in each.
pub(crate) struct Params {
    attempts: Vec<Uuid>,
    groups: Vec<Option<String>>,
    singles: Vec<Option<Uuid>>,
    probes: Vec<i64>,
    partitions: Vec<i16>,
    epochs: Vec<i64>,
    endpoints: Vec<String>,
    rails: Vec<String>,
}

impl Params {
    pub(crate) fn of(begin: &[BeginRequest]) -> Self {
        Self {
            attempts: begin.iter().map(|request| request.attempt_id.0).collect(),
            groups: begin.iter().map(|request| group(&request.lane)).collect(),
            singles: begin.iter().map(|request| single(&request.lane)).collect(),
            probes: begin.iter().map(|request| request.probe.0).collect(),
            partitions: begin.iter().map(|request| i16::from(request.partition.0)).collect(),
            epochs: begin.iter().map(|request| request.epoch.0).collect(),
            endpoints: begin.iter().map(|request| request.head.endpoint.clone()).collect(),
            rails: begin.iter().map(|request| request.head.rail_type.clone()).collect(),
        }
    }

    pub(crate) fn as_sql(&self) -> [&(dyn ToSql + Sync); 8] {
        [
            &self.attempts,
            &self.groups,
            &self.singles,
            &self.probes,
            &self.partitions,
            &self.epochs,
            &self.endpoints,
            &self.rails,
        ]
    }
}

fn group(lane: &Lane) -> Option<String> {
    match lane {
        Lane::Group(group) => Some(group.as_str().to_owned()),
        Lane::Single(_) => None,
    }
}

fn single(lane: &Lane) -> Option<Uuid> {
    match lane {
        Lane::Group(_) => None,
        Lane::Single(id) => Some(id.0),
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
pub(crate) fn read<'a>(rows: impl IntoIterator<Item = &'a Row>, done: &mut Done) -> Result<Vec<Claim>, StoreError> {
    let mut claims = Vec::new();
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
