//! What a block says of all its transfers, and a transfer until it is whole.

use std::collections::BTreeMap;

use jiff::Timestamp;
use jiff::civil::{Date, DateTime};

use crate::feed::{Clock, Unreadable};

/// What is kept of free text: more is refused by the API anyway.
const REMITTANCE_BYTES_MAX: usize = 4096;

/// `PmtInf`.
#[derive(Default)]
pub(super) struct Block {
    method: String,
    /// `ReqdExctnDt`: a day, or in the newer version a moment as well.
    day: Option<String>,
    moment: Option<String>,
    debtor: BTreeMap<&'static str, String>,
}

impl Block {
    /// An element of the block, its children's names included.
    pub(super) fn take(&mut self, element: &str, text: &str) {
        let text = || text.to_owned();
        match element {
            "PmtMtd" => self.method = text(),
            "ReqdExctnDt" if self.day.is_none() && self.moment.is_none() => self.day = Some(text()),
            "ReqdExctnDt/Dt" => self.day = Some(text()),
            "ReqdExctnDt/DtTm" => self.moment = Some(text()),
            "Dbtr/Nm" => _ = self.debtor.insert("debtorName", text()),
            "DbtrAcct/Id/IBAN" => _ = self.debtor.insert("debtorIban", text()),
            "DbtrAgt/FinInstnId/BIC" | "DbtrAgt/FinInstnId/BICFI" => _ = self.debtor.insert("debtorBic", text()),
            _ => {}
        }
    }

    /// When its transfers are to be executed, RFC 3339; else which element is to blame, and why.
    fn requested(&self, clock: &Clock) -> Result<Timestamp, (&'static str, String)> {
        if let Some(text) = &self.moment {
            let moment = text.parse::<Timestamp>().ok().or_else(|| {
                let local: DateTime = text.parse().ok().filter(|_| !text.contains('['))?;
                local.to_zoned(clock.zone.clone()).ok().map(|zoned| zoned.timestamp())
            });
            return moment
                .ok_or_else(|| ("PmtInf/ReqdExctnDt/DtTm", "is not a time like 2025-10-04T15:00:00Z".to_owned()));
        }
        let place = "PmtInf/ReqdExctnDt";
        let text = self.day.as_deref().filter(|day| !day.is_empty());
        let text = text.ok_or_else(|| (place, "is missing".to_owned()))?;
        // An ISO date may have an offset behind it (2025-10-04Z), which says nothing that the clock does not say.
        let day = text.get(..10).filter(|_| text.len() == 10 || is_offset(&text[10..]));
        let day: Option<Date> = day.and_then(|day| day.parse().ok());
        let at = day.and_then(|day| day.to_datetime(clock.time).to_zoned(clock.zone.clone()).ok());
        at.map(|at| at.timestamp()).ok_or_else(|| (place, "is not a day like 2025-10-04".to_owned()))
    }
}

fn is_offset(text: &str) -> bool {
    text == "Z" || text.len() == 6 && text.starts_with(['+', '-'])
}

/// `CdtTrfTxInf`.
pub(super) struct Transfer {
    line: u64,
    fields: BTreeMap<&'static str, String>,
    reference: Option<String>,
}

impl Transfer {
    pub(super) fn begin(line: u64) -> Self {
        Self { line, fields: BTreeMap::new(), reference: None }
    }

    pub(super) fn line(&self) -> u64 {
        self.line
    }

    /// Decimal text; empty if there is none.
    pub(super) fn amount(&self) -> &str {
        self.fields.get("amount").map_or("", String::as_str)
    }

    pub(super) fn put(&mut self, field: &'static str, text: String) {
        self.fields.insert(field, text);
    }

    /// An element of the transfer, its children's names included.
    pub(super) fn take(&mut self, element: &str, text: &str) {
        let given = || text.to_owned();
        match element {
            "PmtId/EndToEndId" => self.put("endToEndId", given()),
            "Amt/InstdAmt" => self.put("amount", given()),
            "CdtrAgt/FinInstnId/BIC" | "CdtrAgt/FinInstnId/BICFI" => self.put("creditorBic", given()),
            "Cdtr/Nm" => self.put("creditorName", given()),
            "CdtrAcct/Id/IBAN" => self.put("creditorIban", given()),
            "RmtInf/Ustrd" => {
                let so_far = self.fields.entry("remittanceInformation").or_default();
                if so_far.len() < REMITTANCE_BYTES_MAX {
                    if !so_far.is_empty() {
                        so_far.push(' ');
                    }
                    so_far.push_str(text);
                }
            }
            "RmtInf/Strd/CdtrRefInf/Ref" => self.reference = Some(given()),
            _ => {}
        }
    }

    /// The payment as the API takes it.
    pub(super) fn end(mut self, block: &Block, clock: &Clock, payment_id: &str) -> Result<String, Unreadable> {
        let unreadable = |field: &str, reason: String| Unreadable {
            payment_id: Some(payment_id.to_owned()),
            field: Some(field.to_owned()),
            reason,
        };
        if block.method != "TRF" {
            let method: String = block.method.chars().take(20).collect();
            return Err(unreadable("PmtInf/PmtMtd", format!("is {method:?}, and only transfers are taken (TRF)")));
        }
        let requested = block.requested(clock).map_err(|(element, reason)| unreadable(element, reason))?;
        if let Some(reference) = self.reference.take() {
            self.fields.entry("remittanceInformation").or_insert(reference);
        }
        self.fields.extend(block.debtor.iter().map(|(field, text)| (*field, text.clone())));
        self.fields.insert("requestedTime", requested.to_string());
        self.fields.insert("paymentId", payment_id.to_owned());
        serde_json::to_string(&self.fields).map_err(|error| unreadable("CdtTrfTxInf", error.to_string()))
    }
}
