//! Instructions on their way: many in one request, one request after the other, so that the file's order is the order of
//! acceptance; each is sent until it is answered for good.

use std::time::{Duration, Instant};

use anyhow::Context;
use reqwest::Method;
use serde_json::{Value, json};

use super::rejects::{Reject, Rejects};
use super::report::Report;
use crate::client::{Client, Patience};
use crate::feed::{Row, Unreadable};

/// What is to come again comes again after this.
const AGAIN_AFTER: Duration = Duration::from_millis(200);
/// Tries of an instruction that the API fails on by itself.
const FAULTS_MAX: u32 = 5;

/// An instruction of a request.
pub(super) struct Item {
    item: u64,
    line: u64,
    pub(super) body: String,
    faults: u32,
}

impl Item {
    /// What is sent of a row.
    pub(super) fn of(row: Row) -> Self {
        let (item, line) = (row.item, row.line);
        let body = match row.payment {
            Ok(payment) => format!("{{\"item\":{item},\"line\":{line},\"payment\":{payment}}}"),
            Err(Unreadable { payment_id, field, reason }) => {
                json!({ "item": item, "line": line, "paymentId": payment_id, "field": field, "reason": reason })
                    .to_string()
            }
        };
        Self { item, line, body, faults: 0 }
    }
}

/// Sends a feed's instructions.
pub(super) struct Sender {
    pub(super) client: Client,
    pub(super) patience: Patience,
    /// The feed's.
    pub(super) path: String,
}

impl Sender {
    /// Sends these, and again what is to come again.
    ///
    /// # Errors
    /// The API refuses all of it, or was away or busy for longer than the patience; the file of rejects cannot be written.
    pub(super) async fn send(
        &self,
        mut items: Vec<Item>,
        report: &mut Report,
        rejects: &mut Rejects,
    ) -> anyhow::Result<()> {
        let path = format!("{}/lines", self.path);
        let began = Instant::now();
        let waiting = report.waiting();
        while let Some(first) = items.first() {
            let line = first.line;
            let body = array(&items);
            let call = || self.client.call(Method::POST, &path, Some(body.clone()));
            let answer = self.patience.call(call, &waiting).await.with_context(|| format!("line {line}"))?;
            items = sort_out(items, &answer.body, report, rejects)?;
            if items.is_empty() {
                break;
            }
            if began.elapsed() > self.patience.limit {
                anyhow::bail!("line {}: still to be sent again when the patience was over", items[0].line);
            }
            tokio::time::sleep(AGAIN_AFTER).await;
        }
        Ok(())
    }
}

/// Notes what is answered for good, and gives back what is to be sent again, in its order.
fn sort_out(items: Vec<Item>, answer: &Value, report: &mut Report, rejects: &mut Rejects) -> anyhow::Result<Vec<Item>> {
    let results = answer["results"].as_array().map(Vec::as_slice).unwrap_or_default();
    let mut again = Vec::new();
    for (index, mut item) in items.into_iter().enumerate() {
        let result = results.get(index).unwrap_or(&Value::Null);
        match result["status"].as_str().unwrap_or_default() {
            "SUCCESS" => report.accepted(),
            "SKIPPED" => report.known(),
            "BAD_REQUEST" => {
                let reject = Reject::of(item.item, item.line, result);
                report.rejected(rejects.add(&reject)?);
            }
            "INTERNAL_ERROR" if item.faults + 1 >= FAULTS_MAX => {
                let why = result["error"].as_str().unwrap_or_default();
                report.unanswered(&format!("line {}: {why}", item.line));
            }
            other => {
                item.faults += u32::from(other == "INTERNAL_ERROR");
                again.push(item);
            }
        }
    }
    Ok(again)
}

fn array(items: &[Item]) -> Vec<u8> {
    let mut body = Vec::with_capacity(items.iter().map(|item| item.body.len() + 1).sum::<usize>() + 1);
    for (index, item) in items.iter().enumerate() {
        body.push(if index == 0 { b'[' } else { b',' });
        body.extend_from_slice(item.body.as_bytes());
    }
    body.push(b']');
    body
}
