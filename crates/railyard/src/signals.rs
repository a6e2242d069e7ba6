//! SIGTERM and SIGINT. Both are caught from the moment [`Signals::listen`] returns, so that no signal falls into the
//! time between a start and the first wait.

use tokio::signal::unix::{Signal, SignalKind, signal};

/// Both signals.
pub(crate) struct Signals {
    term: Signal,
    int: Signal,
}

impl Signals {
    /// Catches them from now on.
    ///
    /// # Errors
    /// The system refuses the handler.
    pub(crate) fn listen() -> std::io::Result<Self> {
        Ok(Self { term: signal(SignalKind::terminate())?, int: signal(SignalKind::interrupt())? })
    }

    /// Waits for the next one and gives its name.
    pub(crate) async fn next(&mut self) -> &'static str {
        tokio::select! {
            _ = self.term.recv() => "SIGTERM",
            _ = self.int.recv() => "SIGINT",
        }
    }
}
