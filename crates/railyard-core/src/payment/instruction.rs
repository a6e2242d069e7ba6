//! A scheduled payment as it is asked for, and as it is once every field is right.

use jiff::Timestamp;
use sha2::{Digest, Sha256};

use super::amount::{Amount, Currency};
use super::bank::{Bic, Iban};
use crate::ids::ParticipantId;
use crate::job::{FieldError, Found};

/// Characters of a payment's id.
pub const PAYMENT_ID_CHARS_MAX: usize = 64;
/// Characters of a party's name (ISO 20022: Max140Text).
pub const PARTY_NAME_CHARS_MAX: usize = 140;
/// Characters of `endToEndId` (ISO 20022: Max35Text).
pub const END_TO_END_ID_CHARS_MAX: usize = 35;
/// Characters of `remittanceInformation` (ISO 20022: Max140Text).
pub const REMITTANCE_CHARS_MAX: usize = 140;

/// Every field, as text, before anything was looked at. Empty text is a missing field.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct PaymentRequest {
    /// The caller's own id: the same id with the same content is the same payment.
    pub payment_id: String,
    /// Who pays.
    pub debtor_name: String,
    /// From which account; payments of one account are executed in order.
    pub debtor_iban: String,
    /// At which bank.
    pub debtor_bic: Option<String>,
    /// Who is paid.
    pub creditor_name: String,
    /// To which account.
    pub creditor_iban: String,
    /// At which bank.
    pub creditor_bic: Option<String>,
    /// Decimal text.
    pub amount: String,
    /// ISO 4217.
    pub currency: String,
    /// Not before; none: as soon as may be.
    pub requested_time: Option<Timestamp>,
    /// What the parties call it.
    pub end_to_end_id: Option<String>,
    /// What it is for.
    pub remittance_information: Option<String>,
}

/// One side of a payment.
#[derive(Clone, PartialEq, Eq)]
pub struct Party {
    /// Its name.
    pub name: String,
    /// Its account.
    pub iban: Iban,
    /// Its bank.
    pub bic: Option<Bic>,
}

/// A payment whose fields are right.
#[derive(Clone, PartialEq, Eq)]
pub struct Payment {
    /// The caller's id.
    pub payment_id: String,
    /// Who pays.
    pub debtor: Party,
    /// Who is paid.
    pub creditor: Party,
    /// How much.
    pub amount: Amount,
    /// Not before, as it was asked for.
    pub requested_time: Option<Timestamp>,
    /// What the parties call it.
    pub end_to_end_id: Option<String>,
    /// What it is for.
    pub remittance_information: Option<String>,
}

/// Whether a payment can have this id: 1 to 64 letters, digits and `._:-`, the first one a letter or digit. It stands in
/// paths, keys and file names.
#[must_use]
pub fn is_payment_id(text: &str) -> bool {
    text.len() <= PAYMENT_ID_CHARS_MAX
        && text.bytes().next().is_some_and(|first| first.is_ascii_alphanumeric())
        && text.bytes().all(|b| b.is_ascii_alphanumeric() || b"._:-".contains(&b))
}

impl PaymentRequest {
    /// Checks every field: S0's first step.
    ///
    /// # Errors
    /// Everything that is wrong, under the names of the API, not only the first.
    pub fn validate(self) -> Result<Payment, Vec<FieldError>> {
        let mut found = Found::default();
        if self.payment_id.is_empty() {
            found.add("paymentId", "is missing".to_owned());
        } else if !is_payment_id(&self.payment_id) {
            let detail = format!(
                "is not 1 to {PAYMENT_ID_CHARS_MAX} letters, digits and ._:-, beginning with one of the first two"
            );
            found.add("paymentId", detail);
        }
        let debtor = party(&mut found, "debtor", self.debtor_name, &self.debtor_iban, self.debtor_bic);
        let creditor = party(&mut found, "creditor", self.creditor_name, &self.creditor_iban, self.creditor_bic);
        if let (Some(debtor), Some(creditor)) = (&debtor, &creditor)
            && debtor.iban == creditor.iban
        {
            found.add("creditorIban", "is the debtor's account".to_owned());
        }
        let amount = amount(&mut found, &self.amount, &self.currency);
        text(&mut found, "endToEndId", self.end_to_end_id.as_deref(), END_TO_END_ID_CHARS_MAX);
        text(&mut found, "remittanceInformation", self.remittance_information.as_deref(), REMITTANCE_CHARS_MAX);
        found.end()?;
        // What is missing here was found above.
        let (Some(debtor), Some(creditor), Some(amount)) = (debtor, creditor, amount) else { return Err(Vec::new()) };
        Ok(Payment {
            payment_id: self.payment_id,
            debtor,
            creditor,
            amount,
            requested_time: self.requested_time,
            end_to_end_id: self.end_to_end_id,
            remittance_information: self.remittance_information,
        })
    }
}

