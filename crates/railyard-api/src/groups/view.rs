//! Groups as JSON.

use railyard_core::hold::HoldKind;
use railyard_core::timestamp::utc_millis;
use railyard_core::{NodeId, OutboxId, ParticipantId, SequenceId};
use railyard_store::cluster::ClusterRow;
use railyard_store::holds::{GroupRow, HeadRow, Hold, InFlightRow};
use serde::Serialize;
use serde_json::Value;
use utoipa::ToSchema;

use crate::cluster::Gathered;
use crate::openapi::words;

/// A group as it stands.
#[derive(Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
#[schema(as = Group)]
pub(super) struct GroupView {
    #[schema(value_type = String)]
    group_id: ParticipantId,
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    single: bool,
    #[schema(schema_with = words::group_state)]
    state: &'static str,
    depth: u64,
    partition: u8,
    #[serde(skip_serializing_if = "Option::is_none")]
    head: Option<HeadView>,
    #[serde(skip_serializing_if = "Option::is_none")]
    in_flight: Option<InFlightView>,
    holds: Vec<HoldView>,
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<i64>)]
    next_sequence: Option<SequenceId>,
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<Uuid>)]
    owner_node_id: Option<NodeId>,
    #[serde(skip_serializing_if = "Option::is_none")]
    owner_name: Option<String>,
    /// What nodes hold of it in memory.
    live: Vec<LiveView>,
    /// Nodes that did not answer when they were asked for it, in words.
    #[serde(skip_serializing_if = "Option::is_none")]
    gaps: Option<Vec<String>>,
}

/// A group in a node's memory.
#[derive(Clone, Serialize, ToSchema)]
#[schema(as = GroupLive)]
pub(super) struct LiveView {
    /// The node's name.
    node: String,
    /// `working`: waiting for a place, being begun, called or settled; `resting`; `ending`.
    state: String,
    /// Where the call goes.
    #[serde(skip_serializing_if = "Option::is_none")]
    endpoint: Option<String>,
}

impl GroupView {
    /// With what the nodes said of it.
    pub(super) fn with(mut self, cluster: &ClusterRow, gathered: &Gathered) -> Self {
        let text = |seen: &Value, field: &str| seen[field].as_str().map(str::to_owned);
        self.live = cluster
            .members
            .iter()
            .filter_map(|row| {
                let seen = gathered.of(row.node_id)?.get(self.group_id.as_str())?;
                Some(LiveView { node: row.name.clone(), state: text(seen, "state")?, endpoint: text(seen, "endpoint") })
            })
            .collect();
        self
    }

    /// With the names of those who said nothing.
    pub(super) fn with_gaps(mut self, gaps: Vec<String>) -> Self {
        self.gaps = Some(gaps);
        self
    }

    pub(super) fn name(&self) -> String {
        self.group_id.as_str().to_owned()
    }
}

/// Its first message.
#[derive(Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
#[schema(as = GroupHead)]
struct HeadView {
    #[schema(value_type = Uuid)]
    job_id: OutboxId,
    #[schema(value_type = i64)]
    sequence: SequenceId,
    rail_type: String,
    attempt_count: u32,
    failures: u32,
    #[serde(skip_serializing_if = "Option::is_none")]
    next_attempt_at: Option<String>,
    created_at: String,
    age_seconds: f64,
}

/// The message that is out.
#[derive(Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
#[schema(as = GroupInFlight)]
struct InFlightView {
    #[schema(value_type = Uuid)]
    job_id: OutboxId,
    #[schema(value_type = i64)]
    sequence: SequenceId,
    attempt_id: String,
    attempt_number: u32,
    claimed_at: String,
    call_deadline: String,
    #[schema(value_type = Uuid)]
    node_id: NodeId,
}

/// One reason to stand still.
#[derive(Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
#[schema(as = GroupHold)]
struct HoldView {
    #[schema(schema_with = words::hold_kind)]
    kind: HoldKind,
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<Uuid>)]
    job_id: Option<OutboxId>,
    reason: String,
    actor: String,
    since: String,
}

impl From<GroupRow> for GroupView {
    fn from(row: GroupRow) -> Self {
        Self {
            group_id: row.group,
            single: row.single,
            state: row.state.as_str(),
            depth: row.depth,
            partition: row.partition.0,
            head: row.head.map(HeadView::from),
            in_flight: row.in_flight.map(InFlightView::from),
            holds: row.holds.into_iter().map(HoldView::from).collect(),
            next_sequence: row.next_sequence,
            owner_node_id: row.owner,
            owner_name: row.owner_name,
            live: Vec::new(),
            gaps: None,
        }
    }
}

impl From<HeadRow> for HeadView {
    fn from(row: HeadRow) -> Self {
        Self {
            job_id: row.outbox_id,
            sequence: row.sequence_id,
            rail_type: row.rail_type,
            attempt_count: row.attempt_count,
            failures: row.failures,
            next_attempt_at: row.next_attempt_at.map(utc_millis),
            created_at: utc_millis(row.created_at),
            age_seconds: row.age_s,
        }
    }
}

impl From<InFlightRow> for InFlightView {
    fn from(row: InFlightRow) -> Self {
        Self {
            job_id: row.outbox_id,
            sequence: row.sequence_id,
            attempt_id: row.attempt_id.to_string(),
            attempt_number: row.attempt_no,
            claimed_at: utc_millis(row.claimed_at),
            call_deadline: utc_millis(row.call_deadline),
            node_id: row.node_id,
        }
    }
}

impl From<Hold> for HoldView {
    fn from(row: Hold) -> Self {
        let since = utc_millis(row.since);
        Self { kind: row.kind, job_id: row.outbox_id, reason: row.reason, actor: row.actor, since }
    }
}
