//! What the execution of a scheduled item consists of.
//!
//! An executor makes its steps of what phase A left (S0's context) and knows nothing of dispatching: each step is a job of
//! the outbox, the end of one enqueues the next, and a step without a rail has nothing to send. To add a type of items:
//! a row of `exec_rate_config`, and an executor here, unless posting the context to a rail is all there is to do.

mod bite;

use std::collections::BTreeMap;

use serde_json::Value;

use crate::payment::PaymentStatus;

pub use bite::Bite;

/// A step of an execution.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ExecStep {
    /// Its name, in capital letters.
    pub name: &'static str,
    /// Where its job goes; none: there is nothing to send.
    pub rail: Option<String>,
    /// The `type` of its job.
    pub job_type: &'static str,
    /// What its rail gets.
    pub payload: Vec<u8>,
    /// What a payment becomes by it.
    pub status_after: Option<PaymentStatus>,
}

/// What makes steps of a context.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Executor {
    /// Payments: executed (ACCEPTED), post-processed, and everybody told (PROCESSING).
    Payment,
    /// Invoices: sent to the customer, then entered in the books.
    Invoice,
    /// The context, posted to a rail.
    PostContext,
}

impl Executor {
    /// All of them.
    pub const ALL: [Self; 3] = [Self::Payment, Self::Invoice, Self::PostContext];

    /// As `exec_rate_config.exec_workflow_type` says it.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Payment => "PaymentExecWorkflow",
            Self::Invoice => "InvoiceExecWorkflow",
            Self::PostContext => "PostContext",
        }
    }

    /// The executor of this name.
    #[must_use]
    pub fn named(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|executor| executor.as_str() == name)
    }

    /// The steps of an item, in their order. `context` is a JSON object as it was written down: what is posted as it is
    /// keeps every digit of its numbers. `first_rail` is where the first one goes, `rails` those of later ones by name.
    ///
    /// # Errors
    /// Why this context cannot be executed; nothing else is looked at.
    pub fn steps(
        self,
        context: &str,
        first_rail: &str,
        rails: &BTreeMap<String, String>,
    ) -> Result<Vec<ExecStep>, String> {
        match self {
            Self::Payment => payment_steps(context, first_rail, rails),
            Self::Invoice => Ok(invoice_steps(context, first_rail, rails)),
            Self::PostContext => Ok(vec![ExecStep {
                name: "POST",
                rail: Some(first_rail.to_owned()),
                job_type: "item.execute",
                payload: context.as_bytes().to_vec(),
                status_after: None,
            }]),
        }
    }
}

fn payment_steps(context: &str, first_rail: &str, rails: &BTreeMap<String, String>) -> Result<Vec<ExecStep>, String> {
    let context: Value = serde_json::from_str(context).map_err(|error| format!("the context is not JSON: {error}"))?;
    let instruction = &context["instruction"];
    if !instruction.is_object() {
        return Err("the context has no instruction".to_owned());
    }
    let payload = instruction.to_string().into_bytes();
    let later = |name: &'static str, job_type, status_after| ExecStep {
        name,
        rail: rails.get(name).cloned(),
        job_type,
        payload: payload.clone(),
        status_after,
    };
    let execute = ExecStep {
        rail: Some(first_rail.to_owned()),
        ..later("EXECUTE", "payment.execute", Some(PaymentStatus::Accepted))
    };
    Ok(vec![
        execute,
        later("POST_PROCESS", "payment.post-process", None),
        later("NOTIFY", "payment.notify", Some(PaymentStatus::Processing)),
    ])
}

fn invoice_steps(context: &str, first_rail: &str, rails: &BTreeMap<String, String>) -> Vec<ExecStep> {
    let step = |name, rail: Option<&str>, job_type| ExecStep {
        name,
        rail: rail.map(str::to_owned),
        job_type,
        payload: context.as_bytes().to_vec(),
        status_after: None,
    };
    let book = rails.get("BOOK").map(String::as_str);
    vec![step("SEND", Some(first_rail), "invoice.send"), step("BOOK", book, "invoice.book")]
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn a_payment_is_executed_post_processed_and_told() {
        let context = json!({ "instruction": { "amount": "1.00", "currency": "EUR", "destination": "x" } });
        let rails = BTreeMap::from([("NOTIFY".to_owned(), "mail".to_owned())]);
        let steps = Executor::Payment.steps(&context.to_string(), "bank", &rails).unwrap();
        let seen: Vec<_> = steps.iter().map(|step| (step.name, step.rail.as_deref(), step.status_after)).collect();
        let (accepted, processing) = (Some(PaymentStatus::Accepted), Some(PaymentStatus::Processing));
        assert_eq!(
            seen,
            [("EXECUTE", Some("bank"), accepted), ("POST_PROCESS", None, None), ("NOTIFY", Some("mail"), processing)]
        );
        assert!(crate::payment::check(&steps[0].payload).is_ok());
        assert!(Executor::Payment.steps("{}", "bank", &rails).is_err());
    }

    #[test]
    fn a_type_that_needs_no_code_posts_its_context() {
        let context = "{\"invoice\": 12345678901234567890.10}";
        let steps = Executor::PostContext.steps(context, "books", &BTreeMap::new()).unwrap();
        assert_eq!((steps.len(), steps[0].rail.as_deref()), (1, Some("books")));
        assert_eq!(steps[0].payload, context.as_bytes(), "digit by digit");
        assert!(Executor::ALL.into_iter().all(|executor| Executor::named(executor.as_str()) == Some(executor)));
        assert_eq!(Executor::named("ParcelExecWorkflow"), None);
    }

    #[test]
    fn s0_35_an_invoice_is_sent_and_then_booked() {
        let rails = BTreeMap::from([("BOOK".to_owned(), "books".to_owned())]);
        let steps = Executor::Invoice.steps("{\"total\": 10.10}", "post", &rails).unwrap();
        let seen: Vec<_> = steps.iter().map(|step| (step.name, step.rail.as_deref(), step.job_type)).collect();
        assert_eq!(seen, [("SEND", Some("post"), "invoice.send"), ("BOOK", Some("books"), "invoice.book")]);
        assert!(steps.iter().all(|step| step.payload == b"{\"total\": 10.10}" && step.status_after.is_none()));
    }
}
