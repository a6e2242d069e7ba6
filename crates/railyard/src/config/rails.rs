//! `[rails.NAME]`: where jobs may go. A job names its rail by `railType`.

use std::collections::BTreeMap;

use railyard_core::limits::RAIL_NAME_BYTES_MAX;
use railyard_core::rail::{PAYMENT_WEBHOOK, RailKind, WEBHOOK};
use railyard_rail::RailOptions;
use serde::Deserialize;

use super::Problems;

/// The rails by name. `webhook` and `payment_webhook` are always there.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(from = "BTreeMap<String, RailOptions>")]
pub(crate) struct Rails(pub(crate) BTreeMap<String, RailOptions>);

impl Default for Rails {
    fn default() -> Self {
        Self::from(BTreeMap::new())
    }
}

impl From<BTreeMap<String, RailOptions>> for Rails {
    fn from(mut rails: BTreeMap<String, RailOptions>) -> Self {
        for (name, kind) in [(WEBHOOK, RailKind::Webhook), (PAYMENT_WEBHOOK, RailKind::Payment)] {
            rails.entry(name.to_owned()).or_insert_with(|| RailOptions::new(kind));
        }
        Self(rails)
    }
}

impl Rails {
    pub(super) fn check(&self, problems: &mut Problems) {
        for (name, rail) in &self.0 {
            let key = format!("rails.{name}");
            let plain = name.bytes().all(|b| b.is_ascii_alphanumeric() || b"_.-".contains(&b));
            if name.is_empty() || name.len() > RAIL_NAME_BYTES_MAX || !plain {
                problems.add(&key, format_args!("is not 1 to {RAIL_NAME_BYTES_MAX} letters, digits, '_', '.' or '-'"));
            }
            problems.extend(rail.check(&key));
        }
    }
}
