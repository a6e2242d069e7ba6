//! `railyard payments`: import, create, get, list; and reconcile.

mod import;
mod list;
mod reconcile;
mod rejects;
mod report;
mod send;

use std::process::ExitCode;

use reqwest::Method;

use crate::cli::{CreatePayment, GetPayment, Payments};
use crate::client::{Client, Patience, segment};
use crate::output;
pub(crate) use reconcile::reconcile;

/// Where payments are.
const PATH: &str = "api/payments";
/// How long an API that is away is waited for with one payment.
const PATIENCE: std::time::Duration = std::time::Duration::from_secs(10);

/// Does what the verb says.
///
/// # Errors
/// Wrong usage, or the API refused.
pub(crate) async fn run(verb: &Payments) -> anyhow::Result<ExitCode> {
    match verb {
        Payments::Import(args) => import::import(args).await,
        Payments::Create(args) => create(args).await,
        Payments::Get(args) => get(args).await,
        Payments::List(args) => list::list(args).await,
        Payments::Reconcile(args) => reconcile(args).await,
    }
}

async fn create(args: &CreatePayment) -> anyhow::Result<ExitCode> {
    let payment = serde_json::json!({
        "paymentId": args.id,
        "debtorName": args.debtor_name,
        "debtorIban": args.debtor_iban,
        "debtorBic": args.debtor_bic,
        "creditorName": args.creditor_name,
        "creditorIban": args.creditor_iban,
        "creditorBic": args.creditor_bic,
        "amount": args.amount,
        "currency": args.currency,
        "requestedTime": args.requested_time,
        "endToEndId": args.end_to_end_id,
        "remittanceInformation": args.remittance_information,
    });
    let body = serde_json::to_vec(&payment)?;
    let client = Client::new(&args.api)?;
    let waiting = |error: &_| eprintln!("waiting: {error}");
    // Its id makes it one payment, however often it is sent.
    let call = || client.call(Method::POST, PATH, Some(body.clone()));
    let answer = Patience { limit: PATIENCE }.call(call, waiting).await?;
    if args.json {
        output::json(&answer.body)?;
    } else {
        println!("{} {}", output::text(&answer.body["result"]), output::text(&answer.body["scheduledTime"]));
    }
    Ok(ExitCode::SUCCESS)
}

async fn get(args: &GetPayment) -> anyhow::Result<ExitCode> {
    let path = format!("{PATH}/{}", segment(&args.id));
    let answer = Client::new(&args.api)?.call(Method::GET, &path, None).await?;
    if args.json {
        output::json(&answer.body)?;
    } else {
        output::fields(&answer.body);
    }
    Ok(ExitCode::SUCCESS)
}
