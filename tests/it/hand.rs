//! A member of the cluster that a test moves by hand: it joins, takes partitions, begins, settles and heals by the
//! store's own statements, one at a time, and stops wherever the test wants it to.

use std::time::Duration;

use jiff::Timestamp;
use railyard_core::backoff::Backoff;
use railyard_core::settlement::settle;
use railyard_core::{
    Answer, AttemptId, CallOutcome, Epoch, ErrorCode, Lane, Message, NodeId, ParticipantId, PartitionId, SequenceId,
};
use railyard_store::Store;
use railyard_store::clock::boottime;
use railyard_store::connect::Dedicated;
use railyard_store::discover::Head;
use railyard_store::heal::{HealRules, Healed};
use railyard_store::work::{Batch, BeginRequest, Done, Ended, Failed, Settled};
use railyard_store::{lease, ownership};
use tokio_postgres::Client;
use uuid::Uuid;

/// A lease that does not run out in a test.
pub(crate) const LONG: Duration = Duration::from_secs(600);

/// A member.
pub(crate) struct Hand {
    pub(crate) node: NodeId,
    store: Store,
    connection: Dedicated,
}

impl Hand {
    /// Joins and takes every free partition.
    pub(crate) async fn join(store: &Store, lease: Duration) -> Self {
        let connection = store.dedicated("by hand").await.unwrap();
        let node = NodeId(Uuid::new_v4());
        lease::join(&connection.client, node, "by hand", lease).await.unwrap();
        let mut hand = Self { node, store: store.clone(), connection };
        hand.take_over().await;
        hand
    }

    /// Removes members whose lease has lapsed and takes what is free then. Returns who was removed.
    pub(crate) async fn take_over(&mut self) -> Vec<NodeId> {
        let removed = lease::take_over(&mut self.connection.client, self.node).await.unwrap();
        let all: Vec<PartitionId> = (0..=255).map(PartitionId).collect();
        ownership::take_free(&mut self.connection.client, self.node, &all).await.unwrap();
        removed
    }

    /// Its partitions.
    pub(crate) async fn owned(&self) -> Vec<(PartitionId, Epoch)> {
        ownership::owned(&self.connection.client, self.node).await.unwrap()
    }

    /// What it would ask for this group's head, under the epoch that the table shows for its partition.
    pub(crate) async fn request(&self, sql: &Client, group: &str) -> BeginRequest {
        let found = sql
            .query_one(
                "SELECT partition_of($1), (SELECT epoch FROM partition_lease WHERE partition_id = partition_of($1)),
                   coalesce(p.endpoint, ''), coalesce(p.rail_type, '')
                 FROM (SELECT 1) AS one LEFT JOIN (
                   SELECT endpoint, rail_type FROM payment_outbox_pending WHERE participant_id = $1
                   ORDER BY sequence_id LIMIT 1) p ON true",
                &[&group],
            )
            .await
            .unwrap();
        let partition: i16 = found.get(0);
        BeginRequest {
            attempt_id: AttemptId(Uuid::now_v7()),
            lane: Lane::Group(ParticipantId::new(group)),
            partition: PartitionId(u8::try_from(partition).unwrap()),
            epoch: Epoch(found.get(1)),
            head: Head { endpoint: found.get(2), rail_type: found.get(3) },
            probe: SequenceId(0),
        }
    }

    /// Sends one begin.
    pub(crate) async fn run(&self, request: BeginRequest) -> Result<Done, Failed> {
        let batch = Batch { begin: vec![request], slack: Duration::from_secs(1), ..Batch::default() };
        self.store.run(self.node, &batch).await
    }

    /// Begins the group's head, if there is anything to begin.
    pub(crate) async fn begin(&self, sql: &Client, group: &str) -> Option<Message> {
        let request = self.request(sql, group).await;
        self.run(request).await.unwrap().begun.into_values().next()
    }

    /// Settles.
    pub(crate) async fn settle(&self, message: &Message, outcome: CallOutcome) -> Settled {
        let ended = ended(message, outcome);
        let attempt = ended.settlement.attempt_id;
        let batch = Batch { settle: vec![ended], ..Batch::default() };
        self.store.settle(&batch).await.unwrap().settled.remove(&attempt).unwrap()
    }

    /// Heals what may be healed now; `orphans` are attempts of its own that no call knows.
    pub(crate) async fn heal(&self, orphans: &[&Message]) -> Vec<Healed> {
        let rules = HealRules { lease: Duration::ZERO, ..HealRules::default() };
        self.heal_by(orphans, rules).await
    }

    /// The same by other rules.
    pub(crate) async fn heal_by(&self, orphans: &[&Message], rules: HealRules) -> Vec<Healed> {
        let orphans: Vec<AttemptId> = orphans.iter().map(|message| message.attempt_id).collect();
        self.store.heal(self.node, &orphans, rules).await.unwrap()
    }
}

/// An outcome as the node's own rules read it, known just now.
pub(crate) fn ended(message: &Message, outcome: CallOutcome) -> Ended {
    let settlement = settle(message, outcome, None, &Backoff::payment(), Timestamp::UNIX_EPOCH, 0.5);
    Ended { settlement, ended_at: boottime() }
}

/// The receiver took it.
pub(crate) fn delivered() -> CallOutcome {
    CallOutcome::Delivered(Answer { status: 200, ..Answer::default() })
}

/// It answered 500.
pub(crate) fn failed() -> CallOutcome {
    CallOutcome::Failed {
        code: ErrorCode::HttpStatus(500),
        detail: "HTTP 500".to_owned(),
        answer: None,
        retryable: true,
    }
}

/// It refused for good.
pub(crate) fn refused() -> CallOutcome {
    CallOutcome::Failed { code: ErrorCode::RailRefused, detail: "no".to_owned(), answer: None, retryable: false }
}

/// The call's deadline has passed.
pub(crate) async fn pass_deadline(sql: &Client, message: &Message) {
    let moved = sql
        .execute(
            "UPDATE in_flight SET call_deadline = clock_timestamp() - interval '1 millisecond' WHERE attempt_id = $1",
            &[&message.attempt_id.0],
        )
        .await
        .unwrap();
    assert_eq!(moved, 1, "{message:?} is not in flight");
}

/// The member's lease has lapsed.
pub(crate) async fn pass_lease(sql: &Client, node: NodeId) {
    let moved = sql
        .execute(
            "UPDATE node SET lease_until = clock_timestamp() - interval '1 millisecond' WHERE node_id = $1",
            &[&node.0],
        )
        .await
        .unwrap();
    assert_eq!(moved, 1, "{node} is no member");
}

/// Whatever waits is due now.
pub(crate) async fn make_due(sql: &Client) {
    sql.batch_execute(
        "UPDATE payment_outbox_pending SET next_attempt_at = clock_timestamp() WHERE next_attempt_at < 'infinity';
         UPDATE ready_group SET due_at = clock_timestamp() WHERE due_at < 'infinity';
         NOTIFY outbox_pending",
    )
    .await
    .unwrap();
}
