//! `railyard migrate`: the schema, step by step, or a look at what is missing.

use std::process::ExitCode;

use anyhow::Context;
use railyard_store::migrate::{Migrated, check, migrate};

use crate::cli::Migrate;
use crate::config::{Config, Environment};
use crate::output;

/// Runs it.
///
/// # Errors
/// No database URL, no connection, or a step that failed.
pub(crate) async fn run(args: &Migrate, environment: &Environment) -> anyhow::Result<ExitCode> {
    let config = Config::load(args.config.file.as_deref(), environment)?;
    let url = match &args.database_url {
        Some(url) => url,
        None => config.database_url()?,
    };
    let done = if args.check { check(url).await } else { migrate(url).await }.context("migrate")?;
    if args.json {
        output::json(&serde_json::json!({ "version": done.version, "steps": done.steps, "applied": !args.check }))?;
    } else {
        println!("{}", in_words(&done, args.check));
    }
    let missing = args.check && !done.steps.is_empty();
    Ok(if missing { ExitCode::FAILURE } else { ExitCode::SUCCESS })
}

fn in_words(done: &Migrated, only_looked: bool) -> String {
    let steps: Vec<String> = done.steps.iter().map(|step| format!("V{step}")).collect();
    match (steps.is_empty(), only_looked) {
        (true, _) => format!("the schema is at version {}; nothing to do", done.version),
        (false, true) => format!("the schema is at version {}; missing: {}", done.version, steps.join(", ")),
        (false, false) => format!("the schema is at version {}; applied: {}", done.version, steps.join(", ")),
    }
}
