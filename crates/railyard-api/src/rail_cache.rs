//! The rails by name, for the defaults of jobs: what a job does not say, its rail says.
//!
//! Read from the database every few seconds, and at once for a name that is not there: another node may have brought
//! it. The enqueue function has the last word.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use railyard_store::rails::{self, RailSpec};
use railyard_store::{Store, StoreError};
use tokio::sync::Mutex;

/// How long a reading counts.
const TTL: Duration = Duration::from_secs(5);
/// A name that nobody knows makes us look again no more often than this.
const LOOK_AGAIN_MIN: Duration = Duration::from_millis(500);

type Rails = Arc<BTreeMap<String, RailSpec>>;

#[derive(Default)]
pub(crate) struct RailCache {
    read: Mutex<Option<(Instant, Rails)>>,
}

impl RailCache {
    /// The rail of this name; none if there is none.
    pub(crate) async fn rail(&self, store: &Store, name: &str) -> Result<Option<RailSpec>, StoreError> {
        let mut read = self.read.lock().await;
        if let Some((at, rails)) = read.as_ref() {
            let known = rails.contains_key(name);
            if at.elapsed() < if known { TTL } else { LOOK_AGAIN_MIN } {
                return Ok(rails.get(name).cloned());
            }
        }
        let rows = rails::list(store).await?;
        let rails: Rails = Arc::new(rows.into_iter().map(|row| (row.spec.rail_type.clone(), row.spec)).collect());
        let found = rails.get(name).cloned();
        *read = Some((Instant::now(), rails));
        Ok(found)
    }
}
