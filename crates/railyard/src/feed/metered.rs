//! A reader that counts lines, digests what went through, and gives no more than so much at once.

use std::io::{self, BufRead, Read};

use sha2::{Digest, Sha256};

/// The longest line, row, tag or text. More than any payment needs, and the bound on what a parser may hold.
pub(crate) const PIECE_BYTES_MAX: usize = 256 * 1024;

/// Counts what is consumed.
pub(crate) struct Metered<R> {
    inner: R,
    newlines: u64,
    bytes: u64,
    hash: Sha256,
    /// What may still be read of this piece.
    left: usize,
    /// The last byte was a newline, or there was none.
    at_line_start: bool,
}

impl<R: BufRead> Metered<R> {
    pub(crate) fn new(inner: R) -> Self {
        let hash = Sha256::new();
        Self { inner, newlines: 0, bytes: 0, hash, left: PIECE_BYTES_MAX, at_line_start: true }
    }

    /// Another piece begins.
    pub(crate) fn renew(&mut self) {
        self.left = PIECE_BYTES_MAX;
    }

    /// The line that the next byte stands in, from 1.
    pub(crate) fn line(&self) -> u64 {
        self.newlines + 1
    }

    /// Bytes so far.
    pub(crate) fn bytes_read(&self) -> u64 {
        self.bytes
    }

    /// Of those.
    pub(crate) fn sha256(&self) -> [u8; 32] {
        self.hash.clone().finalize().into()
    }
}

impl<R: BufRead> BufRead for Metered<R> {
    fn fill_buf(&mut self) -> io::Result<&[u8]> {
        let left = self.left;
        let buffered = self.inner.fill_buf()?;
        if left == 0 && !buffered.is_empty() {
            return Err(io::Error::other(format!("one piece has more than {PIECE_BYTES_MAX} bytes")));
        }
        Ok(&buffered[..buffered.len().min(left)])
    }

    fn consume(&mut self, amount: usize) {
        // What fill_buf has given is still there, and is given again.
        if let Ok(buffered) = self.inner.fill_buf() {
            let taken = &buffered[..amount.min(buffered.len())];
            let newlines = taken.iter().filter(|byte| **byte == b'\n').count();
            self.newlines += u64::try_from(newlines).unwrap_or(u64::MAX);
            self.hash.update(taken);
            if let Some(last) = taken.last() {
                self.at_line_start = *last == b'\n';
            }
        }
        self.left = self.left.saturating_sub(amount);
        self.bytes += u64::try_from(amount).unwrap_or(u64::MAX);
        self.inner.consume(amount);
    }
}

/// The same bytes for a reader without a buffer of ours, with a newline at the end if there was none.
impl<R: BufRead> Read for Metered<R> {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        let buffered = self.fill_buf()?;
        let amount = buffered.len().min(into.len());
        into[..amount].copy_from_slice(&buffered[..amount]);
        if amount > 0 {
            self.consume(amount);
            return Ok(amount);
        }
        match into.first_mut() {
            Some(first) if !self.at_line_start => {
                *first = b'\n';
                self.at_line_start = true;
                Ok(1)
            }
            Some(_) | None => Ok(0),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::io::BufReader;

    use super::*;

    #[test]
    fn what_goes_through_is_counted_and_digested() {
        let mut metered = Metered::new(BufReader::with_capacity(3, &b"a\nbc\nd"[..]));
        let mut text = String::new();
        metered.read_line(&mut text).unwrap();
        assert_eq!((text.as_str(), metered.line(), metered.bytes_read()), ("a\n", 2, 2));
        text.clear();
        metered.read_to_string(&mut text).unwrap();
        assert_eq!((text.as_str(), metered.line()), ("bc\nd\n", 3), "a newline at the end");
        assert_eq!(
            (metered.bytes_read(), metered.sha256()),
            (6, Sha256::digest(b"a\nbc\nd").into()),
            "which is none of the file's"
        );
    }

    #[test]
    fn a_piece_has_a_bound() {
        let long = vec![b'x'; PIECE_BYTES_MAX + 1];
        let mut metered = Metered::new(&long[..]);
        let mut line = Vec::new();
        assert!(metered.read_until(b'\n', &mut line).is_err());
        assert_eq!(line.len(), PIECE_BYTES_MAX);
        metered.renew();
        assert_eq!(metered.read_until(b'\n', &mut line).unwrap(), 1);
        metered.renew();
        let exact = vec![b'x'; PIECE_BYTES_MAX];
        assert_eq!(Metered::new(&exact[..]).read_until(b'\n', &mut line).unwrap(), PIECE_BYTES_MAX);
    }
}
