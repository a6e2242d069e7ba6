//! Small files that people name on the command line: secrets, payloads, bodies. `-` is standard input.

use std::io::Read;
use std::path::Path;

use anyhow::Context;
use zeroize::Zeroizing;

/// Most bytes that are read: more than the largest payload.
const BYTES_MAX: u64 = 32 * 1024 * 1024;

/// All of a file, byte for byte.
///
/// # Errors
/// It cannot be read, or is larger than 32 MiB.
pub(crate) fn bytes(path: &Path) -> anyhow::Result<Vec<u8>> {
    let read = || -> std::io::Result<Vec<u8>> {
        let mut bytes = Vec::new();
        if path == Path::new("-") {
            std::io::stdin().lock().take(BYTES_MAX + 1).read_to_end(&mut bytes)?;
        } else {
            std::fs::File::open(path)?.take(BYTES_MAX + 1).read_to_end(&mut bytes)?;
        }
        Ok(bytes)
    };
    let bytes = read().with_context(|| format!("read {}", path.display()))?;
    let len = u64::try_from(bytes.len()).unwrap_or(u64::MAX);
    anyhow::ensure!(len <= BYTES_MAX, "{} is larger than {BYTES_MAX} bytes", path.display());
    Ok(bytes)
}

/// A secret: the file's text without the newline that editors put at its end.
///
/// # Errors
/// It cannot be read, or is not UTF-8.
pub(crate) fn secret(path: &Path) -> anyhow::Result<Zeroizing<String>> {
    let text = String::from_utf8(bytes(path)?);
    let mut text = Zeroizing::new(text.map_err(|_| anyhow::anyhow!("{} is not UTF-8", path.display()))?);
    let end = text.strip_suffix('\n').map_or(text.len(), |rest| rest.strip_suffix('\r').unwrap_or(rest).len());
    text.truncate(end);
    Ok(text)
}

/// A secret given as it is, or in a file, which goes first: it was asked for, while the other may come from the
/// environment.
///
/// # Errors
/// As [`secret`].
pub(crate) fn secret_of(given: Option<&String>, file: Option<&Path>) -> anyhow::Result<Option<Zeroizing<String>>> {
    match (given, file) {
        (_, Some(file)) => secret(file).map(Some),
        (Some(text), None) => Ok(Some(Zeroizing::new(text.clone()))),
        (None, None) => Ok(None),
    }
}
