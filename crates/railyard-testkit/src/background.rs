//! A thread with a runtime of its own for a receiver or a proxy.
//!
//! Tests run on single-threaded runtimes, block them, pause their clock, and end them; what stands for the outside
//! world must do none of that with them. Dropping the handle ends every task on it and joins the thread.

use std::thread::JoinHandle;

use tokio::runtime::{Builder, Handle};
use tokio::sync::oneshot;

/// The thread, its runtime, and the word that ends them.
#[derive(Debug)]
pub(crate) struct Background {
    handle: Handle,
    end: Option<oneshot::Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl Background {
    pub(crate) fn start(name: &str) -> Background {
        let runtime = Builder::new_current_thread().enable_all().build().expect("the system gives an event queue");
        let handle = runtime.handle().clone();
        let (end, ended) = oneshot::channel();
        let thread = std::thread::Builder::new()
            .name(name.to_owned())
            .spawn(move || {
                // Both an explicit end and a dropped sender mean: stop. Dropping the runtime cancels its tasks.
                let _ = runtime.block_on(ended);
            })
            .expect("the system gives a thread");
        Background { handle, end: Some(end), thread: Some(thread) }
    }

    pub(crate) fn handle(&self) -> &Handle {
        &self.handle
    }
}

impl Drop for Background {
    fn drop(&mut self) {
        drop(self.end.take());
        if let Some(thread) = self.thread.take() {
            // A panic over there was printed there; the test fails by what it then misses.
            let _ = thread.join();
        }
    }
}
