//! A transaction pooler between node and server breaks LISTEN, leases and session settings, and shows nothing of it
//! until it matters.

use std::time::Duration;

use tokio_postgres::Client;

use super::{Check, Grade};
use crate::connect::Store;
use crate::error::StoreError;
use crate::listen::Heard;

const PID: &str = "SELECT pg_backend_pid()";
/// How long a notification may take.
const NOTIFY_WAIT_MAX: Duration = Duration::from_secs(3);

/// Two sessions that are both open have two backends, unless somebody deals out backends by the transaction.
pub(super) async fn check(store: &Store, client: &Client) -> Result<Check, StoreError> {
    let first: i32 = client.query_one(PID, &[]).await?.try_get(0)?;
    let other = store.dedicated("railyard doctor").await?;
    other.client.batch_execute("BEGIN").await?;
    let theirs: i32 = other.client.query_one(PID, &[]).await?.try_get(0)?;
    let again: i32 = client.query_one(PID, &[]).await?.try_get(0)?;
    other.client.batch_execute("COMMIT").await?;
    if first == theirs || first != again {
        let detail = "sessions share backends: a transaction pooler stands in between; connect to the server itself";
        return Ok(Check::new("pooler", Grade::Bad, detail));
    }
    Ok(Check::new("pooler", Grade::Good, "a session keeps its backend"))
}

/// A notification that is sent arrives.
pub(super) async fn listens(store: &Store, client: &Client) -> Result<Check, StoreError> {
    let mut listening = store.listen().await?;
    client.batch_execute("SELECT pg_notify('railyard_cache', 'doctor')").await?;
    let heard = async {
        loop {
            match listening.next().await {
                Ok(Heard::Cache(name)) if name == "doctor" => return Ok(()),
                Ok(Heard::Cache(_) | Heard::Work | Heard::Members) => {}
                Err(error) => return Err(error),
            }
        }
    };
    match tokio::time::timeout(NOTIFY_WAIT_MAX, heard).await {
        Ok(Ok(())) => Ok(Check::new("listen", Grade::Good, "notifications arrive")),
        Ok(Err(error)) => Err(error),
        Err(_) => Ok(Check::new("listen", Grade::Bad, "a notification did not arrive within 3 s")),
    }
}
