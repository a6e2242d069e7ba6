//! From a connection to a link that may be handed to ractor_cluster: TLS and the first words, within the deadline.

use railyard_store::lease::Door;
use tokio::net::TcpStream;
use tokio::time::timeout;
use uuid::Uuid;

use super::refused::Refused;
use super::stream::Connection;
use super::{HANDSHAKE, Links, prologue};

/// Whoever has connected shows who it is.
///
/// # Errors
/// [`Refused`].
pub(crate) async fn take(links: &Links, stream: TcpStream) -> Result<(Uuid, Box<dyn Connection>), Refused> {
    let taken = timeout(HANDSHAKE, async {
        let mut connection = match &links.tls {
            Some(tls) => tls.accept(stream).await?,
            None => Box::new(stream) as Box<dyn Connection>,
        };
        let process = prologue::accept(&mut connection, &links.options.cookie, links.me.process).await?;
        Ok((process, connection))
    });
    taken.await.unwrap_or(Err(Refused::Deadline))
}

/// Connects to a peer.
///
/// # Errors
/// [`Refused`].
pub(crate) async fn open(links: &Links, door: &Door) -> Result<Box<dyn Connection>, Refused> {
    let opened = timeout(HANDSHAKE, async {
        let stream = TcpStream::connect(&door.address).await.map_err(|_| Refused::Unreachable)?;
        stream.set_nodelay(true).map_err(|_| Refused::Closed)?;
        let mut connection = match &links.tls {
            Some(tls) => tls.connect(stream).await?,
            None => Box::new(stream) as Box<dyn Connection>,
        };
        prologue::dial(&mut connection, &links.options.cookie, links.me.process, door.process).await?;
        Ok(connection)
    });
    opened.await.unwrap_or(Err(Refused::Deadline))
}
