//! The node as the API sees it. The API never holds the node itself: once the node stops, the view is empty and says
//! so, while requests that are under way still get their answers.

use std::sync::{Arc, PoisonError, RwLock, Weak};

use railyard_api::{Future, LinkState, Links, NodeView, Question, Readiness};
use railyard_core::NodeId;
use railyard_node::Node;
use serde_json::Value;
use uuid::Uuid;

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

    fn node_id(&self) -> Option<NodeId> {
        self.node.upgrade().and_then(|node| node.node_id())
    }

    fn links(&self) -> Option<Links> {
        let links = self.node.upgrade()?.links()?;
        let seen = links.into_iter().map(|link| LinkState {
            process: link.process,
            remote: link.remote,
            incoming: link.incoming,
            age_s: link.age.as_secs(),
            silent_ms: u64::try_from(link.silence.as_millis()).unwrap_or(u64::MAX),
            missed: link.misses,
        });
        Some(Links { links: seen.collect() })
    }

    fn ask(&self, process: Option<Uuid>, question: Question) -> Future<Option<Value>> {
        // The node is let go at once: it must be able to stop while somebody waits for an answer.
        match self.node.upgrade().map(|node| node.ask(process, asked(question))) {
            Some(answer) => Box::pin(answer),
            None => Box::pin(async { None }),
        }
    }
}

/// The same question in the node's words.
fn asked(question: Question) -> railyard_node::Question {
    match question {
        Question::Observe => railyard_node::Question::Observe,
        Question::Links => railyard_node::Question::Links,
        Question::Groups(names) => railyard_node::Question::Groups(names),
    }
}
