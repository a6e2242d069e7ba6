//! The handle of a private server: start, databases, and the faults that tests put it through.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use rustix::process::Signal;
use tempfile::TempDir;

use crate::claim::Claim;
use crate::initdb::{self, run};
use crate::postmaster::{Launch, Postmaster, remove_shared_memory};
use crate::user::{RunAs, private_dir};
use crate::{Binaries, Error, Farewell, Options, Undertaker, free_port};

/// How long an orderly end may take before it is forced.
const STOP_PATIENCE: Duration = Duration::from_secs(30);

/// A private server. Cheap to share by reference; every method may be called from any task. Dropping it stops the
/// server and removes what was temporary.
#[derive(Debug)]
pub struct PrivatePostgres {
    state: Arc<Mutex<State>>,
    binaries: Binaries,
    data: PathBuf,
    sockets: PathBuf,
    port: u16,
}

/// What changes: the process, and what must be put away at the end.
#[derive(Debug)]
struct State {
    launch: Launch,
    postmaster: Option<Postmaster>,
    farewell: Farewell,
    /// Declared before the directories it would remove: dismissed first.
    undertaker: Option<Undertaker>,
    _claim: Claim,
    _directories: Vec<TempDir>,
}

impl PrivatePostgres {
    /// The settings to start from: durable, temporary data, a free port.
    pub fn options() -> Options {
        Options::new()
    }

    pub(crate) async fn start(options: Options) -> Result<PrivatePostgres, Error> {
        blocking(move || PrivatePostgres::start_blocking(&options)).await
    }

    fn start_blocking(options: &Options) -> Result<PrivatePostgres, Error> {
        let binaries = Binaries::find(options.private_copy.as_deref())?;
        let user = RunAs::choose();
        // Sockets always live in a short temporary path: their names may have 107 bytes at most.
        let sockets_dir = temp_dir()?;
        let sockets = canonical(sockets_dir.path())?;
        private_dir(&sockets, user)?;
        let mut directories = vec![sockets_dir];
        let data = if let Some(dir) = &options.data_dir {
            private_dir(dir, user)?;
            canonical(dir)?
        } else {
            let dir = temp_dir()?;
            let data = canonical(dir.path())?;
            private_dir(&data, user)?;
            directories.push(dir);
            data
        };
        if let Some(user) = user {
            user.can_reach(&data)?;
        }
        let claim = Claim::take(&data)?;
        initdb::ensure(&binaries, &data, options, user)?;
        let farewell = if options.data_dir.is_some() { Farewell::Interrupt } else { Farewell::Quit };
        let leftovers: Vec<&Path> = directories.iter().map(TempDir::path).collect();
        let undertaker = Undertaker::hire(farewell, &data, &leftovers).map_err(Error::io("start a shell"))?;
        let mut launch = Launch {
            program: binaries.program("postgres"),
            data: data.clone(),
            sockets: sockets.clone(),
            port: options.port.unwrap_or_else(free_port),
            settings: options.all_settings(),
            user,
            start_seconds: options.start_seconds,
        };
        let postmaster = match start_on_free_port(&mut launch, options.port.is_none()) {
            Ok(postmaster) => postmaster,
            Err(error) => {
                // Nothing was left, so there is nothing to bury.
                undertaker.dismiss();
                return Err(error);
            }
        };
        let port = launch.port;
        let (postmaster, undertaker) = (Some(postmaster), Some(undertaker));
        let state = State { launch, postmaster, farewell, undertaker, _claim: claim, _directories: directories };
        Ok(PrivatePostgres { state: Arc::new(Mutex::new(state)), binaries, data, sockets, port })
    }

    /// Connection URL over TCP for a database of the superuser `postgres`, who needs no password.
    pub fn url(&self, database: &str) -> String {
        format!("postgres://postgres@127.0.0.1:{}/{database}", self.port)
    }

    /// The port on 127.0.0.1; the same over restarts.
    pub fn port(&self) -> u16 {
        self.port
    }

    /// The directory of the Unix socket.
    pub fn socket_dir(&self) -> &Path {
        &self.sockets
    }

    /// The data directory.
    pub fn data_dir(&self) -> &Path {
        &self.data
    }

    /// Where PostgreSQL's programs were found.
    pub fn binaries(&self) -> &Binaries {
        &self.binaries
    }

    /// The end of the server's log, for messages about a failure.
    pub fn log_tail(&self) -> String {
        self.state().launch.log_tail()
    }

    /// Makes a database if it does not exist.
    ///
    /// # Errors
    /// [`Error::BadName`] for anything but a plain identifier; the server's words otherwise.
    pub async fn create_database(&self, name: &str) -> Result<(), Error> {
        let plain = name.chars().all(|c| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '_');
        if !plain || name.is_empty() || name.len() > 63 || name.starts_with(|c: char| c.is_ascii_digit()) {
            return Err(Error::BadName(name.to_owned()));
        }
        let mut psql = Command::new(self.binaries.program("psql"));
        psql.arg("-h").arg(&self.sockets).args(["-p", &self.port.to_string(), "-U", "postgres", "-d", "postgres"]);
        psql.args(["-X", "-q", "-v", "ON_ERROR_STOP=1", "-c", &format!("CREATE DATABASE {name}")]);
        blocking(move || match run("psql", psql) {
            Err(Error::Program { said, .. }) if said.contains("already exists") => Ok(()),
            other => other,
        })
        .await
    }

