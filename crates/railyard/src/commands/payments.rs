//! `railyard payments`: import, get, list; and reconcile.

mod import;
mod list;
mod reconcile;
mod rejects;
mod report;
mod send;

use std::process::ExitCode;

use reqwest::Method;

use crate::cli::{GetPayment, Payments};
use crate::client::{Client, segment};
use crate::output;
pub(crate) use reconcile::reconcile;

/// Where payments are.
const PATH: &str = "api/payments";

/// Does what the verb says.
///
/// # Errors
/// Wrong usage, or the API refused.
pub(crate) async fn run(verb: &Payments) -> anyhow::Result<ExitCode> {
    match verb {
        Payments::Import(args) => import::import(args).await,
        Payments::Get(args) => get(args).await,
        Payments::List(args) => list::list(args).await,
        Payments::Reconcile(args) => reconcile(args).await,
    }
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
