//! Stopping a process for certain: SIGSTOP is only a request, and its threads run on until each has seen it.

use std::path::Path;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};

/// A thread that waits for the disk is not stopped until the disk answers.
const PATIENCE: Duration = Duration::from_secs(5);

/// Sends SIGSTOP and returns when no thread of the process runs any more, or after five seconds. A process that has
/// ended is no error: it does nothing either.
pub fn freeze(pid: Pid) {
    let _ = kill_process(pid, Signal::STOP);
    let tasks = format!("/proc/{}/task", pid.as_raw_nonzero());
    let deadline = Instant::now() + PATIENCE;
    while !all_stopped(Path::new(&tasks)) && Instant::now() < deadline {
        std::thread::sleep(Duration::from_millis(1));
    }
}

/// Sends SIGCONT.
pub fn thaw(pid: Pid) {
    let _ = kill_process(pid, Signal::CONT);
}

/// By the state in `stat`, which follows the name in parentheses: T stopped, Z and X ended.
fn all_stopped(tasks: &Path) -> bool {
    let Ok(entries) = std::fs::read_dir(tasks) else { return true };
    entries.flatten().all(|task| {
        let stat = std::fs::read_to_string(task.path().join("stat")).unwrap_or_default();
        let state = stat.rsplit_once(')').and_then(|(_, after)| after.trim_start().chars().next());
        matches!(state, None | Some('T' | 't' | 'Z' | 'X'))
    })
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a failed unwrap is a failed test")]

    use std::process::{Command, Stdio};

    use super::*;

    #[test]
    fn a_frozen_process_is_stopped_when_the_call_returns() {
        let mut busy = Command::new("sh").args(["-c", "while :; do :; done"]).stdout(Stdio::null()).spawn().unwrap();
        for _ in 0..20 {
            freeze(Pid::from_child(&busy));
            let stat = std::fs::read_to_string(format!("/proc/{}/stat", busy.id())).unwrap();
            assert!(stat.contains(") T "), "{stat}");
            thaw(Pid::from_child(&busy));
        }
        busy.kill().unwrap();
        busy.wait().unwrap();
    }
}
