//! Work as a SQL producer commits it, in a transaction of its own choosing.

use std::time::Duration;

use railyard_core::CredentialsId;
use railyard_node::NodeOptions;
use tokio_postgres::{Error, GenericClient};
use uuid::Uuid;

use crate::world::World;

/// One message; what a test is not about has the product's defaults.
#[derive(Clone, Debug)]
pub(crate) struct Item {
    credentials: CredentialsId,
    url: String,
    rail: &'static str,
    group: String,
    key: String,
    payload: Vec<u8>,
    mode: Option<&'static str>,
    max_attempts: Option<i32>,
    retry: Option<&'static str>,
    timeout_ms: Option<i32>,
    scheduled_in_ms: Option<i32>,
}

impl Item {
    /// A payment with a payload that passes validation.
    pub(crate) fn payment(world: &World, url: &str, group: &str, key: &str) -> Self {
        let payload = format!(r#"{{"amount":"1.10","currency":"EUR","destination":"DE02","key":"{key}"}}"#);
        Self {
            credentials: world.credentials,
            url: url.to_owned(),
            rail: "payment_webhook",
            group: group.to_owned(),
            key: key.to_owned(),
            payload: payload.into_bytes(),
            mode: None,
            max_attempts: None,
            retry: None,
            timeout_ms: None,
            scheduled_in_ms: None,
        }
    }

    /// The same for the webhook rail.
    pub(crate) fn webhook(world: &World, url: &str, group: &str, key: &str) -> Self {
        Self { rail: "webhook", ..Self::payment(world, url, group, key) }
    }

    /// The same for another group, under another key.
    pub(crate) fn of(mut self, group: &str, key: &str) -> Self {
        group.clone_into(&mut self.group);
        key.clone_into(&mut self.key);
        self
    }

    pub(crate) fn payload(mut self, payload: &[u8]) -> Self {
        self.payload = payload.to_vec();
        self
    }

    pub(crate) fn mode(mut self, mode: &'static str) -> Self {
        self.mode = Some(mode);
        self
    }

    pub(crate) fn bytes(&self) -> &[u8] {
        &self.payload
    }

    pub(crate) fn max_attempts(mut self, n: i32) -> Self {
        self.max_attempts = Some(n);
        self
    }

    pub(crate) fn retry(mut self, strategy: &'static str) -> Self {
        self.retry = Some(strategy);
        self
    }

    pub(crate) fn timeout_ms(mut self, timeout_ms: i32) -> Self {
        self.timeout_ms = Some(timeout_ms);
        self
    }

    /// Due so much after its transaction began.
    pub(crate) fn scheduled_in_ms(mut self, scheduled_in_ms: i32) -> Self {
        self.scheduled_in_ms = Some(scheduled_in_ms);
        self
    }

    /// Enqueues on the caller's connection, inside its transaction if one is open. Returns the id.
    pub(crate) async fn by(&self, sql: &impl GenericClient) -> Result<Uuid, Error> {
        let row = sql
            .query_one(
                "SELECT enqueue_payment_outbox(p_instruction_id => $1, p_participant_id => $2, p_idempotency_key => $1,
                   p_rail_type => $3, p_payload => $4, p_target_url => $5, p_credentials_id => $6, p_mode => $7,
                   p_max_attempts => $8, p_retry_strategy => $9, p_timeout_ms => $10,
                   p_scheduled_for => now() + $11::integer * interval '1 ms')",
                &[
                    &self.key,
                    &self.group,
                    &self.rail,
                    &self.payload,
                    &self.url,
                    &self.credentials.0,
                    &self.mode,
                    &self.max_attempts,
                    &self.retry,
                    &self.timeout_ms,
                    &self.scheduled_in_ms,
                ],
            )
            .await?;
        Ok(row.get(0))
    }
}

/// For tests with many failures: looks for what is due again all the time, and never stops calling an endpoint.
pub(crate) fn eager(options: &mut NodeOptions) {
    options.poll = Duration::from_millis(25);
    options.http.breaker.calls_min = 10_000;
}

/// SQLSTATE of a refusal.
pub(crate) fn sqlstate(error: &Error) -> &str {
    error.code().map_or("none", |code| code.code())
}

/// Which field a refusal names.
pub(crate) fn column(error: &Error) -> &str {
    error.as_db_error().and_then(|db| db.column()).unwrap_or("none")
}
