//! ISO 20022 pain.001, customer credit transfer initiation, versions 001.001.03 and 001.001.09: a message has blocks
//! (`PmtInf`: one debtor, one day) and each block transfers (`CdtTrfTxInf`), which are the instructions.
//!
//! The file is read once, element by element; a block's debtor stands before its transfers, so that nothing is kept but
//! the block's head and one transfer. Elements that are none of ours are passed over. A transfer's id is the message's
//! and its number in it: the same file is the same payments, and a corrected one has another `MsgId`, as with banks.

mod block;
mod decimal;
mod xml;

use std::io::BufRead;

use sha2::{Digest, Sha256};

use super::metered::Metered;
use super::{Broken, Clock, Row};
use block::{Block, Transfer};
use decimal::Decimal;
use xml::{Tag, Xml};

/// Where a message's own elements begin.
const MESSAGE: &str = "Document/CstmrCdtTrfInitn/";
const NAMESPACE: &str = "urn:iso:std:iso:20022:tech:xsd:pain.001.001.";
const VERSIONS: [&str; 2] = ["03", "09"];

/// What a head says of what is in it.
#[derive(Default)]
struct Promise {
    count: Option<String>,
    sum: Option<String>,
}

/// What was met of that.
#[derive(Default)]
struct Met {
    count: u64,
    sum: Decimal,
}

/// A message.
pub(crate) struct Pain001<R> {
    xml: Xml<R>,
    clock: Clock,
    message_id: String,
    promise: Promise,
    met: Met,
    block: Block,
    block_promise: Promise,
    block_met: Met,
    transfer: Option<Transfer>,
    ended: bool,
}

impl<R: BufRead> Pain001<R> {
    pub(super) fn new(input: R, clock: Clock) -> Self {
        Self {
            xml: Xml::new(input),
            clock,
            message_id: String::new(),
            promise: Promise::default(),
            met: Met::default(),
            block: Block::default(),
            block_promise: Promise::default(),
            block_met: Met::default(),
            transfer: None,
            ended: false,
        }
    }

    pub(super) fn meter(&self) -> &Metered<R> {
        self.xml.meter()
    }

    pub(super) fn next(&mut self) -> Result<Option<Row>, Broken> {
        while !self.ended {
            match self.xml.next()? {
                Some(Tag::Open { namespace, currency }) => self.open(namespace.as_deref(), currency)?,
                Some(Tag::Close { text }) => {
                    if let Some(row) = self.close(&text)? {
                        return Ok(Some(row));
                    }
                }
                None => {
                    self.ended = true;
                    self.promise.hold("GrpHdr", &self.met, true, self.xml.line())?;
                }
            }
        }
        Ok(None)
    }

    fn broken(&self, place: &str, what: impl Into<String>) -> Broken {
        Broken { line: self.xml.line(), place: Some(place.to_owned()), what: what.into() }
    }

    fn open(&mut self, namespace: Option<&str>, currency: Option<String>) -> Result<(), Broken> {
        let Some(element) = self.xml.path().strip_prefix(MESSAGE) else { return self.open_outside(namespace) };
        match element {
            "PmtInf" => {
                if self.message_id.is_empty() {
                    return Err(self.broken("GrpHdr/MsgId", "is missing"));
                }
                self.block = Block::default();
                self.block_promise = Promise::default();
                self.block_met = Met::default();
            }
            "PmtInf/CdtTrfTxInf" => self.transfer = Some(Transfer::begin(self.xml.line())),
            "PmtInf/CdtTrfTxInf/Amt/InstdAmt" => {
                if let Some(transfer) = &mut self.transfer {
                    transfer.put("currency", currency.unwrap_or_default());
                }
            }
            _ => {}
        }
        Ok(())
    }

    /// The root and what stands in it tell what kind of file this is.
    fn open_outside(&self, namespace: Option<&str>) -> Result<(), Broken> {
        match self.xml.path() {
            "Document" => {
                let version = namespace.and_then(|name| name.strip_prefix(NAMESPACE));
                match version {
                    Some(version) if VERSIONS.contains(&version) => Ok(()),
                    _ => {
                        let found: String = namespace.unwrap_or("none").chars().take(80).collect();
                        let what = format!("is not of pain.001.001.{}; its namespace: {found}", VERSIONS.join(" or "));
                        Err(self.broken("Document", what))
                    }
                }
            }
            "Document/CstmrCdtTrfInitn" => Ok(()),
            other => Err(self.broken(other, "is not an element of a pain.001 message")),
        }
    }

