//! A link's connection as ractor_cluster reads and writes it: watched and cut from here.
//!
//! ractor_cluster ends a session only when its connection does, and kills the half that would have ended the other:
//! a writer that waits for a frozen peer would keep its connection and its buffer for ever. So both halves listen for
//! [`Pulse::cut`] themselves. Frames are measured here as well: what is too long is counted, and never read.

use std::future::Future;
use std::io;
use std::pin::Pin;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::task::{Context, Poll};
use std::time::Duration;

use ractor_cluster::{BoxRead, BoxWrite, ClusterBidiStream};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::sync::oneshot;
use tokio::time::Instant;

/// Any connection.
pub(crate) trait Connection: AsyncRead + AsyncWrite + Unpin + Send + 'static {}
impl<S: AsyncRead + AsyncWrite + Unpin + Send + 'static> Connection for S {}

/// Why a link ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Ended {
    /// The peer closed it, or the network did.
    Closed,
    /// Nothing came for too long.
    Silent,
    /// A frame was too long.
    Frame,
    /// A newer link to the same process took its place.
    Replaced,
    /// The sessions on it did not agree in time.
    Deadline,
}

impl Ended {
    pub(crate) const ALL: [Self; 5] = [Self::Closed, Self::Silent, Self::Frame, Self::Replaced, Self::Deadline];

    pub(crate) fn as_str(self) -> &'static str {
        match self {
            Self::Closed => "closed",
            Self::Silent => "silent",
            Self::Frame => "frame",
            Self::Replaced => "replaced",
            Self::Deadline => "deadline",
        }
    }

    /// The topic of its log line, which is said once a minute.
    pub(crate) fn topic(self) -> &'static str {
        match self {
            Self::Closed => "link ended: closed",
            Self::Silent => "link ended: silent",
            Self::Frame => "link ended: frame",
            Self::Replaced => "link ended: replaced",
            Self::Deadline => "link ended: deadline",
        }
    }
}

/// What a link's owner holds of its connection.
#[derive(Debug)]
pub(crate) struct Pulse {
    since: Instant,
    /// Milliseconds after `since`.
    heard: AtomicU64,
    ended: OnceLock<Ended>,
    cuts: Mutex<Vec<oneshot::Sender<()>>>,
}

impl Pulse {
    /// How long it has been there.
    pub(crate) fn age(&self) -> Duration {
        self.since.elapsed()
    }

    /// How long nothing has come.
    pub(crate) fn silence(&self) -> Duration {
        self.since.elapsed().saturating_sub(Duration::from_millis(self.heard.load(Ordering::Relaxed)))
    }

    /// Ends the link now, both ways, whatever it is waiting for.
    pub(crate) fn cut(&self, why: Ended) {
        let _ = self.ended.set(why);
        self.cuts.lock().unwrap_or_else(PoisonError::into_inner).clear();
    }

    pub(crate) fn is_cut(&self) -> bool {
        self.ended.get().is_some()
    }

    pub(crate) fn ended(&self) -> Ended {
        self.ended.get().copied().unwrap_or(Ended::Closed)
    }

    fn hear(&self) {
        let now = u64::try_from(self.since.elapsed().as_millis()).unwrap_or(u64::MAX);
        self.heard.store(now, Ordering::Relaxed);
    }
}

/// A connection for a session.
pub(crate) struct LinkStream {
    connection: Box<dyn Connection>,
    label: String,
    frame_max: u64,
    pulse: Arc<Pulse>,
    cut_read: oneshot::Receiver<()>,
    cut_write: oneshot::Receiver<()>,
}

impl LinkStream {
    /// `label` is how the session is known to ractor_cluster.
    pub(crate) fn new(connection: Box<dyn Connection>, label: String, frame_max: u64) -> (Self, Arc<Pulse>) {
        let (first, cut_read) = oneshot::channel();
        let (second, cut_write) = oneshot::channel();
        let pulse = Arc::new(Pulse {
            since: Instant::now(),
            heard: AtomicU64::new(0),
            ended: OnceLock::new(),
            cuts: Mutex::new(vec![first, second]),
        });
        let stream = Self { connection, label, frame_max, pulse: Arc::clone(&pulse), cut_read, cut_write };
        (stream, pulse)
    }
}

impl ClusterBidiStream for LinkStream {
    fn split(self: Box<Self>) -> (BoxRead, BoxWrite) {
        let (reader, writer) = tokio::io::split(self.connection);
        let frames = Frames { max: self.frame_max, state: Frame::Length([0; 8], 0) };
        (
            Box::new(Reader { inner: reader, cut: self.cut_read, pulse: self.pulse, frames }),
            Box::new(Writer { inner: writer, cut: self.cut_write }),
        )
    }

    fn peer_label(&self) -> Option<String> {
        Some(self.label.clone())
    }
}

/// Where in the stream of frames the reader stands.
struct Frames {
    max: u64,
    state: Frame,
}

