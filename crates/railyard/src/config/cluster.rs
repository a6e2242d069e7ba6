//! `[cluster]`: the links between nodes. Without `listen` there are none, and nodes share work through the database
//! alone.

use std::net::SocketAddr;
use std::path::PathBuf;

use railyard_core::link::COOKIE_BYTES_MIN;
use railyard_node::{Cookie, LinkOptions, TlsFiles};
use serde::Deserialize;

use super::{ConfigError, Environment, Problems};
use crate::files;

/// `[cluster]`.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct Cluster {
    /// Address and port where this node takes links.
    pub(crate) listen: Option<SocketAddr>,
    /// Where others find it, `host:port`; needed when `listen` is for all addresses.
    pub(crate) advertise: Option<String>,
    /// A file that holds what all nodes know.
    pub(crate) cookie_file: Option<PathBuf>,
    /// An environment variable that holds it.
    pub(crate) cookie_env: Option<String>,
    /// Links without TLS.
    pub(crate) plaintext: bool,
    /// This node's certificate and those between it and the authority.
    pub(crate) certificate_file: Option<PathBuf>,
    /// The certificate's key.
    pub(crate) key_file: Option<PathBuf>,
    /// The authorities of nodes' certificates.
    pub(crate) authority_file: Option<PathBuf>,
    /// The name that every node's certificate carries.
    pub(crate) certificate_name: String,
}

impl Default for Cluster {
    fn default() -> Self {
        Self {
            listen: None,
            advertise: None,
            cookie_file: None,
            cookie_env: None,
            plaintext: false,
            certificate_file: None,
            key_file: None,
            authority_file: None,
            certificate_name: "railyard".to_owned(),
        }
    }
}

impl Cluster {
    pub(super) fn check(&self, problems: &mut Problems) {
        let Some(listen) = self.listen else { return };
        if listen.port() == 0 {
            problems.add("cluster.listen", "port 0: the others could not know which one it will be");
        }
        match &self.advertise {
            None if listen.ip().is_unspecified() => {
                let what = format!("is not set, and cluster.listen = {listen} tells nobody where to connect");
                problems.add("cluster.advertise", what);
            }
            Some(address) if !is_host_and_port(address) => {
                problems.add("cluster.advertise", format_args!("{address} is not host:port"));
            }
            Some(_) | None => {}
        }
        if self.cookie_file.is_some() == self.cookie_env.is_some() {
            problems.add("cluster", "needs one of cookie_file and cookie_env");
        }
        let files = [
            ("cluster.certificate_file", &self.certificate_file),
            ("cluster.key_file", &self.key_file),
            ("cluster.authority_file", &self.authority_file),
        ];
        for (key, file) in files {
            match (self.plaintext, file) {
                (true, Some(_)) => problems.add(key, "is set, and cluster.plaintext = true: which is meant?"),
                (false, None) => problems.add(key, "is not set; links without TLS need cluster.plaintext = true"),
                (true, None) | (false, Some(_)) => {}
            }
        }
    }

    /// Reads the cookie.
    ///
    /// # Errors
    /// It cannot be read or is too short; names its place and never the cookie.
    pub(crate) fn options(&self, environment: &Environment) -> Result<Option<LinkOptions>, ConfigError> {
        let Some(listen) = self.listen else { return Ok(None) };
        let refuse = |key: &str, what: String| ConfigError(vec![format!("cluster.{key}: {what}")]);
        let (key, cookie) = match (&self.cookie_file, &self.cookie_env) {
            (Some(file), _) => ("cookie_file", files::secret(file).map_err(|error| format!("{error:#}"))),
            (None, Some(name)) => {
                let missing = || format!("environment variable {name} is not set");
                ("cookie_env", environment.get(name).map(|text| text.to_owned().into()).ok_or_else(missing))
            }
            (None, None) => ("cookie_file", Err("is not set".to_owned())),
        };
        let cookie = cookie.map_err(|what| refuse(key, what))?;
        if cookie.len() < COOKIE_BYTES_MIN {
            return Err(refuse(key, format!("what it holds is shorter than {COOKIE_BYTES_MIN} bytes")));
        }
        let tls = match (&self.certificate_file, &self.key_file, &self.authority_file) {
            (Some(certificate), Some(key), Some(authority)) => Some(TlsFiles {
                certificate: certificate.clone(),
                key: key.clone(),
                authority: authority.clone(),
                name: self.certificate_name.clone(),
            }),
            _ => None,
        };
        let advertise = self.advertise.clone().unwrap_or_else(|| listen.to_string());
        Ok(Some(LinkOptions { listen, advertise, cookie: Cookie::new(cookie.as_bytes().to_vec()), tls }))
    }
}

fn is_host_and_port(address: &str) -> bool {
    let split = address.rsplit_once(':');
    split.is_some_and(|(host, port)| !host.is_empty() && port.parse::<u16>().is_ok_and(|port| port > 0))
}
