//! What phase A needs to know first, and the steps that need nothing else: enrich, rules, context.

use std::collections::HashMap;

use jiff::Timestamp;
use railyard_core::ParticipantId;
use railyard_core::job::FieldError;
use railyard_core::payment::{Payment, Planned, Rules, Step, blocking_terms, context, enrich};
use serde_json::Value;
use tokio_postgres::Row;

use super::PAYMENT;
use super::accept::StepError;
use crate::connect::{Conn, Store};
use crate::error::StoreError;

pub(super) const KNOWN: &str = "SELECT payment_id, content_hash FROM payment WHERE payment_id = ANY ($1)";

const CONFIG: &str = "SELECT clock_timestamp() AS now, c.rate_config FROM (SELECT 1) one
    LEFT JOIN exec_rate_config c ON c.item_type = $1";

const RULES: &str = "SELECT kind, currency, max_amount, cut_off_at, time_zone, party FROM payment_rules($1)";

/// What stands in the database.
pub(super) struct Looked {
    /// Its time.
    now: Timestamp,
    rules: Rules,
    /// By what the planner gives slots.
    rate_config: String,
    /// Hashes of the payments that were accepted before.
    pub(super) known: HashMap<String, Vec<u8>>,
}

/// A payment that nothing speaks against.
pub(super) struct Prepared {
    pub(super) planned: Planned,
    pub(super) group: ParticipantId,
    pub(super) context: Value,
    pub(super) content_hash: [u8; 32],
    pub(super) rate_config: String,
}

pub(super) async fn look(store: &Store, payments: &[&Payment]) -> Result<Looked, StepError> {
    let conn = store.api().await.map_err(StepError::at(Step::Enrich))?;
    let looked = look_in(&conn, payments).await;
    if !matches!(looked, Err(StepError { error: StoreError::Unavailable { .. }, .. })) {
        conn.ok();
    }
    looked
}

async fn look_in(conn: &Conn, payments: &[&Payment]) -> Result<Looked, StepError> {
    let terms = blocking_terms(payments.iter().copied());
    let ids: Vec<&str> = payments.iter().map(|payment| payment.payment_id.as_str()).collect();
    let (now, rate_config) = config(conn).await.map_err(StepError::at(Step::Enrich))?;
    let rules = rules(conn, &terms).await.map_err(StepError::at(Step::ApplyRules))?;
    let known = known(conn, &ids).await.map_err(StepError::at(Step::Persist))?;
    Ok(Looked { now, rules, rate_config, known })
}

async fn config(conn: &Conn) -> Result<(Timestamp, String), StoreError> {
    let statement = conn.prepare_cached(CONFIG).await?;
    let row = conn.query_one(&statement, &[&PAYMENT]).await?;
    let Some(rate_config) = row.try_get("rate_config")? else {
        return Err(StoreError::Unreadable { detail: format!("exec_rate_config has no row for {PAYMENT}") });
    };
    Ok((row.try_get("now")?, rate_config))
}

async fn rules(conn: &Conn, terms: &[String]) -> Result<Rules, StoreError> {
    let statement = conn.prepare_cached(RULES).await?;
    let mut rules = Rules::default();
    for row in conn.query(&statement, &[&terms]).await? {
        rule(&mut rules, &row)?;
    }
    Ok(rules)
}

/// A rule that cannot be read is an error: nothing is accepted until it can.
fn rule(rules: &mut Rules, row: &Row) -> Result<(), StoreError> {
    let kind: &str = row.try_get("kind")?;
    let currency: Option<&str> = row.try_get("currency")?;
    let read = match kind {
        "limit" => rules.limit(currency.unwrap_or_default(), row.try_get("max_amount")?),
        "cut_off" => rules.cut_off(currency, row.try_get("cut_off_at")?, row.try_get("time_zone")?),
        "blocked" => {
            rules.block(row.try_get("party")?);
            true
        }
        _ => false,
    };
    match read {
        true => Ok(()),
        false => Err(StoreError::Unreadable { detail: format!("a {kind} of payment_rule") }),
    }
}

pub(super) async fn known(conn: &Conn, ids: &[&str]) -> Result<HashMap<String, Vec<u8>>, StoreError> {
    let statement = conn.prepare_cached(KNOWN).await?;
    let rows = conn.query(&statement, &[&ids]).await?;
    rows.iter().map(|row| Ok((row.try_get("payment_id")?, row.try_get("content_hash")?))).collect()
}

pub(super) fn prepare(looked: &Looked, payment: Payment) -> Result<Prepared, (Step, Vec<FieldError>)> {
    let content_hash = payment.content_hash();
    let planned = enrich(payment, looked.now).map_err(|errors| (Step::Enrich, errors))?;
    let planned = looked.rules.apply(planned, looked.now).map_err(|errors| (Step::ApplyRules, errors))?;
    let context = context(&planned, looked.now);
    let group = planned.payment.group();
    Ok(Prepared { planned, group, context, content_hash, rate_config: looked.rate_config.clone() })
}
