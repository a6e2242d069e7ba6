//! The node as the API sees it. The API never holds the node itself: once the node stops, the view is empty and says
//! so, while requests that are under way still get their answers.

use std::sync::{Arc, PoisonError, RwLock, Weak};

use railyard_api::{NodeView, Readiness};
use railyard_node::Node;
use serde_json::Value;

/// A look at a node that may be gone.
pub(crate) struct View {
    node: Weak<Node>,
    /// What the actors said of themselves at the last [`View::refresh`].
    observed: RwLock<Value>,
}

impl View {
    /// Of this node, as long as somebody holds it.
    pub(crate) fn of(node: &Arc<Node>) -> Self {
        Self { node: Arc::downgrade(node), observed: RwLock::new(Value::Null) }
    }

    /// Asks the actors anew; a request must not wait for them.
    pub(crate) async fn refresh(&self, node: &Node) {
        let observed = node.observe().await;
        *self.observed.write().unwrap_or_else(PoisonError::into_inner) = observed;
    }
}

impl NodeView for View {
    fn ready(&self) -> Readiness {
        match self.node.upgrade() {
            Some(node) => {
                let (ready, reasons) = node.readiness();
                Readiness { ready, reasons }
            }
            None => Readiness { ready: false, reasons: vec!["the node has stopped".to_owned()] },
        }
    }

    /// A node that stops is alive: it must not be killed for it.
    fn live(&self) -> bool {
        self.node.upgrade().is_none_or(|node| node.live())
    }

    fn wake(&self) {
        if let Some(node) = self.node.upgrade() {
            node.wake();
        }
    }

    fn groups(&self) -> Value {
        self.observed.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    fn flush_caches(&self) {
        if let Some(node) = self.node.upgrade() {
            node.flush_caches();
        }
    }
}
