//! Who runs the server. PostgreSQL refuses root, so root hands its directories to an unprivileged user and starts
//! the server as that user: `postgres` if the system has one, else `nobody` by number. Everybody else runs it as
//! themselves.

use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::Command;

use crate::Error;

/// The numeric identity of the unprivileged user; only used by root.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct RunAs {
    uid: u32,
    gid: u32,
}

/// Used where the system has no user `postgres`; by convention `nobody`, and valid without an entry in passwd.
const NOBODY: RunAs = RunAs { uid: 65_534, gid: 65_534 };

impl RunAs {
    /// `None` for ordinary users, who run the server themselves.
    pub(crate) fn choose() -> Option<RunAs> {
        if !rustix::process::geteuid().is_root() {
            return None;
        }
        let passwd = std::fs::read_to_string("/etc/passwd").unwrap_or_default();
        Some(RunAs::find(&passwd, "postgres").unwrap_or(NOBODY))
    }

    /// The line of `name` in the text of a passwd file.
    fn find(passwd: &str, name: &str) -> Option<RunAs> {
        let mut fields = passwd.lines().map(|line| line.split(':')).find(|f| f.clone().next() == Some(name))?;
        let uid = fields.nth(2)?.parse().ok()?;
        let gid = fields.next()?.parse().ok()?;
        Some(RunAs { uid, gid })
    }

    /// Makes a command run as this user. The standard library also empties the supplementary groups when root
    /// changes the user, so nothing of root's groups is kept.
    pub(crate) fn apply(self, command: &mut Command) {
        command.uid(self.uid).gid(self.gid);
    }

    /// Gives a directory to this user.
    pub(crate) fn own(self, dir: &Path) -> Result<(), Error> {
        std::os::unix::fs::chown(dir, Some(self.uid), Some(self.gid)).map_err(Error::io(format!(
            "give {} to user {}",
            dir.display(),
            self.uid
        )))
    }

    /// Checks that every directory above `dir` can be entered: a data directory under /root fails late and
    /// unclearly otherwise.
    pub(crate) fn can_reach(self, dir: &Path) -> Result<(), Error> {
        for above in dir.ancestors().skip(1) {
            let meta = above.metadata().map_err(Error::io(format!("look at {}", above.display())))?;
            let shift = if meta.uid() == self.uid {
                6
            } else if meta.gid() == self.gid {
                3
            } else {
                0
            };
            if (meta.mode() >> shift) & 1 == 0 {
                return Err(Error::Unreachable { user: self.uid.to_string(), dir: above.to_path_buf() });
            }
        }
        Ok(())
    }
}

/// Makes `dir` if needed, for the server's user alone.
pub(crate) fn private_dir(dir: &Path, user: Option<RunAs>) -> Result<(), Error> {
    let what = || format!("prepare {}", dir.display());
    std::fs::create_dir_all(dir).map_err(Error::io(what()))?;
    std::fs::set_permissions(dir, std::fs::Permissions::from_mode(0o700)).map_err(Error::io(what()))?;
    match user {
        Some(user) => user.own(dir),
        None => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_postgres_user_is_found_by_name() {
        let passwd = "root:x:0:0::/root:/bin/sh\npostgres:x:101:104:,,,:/var/lib/postgresql:/bin/bash\n";
        assert_eq!(RunAs::find(passwd, "postgres"), Some(RunAs { uid: 101, gid: 104 }));
        assert_eq!(RunAs::find(passwd, "post"), None);
    }
}
