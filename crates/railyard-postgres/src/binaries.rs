//! Where PostgreSQL's programs are: a directory named by the environment, the newest system installation, the
//! search path, a private copy; in this order, so that a person's choice wins and a download is the last resort.

use std::ffi::OsString;
use std::path::{Path, PathBuf};

use crate::Error;

/// A directory with `initdb`, `postgres` and `psql`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Binaries {
    dir: PathBuf,
}

impl Binaries {
    /// Looks in `RAILYARD_PG_BIN`, `/usr/lib/postgresql/*/bin` (highest version), the search path and then
    /// `private_copy`.
    ///
    /// # Errors
    /// [`Error::NoBinaries`] when none of them holds both `initdb` and `postgres`.
    pub fn find(private_copy: Option<&Path>) -> Result<Binaries, Error> {
        let named = environment("RAILYARD_PG_BIN").map(PathBuf::from);
        let on_path = environment("PATH").map(|path| std::env::split_paths(&path).collect::<Vec<_>>());
        let candidates = named
            .into_iter()
            .chain(system_versions(Path::new("/usr/lib/postgresql")))
            .chain(on_path.unwrap_or_default())
            .chain(private_copy.map(Path::to_path_buf));
        for dir in candidates {
            if dir.join("initdb").is_file() && dir.join("postgres").is_file() {
                return Ok(Binaries { dir });
            }
        }
        let mut looked_in = vec!["RAILYARD_PG_BIN".to_owned(), "/usr/lib/postgresql/*/bin".into(), "PATH".into()];
        looked_in.extend(private_copy.map(|dir| dir.display().to_string()));
        Err(Error::NoBinaries { looked_in: looked_in.join(", ") })
    }

    /// Path of one program, for example `psql`.
    pub fn program(&self, name: &str) -> PathBuf {
        self.dir.join(name)
    }

    /// The directory itself.
    pub fn dir(&self) -> &Path {
        &self.dir
    }
}

#[expect(clippy::disallowed_methods, reason = "what a machine has installed is not configuration of Railyard")]
fn environment(name: &str) -> Option<OsString> {
    std::env::var_os(name)
}

/// `<root>/<version>/bin`, the highest version first; versions compare as numbers, so 15 comes before 9.6.
fn system_versions(root: &Path) -> Vec<PathBuf> {
    let Ok(entries) = std::fs::read_dir(root) else { return Vec::new() };
    let mut versions: Vec<(Vec<u32>, PathBuf)> = entries
        .flatten()
        .filter_map(|entry| {
            let name = entry.file_name().into_string().ok()?;
            let numbers = name.split('.').map(str::parse).collect::<Result<Vec<u32>, _>>().ok()?;
            Some((numbers, entry.path().join("bin")))
        })
        .collect();
    versions.sort_by(|a, b| b.0.cmp(&a.0));
    versions.into_iter().map(|(_, dir)| dir).collect()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a failed unwrap is a failed test")]

    use super::*;

    #[test]
    fn versions_compare_as_numbers() {
        let root = tempfile::tempdir().unwrap();
        for version in ["9.6", "15", "17", "scripts"] {
            std::fs::create_dir_all(root.path().join(version).join("bin")).unwrap();
        }
        let found: Vec<_> = system_versions(root.path());
        let expected: Vec<_> = ["17", "15", "9.6"].iter().map(|v| root.path().join(v).join("bin")).collect();
        assert_eq!(found, expected);
    }

    #[test]
    fn a_missing_installation_is_explained() {
        let text = Error::NoBinaries { looked_in: "PATH".into() }.to_string();
        assert!(text.contains("apt-get install postgresql") && text.contains("RAILYARD_PG_BIN"), "{text}");
    }
}
