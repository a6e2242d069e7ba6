//! One instruction of a feed: as it is sent, and what became of it.

use std::collections::HashSet;

use railyard_core::payment::{Amount, Currency, Payment, Step};
use railyard_core::text::clean_str;
use railyard_store::feeds::{FeedLine, Known};
use railyard_store::payments::Accepted;
use serde::Serialize;
use serde_json::value::RawValue;
use utoipa::openapi::{RefOr, Schema};
use utoipa::{PartialSchema, ToSchema};

use crate::fields::Fields;
use crate::items::{self, ItemStatus};
use crate::openapi::shape::{Shape, text, whole};
use crate::payments::batch::ResultView;
use crate::payments::request::{self, PaymentBody};
use crate::problem::{FieldDocument, Problem};

const ID_CHARS_MAX: usize = 255;
const FIELD_CHARS_MAX: usize = 255;
const REASON_CHARS_MAX: usize = 1000;

/// Many instructions in one of three forms.
pub(super) struct FeedLines;

impl ToSchema for FeedLines {}

impl PartialSchema for FeedLines {
    fn schema() -> RefOr<Schema> {
        let payment = match PaymentBody::schema() {
            RefOr::T(schema) => schema,
            RefOr::Ref(_) => Schema::default(),
        };
        let shape = Shape::new(
            "An instruction of the file, as a payment; or without one, and why whoever read the file could make none of it.",
        )
        .required("item", whole(1, u32::MAX))
        .required("line", whole(1, u32::MAX))
        .optional("payment", payment)
        .optional("paymentId", text(ID_CHARS_MAX))
        .optional("field", text(FIELD_CHARS_MAX))
        .optional("reason", text(REASON_CHARS_MAX));
        items::batch_of(&shape.into(), "lines")
    }
}

/// What became of one instruction.
#[derive(Serialize, ToSchema)]
#[schema(as = FeedLineResult)]
pub(super) struct LineView {
    /// Which of the file.
    #[serde(skip_serializing_if = "Option::is_none")]
    item: Option<i64>,
    #[serde(flatten)]
    result: ResultView,
}

/// Results in the order of the instructions.
#[derive(Serialize, ToSchema)]
#[schema(as = FeedLinesResult)]
pub(super) struct LinesView {
    pub(super) results: Vec<LineView>,
}

/// What is to be done with an instruction.
pub(super) enum Fate {
    /// It is to be accepted.
    Payment(Box<Payment>),
    /// It was executed so long ago that only its feed knows of it: it is never accepted again.
    Gone(String),
    /// It is none, which is on record.
    Rejected(ResultView),
    /// It was not sent as it should be: that says nothing about the file.
    Malformed(ResultView),
}

/// An instruction as it was sent.
pub(super) struct Line {
    pub(super) item: Option<i64>,
    line: i64,
    amount: Option<(String, String)>,
    pub(super) fate: Fate,
}

impl Line {
    /// All of a body. `items_max` is how many the feed has.
    ///
    /// # Errors
    /// What no instruction of its own is to blame for.
    pub(super) fn read_all(items: Vec<&RawValue>, items_max: i64) -> Result<Vec<Self>, Problem> {
        let mut seen = HashSet::new();
        items.into_iter().map(|item| Self::read(item.get(), items_max, &mut seen)).collect()
    }

    fn read(given: &str, items_max: i64, seen: &mut HashSet<i64>) -> Result<Self, Problem> {
        let mut fields = match Fields::parse(given.as_bytes()) {
            Ok(fields) => fields,
            Err(problem) => return Self::malformed(None, problem),
        };
        let item = fields.whole("item").map(i64::from).filter(|item| (1..=items_max).contains(item));
        if item.is_none() {
            fields.error("item", format!("is not a number from 1 to {items_max}, which the feed has"));
        }
        if item.is_some_and(|item| !seen.insert(item)) {
            fields.error("item", "stands there twice");
        }
        let line = fields.whole("line").map(i64::from).filter(|line| *line >= 1);
        if line.is_none() {
            fields.error("line", "is not a number from 1 up");
        }
        let payment = fields.raw("payment").map(|payment| payment.get());
        let said = ["paymentId", "field", "reason"].map(|field| fields.text(field));
        if payment.is_none() && said[2].is_none() {
            fields.error("payment", "is missing, and so is the reason");
        }
        if let Err(problem) = fields.finish() {
            return Self::malformed(item, problem);
        }
        let line = line.unwrap_or(1);
        match payment {
            Some(payment) => Self::of_payment(item, line, payment),
            None => Ok(Self::of_reason(item, line, said)),
        }
    }

