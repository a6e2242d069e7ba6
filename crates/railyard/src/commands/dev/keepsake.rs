//! A secret that is made at the first start and kept: for the owner alone, and never half written.

use std::fs::{self, OpenOptions};
use std::io::Write;
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

use anyhow::Context;
use zeroize::Zeroizing;

/// Reads the file; makes it first if it is not there. A process that dies in between leaves no file or a whole one.
///
/// # Errors
/// The file cannot be read or written, or nothing could be made.
pub(super) fn read_or_make(
    file: &Path,
    make: impl FnOnce() -> anyhow::Result<Zeroizing<String>>,
) -> anyhow::Result<Zeroizing<String>> {
    if !file.exists() {
        let fresh = file.with_extension("new");
        let text = make()?;
        let written = || -> std::io::Result<()> {
            // A leftover of a start that died may have other rights than ours.
            match fs::remove_file(&fresh) {
                Err(error) if error.kind() != std::io::ErrorKind::NotFound => return Err(error),
                Ok(()) | Err(_) => {}
            }
            let mut out = OpenOptions::new().write(true).create_new(true).mode(0o600).open(&fresh)?;
            writeln!(out, "{}", *text)?;
            out.sync_all()?;
            fs::rename(&fresh, file)
        };
        written().with_context(|| format!("write {}", file.display()))?;
    }
    let text = crate::files::secret(file)?;
    anyhow::ensure!(!text.trim().is_empty(), "{} is empty", file.display());
    Ok(text)
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::MetadataExt;

    use super::*;

    #[test]
    fn it_is_made_once_and_is_private() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("admin.token");
        fs::write(file.with_extension("new"), "left over").unwrap();
        let first = read_or_make(&file, || Ok(Zeroizing::new("a".to_owned()))).unwrap();
        let second = read_or_make(&file, || panic!("it is there")).unwrap();
        assert_eq!((first.as_str(), second.as_str()), ("a", "a"));
        assert_eq!(fs::metadata(&file).unwrap().mode() & 0o777, 0o600);
        assert!(!file.with_extension("new").exists());
    }

    #[test]
    fn an_empty_file_is_named() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("master.key");
        fs::write(&file, "\n").unwrap();
        let error = read_or_make(&file, || panic!("it is there")).unwrap_err();
        assert!(error.to_string().contains("master.key is empty"), "{error}");
    }
}
