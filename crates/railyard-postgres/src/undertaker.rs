//! A shell process that outlives us by a moment: when we die, however we die, it ends the processes we leave.
//!
//! It is woken by the end of a pipe, which the kernel closes with the last of our threads, so it needs neither our
//! cooperation nor a parent-death signal (which fires when the spawning *thread* ends, and threads come and go).
//! Processes are found by `*.pid` files in their home directory and only signalled if they still work in it, so a
//! recycled process id harms nobody. If the undertaker itself is killed, what we leave behind stays behind.

use std::io::Write;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, Command, Stdio};

/// How the processes we leave are asked to end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Farewell {
    /// PostgreSQL's fast shutdown: roll back, checkpoint, exit.
    Interrupt,
    /// PostgreSQL's immediate shutdown: exit, recover at the next start.
    Quit,
    /// No question asked.
    Kill,
}

impl Farewell {
    fn signal(self) -> &'static str {
        match self {
            Farewell::Interrupt => "INT",
            Farewell::Quit => "QUIT",
            Farewell::Kill => "KILL",
        }
    }
}

/// $1 signal, $2 home of the processes, $3… directories to remove. A stopped process is continued, or it would never
/// see the signal; after ten seconds it is killed.
const SCRIPT: &str = r#"
trap '' INT TERM HUP
read -r word && [ "$word" = dismissed ] && exit 0
signal=$1 home=$2; shift 2
lives_here() { [ "$(readlink "/proc/$1/cwd" 2>/dev/null)" = "$home" ]; }
for file in "$home"/*.pid; do
  read -r pid 2>/dev/null < "$file" || [ -n "$pid" ] || continue
  case $pid in ''|*[!0-9]*) continue;; esac
  lives_here "$pid" || continue
  kill -CONT "$pid"; kill -"$signal" "$pid"
  tries=0
  while lives_here "$pid" && [ $tries -lt 200 ]; do sleep 0.05; tries=$((tries + 1)); done
  lives_here "$pid" && kill -KILL "$pid"
done
[ $# -gt 0 ] && rm -rf -- "$@"
exit 0
"#;

/// The running shell. Dropping it without [`Undertaker::dismiss`] sets it to work.
#[derive(Debug)]
pub struct Undertaker {
    child: Child,
}

impl Undertaker {
    /// Hires one for the processes whose working directory is `home` and whose ids stand in `home/*.pid`; after
    /// them it removes `leftovers`. `home` must be canonical and exist.
    ///
    /// # Errors
    /// When no shell can be started.
    pub fn hire(farewell: Farewell, home: &Path, leftovers: &[&Path]) -> std::io::Result<Undertaker> {
        let child = Command::new("/bin/sh")
            .args(["-c", SCRIPT, "railyard-undertaker", farewell.signal()])
            .arg(home)
            .args(leftovers)
            .current_dir("/")
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            // A group of its own: a Ctrl-C or a test runner's kill of our group must not reach it.
            .process_group(0)
            .spawn()?;
        Ok(Undertaker { child })
    }

    /// Ends it without work: everything was put away properly.
    pub fn dismiss(mut self) {
        if let Some(mut pipe) = self.child.stdin.take() {
            // It may have been killed; then there is nobody to tell.
            let _ = pipe.write_all(b"dismissed\n");
        }
        let _ = self.child.wait();
    }
}

impl Drop for Undertaker {
    fn drop(&mut self) {
        // Closing the pipe is the sign; waiting reaps the shell and makes the end of its work visible.
        if self.child.stdin.take().is_some() {
            let _ = self.child.wait();
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a failed unwrap is a failed test")]

    use super::*;

    fn sleeper(home: &Path) -> Child {
        let child = Command::new("sleep").arg("600").current_dir(home).spawn().unwrap();
        std::fs::write(home.join("sleeper.pid"), child.id().to_string()).unwrap();
        child
    }

    #[test]
    fn it_kills_what_is_left_and_removes_the_directory() {
        let dir = tempfile::tempdir().unwrap();
        let home = dir.path().canonicalize().unwrap();
        let mut left = sleeper(&home);
        drop(Undertaker::hire(Farewell::Kill, &home, &[&home]).unwrap());
        assert!(!left.wait().unwrap().success());
        assert!(!home.exists());
    }

    #[test]
    fn dismissed_it_touches_nothing() {
        let dir = tempfile::tempdir().unwrap();
        let home = dir.path().canonicalize().unwrap();
        let mut left = sleeper(&home);
        Undertaker::hire(Farewell::Kill, &home, &[&home]).unwrap().dismiss();
        assert!(left.try_wait().unwrap().is_none(), "the process was killed");
        assert!(home.exists());
        left.kill().unwrap();
        left.wait().unwrap();
    }

    #[test]
    fn a_process_that_lives_elsewhere_is_left_alone() {
        let dir = tempfile::tempdir().unwrap();
        let elsewhere = tempfile::tempdir().unwrap();
        let home = dir.path().canonicalize().unwrap();
        let mut left = sleeper(elsewhere.path());
        std::fs::write(home.join("recycled.pid"), left.id().to_string()).unwrap();
        drop(Undertaker::hire(Farewell::Kill, &home, &[]).unwrap());
        assert!(left.try_wait().unwrap().is_none(), "a stranger was killed");
        left.kill().unwrap();
        left.wait().unwrap();
    }
}