    fn close(&mut self, text: &str) -> Result<Option<Row>, Broken> {
        let path = self.xml.path();
        let Some(element) = path.strip_prefix(MESSAGE) else { return Ok(None) };
        match element.strip_prefix("PmtInf/CdtTrfTxInf/") {
            Some(of_transfer) => {
                if let Some(transfer) = &mut self.transfer {
                    transfer.take(of_transfer, text);
                }
                return Ok(None);
            }
            None if element == "PmtInf/CdtTrfTxInf" => return Ok(self.end_transfer()),
            None => {}
        }
        match element {
            "GrpHdr/MsgId" => text.clone_into(&mut self.message_id),
            "GrpHdr/NbOfTxs" => self.promise.count = Some(text.to_owned()),
            "GrpHdr/CtrlSum" => self.promise.sum = Some(text.to_owned()),
            "PmtInf/NbOfTxs" => self.block_promise.count = Some(text.to_owned()),
            "PmtInf/CtrlSum" => self.block_promise.sum = Some(text.to_owned()),
            "PmtInf" => self.block_promise.hold("PmtInf", &self.block_met, false, self.xml.line())?,
            other => {
                if let Some(of_block) = other.strip_prefix("PmtInf/") {
                    self.block.take(of_block, text);
                }
            }
        }
        Ok(None)
    }

    fn end_transfer(&mut self) -> Option<Row> {
        let transfer = self.transfer.take()?;
        for met in [&mut self.met, &mut self.block_met] {
            met.count += 1;
            met.sum.add(transfer.amount());
        }
        let item = self.met.count;
        let payment_id = payment_id(&self.message_id, item);
        let line = transfer.line();
        Some(Row { item, line, payment: transfer.end(&self.block, &self.clock, &payment_id) })
    }
}

impl Promise {
    /// Compares with what was met. `must` is whether the number has to be there.
    fn hold(&self, of: &str, met: &Met, must: bool, line: u64) -> Result<(), Broken> {
        let broken = |element: &str, what| Err(Broken { line, place: Some(format!("{of}/{element}")), what });
        match &self.count {
            Some(count) if count.parse() == Ok(met.count) => {}
            Some(count) => {
                let count: String = count.chars().take(40).collect();
                return broken("NbOfTxs", format!("is {count}, and there are {} transfers", met.count));
            }
            None if must => return broken("NbOfTxs", "is missing".to_owned()),
            None => {}
        }
        match &self.sum {
            Some(sum) if !met.sum.is(sum) => {
                let sum: String = sum.chars().take(40).collect();
                broken("CtrlSum", format!("is {sum}, and the amounts come to {}", met.sum))
            }
            Some(_) | None => Ok(()),
        }
    }
}

/// The id of a message's n-th transfer. A `MsgId` may have characters that an id cannot have; then its digest is part of
/// it, so that two of them never come to the same.
fn payment_id(message_id: &str, item: u64) -> String {
    let is_kept = |c: char| c.is_ascii_alphanumeric() || "._-".contains(c);
    let begins_well = message_id.starts_with(|c: char| c.is_ascii_alphanumeric());
    if begins_well && message_id.len() <= 35 && message_id.chars().all(is_kept) {
        return format!("{message_id}:{item}");
    }
    let clean: String = message_id.chars().take(20).map(|c| if is_kept(c) { c } else { '-' }).collect();
    let digest = hex::encode(&Sha256::digest(message_id)[..8]);
    format!("m{clean}-{digest}:{item}")
}

#[cfg(test)]
mod tests {
    use railyard_core::payment::is_payment_id;

    use super::payment_id;

    #[test]
    fn ids_of_transfers() {
        assert_eq!(payment_id("MSG-2025.10", 7), "MSG-2025.10:7");
        let odd = ["A/B", "A B", "a:1", "-x", "Ä", &"x".repeat(36), "A+B"].map(|id| payment_id(id, 1_000_000));
        for (index, id) in odd.iter().enumerate() {
            assert!(is_payment_id(id), "{id}");
            assert!(!odd[..index].contains(id), "{id}");
        }
    }
}
