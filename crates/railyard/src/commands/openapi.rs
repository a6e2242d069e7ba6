//! `railyard openapi`: the description of the API that this version serves, without any server.

use std::io::Write;
use std::process::ExitCode;

/// Prints it: the bytes of `/openapi.json`.
///
/// # Errors
/// Standard output cannot be written to.
pub(crate) fn run() -> anyhow::Result<ExitCode> {
    std::io::stdout().lock().write_all(railyard_api::openapi_json().as_bytes())?;
    Ok(ExitCode::SUCCESS)
}
