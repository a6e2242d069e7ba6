//! The first words on a link, as [`railyard_core::link`] has them, spoken over a connection. Whoever calls sets the
//! deadline.

use railyard_core::link::{HELLO_BYTES, Hello, NONCE_BYTES, PROOF_BYTES, Side, proof, proves};
use rand::RngExt;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use uuid::Uuid;

use super::options::Cookie;
use super::refused::Refused;

/// Takes a link. Returns the process at the other end.
///
/// # Errors
/// [`Refused`].
pub(crate) async fn accept<S>(stream: &mut S, cookie: &Cookie, me: Uuid) -> Result<Uuid, Refused>
where
    S: AsyncRead + AsyncWrite + Unpin,
{
    let theirs = read_hello(stream).await?;
    if theirs.process == me {
        return Err(Refused::Stranger);
    }
    let ours = hello(me);
    write(stream, &ours.encode()).await?;
    let given = read::<PROOF_BYTES, S>(stream).await?;
    if !proves(cookie.bytes(), Side::Dialer, &theirs, &ours, &given) {
        return Err(Refused::Cookie);
    }
    write(stream, &proof(cookie.bytes(), Side::Acceptor, &theirs, &ours)).await?;
    Ok(theirs.process)
}

/// Opens a link to `wanted` and to nobody else.
///
/// # Errors
/// [`Refused`]. A peer that does not take our proof closes the connection: [`Refused::Closed`].
pub(crate) async fn dial<S>(stream: &mut S, cookie: &Cookie, me: Uuid, wanted: Uuid) -> Result<(), Refused>
where
    S: AsyncRead + AsyncWrite + Unpin,
{
    let ours = hello(me);
    write(stream, &ours.encode()).await?;
    let theirs = read_hello(stream).await?;
    if theirs.process != wanted {
        return Err(Refused::Stranger);
    }
    write(stream, &proof(cookie.bytes(), Side::Dialer, &ours, &theirs)).await?;
    let given = read::<PROOF_BYTES, S>(stream).await?;
    match proves(cookie.bytes(), Side::Acceptor, &ours, &theirs, &given) {
        true => Ok(()),
        false => Err(Refused::Cookie),
    }
}

fn hello(me: Uuid) -> Hello {
    let mut nonce = [0; NONCE_BYTES];
    rand::rng().fill(&mut nonce);
    Hello { process: me, nonce }
}

async fn read_hello<S: AsyncRead + Unpin>(stream: &mut S) -> Result<Hello, Refused> {
    Hello::decode(&read::<HELLO_BYTES, S>(stream).await?).ok_or(Refused::Frame)
}

async fn read<const N: usize, S: AsyncRead + Unpin>(stream: &mut S) -> Result<[u8; N], Refused> {
    let mut bytes = [0; N];
    stream.read_exact(&mut bytes).await.map_err(|error| Refused::from_io(&error))?;
    Ok(bytes)
}

async fn write<S: AsyncWrite + Unpin>(stream: &mut S, bytes: &[u8]) -> Result<(), Refused> {
    stream.write_all(bytes).await.map_err(|error| Refused::from_io(&error))?;
    stream.flush().await.map_err(|error| Refused::from_io(&error))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn cookie() -> Cookie {
        Cookie::new(vec![b'c'; 32])
    }

    #[tokio::test]
    async fn two_that_know_the_cookie_agree() {
        let (mut near, mut far) = tokio::io::duplex(64);
        let (dialer, acceptor, cookie) = (Uuid::now_v7(), Uuid::now_v7(), cookie());
        let (dialled, taken) =
            tokio::join!(dial(&mut near, &cookie, dialer, acceptor), accept(&mut far, &cookie, acceptor));
        assert_eq!((dialled, taken), (Ok(()), Ok(dialer)));
    }

    /// Its address may be another's by now.
    #[tokio::test]
    async fn a_dialer_says_nothing_more_to_another_process() {
        let (mut near, mut far) = tokio::io::duplex(64);
        let (cookie, other) = (cookie(), Uuid::now_v7());
        let dialling = async {
            let refused = dial(&mut near, &cookie, Uuid::now_v7(), Uuid::now_v7()).await;
            drop(near);
            refused
        };
        let (dialled, taken) = tokio::join!(dialling, accept(&mut far, &cookie, other));
        assert_eq!((dialled, taken), (Err(Refused::Stranger), Err(Refused::Closed)), "no proof was sent");
    }

    /// Whoever listens at a dead peer's address and says its process id, but does not know the cookie.
    #[tokio::test]
    async fn a_dialer_wants_a_proof_as_well() {
        let (mut near, mut far) = tokio::io::duplex(64);
        let (cookie, peer) = (cookie(), Uuid::now_v7());
        let pretending = async {
            read_hello(&mut far).await?;
            write(&mut far, &hello(peer).encode()).await?;
            // Its own proof, sent back.
            let given = read::<PROOF_BYTES, _>(&mut far).await?;
            write(&mut far, &given).await
        };
        let (dialled, pretended) = tokio::join!(dial(&mut near, &cookie, Uuid::now_v7(), peer), pretending);
        assert_eq!((dialled, pretended), (Err(Refused::Cookie), Ok(())));
    }
}
