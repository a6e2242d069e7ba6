//! `railyard cluster`: the nodes at a glance.

use std::process::ExitCode;

use reqwest::Method;
use serde_json::Value;

use crate::cli::{Cluster, ClusterStatus};
use crate::client::Client;
use crate::output;

/// Does one of its verbs.
///
/// # Errors
/// The API refused.
pub(crate) async fn run(verb: &Cluster) -> anyhow::Result<ExitCode> {
    match verb {
        Cluster::Status(args) => status(args).await?,
    }
    Ok(ExitCode::SUCCESS)
}

async fn status(args: &ClusterStatus) -> anyhow::Result<()> {
    let answer = Client::new(&args.api)?.call(Method::GET, "admin/cluster", None).await?.body;
    if args.json {
        return output::json(&answer);
    }
    let columns = [
        ("node", "name"),
        ("id", "nodeId"),
        ("partitions", "partitions"),
        ("lease ms", "leaseMs"),
        ("leaving", "leaving"),
        ("address", "address"),
        ("seen", "seen"),
        ("last heard ms", "link.lastHeardMs"),
        ("linked to", "linkedTo"),
    ];
    output::rows(output::items(&answer, "nodes"), &columns);
    for (what, count) in [("without an owner", &answer["free"]), ("of nodes that are gone", &answer["orphaned"])] {
        if count.as_i64().is_some_and(|count| count > 0) {
            println!("{count} partitions {what}");
        }
    }
    for gap in answer["gaps"].as_array().into_iter().flatten() {
        println!("{}", output::text(gap));
    }
    if answer["links"] == Value::Bool(false) {
        println!("this node takes no links (cluster.listen)");
    }
    Ok(())
}
