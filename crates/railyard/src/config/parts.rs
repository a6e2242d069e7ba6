//! The configuration as each part takes it.

use std::time::Duration;

use railyard_api::{ApiOptions, Auth};
use railyard_node::{LinkOptions, NodeOptions};
use railyard_store::crypt::{MasterKey, MasterKeys};
use railyard_store::rails::RailSpec;

use super::api::Role;
use super::{Config, ConfigError, Environment};
use crate::files;

impl Config {
    /// For the node, with what [`super::Cluster::options`] read.
    pub(crate) fn node_options(&self, links: Option<LinkOptions>) -> NodeOptions {
        let ms = |ms: u32| Duration::from_millis(ms.into());
        let seconds = |seconds: u32| Duration::from_secs(seconds.into());
        NodeOptions {
            name: self.node.name.clone().unwrap_or_else(host_name),
            lease: seconds(self.lease.lease_s),
            renewal: seconds(self.lease.renewal_s),
            poll: ms(self.dispatch.poll_ms),
            debounce: ms(self.dispatch.debounce_ms),
            calls_in_flight: self.dispatch.calls_in_flight,
            credits: self.dispatch.credits,
            resident_groups: self.dispatch.resident_groups,
            idle_group: seconds(self.dispatch.idle_group_s),
            slack: ms(self.dispatch.slack_ms),
            reaper_interval: seconds(self.reaper.interval_s),
            zombie_after: seconds(self.reaper.zombie_after_s),
            zombies_max: self.reaper.zombies_max,
            cache_ttl: seconds(self.cache.ttl_s),
            retention: railyard_store::retention::Retention {
                jobs_days: self.retention.jobs_days,
                attempts_days: self.retention.attempts_days,
                keys_days: self.retention.keys_days,
                items_days: self.retention.items_days,
                feeds_days: self.retention.feeds_days,
            },
            rails: self.rails.0.clone(),
            limits: self.limits.options(),
            http: self.http.clone(),
            links,
        }
    }

    /// For the database: what SQL producers may name.
    pub(crate) fn rail_specs(&self) -> Vec<RailSpec> {
        let spec = |(name, rail): (&String, &railyard_rail::RailOptions)| RailSpec {
            rail_type: name.clone(),
            kind: rail.kind,
            on_unknown: rail.on_unknown(),
            target_url: rail.target_url.clone(),
            credentials_id: rail.credentials_id,
        };
        self.rails.0.iter().map(spec).collect()
    }

    /// For the API.
    pub(crate) fn api_options(&self) -> ApiOptions {
        ApiOptions {
            payload_bytes_max: self.api.payload_bytes_max,
            open_metrics: self.api.open_metrics,
            open_health: self.api.open_health,
            ..ApiOptions::default()
        }
    }

    /// Who may call it.
    ///
    /// # Errors
    /// None after [`Config::check`].
    pub(crate) fn auth(&self) -> anyhow::Result<Auth> {
        let role = |role| match role {
            Role::Producer => railyard_api::Role::Producer,
            Role::Viewer => railyard_api::Role::Viewer,
            Role::Admin => railyard_api::Role::Admin,
        };
        let tokens = self.api.tokens.iter();
        let tokens = tokens.map(|token| railyard_api::Token::new(&token.name, role(token.role), &token.sha256));
        Ok(Auth::new(tokens.collect::<Result<_, _>>()?))
    }

    /// Reads the master keys.
    ///
    /// # Errors
    /// None is configured, or one cannot be read; names the key's place and never the key.
    pub(crate) fn master_keys(&self, environment: &Environment) -> Result<MasterKeys, ConfigError> {
        let refuse = |place: String, what: String| ConfigError(vec![format!("{place}: {what}")]);
        let mut keys = Vec::new();
        for (index, source) in self.secrets.master_keys.iter().enumerate() {
            let place = |field: &str| format!("secrets.master_keys[{index}]{field}");
            let (field, text) = match (&source.key_file, &source.key_env) {
                (Some(file), _) => (".key_file", files::secret(file).map_err(|error| format!("{error:#}"))),
                (None, Some(name)) => {
                    let missing = || format!("environment variable {name} is not set");
                    (".key_env", environment.get(name).map(|text| text.to_owned().into()).ok_or_else(missing))
                }
                (None, None) => ("", Err("needs one of key_file and key_env".to_owned())),
            };
            let text = text.map_err(|what| refuse(place(field), what))?;
            keys.push(MasterKey::read(&source.id, &text).map_err(|error| refuse(place(field), error.to_string()))?);
        }
        MasterKeys::new(keys).map_err(|error| refuse("secrets.master_keys".to_owned(), error.to_string()))
    }
}

/// What this machine calls itself.
fn host_name() -> String {
    let name = std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
    if name.trim().is_empty() { "railyard".to_owned() } else { name.trim().to_owned() }
}
