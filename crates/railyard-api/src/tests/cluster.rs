//! The cluster as one node shows it, with others that are linked and silent, or not linked at all.

use axum::http::StatusCode;
use railyard_core::NodeId;
use serde_json::json;
use uuid::Uuid;

use super::kit::Api;
use crate::{LinkState, Links};

const PROCESS: Uuid = Uuid::from_u128(7);

async fn three(api: &Api) {
    let me = Uuid::from_u128(1);
    for (id, name, process, lease) in
        [(me, "a", None, 10), (Uuid::from_u128(2), "b", Some(PROCESS), 10), (Uuid::from_u128(3), "c", None, -10)]
    {
        let sql = "INSERT INTO node (node_id, name, process, address, lease_until)
                   VALUES ($1, $2, $3::uuid, CASE WHEN $3::uuid IS NOT NULL THEN 'b:7400' END,
                     clock_timestamp() + $4::int * interval '1 second')";
        api.sql.execute(sql, &[&id, &name, &process, &lease]).await.unwrap();
    }
    let own = "UPDATE partition_lease SET owner = $1 WHERE partition_id < 100";
    api.sql.execute(own, &[&me]).await.unwrap();
    let lost = "UPDATE partition_lease SET owner = $1 WHERE partition_id >= 250";
    api.sql.execute(lost, &[&Uuid::from_u128(9)]).await.unwrap();
    *api.node.node_id.lock().unwrap() = Some(NodeId(me));
    let link =
        LinkState { process: PROCESS, remote: "b:7400".to_owned(), incoming: true, age_s: 3, silent_ms: 12, missed: 0 };
    *api.node.links.lock().unwrap() = Some(Links { links: vec![link] });
}

#[tokio::test]
async fn the_cluster_is_shown_with_what_is_missing() {
    let api = Api::new().await;
    three(&api).await;
    let answer = api.get("/admin/cluster").await;
    assert_eq!(answer.status, StatusCode::OK, "{}", answer.text());
    let shown = answer.json();
    assert_eq!(shown["gaps"], json!(["node b did not answer", "node c is not linked to this one"]));
    assert_eq!((&shown["free"], &shown["orphaned"], &shown["links"]), (&json!(150), &json!(6), &json!(true)));
    let seen: Vec<_> = shown["nodes"].as_array().unwrap().iter().map(|node| node["seen"].clone()).collect();
    assert_eq!(seen, ["itself", "linked", "not_linked"]);
    assert_eq!(shown["nodes"][0]["partitions"], 100);
    assert_eq!(shown["nodes"][1]["link"]["lastHeardMs"], 12);
    assert!(shown["nodes"][2]["leaseMs"].as_i64().unwrap() < 0);
    let nodes = api.get("/admin/nodes").await.json();
    assert!(nodes["nodes"][0]["live"]["asked"].is_string() && nodes["nodes"][1]["live"].is_null());
    assert_eq!(nodes["gaps"], shown["gaps"]);
}

#[tokio::test]
async fn a_node_without_links_shows_itself() {
    let api = Api::new().await;
    three(&api).await;
    *api.node.links.lock().unwrap() = None;
    let shown = api.get("/admin/cluster").await.json();
    assert_eq!(shown["links"], false);
    assert_eq!(shown["gaps"], json!(["node b is not linked to this one", "node c is not linked to this one"]));
}
