//! `railyard doctor`: everything that has to be right before messages are entrusted to an installation. It changes
//! nothing. Exit status 1 if something does not work.

use std::process::ExitCode;

use railyard_store::Store;
use railyard_store::crypt::MasterKeys;
use railyard_store::doctor::{Check, Grade, examine};
use serde_json::json;

use crate::cli::Doctor;
use crate::config::{Config, Environment};
use crate::now::now;
use crate::output;

/// Looks at everything and prints it.
///
/// # Errors
/// A configuration that cannot be used: without it there is nothing to look at.
pub(crate) async fn run(args: &Doctor, environment: &Environment) -> anyhow::Result<ExitCode> {
    let config = Config::load(args.config.file.as_deref(), environment)?;
    let mut checks = vec![check("configuration", Grade::Good, "every key is known and within its bounds".to_owned())];
    let keys = config.master_keys(environment);
    match &keys {
        Ok(keys) => checks.push(check("master keys", Grade::Good, format!("newest first: {}", keys.ids().join(", ")))),
        Err(error) => checks.push(check("master keys", Grade::Bad, error.0.join("; "))),
    }
    checks.push(tokens(&config));
    let store = Store::new(config.store()?)?;
    checks.extend(examine(&store, now).await);
    if let Ok(keys) = &keys {
        checks.extend(sealed(&store, keys).await);
    }
    let rows: Vec<_> = checks.iter().map(row).collect();
    if args.json {
        output::json(&rows)?;
    } else {
        output::rows(&rows, &[("check", "check"), ("", "grade"), ("found", "detail")]);
    }
    let bad = checks.iter().any(|check| check.grade == Grade::Bad);
    Ok(if bad { ExitCode::FAILURE } else { ExitCode::SUCCESS })
}

fn tokens(config: &Config) -> Check {
    match config.api.tokens.len() {
        0 => check("api tokens", Grade::Warning, "none: only this machine is served, and everybody on it".to_owned()),
        count => check("api tokens", Grade::Good, format!("{count} configured")),
    }
}

/// Whether all that is stored can be opened. None if the database cannot be asked: that was said before.
async fn sealed(store: &Store, keys: &MasterKeys) -> Option<Check> {
    let rows = railyard_store::credentials::list(store).await.ok()?;
    let known = keys.ids();
    let mut missing: Vec<&str> = rows.iter().map(|row| row.key_id.as_str()).filter(|id| !known.contains(id)).collect();
    missing.sort_unstable();
    missing.dedup();
    Some(if missing.is_empty() {
        check("credentials", Grade::Good, format!("{} stored, each sealed by a configured key", rows.len()))
    } else {
        let detail = format!("some are sealed by {}, which is not configured: their jobs wait", missing.join(", "));
        check("credentials", Grade::Bad, detail)
    })
}

fn check(name: &'static str, grade: Grade, detail: String) -> Check {
    Check { name, grade, detail }
}

fn row(check: &Check) -> serde_json::Value {
    json!({ "check": check.name, "grade": check.grade.as_str(), "detail": check.detail })
}
