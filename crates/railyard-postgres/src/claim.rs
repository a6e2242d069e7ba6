//! A data directory has one program at a time, and no server of another one in it.
//!
//! The claim is a lock on the directory itself: the kernel gives it back when its holder dies, and nothing is written.
//! A server whose program was just killed is given the time to be put away by its undertaker.

use std::fs::File;
use std::path::Path;
use std::time::{Duration, Instant};

use rustix::fs::{FlockOperation, flock};

use crate::Error;

/// How long a server that is being put away may take.
const PATIENCE: Duration = Duration::from_secs(15);

/// Holds the directory as long as it lives.
#[derive(Debug)]
pub(crate) struct Claim {
    _dir: File,
}

impl Claim {
    /// Takes `data`, which is canonical and exists.
    pub(crate) fn take(data: &Path) -> Result<Claim, Error> {
        let dir = File::open(data).map_err(Error::io(format!("open {}", data.display())))?;
        let in_use = || Error::InUse { dir: data.to_path_buf() };
        flock(&dir, FlockOperation::NonBlockingLockExclusive).map_err(|_| in_use())?;
        let deadline = Instant::now() + PATIENCE;
        while has_server(data) {
            if Instant::now() > deadline {
                return Err(in_use());
            }
            std::thread::sleep(Duration::from_millis(10));
        }
        Ok(Claim { _dir: dir })
    }
}

/// Whether the process named in postmaster.pid lives and works in the directory, as a postmaster does.
fn has_server(data: &Path) -> bool {
    let text = std::fs::read_to_string(data.join("postmaster.pid")).unwrap_or_default();
    let pid = text.lines().next().and_then(|line| line.trim().parse::<u32>().ok());
    pid.and_then(|pid| std::fs::read_link(format!("/proc/{pid}/cwd")).ok()).is_some_and(|cwd| cwd == data)
}
