//! The rows that enqueue writes, written by bare INSERTs: the peer of `bench enqueue`.

use std::collections::BTreeMap;

use anyhow::Context;
use futures_util::future::{join_all, join3};
use jiff::Timestamp;
use railyard_core::job::{NewJob, endpoint_of};
use railyard_core::{Lane, ParticipantId};
use tokio_postgres::Statement;
use tokio_postgres::types::ToSql;
use uuid::Uuid;

use crate::client::Client;

/// Table by table, in the order in which enqueue writes them; all columns that it fills.
const SINGLE: [&str; 5] = [
    "INSERT INTO idempotency_key (kind, scope, key, outbox_id, content_hash, created_at)
     VALUES ('instruction', $1, $1, $2, $3, $4)",
    "INSERT INTO dispatch_job (outbox_id, source, type, participant_id, mode, rail_type, target_url, payload,
       payload_content_type, credentials_id, max_attempts, retry_strategy, timeout_ms, instruction_id, idempotency_key,
       rail_key, created_at)
     VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $14, $1, $15)",
    "INSERT INTO participant_outbox_sequences AS s (participant_id, next_sequence_id) VALUES ($1, 2)
     ON CONFLICT (participant_id) DO UPDATE SET next_sequence_id = s.next_sequence_id + 1",
    "INSERT INTO payment_outbox_pending (outbox_id, participant_id, sequence_id, partition_id, rail_type, endpoint, mode,
       max_attempts, timeout_ms, next_attempt_at, created_at)
     VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $10)",
    "INSERT INTO ready_group (participant_id, partition_id, due_at) VALUES ($1, $2, $3) ON CONFLICT DO NOTHING",
];
const BATCH: [&str; 5] = [
    "INSERT INTO idempotency_key (kind, scope, key, outbox_id, content_hash, created_at)
     SELECT 'source', 'bench', key, id, hash, $4
     FROM unnest($1::text[], $2::uuid[], $3::bytea[]) AS t(key, id, hash)",
    "INSERT INTO dispatch_job (outbox_id, source, type, participant_id, mode, rail_type, target_url, payload,
       payload_content_type, credentials_id, max_attempts, retry_strategy, timeout_ms, idempotency_key, rail_key, created_at)
     SELECT id, $2, $3, g, $5, $6, $7, payload, $9, $10, $11, $12, $13, key, id, $15
     FROM unnest($1::uuid[], $4::text[], $8::bytea[], $14::text[]) AS t(id, g, payload, key)",
    "INSERT INTO participant_outbox_sequences AS s (participant_id, next_sequence_id)
     SELECT g, n + 1 FROM unnest($1::text[], $2::bigint[]) AS t(g, n)
     ON CONFLICT (participant_id) DO UPDATE SET next_sequence_id = s.next_sequence_id + excluded.next_sequence_id - 1",
    "INSERT INTO payment_outbox_pending (outbox_id, participant_id, sequence_id, partition_id, rail_type, endpoint, mode,
       max_attempts, timeout_ms, next_attempt_at, created_at)
     SELECT id, g, n, p, $5, $6, $7, $8, $9, $10, $10
     FROM unnest($1::uuid[], $2::text[], $3::bigint[], $4::smallint[]) AS t(id, g, n, p)",
    "INSERT INTO ready_group (participant_id, partition_id, due_at)
     SELECT g, p, $3 FROM unnest($1::text[], $2::smallint[]) AS t(g, p) ON CONFLICT DO NOTHING",
];

/// What is stored of one message, everything computed.
pub(crate) struct Rows {
    job: NewJob,
    id: Uuid,
    key: String,
    group: String,
    partition: i16,
    sequence: i64,
    endpoint: String,
    hash: Vec<u8>,
    at: Timestamp,
}

impl Rows {
    /// Of this message, as the number `sequence` of its group.
    pub(crate) fn of(job: &NewJob, sequence: u64) -> anyhow::Result<Self> {
        let group = job.group.clone().context("a group")?;
        let partition = railyard_core::partition::partition_of(&Lane::Group(ParticipantId::new(group.as_str())));
        Ok(Self {
            job: job.clone(),
            id: Uuid::now_v7(),
            key: job.idempotency_key.clone().unwrap_or_else(|| Uuid::new_v4().to_string()),
            group: group.as_str().to_owned(),
            partition: i16::from(partition.0),
            sequence: i64::try_from(sequence)?,
            endpoint: endpoint_of(&job.target_url)?,
            hash: rand::random::<[u8; 32]>().to_vec(),
            at: now(),
        })
    }
}

#[expect(clippy::disallowed_methods, reason = "the peer is told everything, the time as well")]
fn now() -> Timestamp {
    Timestamp::now()
}

/// Writes one message a transaction.
pub(crate) struct BareWriter {
    statements: Vec<Statement>,
}

impl BareWriter {
    pub(crate) async fn prepare(client: &Client) -> anyhow::Result<Self> {
        Ok(Self { statements: prepare(client, &SINGLE).await? })
    }

