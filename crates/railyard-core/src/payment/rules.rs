//! The second and third step of phase A: what was left out is filled in, and what the rules say is applied.
//!
//! Rules are rows of `payment_rule`, read anew for each call. One that cannot be read stops everything: a rule that is
//! there and not applied would be worse than a payment that has to wait.

use std::collections::HashSet;

use jiff::civil::Time;
use jiff::tz::{TimeZone, TimeZoneDatabase};
use jiff::{Timestamp, ToSpan};

use super::amount::{Amount, Currency};
use super::instruction::{Party, Payment};
use crate::job::{FieldError, Found};

/// How far ahead a payment may be scheduled.
pub const SCHEDULE_DAYS_MAX: i64 = 366;

/// A payment and the time from which it may be executed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Planned {
    /// What was asked for.
    pub payment: Payment,
    /// Not before; never before it was accepted.
    pub requested: Timestamp,
    /// A cut-off moved it to the next day.
    pub moved: bool,
}

/// Fills in what was left out. `now` is the database's time.
///
/// # Errors
/// `requestedTime`, if it lies too far ahead.
pub fn enrich(payment: Payment, now: Timestamp) -> Result<Planned, Vec<FieldError>> {
    let requested = payment.requested_time.map_or(now, |at| at.max(now));
    let days = SCHEDULE_DAYS_MAX;
    if now.checked_add((days * 24).hours()).is_ok_and(|last| requested > last) {
        let field = "requestedTime".to_owned();
        return Err(vec![FieldError { field, detail: format!("is more than {days} days ahead") }]);
    }
    Ok(Planned { payment, requested, moved: false })
}

/// Payments of a day are taken until then.
#[derive(Clone, Debug, PartialEq)]
struct CutOff {
    /// None: of every currency.
    currency: Option<Currency>,
    at: Time,
    zone: TimeZone,
}

/// What stands in `payment_rule`.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Rules {
    limits: Vec<Amount>,
    cut_offs: Vec<CutOff>,
    blocked: HashSet<String>,
}

impl Rules {
    /// Adds a limit: no single payment of this currency above this amount. False if it cannot be read.
    #[must_use]
    pub fn limit(&mut self, currency: &str, max_amount: &str) -> bool {
        let limit = Currency::of(currency).and_then(|currency| Amount::at_most(max_amount, currency));
        limit.map(|limit| self.limits.push(limit)).is_some()
    }

    /// Adds a cut-off: a payment that is accepted after this time of its day goes to the next day. False if it cannot be
    /// read.
    #[must_use]
    pub fn cut_off(&mut self, currency: Option<&str>, at: &str, zone: &str) -> bool {
        let currency = currency.map(Currency::of);
        let (Ok(at), Ok(zone)) = (at.parse(), TimeZoneDatabase::bundled().get(zone)) else { return false };
        match currency {
            Some(None) => return false,
            Some(known) => self.cut_offs.push(CutOff { currency: known, at, zone }),
            None => self.cut_offs.push(CutOff { currency: None, at, zone }),
        }
        true
    }

    /// Adds a party that nothing is paid by or to: an account, a bank (its BIC of eight or eleven characters), a country.
    pub fn block(&mut self, party: &str) {
        self.blocked.insert(party.to_owned());
    }

    /// Applies all of them. `now` is the database's time.
    ///
    /// # Errors
    /// Every rule that the payment breaks, each under the field that breaks it.
    pub fn apply(&self, planned: Planned, now: Timestamp) -> Result<Planned, Vec<FieldError>> {
        let payment = &planned.payment;
        let mut found = Found::default();
        let limit =
            self.limits.iter().filter(|limit| payment.amount.exceeds(**limit)).min_by_key(|limit| limit.minor());
        if let Some(limit) = limit {
            found.add("amount", format!("is above the limit of {limit} {}", limit.currency().code()));
        }
        for (field, party) in [("debtorIban", &payment.debtor), ("creditorIban", &payment.creditor)] {
            if terms(party).iter().any(|term| self.blocked.contains(term)) {
                found.add(field, "is blocked".to_owned());
            }
        }
        found.end()?;
        let currency = payment.amount.currency();
        let requested = planned.requested;
        let concerned = self.cut_offs.iter().filter(|rule| rule.currency.is_none_or(|only| only == currency));
        match concerned.filter_map(|rule| rule.next_day(requested, now)).max() {
            Some(next_day) => Ok(Planned { requested: next_day, moved: true, ..planned }),
            None => Ok(planned),
        }
    }
}

impl CutOff {
    /// The beginning of the day after the one that was asked for, if it is too late for that.
    fn next_day(&self, requested: Timestamp, now: Timestamp) -> Option<Timestamp> {
        let day = requested.to_zoned(self.zone.clone()).date();
        let cut_off = self.zone.to_zoned(day.to_datetime(self.at)).ok()?.timestamp();
        if now < cut_off {
            return None;
        }
        let next = day.tomorrow().ok()?;
        self.zone.to_zoned(next.to_datetime(Time::midnight())).ok().map(|start| start.timestamp())
    }
}

/// All that a party can be blocked by.
fn terms(party: &Party) -> Vec<String> {
    let mut terms = vec![party.iban.as_str().to_owned(), party.iban.country().to_owned()];
    if let Some(bic) = &party.bic {
        terms.extend([bic.as_str().to_owned(), bic.bank().to_owned(), bic.country().to_owned()]);
        // The eight characters alone are the bank's head office, which has a branch code as well.
        if bic.as_str() == bic.bank() {
            terms.push(format!("{}XXX", bic.bank()));
        }
    }
    terms
}

/// What the parties of these payments can be blocked by: only such rows need to be read.
#[must_use]
pub fn blocking_terms<'a>(payments: impl Iterator<Item = &'a Payment>) -> Vec<String> {
    let of_payment = |payment: &'a Payment| [&payment.debtor, &payment.creditor].into_iter().flat_map(terms);
    let mut terms: Vec<String> = payments.flat_map(of_payment).collect();
    terms.sort_unstable();
    terms.dedup();
    terms
}
