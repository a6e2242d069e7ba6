//! `/admin/cluster` and `/admin/nodes`: the cluster as the database knows it, with what its nodes say themselves.
//!
//! The database knows the members and who owns what. What nodes hold in memory is asked of each of them, over the
//! links, all at once and within a bounded time; whoever did not answer is named in `gaps`, since no answer means
//! *don't know*.

mod gather;

use axum::Json;
use axum::extract::State;
use railyard_core::NodeId;
use railyard_core::timestamp::utc_millis;
use railyard_store::cluster::{self, ClusterRow, MemberRow};
use serde::Serialize;
use serde_json::Value;
use utoipa::ToSchema;
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;
use uuid::Uuid;

use crate::auth::{Caller, Read};
use crate::problem::Problem;
use crate::state::{ApiState, LinkState, Links, Question};

pub(crate) use gather::{Gathered, gather};

pub(crate) fn routes() -> OpenApiRouter<ApiState> {
    OpenApiRouter::new().routes(routes!(show)).routes(routes!(nodes))
}

/// A member of the cluster.
#[derive(Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
#[schema(as = ClusterNode)]
struct NodeInfo {
    name: String,
    /// Fresh each time it joins.
    #[schema(value_type = Uuid)]
    node_id: NodeId,
    /// Fresh at each start of its process; none: it has no links.
    #[serde(skip_serializing_if = "Option::is_none")]
    process_id: Option<Uuid>,
    /// Where other nodes reach it.
    #[serde(skip_serializing_if = "Option::is_none")]
    address: Option<String>,
    joined_at: String,
    /// Negative once its lease has lapsed.
    lease_ms: i64,
    /// It lets its calls end and takes nothing more.
    leaving: bool,
    /// Partitions of 256 that it owns.
    partitions: i64,
    seen: Seen,
    /// The link between the two.
    #[serde(skip_serializing_if = "Option::is_none")]
    link: Option<LinkView>,
}

/// How the answering node sees a member.
#[derive(Clone, Copy, PartialEq, Eq, Serialize, ToSchema)]
#[serde(rename_all = "snake_case")]
#[schema(as = ClusterSeen)]
enum Seen {
    /// It is the answering node.
    Itself,
    /// There is a link.
    Linked,
    /// There is none.
    NotLinked,
}

/// A link as one of its ends sees it.
#[derive(Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
#[schema(as = ClusterLink)]
struct LinkView {
    /// The other end's address on this connection.
    remote: String,
    /// Whether the other end opened it.
    incoming: bool,
    /// How long it has been there, in seconds.
    age_seconds: u64,
    /// Milliseconds since anything came; a second is usual.
    last_heard_ms: u64,
    /// Heartbeats missed in a row; three end the link.
    missed: u32,
}

impl From<&LinkState> for LinkView {
    fn from(link: &LinkState) -> Self {
        Self {
            remote: link.remote.clone(),
            incoming: link.incoming,
            age_seconds: link.age_s,
            last_heard_ms: link.silent_ms,
            missed: link.missed,
        }
    }
}

impl NodeInfo {
    fn new(row: &MemberRow, me: Option<NodeId>, links: Option<&Links>) -> Self {
        let process = row.door.as_ref().map(|door| door.process);
        let link = links.and_then(|links| links.links.iter().find(|link| Some(link.process) == process));
        let seen = match (me == Some(row.node_id), link) {
            (true, _) => Seen::Itself,
            (false, Some(_)) => Seen::Linked,
            (false, None) => Seen::NotLinked,
        };
        Self {
            name: row.name.clone(),
            node_id: row.node_id,
            process_id: process,
            address: row.door.as_ref().map(|door| door.address.clone()),
            joined_at: utc_millis(row.joined_at),
            lease_ms: row.lease_ms,
            leaving: row.leaving,
            partitions: row.partitions,
            seen,
            link: link.map(LinkView::from),
        }
    }
}

/// The cluster.
#[derive(Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
#[schema(as = Cluster)]
struct ClusterView {
    /// Whether the answering node takes links at all.
    links: bool,
    nodes: Vec<ClusterMember>,
    /// Partitions without an owner: each for a moment only.
    free: i64,
    /// Partitions of a node that is no member any more.
    orphaned: i64,
    /// Who did not answer, in words.
    gaps: Vec<String>,
}

/// A member, and whom it is linked to itself.
#[derive(Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
struct ClusterMember {
    #[serde(flatten)]
    node: NodeInfo,
    /// Names of those that it says it is linked to; null: it did not answer.
    linked_to: Option<Vec<String>>,
}

/// Members, leases, partitions, and the links between them.
#[utoipa::path(get, path = "/admin/cluster", tag = "operation", operation_id = "getCluster",
    responses((status = 200, description = "As the database and the links know it", body = ClusterView)))]
async fn show(_: Caller<Read>, State(state): State<ApiState>) -> Result<Json<ClusterView>, Problem> {
    let cluster = cluster::read(state.store()).await?;
    let (me, links) = (state.inner.node.node_id(), state.inner.node.links());
    let gathered = gather(&state, &cluster.members, &Question::Links).await;
    let nodes = cluster.members.iter().map(|row| ClusterMember {
        node: NodeInfo::new(row, me, links.as_ref()),
        linked_to: gathered.of(row.node_id).map(|said| names(said, &cluster)),
    });
    Ok(Json(ClusterView {
        links: links.is_some(),
        nodes: nodes.collect(),
        free: cluster.free,
        orphaned: cluster.orphaned,
        gaps: gathered.gaps.clone(),
    }))
}

/// Processes as names, as far as the database knows them.
fn names(said: &Value, cluster: &ClusterRow) -> Vec<String> {
    let name = |process: &str| {
        let of = |row: &&MemberRow| row.door.as_ref().is_some_and(|door| door.process.to_string() == process);
        cluster.members.iter().find(of).map_or_else(|| process.to_owned(), |row| row.name.clone())
    };
    said.as_array().into_iter().flatten().filter_map(Value::as_str).map(name).collect()
}

/// All nodes.
#[derive(Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
#[schema(as = NodeList)]
struct NodesView {
    nodes: Vec<NodeLive>,
    /// Who did not answer, in words.
    gaps: Vec<String>,
}

/// A member, and what its actors say.
#[derive(Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
struct NodeLive {
    #[serde(flatten)]
    node: NodeInfo,
    /// Not a contract: it follows the code. Null: it did not answer.
    #[schema(value_type = Option<Object>)]
    live: Option<Value>,
}

/// What the actors of all nodes say about themselves.
#[utoipa::path(get, path = "/admin/nodes", tag = "operation", operation_id = "listNodes",
    responses((status = 200, description = "All members", body = NodesView)))]
async fn nodes(_: Caller<Read>, State(state): State<ApiState>) -> Result<Json<NodesView>, Problem> {
    let cluster = cluster::read(state.store()).await?;
    let (me, links) = (state.inner.node.node_id(), state.inner.node.links());
    let gathered = gather(&state, &cluster.members, &Question::Observe).await;
    let nodes = cluster
        .members
        .iter()
        .map(|row| NodeLive { node: NodeInfo::new(row, me, links.as_ref()), live: gathered.of(row.node_id).cloned() });
    Ok(Json(NodesView { nodes: nodes.collect(), gaps: gathered.gaps.clone() }))
}
