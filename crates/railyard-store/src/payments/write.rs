//! The steps of phase A that leave something: a slot on condition, then payment, context and queue row in one transaction.

use std::collections::{BTreeMap, HashMap, HashSet};

use jiff::Timestamp;
use railyard_core::payment::{Bic, CONTEXT_VERSION, Party, Step};
use tokio_postgres::types::ToSql;

use super::accept::{Enqueued, StepError};
use super::prepare::{Prepared, known};
use super::{PAYMENT, slot_event};
use crate::connect::{Conn, Store};
use crate::error::StoreError;
use crate::failpoint;
use crate::rate::{self, RateError, SlotRequest};
use crate::transaction::{LOCK_TIMEOUT, begin, end};

/// How long a slot waits for its payment to be written. Much longer than that can take.
const CONFIRM_S: u32 = 300;
/// The same again, where it met other transactions.
const TRIES_MAX: u32 = 3;

const PERSIST: &str = "
    INSERT INTO payment (payment_id, group_id, amount, currency, debtor_name, debtor_iban, debtor_bic, creditor_name,
      creditor_iban, creditor_bic, end_to_end_id, remittance_information, requested_time, content_hash, accepted_by)
    SELECT u.payment_id, u.group_id, u.amount::numeric, u.currency, u.debtor_name, u.debtor_iban, u.debtor_bic,
      u.creditor_name, u.creditor_iban, u.creditor_bic, u.end_to_end_id, u.remittance, u.requested, u.hash, $15
    FROM unnest($1::text[], $2::text[], $3::text[], $4::text[], $5::text[], $6::text[], $7::text[], $8::text[], $9::text[],
      $10::text[], $11::text[], $12::text[], $13::timestamptz[], $14::bytea[])
      AS u(payment_id, group_id, amount, currency, debtor_name, debtor_iban, debtor_bic, creditor_name, creditor_iban,
      creditor_bic, end_to_end_id, remittance, requested, hash)
    ORDER BY u.payment_id COLLATE \"C\"
    ON CONFLICT DO NOTHING RETURNING payment_id";

/// What an earlier try left behind is replaced.
const SAVE_CONTEXT: &str = "
    INSERT INTO payment_exec_context AS c (item_type, payment_id, context_json, context_version)
    SELECT $1, u.payment_id, u.context, $4 FROM unnest($2::text[], $3::jsonb[]) AS u(payment_id, context)
    ORDER BY u.payment_id COLLATE \"C\"
    ON CONFLICT (item_type, payment_id) DO UPDATE
    SET context_json = excluded.context_json, context_version = excluded.context_version, updated_at = clock_timestamp()";

const ENQUEUE: &str = "SELECT payment_id, scheduled_exec_time, acceptance_no FROM exec_enqueue($1, $2, $3, $4, $5, $6)";

/// What a payment has come to.
pub(super) enum Written {
    Enqueued(Enqueued),
    /// Somebody else's call was first.
    Known {
        same: bool,
    },
}

/// Gives each its slot and writes all of them, or none. Answers in their order.
pub(super) async fn place(store: &Store, prepared: &[Prepared], actor: &str) -> Result<Vec<Written>, StepError> {
    let mut tries = 1;
    loop {
        match once(store, prepared, actor).await {
            Err(StepError { error: StoreError::Repeat { .. }, .. }) if tries < TRIES_MAX => tries += 1,
            done => return done,
        }
    }
}

async fn once(store: &Store, prepared: &[Prepared], actor: &str) -> Result<Vec<Written>, StepError> {
    if prepared.is_empty() {
        return Ok(Vec::new());
    }
    let slots = slots(store, prepared).await.map_err(StepError::at(Step::AssignSlot))?;
    failpoint::reached("accept_slot_given");
    let settings = format!("SET LOCAL lock_timeout = {}", LOCK_TIMEOUT.as_millis());
    let conn = begin(store, &settings).await.map_err(StepError::at(Step::Persist))?;
    match write(&conn, prepared, &slots, actor).await {
        Ok(written) => {
            failpoint::reached("accept_before_commit");
            let done = end(conn, Ok(written)).await.map_err(StepError::at(Step::Enqueue));
            failpoint::reached("accept_after_commit");
            done
        }
        Err(StepError { step, error }) => end(conn, Err(error)).await.map_err(StepError::at(step)),
    }
}

/// Slots in the order of the payments: a call of the planner for each time that is asked for.
async fn slots(store: &Store, prepared: &[Prepared]) -> Result<Vec<Timestamp>, StoreError> {
    let mut by_time: BTreeMap<(&str, Timestamp), Vec<usize>> = BTreeMap::new();
    for (index, one) in prepared.iter().enumerate() {
        by_time.entry((&one.rate_config, one.planned.requested)).or_default().push(index);
    }
    let mut slots = vec![Timestamp::UNIX_EPOCH; prepared.len()];
    for ((config, requested), indices) in by_time {
        let event_ids: Vec<String> = indices.iter().map(|index| prepared[*index].slot_event()).collect();
        let asked =
            SlotRequest { config, event_ids: &event_ids, requested: Some(requested), confirm_s: Some(CONFIRM_S) };
        let assigned = rate::assign(store, asked).await.map_err(|error| match error {
            RateError::Store(error) => error,
            error @ RateError::UnknownConfig { .. } => StoreError::Unreadable { detail: error.to_string() },
            error @ RateError::Exhausted { .. } => StoreError::Busy { detail: error.to_string() },
        })?;
        for (index, slot) in indices.into_iter().zip(assigned.slots) {
            slots[index] = slot.scheduled;
        }
    }
    Ok(slots)
}

