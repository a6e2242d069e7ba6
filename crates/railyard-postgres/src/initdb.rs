//! Makes the database in a data directory that has none.
//!
//! A directory that is kept is made under a mark beside it, so that one in which initdb was interrupted is known and
//! made anew; a temporary one goes with its program anyway.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use crate::user::RunAs;
use crate::{Binaries, Error, Options};

/// Makes the database unless there is one.
pub(crate) fn ensure(binaries: &Binaries, data: &Path, options: &Options, user: Option<RunAs>) -> Result<(), Error> {
    if is_to_be_made(data)? { make(binaries, data, options, user) } else { Ok(()) }
}

/// Stands beside the data directory while initdb runs: found at a start, the directory is half made.
fn half_made_mark(data: &Path) -> PathBuf {
    let mut name = data.as_os_str().to_owned();
    name.push(".half-made");
    name.into()
}

/// Whether there is no database in the directory yet. What an interrupted initdb left is removed.
fn is_to_be_made(data: &Path) -> Result<bool, Error> {
    if half_made_mark(data).exists() {
        tracing::warn!(data = %data.display(), "initdb was interrupted here; beginning anew");
        for entry in std::fs::read_dir(data).map_err(Error::io("read the data directory"))?.flatten() {
            let path = entry.path();
            let removed = if path.is_dir() { std::fs::remove_dir_all(&path) } else { std::fs::remove_file(&path) };
            removed.map_err(Error::io(format!("remove {}", path.display())))?;
        }
    }
    Ok(!data.join("PG_VERSION").exists())
}

/// Runs initdb: UTF-8, the C locale (the same order of text on every machine), trust on local connections.
fn make(binaries: &Binaries, data: &Path, options: &Options, user: Option<RunAs>) -> Result<(), Error> {
    if options.data_dir.is_none() {
        return run_initdb(binaries, data, options, user);
    }
    let mark = half_made_mark(data);
    std::fs::write(&mark, "initdb runs, or was interrupted\n")
        .map_err(Error::io(format!("write {}", mark.display())))?;
    let made = run_initdb(binaries, data, options, user);
    // Only after a success: initdb cleans up after a failure, but not always.
    if made.is_ok() {
        std::fs::remove_file(&mark).map_err(Error::io(format!("remove {}", mark.display())))?;
    }
    made
}

fn run_initdb(binaries: &Binaries, data: &Path, options: &Options, user: Option<RunAs>) -> Result<(), Error> {
    let mut command = Command::new(binaries.program("initdb"));
    command.arg("-D").arg(data).args(["-U", "postgres", "--auth=trust", "--encoding=UTF8", "--locale=C"]);
    command.arg("--no-instructions").current_dir(data);
    if !options.fsync {
        command.arg("--no-sync");
    }
    if let Some(user) = user {
        user.apply(&mut command);
    }
    run("initdb", command)
}

/// Runs a program to its end and turns a failure into its own words.
pub(crate) fn run(program: &'static str, mut command: Command) -> Result<(), Error> {
    command.stdin(Stdio::null());
    let output = command.output().map_err(Error::io(format!("run {program}")))?;
    if output.status.success() {
        return Ok(());
    }
    let said = String::from_utf8_lossy(&[output.stdout, output.stderr].concat()).trim().to_owned();
    Err(Error::Program { program, status: output.status.to_string(), said })
}
