//! The postmaster process: started, watched until it takes connections, signalled with its children, waited for.

use std::fs::File;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};

use crate::user::RunAs;
use crate::{Error, freeze, thaw};

/// How often a file or a process is looked at.
const LOOK_EVERY: Duration = Duration::from_millis(5);

/// What a start needs; kept, so that a restart is the same start again.
#[derive(Debug, Clone)]
pub(crate) struct Launch {
    pub(crate) program: PathBuf,
    pub(crate) data: PathBuf,
    pub(crate) sockets: PathBuf,
    pub(crate) port: u16,
    pub(crate) settings: Vec<(String, String)>,
    pub(crate) user: Option<RunAs>,
    pub(crate) start_seconds: u64,
}

impl Launch {
    pub(crate) fn log(&self) -> PathBuf {
        self.data.join("server.log")
    }

    /// Starts the postmaster and waits until it takes connections.
    pub(crate) fn start(&self) -> Result<Postmaster, Error> {
        let log = File::options().create(true).append(true).open(self.log());
        let log = log.map_err(Error::io("open the server's log"))?;
        let errors = log.try_clone().map_err(Error::io("open the server's log"))?;
        let mut command = Command::new(&self.program);
        command.arg("-D").arg(&self.data).arg("-k").arg(&self.sockets).args(["-p", &self.port.to_string()]);
        for (name, value) in &self.settings {
            command.arg("-c").arg(format!("{name}={value}"));
        }
        // A group of its own: Ctrl-C ends us, and we end the server in order.
        command.current_dir(&self.data).process_group(0).stdin(Stdio::null()).stdout(log).stderr(errors);
        if let Some(user) = self.user {
            user.apply(&mut command);
        }
        let child = command.spawn().map_err(Error::io("start postgres"))?;
        let mut postmaster = Postmaster { child };
        match self.wait_ready(&mut postmaster) {
            Ok(()) => Ok(postmaster),
            Err(error) => {
                postmaster.end(Signal::QUIT, Duration::from_secs(5));
                Err(error)
            }
        }
    }

    /// Reads the word in line 8 of postmaster.pid, as pg_ctl does: no client is needed to know.
    fn wait_ready(&self, postmaster: &mut Postmaster) -> Result<(), Error> {
        let deadline = Instant::now() + Duration::from_secs(self.start_seconds);
        let pid_file = self.data.join("postmaster.pid");
        let pid = postmaster.child.id().to_string();
        loop {
            let text = std::fs::read_to_string(&pid_file).unwrap_or_default();
            let mut lines = text.lines();
            if lines.next() == Some(pid.as_str()) && lines.nth(6).is_some_and(|word| word.trim() == "ready") {
                return Ok(());
            }
            if let Some(status) = postmaster.exited()? {
                return Err(Error::Program { program: "postgres", status, said: self.log_tail() });
            }
            if Instant::now() > deadline {
                return Err(Error::Timeout { what: "start", seconds: self.start_seconds, said: self.log_tail() });
            }
            std::thread::sleep(LOOK_EVERY);
        }
    }

    /// The last lines of the server's log.
    pub(crate) fn log_tail(&self) -> String {
        let text = std::fs::read(self.log()).unwrap_or_default();
        let text = String::from_utf8_lossy(&text);
        let lines: Vec<&str> = text.lines().collect();
        lines[lines.len().saturating_sub(12)..].join("\n")
    }
}

/// A running (or just ended, not yet reaped) postmaster.
#[derive(Debug)]
pub(crate) struct Postmaster {
    child: Child,
}

impl Postmaster {
    fn pid(&self) -> Pid {
        Pid::from_child(&self.child)
    }

    /// The exit status, if it has ended.
    pub(crate) fn exited(&mut self) -> Result<Option<String>, Error> {
        let status = self.child.try_wait().map_err(Error::io("wait for postgres"))?;
        Ok(status.map(|status| status.to_string()))
    }

    /// Sends one signal and waits; after `patience` it kills. True if it ended by itself.
    pub(crate) fn end(&mut self, signal: Signal, patience: Duration) -> bool {
        let deadline = Instant::now() + patience;
        // A process that ended meanwhile is not an error: it is what we want.
        let _ = kill_process(self.pid(), signal);
        let _ = kill_process(self.pid(), Signal::CONT);
        loop {
            match self.child.try_wait() {
                Ok(None) if Instant::now() < deadline => std::thread::sleep(LOOK_EVERY),
                Ok(None) => {
                    self.kill_all();
                    return false;
                }
                Ok(Some(_)) | Err(_) => return true,
            }
        }
    }

    /// As a power cut: the postmaster and every backend, at once.
    pub(crate) fn kill_all(&mut self) {
        let children = children_of(self.child.id());
        let _ = kill_process(self.pid(), Signal::KILL);
        for child in children {
            let _ = kill_process(child, Signal::KILL);
        }
        let _ = self.child.wait();
    }

    /// Stops the postmaster first, so that it makes no new children meanwhile.
    pub(crate) fn pause(&self) {
        freeze(self.pid());
        children_of(self.child.id()).into_iter().for_each(freeze);
    }

    /// Continues the postmaster last.
    pub(crate) fn resume(&self) {
        children_of(self.child.id()).into_iter().for_each(thaw);
        thaw(self.pid());
    }
}

/// Removes the System V segment that a killed postmaster leaves in the system, which knows no owner's end: its id is
/// the second number in line 7 of postmaster.pid. A power cut would take it as well.
pub(crate) fn remove_shared_memory(data: &Path) {
    let text = std::fs::read_to_string(data.join("postmaster.pid")).unwrap_or_default();
    if let Some(id) = text.lines().nth(6).and_then(|line| line.split_whitespace().nth(1)) {
        // Without the program, or if the segment is gone, 56 bytes stay or nothing happens.
        let _ = Command::new("ipcrm").args(["-m", id]).stdout(Stdio::null()).stderr(Stdio::null()).status();
    }
}

/// Direct children by /proc: the fourth field of `stat`, after a name that may hold anything but ends at the last ')'.
fn children_of(parent: u32) -> Vec<Pid> {
    let Ok(entries) = std::fs::read_dir("/proc") else { return Vec::new() };
    let of_parent = |dir: &Path| {
        let stat = std::fs::read_to_string(dir.join("stat")).ok()?;
        let (_, after_name) = stat.rsplit_once(')')?;
        after_name.split_whitespace().nth(1)?.parse::<u32>().ok()
    };
    entries
        .flatten()
        .filter_map(|entry| {
            let pid: i32 = entry.file_name().to_str()?.parse().ok()?;
            (of_parent(&entry.path())? == parent).then(|| Pid::from_raw(pid))?
        })
        .collect()
}