async fn write(
    conn: &Conn,
    prepared: &[Prepared],
    slots: &[Timestamp],
    actor: &str,
) -> Result<Vec<Written>, StepError> {
    let created = persist(conn, prepared, actor).await.map_err(StepError::at(Step::Persist))?;
    let is_new = |one: &Prepared| created.contains(&one.planned.payment.payment_id);
    let others: Vec<&str> = prepared.iter().filter(|one| !is_new(one)).map(Prepared::id).collect();
    let known = match others.is_empty() {
        true => HashMap::new(),
        false => known(conn, &others).await.map_err(StepError::at(Step::Persist))?,
    };
    let new: Vec<(&Prepared, Timestamp)> =
        prepared.iter().zip(slots.iter().copied()).filter(|(one, _)| is_new(one)).collect();
    save_context(conn, &new).await.map_err(StepError::at(Step::SaveContext))?;
    let mut enqueued = enqueue(conn, &new).await.map_err(StepError::at(Step::Enqueue))?;
    let answer = |one: &Prepared| match enqueued.remove(one.id()) {
        Some(enqueued) => Ok(Written::Enqueued(enqueued)),
        None => match known.get(one.id()) {
            Some(hash) => Ok(Written::Known { same: *hash == one.content_hash }),
            None => {
                let detail = format!("{} is in the queue and not among the payments, or the reverse", one.id());
                Err(StepError { step: Step::Enqueue, error: StoreError::Unreadable { detail } })
            }
        },
    };
    prepared.iter().map(answer).collect()
}

impl Prepared {
    fn id(&self) -> &str {
        &self.planned.payment.payment_id
    }

    fn slot_event(&self) -> String {
        slot_event(self.id(), &self.content_hash)
    }
}

fn bic(party: &Party) -> Option<&str> {
    party.bic.as_ref().map(Bic::as_str)
}

/// The ids that were new.
async fn persist(conn: &Conn, prepared: &[Prepared], actor: &str) -> Result<HashSet<String>, StoreError> {
    let texts = |of: fn(&Prepared) -> Option<&str>| prepared.iter().map(of).collect::<Vec<Option<&str>>>();
    let amounts: Vec<String> = prepared.iter().map(|one| one.planned.payment.amount.to_string()).collect();
    let requested: Vec<Timestamp> = prepared.iter().map(|one| one.planned.requested).collect();
    let hashes: Vec<&[u8]> = prepared.iter().map(|one| one.content_hash.as_slice()).collect();
    let parameters: [&(dyn ToSql + Sync); 15] = [
        &texts(|one| Some(one.id())),
        &texts(|one| Some(one.group.as_str())),
        &amounts,
        &texts(|one| Some(one.planned.payment.amount.currency().code())),
        &texts(|one| Some(&one.planned.payment.debtor.name)),
        &texts(|one| Some(one.planned.payment.debtor.iban.as_str())),
        &texts(|one| bic(&one.planned.payment.debtor)),
        &texts(|one| Some(&one.planned.payment.creditor.name)),
        &texts(|one| Some(one.planned.payment.creditor.iban.as_str())),
        &texts(|one| bic(&one.planned.payment.creditor)),
        &texts(|one| one.planned.payment.end_to_end_id.as_deref()),
        &texts(|one| one.planned.payment.remittance_information.as_deref()),
        &requested,
        &hashes,
        &actor,
    ];
    let statement = conn.prepare_cached(PERSIST).await?;
    conn.query(&statement, &parameters).await?.iter().map(|row| Ok(row.try_get("payment_id")?)).collect()
}

async fn save_context(conn: &Conn, new: &[(&Prepared, Timestamp)]) -> Result<(), StoreError> {
    let ids: Vec<&str> = new.iter().map(|(one, _)| one.id()).collect();
    let contexts: Vec<&serde_json::Value> = new.iter().map(|(one, _)| &one.context).collect();
    let statement = conn.prepare_cached(SAVE_CONTEXT).await?;
    conn.execute(&statement, &[&PAYMENT, &ids, &contexts, &CONTEXT_VERSION]).await?;
    Ok(())
}

async fn enqueue(conn: &Conn, new: &[(&Prepared, Timestamp)]) -> Result<HashMap<String, Enqueued>, StoreError> {
    if new.is_empty() {
        return Ok(HashMap::new());
    }
    let ids: Vec<&str> = new.iter().map(|(one, _)| one.id()).collect();
    let groups: Vec<&str> = new.iter().map(|(one, _)| one.group.as_str()).collect();
    let requested: Vec<Timestamp> = new.iter().map(|(one, _)| one.planned.requested).collect();
    let slots: Vec<Timestamp> = new.iter().map(|(_, slot)| *slot).collect();
    let events: Vec<String> = new.iter().map(|(one, _)| one.slot_event()).collect();
    let statement = conn.prepare_cached(ENQUEUE).await?;
    let rows = conn.query(&statement, &[&PAYMENT, &ids, &groups, &requested, &slots, &events]).await?;
    let mut placed: HashMap<String, (Timestamp, i64)> = HashMap::with_capacity(rows.len());
    for row in &rows {
        let place = (row.try_get("scheduled_exec_time")?, row.try_get("acceptance_no")?);
        placed.insert(row.try_get("payment_id")?, place);
    }
    let each = new.iter().filter_map(|(one, _)| {
        let (scheduled, acceptance_no) = placed.remove(one.id())?;
        let (group, requested) = (one.group.clone(), one.planned.requested);
        Some((one.id().to_owned(), Enqueued { group, requested, scheduled, acceptance_no }))
    });
    Ok(each.collect())
}
