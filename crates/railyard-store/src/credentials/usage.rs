//! Who still needs a set of credentials.

use railyard_core::CredentialsId;

use crate::connect::Conn;
use crate::error::StoreError;

/// Open work is small and content is large, so each open message asks for its own content; the first hit ends it.
const USAGE: &str = "
    SELECT EXISTS (SELECT 1 FROM in_flight w JOIN dispatch_job j ON j.outbox_id = w.outbox_id
                   WHERE j.credentials_id = $1)
        OR EXISTS (SELECT 1 FROM scheduled_job w JOIN dispatch_job j ON j.outbox_id = w.outbox_id
                   WHERE j.credentials_id = $1)
        OR EXISTS (SELECT 1 FROM payment_outbox_pending w JOIN dispatch_job j ON j.outbox_id = w.outbox_id
                   WHERE j.credentials_id = $1) AS open_work,
      ARRAY(SELECT rail_type FROM rail WHERE credentials_id = $1 ORDER BY 1 LIMIT 20) AS rails,
      ARRAY(SELECT name FROM event_subscription WHERE credentials_id = $1 AND enabled ORDER BY 1 LIMIT 20) AS subscriptions";

/// What uses a set.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Usage {
    /// At least one job that has not ended.
    pub open_work: bool,
    /// Rails whose jobs take it when they name none.
    pub rails: Vec<String>,
    /// Subscriptions whose jobs take it.
    pub subscriptions: Vec<String>,
}

impl Usage {
    /// Whether anything does.
    #[must_use]
    pub fn is_used(&self) -> bool {
        self.open_work || !self.rails.is_empty() || !self.subscriptions.is_empty()
    }
}

pub(super) async fn usage(conn: &Conn, id: CredentialsId) -> Result<Usage, StoreError> {
    let row = conn.query_one(USAGE, &[&id.0]).await?;
    Ok(Usage {
        open_work: row.try_get("open_work")?,
        rails: row.try_get("rails")?,
        subscriptions: row.try_get("subscriptions")?,
    })
}
