//! What PostgreSQL says to a client, counted only: how many times it is ready for the next query.

/// Counts ReadyForQuery messages in a stream that arrives in pieces.
#[derive(Debug, Default)]
pub(super) struct Backend {
    /// Type and length of the message whose head has come, as far as it has.
    head: Vec<u8>,
    /// Bytes of the message's body that are still to come.
    body_left: usize,
    /// ReadyForQuery messages so far.
    pub(super) ready: u64,
}

impl Backend {
    pub(super) fn read(&mut self, mut bytes: &[u8]) {
        while !bytes.is_empty() {
            if self.body_left > 0 {
                let skipped = self.body_left.min(bytes.len());
                self.body_left -= skipped;
                bytes = &bytes[skipped..];
                continue;
            }
            self.head.push(bytes[0]);
            bytes = &bytes[1..];
            if let [tag, a, b, c, d] = self.head[..] {
                // ReadyForQuery has one byte of body, so that it is counted a byte early harms nobody.
                self.ready += u64::from(tag == b'Z');
                let length = u32::from_be_bytes([a, b, c, d]).saturating_sub(4);
                self.body_left = usize::try_from(length).expect("32 bits fit in a usize here");
                self.head.clear();
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn readiness_is_counted_however_the_bytes_arrive() {
        // A row that holds the bytes of a ReadyForQuery must not count.
        let bytes = b"D\0\0\0\x0aZ\0\0\0\x05IZ\0\0\0\x05I1\0\0\0\x04Z\0\0\0\x05T";
        for piece in [1, 2, 7, bytes.len()] {
            let mut backend = Backend::default();
            bytes.chunks(piece).for_each(|chunk| backend.read(chunk));
            assert_eq!(backend.ready, 2, "in pieces of {piece}");
        }
    }
}
