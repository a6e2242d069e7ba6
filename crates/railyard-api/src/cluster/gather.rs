//! One question to all nodes at once.

use std::collections::HashMap;

use railyard_core::NodeId;
use railyard_store::cluster::MemberRow;
use serde_json::Value;
use tokio::task::JoinSet;

use crate::state::{ApiState, Question};

/// What they said.
#[derive(Default)]
pub(crate) struct Gathered {
    answers: HashMap<NodeId, Value>,
    /// Who said nothing, in words, by name.
    pub(crate) gaps: Vec<String>,
}

impl Gathered {
    /// A node's answer; none: *don't know*.
    pub(crate) fn of(&self, node: NodeId) -> Option<&Value> {
        self.answers.get(&node)
    }
}

/// Asks this node and all that are linked to it. The node bounds the time.
pub(crate) async fn gather(state: &ApiState, members: &[MemberRow], question: &Question) -> Gathered {
    let (me, links) = (state.inner.node.node_id(), state.inner.node.links());
    let mut asked = JoinSet::new();
    let mut gathered = Gathered::default();
    for row in members {
        let process = row.door.as_ref().map(|door| door.process);
        let linked = links.iter().flat_map(|links| &links.links).any(|link| Some(link.process) == process);
        let (node, name) = (row.node_id, row.name.clone());
        let answer = match (me == Some(node), process) {
            (true, _) => state.inner.node.ask(None, question.clone()),
            (false, Some(process)) if linked => state.inner.node.ask(Some(process), question.clone()),
            (false, _) => {
                gathered.gaps.push(format!("node {name} is not linked to this one"));
                continue;
            }
        };
        asked.spawn(async move { (node, name, answer.await) });
    }
    while let Some(joined) = asked.join_next().await {
        match joined {
            Ok((node, _, Some(answer))) => drop(gathered.answers.insert(node, answer)),
            Ok((_, name, None)) => gathered.gaps.push(format!("node {name} did not answer")),
            // The view's own future; it does not panic, and if it does, nothing was said.
            Err(error) => gathered.gaps.push(format!("a node could not be asked: {error}")),
        }
    }
    gathered.gaps.sort();
    gathered
}
