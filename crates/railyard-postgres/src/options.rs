//! What a private server is started with.

use std::path::{Path, PathBuf};

use crate::{Error, PrivatePostgres};

/// Settings of a private server; made by [`PrivatePostgres::options`], ended by [`Options::start`].
#[derive(Debug, Clone)]
pub struct Options {
    pub(crate) data_dir: Option<PathBuf>,
    pub(crate) private_copy: Option<PathBuf>,
    pub(crate) port: Option<u16>,
    pub(crate) fsync: bool,
    pub(crate) settings: Vec<(String, String)>,
    pub(crate) start_seconds: u64,
}

impl Options {
    pub(crate) fn new() -> Options {
        Options { data_dir: None, private_copy: None, port: None, fsync: true, settings: Vec::new(), start_seconds: 60 }
    }

    /// Keeps the data in this directory over restarts; made by initdb if it does not exist or is empty. Without it
    /// the data live in a temporary directory and go with the server.
    pub fn data_dir(mut self, dir: impl AsRef<Path>) -> Options {
        self.data_dir = Some(dir.as_ref().to_path_buf());
        self
    }

    /// A directory with a private copy of PostgreSQL's programs, used where the system has none.
    pub fn private_copy(mut self, dir: impl AsRef<Path>) -> Options {
        self.private_copy = Some(dir.as_ref().to_path_buf());
        self
    }

    /// The TCP port on 127.0.0.1; by default a free one below the ephemeral range, kept over restarts.
    pub fn port(mut self, port: u16) -> Options {
        self.port = Some(port);
        self
    }

    /// Whether commits wait for the disk. Off is for tests: it survives a kill of the server, not of the machine.
    pub fn fsync(mut self, on: bool) -> Options {
        self.fsync = on;
        self
    }

    /// Bound of connections; PostgreSQL's default is 100, ours 200.
    pub fn max_connections(self, count: u16) -> Options {
        self.setting("max_connections", count.to_string())
    }

    /// Size of the page cache in MiB; ours by default 64.
    pub fn shared_buffers_mib(self, mib: u32) -> Options {
        self.setting("shared_buffers", format!("{mib}MB"))
    }

    /// Any other server setting, as `postgres -c name=value` takes it; a later one wins.
    pub fn setting(mut self, name: &str, value: impl Into<String>) -> Options {
        self.settings.push((name.to_owned(), value.into()));
        self
    }

    /// How long the server may take to come up, recovery included; 60 s by default.
    pub fn start_seconds(mut self, seconds: u64) -> Options {
        self.start_seconds = seconds;
        self
    }

    /// Starts the server and returns when it takes connections.
    ///
    /// # Errors
    /// No programs, a closed or foreign data directory, a failing initdb or server; see [`Error`].
    pub async fn start(self) -> Result<PrivatePostgres, Error> {
        PrivatePostgres::start(self).await
    }

    /// The command line's settings, ours first so that the caller's win.
    pub(crate) fn all_settings(&self) -> Vec<(String, String)> {
        let on_off = if self.fsync { "on" } else { "off" };
        let ours = [
            ("listen_addresses", "127.0.0.1"),
            ("max_connections", "200"),
            ("shared_buffers", "64MB"),
            ("fsync", on_off),
            ("full_page_writes", on_off),
            // Shared memory as files in the data directory: a killed server leaves nothing in /dev/shm.
            ("dynamic_shared_memory_type", "mmap"),
            ("timezone", "UTC"),
            ("log_timezone", "UTC"),
        ];
        let ours = ours.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned()));
        ours.chain(self.settings.iter().cloned()).collect()
    }
}
