//! The one place that starts tasks. A task belongs to whoever holds its [`Task`]: dropped, it is aborted.

use std::future::Future;

use tokio::task::JoinHandle;

/// An owned task.
pub(crate) struct Task(JoinHandle<()>);

impl Drop for Task {
    fn drop(&mut self) {
        self.0.abort();
    }
}

/// Starts a task that ends with its owner.
#[expect(clippy::disallowed_methods, reason = "this is the module that the rule sends everybody to")]
pub(crate) fn spawn<F>(future: F) -> Task
where
    F: Future<Output = ()> + Send + 'static,
{
    Task(tokio::spawn(future))
}