enum Frame {
    /// The length, and how many bytes of it have come.
    Length([u8; 8], usize),
    /// So much of the frame is missing.
    Body(u64),
}

impl Frames {
    /// Follows what was read. False: a frame is too long.
    fn follow(&mut self, mut bytes: &[u8]) -> bool {
        while !bytes.is_empty() {
            match &mut self.state {
                Frame::Length(length, have) => {
                    let take = bytes.len().min(8 - *have);
                    length[*have..*have + take].copy_from_slice(&bytes[..take]);
                    *have += take;
                    bytes = &bytes[take..];
                    if *have == 8 {
                        let length = u64::from_be_bytes(*length);
                        if length > self.max {
                            return false;
                        }
                        self.state = if length == 0 { Frame::Length([0; 8], 0) } else { Frame::Body(length) };
                    }
                }
                Frame::Body(left) => {
                    let take = usize::try_from(*left).unwrap_or(usize::MAX).min(bytes.len());
                    *left -= u64::try_from(take).unwrap_or(u64::MAX).min(*left);
                    bytes = &bytes[take..];
                    if *left == 0 {
                        self.state = Frame::Length([0; 8], 0);
                    }
                }
            }
        }
        true
    }
}

struct Reader<R> {
    inner: R,
    cut: oneshot::Receiver<()>,
    pulse: Arc<Pulse>,
    frames: Frames,
}

impl<R: AsyncRead + Unpin> AsyncRead for Reader<R> {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let this = &mut *self;
        if Pin::new(&mut this.cut).poll(cx).is_ready() {
            // As if the peer had closed it.
            return Poll::Ready(Ok(()));
        }
        let before = buf.filled().len();
        std::task::ready!(Pin::new(&mut this.inner).poll_read(cx, buf))?;
        let new = &buf.filled()[before..];
        if !new.is_empty() {
            this.pulse.hear();
        }
        if !this.frames.follow(new) {
            this.pulse.cut(Ended::Frame);
            return Poll::Ready(Err(io::ErrorKind::InvalidData.into()));
        }
        Poll::Ready(Ok(()))
    }
}

struct Writer<W> {
    inner: W,
    cut: oneshot::Receiver<()>,
}

impl<W> Writer<W> {
    fn check(&mut self, cx: &mut Context<'_>) -> io::Result<()> {
        match Pin::new(&mut self.cut).poll(cx).is_ready() {
            true => Err(io::ErrorKind::ConnectionAborted.into()),
            false => Ok(()),
        }
    }
}

impl<W: AsyncWrite + Unpin> AsyncWrite for Writer<W> {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        self.check(cx)?;
        Pin::new(&mut self.inner).poll_write(cx, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.check(cx)?;
        Pin::new(&mut self.inner).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.check(cx)?;
        Pin::new(&mut self.inner).poll_shutdown(cx)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tokio::io::{AsyncReadExt, AsyncWriteExt};

    fn link(frame_max: u64) -> (BoxRead, BoxWrite, tokio::io::DuplexStream, Arc<Pulse>) {
        let (near, far) = tokio::io::duplex(64);
        let (stream, pulse) = LinkStream::new(Box::new(near), "peer".to_owned(), frame_max);
        let (reader, writer) = Box::new(stream).split();
        (reader, writer, far, pulse)
    }

    #[tokio::test]
    async fn frames_within_the_bound_pass_however_they_are_cut() {
        let (mut reader, _writer, mut far, pulse) = link(3);
        let bytes = [&3_u64.to_be_bytes()[..], b"abc", &0_u64.to_be_bytes(), &2_u64.to_be_bytes(), b"de"].concat();
        for byte in &bytes {
            far.write_all(&[*byte]).await.unwrap();
            assert_eq!(reader.read_u8().await.unwrap(), *byte);
        }
        assert_eq!(pulse.ended(), Ended::Closed);
    }

    #[tokio::test]
    async fn a_frame_that_is_too_long_ends_the_link_before_it_is_read() {
        let (mut reader, mut writer, mut far, pulse) = link(3);
        far.write_all(&4_u64.to_be_bytes()).await.unwrap();
        assert_eq!(reader.read_u64().await.unwrap_err().kind(), io::ErrorKind::InvalidData);
        assert_eq!(pulse.ended(), Ended::Frame);
        assert!(writer.write_all(b"x").await.is_err());
    }

    #[tokio::test]
    async fn a_cut_ends_a_reader_and_a_writer_that_wait() {
        let (mut reader, mut writer, _far, pulse) = link(3);
        let cutting = async {
            // Both others have been polled by then.
            tokio::task::yield_now().await;
            pulse.cut(Ended::Silent);
        };
        // More than the other end, which reads nothing, has room for.
        let (read, written, ()) = tokio::join!(reader.read_u64(), writer.write_all(&[0; 1000]), cutting);
        assert!(read.is_err() && written.is_err());
        assert_eq!(pulse.ended(), Ended::Silent);
    }
}