    /// Fast shutdown (SIGINT): open transactions roll back, clients are cut. Nothing if it is down already.
    ///
    /// # Errors
    /// [`Error::Timeout`] if it had to be killed after 30 s.
    pub async fn stop(&self) -> Result<(), Error> {
        self.with_state(|state| state.stop(Signal::INT)).await
    }

    /// Starts it again on the same data and port. Nothing if it runs.
    ///
    /// # Errors
    /// As [`Options::start`].
    pub async fn start_again(&self) -> Result<(), Error> {
        self.with_state(State::start).await
    }

    /// `pg_ctl restart -m immediate`: no shutdown checkpoint, recovery at the start.
    ///
    /// # Errors
    /// As [`Options::start`].
    pub async fn restart_immediate(&self) -> Result<(), Error> {
        self.with_state(|state| {
            state.stop(Signal::QUIT)?;
            state.start()
        })
        .await
    }

    /// SIGKILL to the postmaster and every backend, as a power cut would. [`Self::start_again`] brings it back.
    ///
    /// # Errors
    /// None today; the process is gone in any case.
    pub async fn kill_hard(&self) -> Result<(), Error> {
        self.with_state(|state| {
            if let Some(mut postmaster) = state.postmaster.take() {
                postmaster.kill_all();
                remove_shared_memory(&state.launch.data);
            }
            Ok(())
        })
        .await
    }

    /// SIGSTOP to the postmaster and every backend: connections stay open and nothing answers.
    pub fn pause(&self) {
        if let Some(postmaster) = &self.state().postmaster {
            postmaster.pause();
        }
    }

    /// Lets a paused server go on.
    pub fn resume(&self) {
        if let Some(postmaster) = &self.state().postmaster {
            postmaster.resume();
        }
    }

    /// Whether the postmaster is up, by the process and not by a query.
    pub fn is_running(&self) -> bool {
        let mut state = self.state();
        state.postmaster.as_mut().is_some_and(|postmaster| matches!(postmaster.exited(), Ok(None)))
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().expect("no holder of this lock panics: they signal and wait for a process")
    }

    async fn with_state(
        &self,
        step: impl FnOnce(&mut State) -> Result<(), Error> + Send + 'static,
    ) -> Result<(), Error> {
        let state = Arc::clone(&self.state);
        blocking(move || step(&mut state.lock().expect("as in state()"))).await
    }
}

impl State {
    fn start(&mut self) -> Result<(), Error> {
        if self.postmaster.is_none() {
            self.postmaster = Some(self.launch.start()?);
        }
        Ok(())
    }

    fn stop(&mut self, signal: Signal) -> Result<(), Error> {
        let Some(mut postmaster) = self.postmaster.take() else { return Ok(()) };
        postmaster.resume();
        if postmaster.end(signal, STOP_PATIENCE) {
            return Ok(());
        }
        Err(Error::Timeout { what: "stop", seconds: STOP_PATIENCE.as_secs(), said: self.launch.log_tail() })
    }
}

impl Drop for State {
    fn drop(&mut self) {
        let signal = if self.farewell == Farewell::Interrupt { Signal::INT } else { Signal::QUIT };
        if let Err(error) = self.stop(signal) {
            tracing::warn!(%error, "the private database had to be killed");
        }
        // From here on nothing is left but directories, which drop after this.
        if let Some(undertaker) = self.undertaker.take() {
            undertaker.dismiss();
        }
    }
}

/// Somebody may take a free port between our look and the server's: then once more with another.
fn start_on_free_port(launch: &mut Launch, may_change: bool) -> Result<Postmaster, Error> {
    match launch.start() {
        Err(Error::Program { said, .. }) if may_change && said.contains("Address already in use") => {
            launch.port = free_port();
            launch.start()
        }
        other => other,
    }
}

fn temp_dir() -> Result<TempDir, Error> {
    tempfile::Builder::new().prefix("railyard-pg-").tempdir().map_err(Error::io("make a temporary directory"))
}

fn canonical(dir: &Path) -> Result<PathBuf, Error> {
    dir.canonicalize().map_err(Error::io(format!("find {}", dir.display())))
}

/// Processes are waited for on a thread that may block, so a single-threaded test goes on meanwhile.
async fn blocking<T: Send + 'static>(work: impl FnOnce() -> Result<T, Error> + Send + 'static) -> Result<T, Error> {
    tokio::task::spawn_blocking(work).await.expect("the work does not panic, and is never aborted")
}