    fn malformed(item: Option<i64>, problem: Problem) -> Result<Self, Problem> {
        let result = ResultView::of_problem(None, problem)?;
        Ok(Self { item, line: 1, amount: None, fate: Fate::Malformed(result) })
    }

    fn of_payment(item: Option<i64>, line: i64, given: &str) -> Result<Self, Problem> {
        let fields = match Fields::parse(given.as_bytes()) {
            Ok(fields) => fields,
            Err(problem) => {
                let fate = Fate::Rejected(ResultView::of_problem(None, problem.at(Step::Validate))?);
                return Ok(Self { item, line, amount: None, fate });
            }
        };
        let id = fields.peek_text("paymentId").map(|id| clean_str(&id, ID_CHARS_MAX));
        let currency = fields.peek_text("currency").and_then(|currency| Currency::of(&currency));
        let amount = fields.peek_text("amount");
        let amount = currency.and_then(|currency| Amount::parse(&amount?, currency).ok());
        let amount = amount.map(|amount| (amount.to_string(), amount.currency().code().to_owned()));
        let fate = match request::read(fields) {
            Ok(payment) => Fate::Payment(Box::new(payment)),
            Err(problem) => Fate::Rejected(ResultView::of_problem(id, problem)?),
        };
        Ok(Self { item, line, amount, fate })
    }

    fn of_reason(item: Option<i64>, line: i64, [payment_id, field, reason]: [Option<String>; 3]) -> Self {
        let payment_id = payment_id.map(|id| clean_str(&id, ID_CHARS_MAX));
        let reason = clean_str(&reason.unwrap_or_default(), REASON_CHARS_MAX);
        let result = match field {
            Some(field) => {
                let error = FieldDocument { field: clean_str(&field, FIELD_CHARS_MAX), detail: reason.clone() };
                ResultView::refused(payment_id, reason, vec![error])
            }
            None => ResultView::refused(payment_id, reason, Vec::new()),
        };
        Self { item, line, amount: None, fate: Fate::Rejected(result) }
    }

    /// It was accepted as this payment before: whatever is sent under its number is that one, or is refused.
    ///
    /// # Errors
    /// Never for what is refused here.
    pub(super) fn hold_to(&mut self, known: &Known) -> Result<(), Problem> {
        let payment_id = &known.payment_id;
        let is_it = match &self.fate {
            Fate::Payment(payment) => payment.payment_id == *payment_id,
            Fate::Rejected(_) => false,
            Fate::Gone(_) | Fate::Malformed(_) => true,
        };
        if is_it && known.is_dropped && matches!(self.fate, Fate::Payment(_)) {
            self.fate = Fate::Gone(payment_id.clone());
        }
        if !is_it {
            let detail = format!("was accepted as {payment_id} before");
            self.fate = Fate::Malformed(ResultView::of_problem(None, Problem::field("item", detail))?);
        }
        Ok(())
    }

    /// The answer, and the record, if there is to be one. `accepted` gives what became of the next payment.
    ///
    /// # Errors
    /// Ours.
    pub(super) fn end(
        self,
        accepted: impl FnOnce() -> Result<Accepted, Problem>,
    ) -> Result<(LineView, Option<FeedLine>), Problem> {
        let (result, recorded) = match self.fate {
            Fate::Payment(payment) => (ResultView::of(payment.payment_id, accepted()?)?, true),
            Fate::Gone(payment_id) => (ResultView::of(payment_id, Accepted::Repeated)?, false),
            Fate::Rejected(result) => (result, true),
            Fate::Malformed(result) => (result, false),
        };
        let rejected = match result.status {
            ItemStatus::Success | ItemStatus::Skipped => Some(None),
            ItemStatus::BadRequest => Some(Some(result.why())),
            // To be sent again: nothing is known of it.
            ItemStatus::Retry | ItemStatus::InternalError => None,
        };
        let record = match (self.item, rejected) {
            (Some(item), Some(rejected)) if recorded => Some(FeedLine {
                item,
                line: self.line,
                payment_id: result.payment_id.clone(),
                amount: self.amount,
                rejected,
            }),
            _ => None,
        };
        Ok((LineView { item: self.item, result }, record))
    }
}