fn party(found: &mut Found, side: &str, name: String, iban: &str, bic: Option<String>) -> Option<Party> {
    text(found, &format!("{side}Name"), Some(&name), PARTY_NAME_CHARS_MAX);
    let iban = named(found, &format!("{side}Iban"), iban, Iban::parse);
    let bic = bic.map(|bic| named(found, &format!("{side}Bic"), &bic, Bic::parse));
    match (iban, bic) {
        (Some(iban), None) => Some(Party { name, iban, bic: None }),
        (Some(iban), Some(Some(bic))) => Some(Party { name, iban, bic: Some(bic) }),
        (None, _) | (Some(_), Some(None)) => None,
    }
}

fn named<T>(found: &mut Found, field: &str, given: &str, parse: fn(&str) -> Result<T, &'static str>) -> Option<T> {
    if given.is_empty() {
        found.add(field, "is missing".to_owned());
        return None;
    }
    parse(given).map_err(|wrong| found.add(field, wrong.to_owned())).ok()
}

fn amount(found: &mut Found, amount: &str, currency: &str) -> Option<Amount> {
    let known = Currency::of(currency);
    match (currency.is_empty(), known) {
        (true, _) => found.add("currency", "is missing".to_owned()),
        (false, None) => found.add("currency", "is not a currency of ISO 4217 that money can be moved in".to_owned()),
        (false, Some(_)) => {}
    }
    if amount.is_empty() {
        found.add("amount", "is missing".to_owned());
        return None;
    }
    match known {
        Some(currency) => Amount::parse(amount, currency).map_err(|wrong| found.add("amount", wrong)).ok(),
        None => {
            // Without its currency, only what is an amount in none is known to be wrong.
            if Currency::of("CLF").is_some_and(|finest| Amount::parse(amount, finest).is_err()) {
                found.add("amount", "is not a decimal number above zero like 99.90".to_owned());
            }
            None
        }
    }
}

fn text(found: &mut Found, field: &str, given: Option<&str>, chars_max: usize) {
    let Some(given) = given else { return };
    found.required_chars(field, given, chars_max);
    if given.chars().any(|c| c.is_control() && c != '\0') {
        found.add(field, "has a control character".to_owned());
    }
}

impl Payment {
    /// What its order is among: payments of one account. A digest of the account, since groups are named in metrics,
    /// headers and logs.
    #[must_use]
    pub fn group(&self) -> ParticipantId {
        debtor_group(&self.debtor.iban)
    }

    /// SHA-256 of what was asked for: two requests under one id are the same payment if it is the same.
    #[must_use]
    pub fn content_hash(&self) -> [u8; 32] {
        let bic = |party: &Party| party.bic.as_ref().map(|bic| bic.as_str().to_owned());
        let requested = self.requested_time.map(|at| at.as_nanosecond().to_string());
        let amount = self.amount.to_string();
        let mut hash = Sha256::new();
        for field in [
            Some(self.debtor.name.clone()),
            Some(self.debtor.iban.as_str().to_owned()),
            bic(&self.debtor),
            Some(self.creditor.name.clone()),
            Some(self.creditor.iban.as_str().to_owned()),
            bic(&self.creditor),
            Some(amount),
            Some(self.amount.currency().code().to_owned()),
            requested,
            self.end_to_end_id.clone(),
            self.remittance_information.clone(),
        ] {
            // With its length in front, so that no field's end is another one's beginning; none is not empty.
            let length = field.as_ref().map_or(0, |text| text.len() as u64 + 1);
            hash.update(length.to_be_bytes());
            hash.update(field.unwrap_or_default());
        }
        hash.finalize().into()
    }
}

/// The group of an account's payments.
///
/// ```
/// use railyard_core::payment::{Iban, debtor_group};
/// let iban = Iban::parse("DE89370400440532013000").unwrap();
/// // printf DE89370400440532013000 | sha256sum
/// assert_eq!(debtor_group(&iban).as_str(), "debtor-faf7e1c0107370ff6f5d0320");
/// ```
#[must_use]
pub fn debtor_group(iban: &Iban) -> ParticipantId {
    let digest = Sha256::digest(iban.as_str());
    ParticipantId::new(format!("debtor-{}", hex::encode(&digest[..12])))
}

/// Says which it is, and nothing about whose money it is.
impl std::fmt::Debug for Payment {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Payment").field("payment_id", &self.payment_id).finish_non_exhaustive()
    }
}

impl std::fmt::Debug for PaymentRequest {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("PaymentRequest").field("payment_id", &self.payment_id).finish_non_exhaustive()
    }
}
