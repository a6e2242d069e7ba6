//! LISTEN on a connection of its own. A notification carries no data: it means *look at the database*.

use std::pin::Pin;
use std::time::Duration;

use futures_util::future::poll_fn;
use tokio_postgres::tls::NoTlsStream;
use tokio_postgres::{AsyncMessage, Client, Connection, NoTls, Socket};

use crate::connect::Store;
use crate::error::StoreError;

/// New work was committed somewhere.
pub const WORK_CHANNEL: &str = "outbox_pending";
/// Something that nodes cache has changed.
pub const CACHE_CHANNEL: &str = "railyard_cache";
/// A member came or went, or a partition is free.
pub const MEMBERS_CHANNEL: &str = "railyard_members";

/// What came.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Heard {
    /// [`WORK_CHANNEL`].
    Work,
    /// [`CACHE_CHANNEL`], with the name of the cache.
    Cache(String),
    /// [`MEMBERS_CHANNEL`].
    Members,
}

/// A listening connection. Dropped, it stops listening.
pub struct Listening {
    client: Client,
    connection: Pin<Box<Connection<Socket, NoTlsStream>>>,
}

impl Store {
    /// Connects and listens. After it has answered, nothing committed later is missed until [`Listening::next`] fails.
    ///
    /// # Errors
    /// [`StoreError::Unavailable`].
    pub async fn listen(&self) -> Result<Listening, StoreError> {
        let config = self.client_config("railyard listen")?;
        let timeout = self.config().acquire_timeout;
        let silent = || StoreError::Unavailable { detail: "no answer to LISTEN".to_owned() };
        let (client, connection) =
            tokio::time::timeout(timeout, config.connect(NoTls)).await.map_err(|_| silent())??;
        let mut listening = Listening { client, connection: Box::pin(connection) };
        tokio::time::timeout(timeout, listening.subscribe()).await.map_err(|_| silent())??;
        Ok(listening)
    }
}

impl Listening {
    async fn subscribe(&mut self) -> Result<(), StoreError> {
        let Self { client, connection } = self;
        let commands = format!("LISTEN {WORK_CHANNEL}; LISTEN {CACHE_CHANNEL}; LISTEN {MEMBERS_CHANNEL}");
        let asked = client.batch_execute(&commands);
        tokio::pin!(asked);
        poll_fn(|cx| {
            // The connection has to be polled for the answer to come; what it hears meanwhile is covered by the look
            // at the database that follows every (re)connection.
            while let std::task::Poll::Ready(message) = connection.as_mut().poll_message(cx) {
                match message {
                    Some(Ok(_)) => {}
                    Some(Err(error)) => return std::task::Poll::Ready(Err(error.into())),
                    None => return std::task::Poll::Ready(Err(closed())),
                }
            }
            asked.as_mut().poll(cx).map_err(StoreError::from)
        })
        .await
    }

    /// The next notification. Cancel-safe.
    ///
    /// # Errors
    /// [`StoreError::Unavailable`]: the connection is gone and with it whatever was committed since; listen anew and
    /// look at the database.
    pub async fn next(&mut self) -> Result<Heard, StoreError> {
        loop {
            let message = poll_fn(|cx| self.connection.as_mut().poll_message(cx)).await;
            match message {
                Some(Ok(AsyncMessage::Notification(heard))) if heard.channel() == WORK_CHANNEL => {
                    return Ok(Heard::Work);
                }
                Some(Ok(AsyncMessage::Notification(heard))) if heard.channel() == CACHE_CHANNEL => {
                    return Ok(Heard::Cache(heard.payload().to_owned()));
                }
                Some(Ok(AsyncMessage::Notification(heard))) if heard.channel() == MEMBERS_CHANNEL => {
                    return Ok(Heard::Members);
                }
                Some(Ok(_)) => {}
                Some(Err(error)) => return Err(error.into()),
                None => return Err(closed()),
            }
        }
    }

    /// Asks the server for a sign of life: a half-open connection is silent for ever.
    ///
    /// # Errors
    /// [`StoreError::Unavailable`]: as for [`Listening::next`].
    pub async fn check(&mut self, timeout: Duration) -> Result<bool, StoreError> {
        let Self { client, connection } = self;
        let asked = client.batch_execute("");
        tokio::pin!(asked);
        let mut heard = false;
        let answer = poll_fn(|cx| {
            while let std::task::Poll::Ready(message) = connection.as_mut().poll_message(cx) {
                match message {
                    Some(Ok(AsyncMessage::Notification(_))) => heard = true,
                    Some(Ok(_)) => {}
                    Some(Err(error)) => return std::task::Poll::Ready(Err(StoreError::from(error))),
                    None => return std::task::Poll::Ready(Err(closed())),
                }
            }
            asked.as_mut().poll(cx).map_err(StoreError::from)
        });
        match tokio::time::timeout(timeout, answer).await {
            Ok(Ok(())) => Ok(heard),
            Ok(Err(error)) => Err(error),
            Err(_) => Err(StoreError::Unavailable { detail: "the LISTEN connection does not answer".to_owned() }),
        }
    }
}

fn closed() -> StoreError {
    StoreError::Unavailable { detail: "the LISTEN connection was closed".to_owned() }
}
