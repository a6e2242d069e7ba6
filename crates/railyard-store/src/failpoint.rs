//! Places where a test may kill or stop the process: `RAILYARD_FAILPOINT=NAME` (kill -9) or `NAME:stop` (SIGSTOP).
//! Debug builds only; in a release build this is nothing.

/// Every name there is, in the order of a message's life. `tests/` walks this list.
pub const NAMES: [&str; 9] = [
    "discovered",
    "begin_before_sent",
    "begin_after_commit",
    "before_call",
    "last_check",
    "after_call",
    "settle_before_sent",
    "settle_after_commit",
    "tidy_before_commit",
];

/// And of a scheduled item's, before it is a message.
pub const DISPATCH_NAMES: [&str; 1] = ["dispatch_claimed"];

/// And of a payment's acceptance, in the order of its steps.
pub const ACCEPT_NAMES: [&str; 3] = ["accept_slot_given", "accept_before_commit", "accept_after_commit"];

/// Dies or stops here if this place was named.
pub fn reached(name: &str) {
    #[cfg(debug_assertions)]
    debug::reached(name);
    #[cfg(not(debug_assertions))]
    let _ = name;
}

#[cfg(debug_assertions)]
mod debug {
    use std::sync::OnceLock;
    use std::time::Duration;

    use rustix::process::{Signal, getpid, kill_process};

    /// Much longer than a signal needs to reach every thread.
    const TAKES_EFFECT: Duration = Duration::from_millis(50);

    static CHOSEN: OnceLock<Option<(String, Signal)>> = OnceLock::new();

    pub(super) fn reached(name: &str) {
        let known = [&super::NAMES[..], &super::DISPATCH_NAMES, &super::ACCEPT_NAMES];
        debug_assert!(known.iter().any(|names| names.contains(&name)), "{name} is not in NAMES");
        if let Some((chosen, signal)) = CHOSEN.get_or_init(chosen)
            && chosen == name
        {
            match kill_process(getpid(), *signal) {
                // The signal is the process's, and another thread may be the one to take it: this one does nothing
                // more until it has worked.
                Ok(()) => std::thread::sleep(TAKES_EFFECT),
                Err(error) => tracing::error!(name, %error, "failpoint reached, but the signal was refused"),
            }
        }
    }

    #[expect(clippy::disallowed_methods, reason = "a test's switch, not configuration: debug builds only")]
    fn chosen() -> Option<(String, Signal)> {
        let given = std::env::var("RAILYARD_FAILPOINT").ok()?;
        match given.strip_suffix(":stop") {
            Some(name) => Some((name.to_owned(), Signal::STOP)),
            None => Some((given, Signal::KILL)),
        }
    }
}