    pub(crate) async fn write(&self, client: &Client, row: &Rows) -> anyhow::Result<()> {
        let job = &row.job;
        let (payload, credentials) = (&job.payload[..], job.credentials_id.map(|id| id.0));
        let (mode, retry) = (job.mode.as_str(), job.retry.as_str());
        let (attempts, timeout_ms) = (i32::try_from(job.max_attempts)?, i32::try_from(job.timeout_s * 1000)?);
        let parameters: [&[&(dyn ToSql + Sync)]; 5] = [
            &[&row.key, &row.id, &row.hash, &row.at],
            &[
                &row.id,
                &job.source,
                &job.kind,
                &row.group,
                &mode,
                &job.rail_type,
                &job.target_url,
                &payload,
                &job.payload_content_type,
                &credentials,
                &attempts,
                &retry,
                &timeout_ms,
                &row.key,
                &row.at,
            ],
            &[&row.group],
            &[
                &row.id,
                &row.group,
                &row.sequence,
                &row.partition,
                &job.rail_type,
                &row.endpoint,
                &mode,
                &attempts,
                &timeout_ms,
                &row.at,
            ],
            &[&row.group, &row.partition, &row.at],
        ];
        transaction(client, &self.statements, &parameters).await
    }
}

/// The rows of many messages, turned by ninety degrees.
pub(crate) struct BareBatch {
    job: NewJob,
    endpoint: String,
    at: Timestamp,
    ids: Vec<Uuid>,
    keys: Vec<String>,
    groups: Vec<String>,
    partitions: Vec<i16>,
    sequences: Vec<i64>,
    hashes: Vec<Vec<u8>>,
    payloads: Vec<Vec<u8>>,
    /// Each group once.
    distinct: Vec<String>,
    counts: Vec<i64>,
    distinct_partitions: Vec<i16>,
}

impl BareBatch {
    /// Of messages that differ in group, number and key alone; at least one.
    pub(crate) fn of(rows: &[Rows]) -> Self {
        let first = &rows[0];
        let mut distinct: BTreeMap<&str, (i16, i64)> = BTreeMap::new();
        for row in rows {
            distinct.entry(&row.group).or_insert((row.partition, 0)).1 += 1;
        }
        Self {
            job: first.job.clone(),
            endpoint: first.endpoint.clone(),
            at: first.at,
            ids: rows.iter().map(|row| row.id).collect(),
            keys: rows.iter().map(|row| row.key.clone()).collect(),
            groups: rows.iter().map(|row| row.group.clone()).collect(),
            partitions: rows.iter().map(|row| row.partition).collect(),
            sequences: rows.iter().map(|row| row.sequence).collect(),
            hashes: rows.iter().map(|row| row.hash.clone()).collect(),
            payloads: rows.iter().map(|row| row.job.payload.to_vec()).collect(),
            distinct_partitions: distinct.values().map(|(partition, _)| *partition).collect(),
            counts: distinct.values().map(|(_, count)| *count).collect(),
            distinct: distinct.keys().map(|group| (*group).to_owned()).collect(),
        }
    }

    pub(crate) async fn prepare(client: &Client) -> anyhow::Result<Vec<Statement>> {
        prepare(client, &BATCH).await
    }

    pub(crate) async fn write(&self, client: &Client, statements: &[Statement]) -> anyhow::Result<()> {
        let job = &self.job;
        let credentials = job.credentials_id.map(|id| id.0);
        let (mode, retry) = (job.mode.as_str(), job.retry.as_str());
        let (attempts, timeout_ms) = (i32::try_from(job.max_attempts)?, i32::try_from(job.timeout_s * 1000)?);
        let parameters: [&[&(dyn ToSql + Sync)]; 5] = [
            &[&self.keys, &self.ids, &self.hashes, &self.at],
            &[
                &self.ids,
                &job.source,
                &job.kind,
                &self.groups,
                &mode,
                &job.rail_type,
                &job.target_url,
                &self.payloads,
                &job.payload_content_type,
                &credentials,
                &attempts,
                &retry,
                &timeout_ms,
                &self.keys,
                &self.at,
            ],
            &[&self.distinct, &self.counts],
            &[
                &self.ids,
                &self.groups,
                &self.sequences,
                &self.partitions,
                &job.rail_type,
                &self.endpoint,
                &mode,
                &attempts,
                &timeout_ms,
                &self.at,
            ],
            &[&self.distinct, &self.distinct_partitions, &self.at],
        ];
        transaction(client, statements, &parameters).await
    }
}

async fn prepare(client: &Client, statements: &[&str]) -> anyhow::Result<Vec<Statement>> {
    let mut prepared = Vec::new();
    for sql in statements {
        prepared.push(client.prepare(sql).await?);
    }
    Ok(prepared)
}

/// All in one go: nothing waits for an answer but the end.
async fn transaction(
    client: &Client,
    statements: &[Statement],
    parameters: &[&[&(dyn ToSql + Sync)]],
) -> anyhow::Result<()> {
    let steps = statements.iter().zip(parameters).map(|(statement, given)| client.execute(statement, given));
    let (begun, done, committed) = join3(client.run("BEGIN"), join_all(steps), client.run("COMMIT")).await;
    begun?;
    done.into_iter().collect::<anyhow::Result<()>>()?;
    committed
}
