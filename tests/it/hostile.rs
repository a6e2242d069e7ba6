//! Strangers on a cluster port: everything that somebody who can reach it may try.

use std::net::SocketAddr;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use railyard_core::link::{HELLO_BYTES, Hello, NONCE_BYTES, PROOF_BYTES, Side, proof};
use railyard_testkit::fake_rail::TlsClient;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::time::timeout;
use uuid::Uuid;

/// How many of each kind are at it at once.
const EACH: usize = 12;

/// These kinds at once, until `end`. Returns how many connections they made.
pub(crate) async fn visit(kinds: &[Visit], door: SocketAddr, cookie: &str, end: Instant) -> usize {
    again_and_again(kinds.len() * EACH, end, async |n| kinds[n / EACH].pay(door, cookie).await).await
}

/// Clients without a certificate that counts, until `end`. Returns how many connections they made.
pub(crate) async fn forge(client: &TlsClient, door: SocketAddr, end: Instant) -> usize {
    again_and_again(EACH, end, async |_| {
        let mut stream = client.connect(door).await?;
        stream.write_all(&hello().encode()).await?;
        stream.read_u8().await.map(drop)
    })
    .await
}

async fn again_and_again(callers: usize, end: Instant, call: impl AsyncFn(usize) -> std::io::Result<()>) -> usize {
    let came = AtomicUsize::new(0);
    let again = async |n: usize| {
        while Instant::now() < end {
            came.fetch_add(1, Ordering::Relaxed);
            let left = end.saturating_duration_since(Instant::now());
            let _ = timeout(left, call(n)).await;
        }
    };
    futures_util::future::join_all((0..callers).map(again)).await;
    came.load(Ordering::Relaxed)
}

/// A kind of stranger.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Visit {
    /// Says nothing.
    Silent,
    /// Sends what it likes, as much as is taken.
    Babble,
    /// Says hello and proves nothing.
    WrongCookie,
    /// Knows the cookie, and announces a frame of 2^63 bytes.
    LongFrame,
    /// Knows the cookie, and says nothing after that.
    Mute,
    /// A byte now and then.
    Drip,
}

impl Visit {
    pub(crate) const ALL: [Self; 6] =
        [Self::Silent, Self::Babble, Self::WrongCookie, Self::LongFrame, Self::Mute, Self::Drip];

    /// By which metric, and under which reason, it is counted; and what the log says of it, once.
    pub(crate) fn counted(self) -> (&'static str, &'static str, &'static str) {
        match self {
            Self::Silent | Self::Drip => ("railyard_link_refused_total", "deadline", "reason=\"deadline\""),
            Self::Babble => ("railyard_link_refused_total", "frame", "reason=\"frame\""),
            Self::WrongCookie => ("railyard_link_refused_total", "cookie", "reason=\"cookie\""),
            Self::LongFrame => ("railyard_links_ended_total", "frame", "why=\"frame\""),
            Self::Mute => ("railyard_links_ended_total", "deadline", "why=\"deadline\""),
        }
    }

    async fn pay(self, door: SocketAddr, cookie: &str) -> std::io::Result<()> {
        let mut stream = TcpStream::connect(door).await?;
        match self {
            Self::Silent => {
                stream.read_u8().await?;
            }
            Self::Babble => {
                let noise = [b'x'; 64 * 1024];
                for _ in 0..64 {
                    stream.write_all(&noise).await?;
                }
            }
            Self::WrongCookie => {
                greet(&mut stream, b"not the cookie").await?;
                stream.read_u8().await?;
            }
            Self::LongFrame => {
                greet(&mut stream, cookie.as_bytes()).await?;
                stream.read_exact(&mut [0; PROOF_BYTES]).await?;
                stream.write_u64(1 << 63).await?;
                let noise = [b'x'; 64 * 1024];
                for _ in 0..64 {
                    stream.write_all(&noise).await?;
                }
            }
            Self::Mute => {
                greet(&mut stream, cookie.as_bytes()).await?;
                // Until the node has had enough; whatever it says meanwhile.
                while stream.read(&mut [0; 1024]).await? > 0 {}
            }
            Self::Drip => {
                for byte in hello().encode() {
                    stream.write_u8(byte).await?;
                    tokio::time::sleep(Duration::from_millis(200)).await;
                }
            }
        }
        Ok(())
    }
}

fn hello() -> Hello {
    Hello { process: Uuid::now_v7(), nonce: [7; NONCE_BYTES] }
}

async fn greet(stream: &mut TcpStream, cookie: &[u8]) -> std::io::Result<()> {
    let ours = hello();
    stream.write_all(&ours.encode()).await?;
    let mut theirs = [0; HELLO_BYTES];
    stream.read_exact(&mut theirs).await?;
    let theirs = Hello::decode(&theirs).expect("a node says hello");
    stream.write_all(&proof(cookie, Side::Dialer, &ours, &theirs)).await
}
