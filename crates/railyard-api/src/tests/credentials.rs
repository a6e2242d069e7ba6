use std::sync::atomic::Ordering;

use axum::http::StatusCode;
use serde_json::json;

use super::kit::Api;

const ROOT: &str = "/api/admin/dispatch/credentials";

#[tokio::test]
async fn s3_11_secrets_go_in_and_never_come_out() {
    let api = Api::new().await;
    let new = json!({"name": "partner", "bearerToken": "sk_live_private", "signingSecret": "whsec_xyz789"});
    let made = api.post(ROOT, &new).await;
    assert_eq!(made.status, StatusCode::CREATED, "{}", made.text());
    let view = made.json();
    assert_eq!((&view["algorithm"], &view["name"]), (&json!("HMAC_SHA256"), &json!("partner")));
    assert_eq!(view["schemes"], json!(["flowcatalyst"]), "the secret is not base64");
    assert!(view["notes"][0].as_str().unwrap().contains("standard-webhooks is off"));
    let id = view["id"].as_str().unwrap();
    assert_eq!(made.headers["location"], format!("{ROOT}/{id}"));
    let (read, list) = (api.get(&format!("{ROOT}/{id}")).await, api.get(ROOT).await);
    assert_eq!(list.json()["items"].as_array().unwrap().len(), 2);
    for text in [made.text(), read.text(), list.text()] {
        assert!(!text.contains("private") && !text.contains("xyz789"), "{text}");
    }
    assert!(api.node.flushes.load(Ordering::SeqCst) >= 1);
    assert_eq!(api.delete(&format!("{ROOT}/{id}")).await.status, StatusCode::NO_CONTENT);
    assert_eq!(api.delete(&format!("{ROOT}/{id}")).await.status, StatusCode::NOT_FOUND);
    assert_eq!(api.get(&format!("{ROOT}/{id}")).await.status, StatusCode::NOT_FOUND);
    assert_eq!(api.get(&format!("{ROOT}/x")).await.status, StatusCode::NOT_FOUND);
}

#[tokio::test]
async fn what_is_wrong_is_named_without_being_repeated() {
    let api = Api::new().await;
    for body in [json!("whsec_private, expected nothing"), json!(["whsec_private"])] {
        let refused = api.post(ROOT, &body).await;
        assert_eq!(refused.status, StatusCode::BAD_REQUEST);
        assert!(
            refused.text().contains("expected a JSON object") && !refused.text().contains("private"),
            "{}",
            refused.text()
        );
    }
    let missing = api.post(ROOT, &json!({})).await.fields();
    assert_eq!(missing, ["bearerToken", "signingSecret"]);
    let bad = json!({"bearerToken": "private\n", "signingSecret": "private\n", "algorithm": "MD5", "schemes": ["none"], "x": 1});
    let refused = api.post(ROOT, &bad).await;
    assert_eq!(refused.fields(), ["algorithm", "schemes", "x", "bearerToken", "signingSecret"]);
    assert!(!refused.text().contains("private"));
}

#[tokio::test]
async fn s3_12_credentials_in_use_are_deleted_by_force_alone() {
    let api = Api::new().await;
    api.post("/api/dispatch/jobs", &api.job()).await;
    let path = format!("{ROOT}/{}", api.credentials);
    let refused = api.delete(&path).await;
    assert_eq!(refused.status, StatusCode::CONFLICT);
    assert!(refused.json()["detail"].as_str().unwrap().contains("open jobs"));
    assert_eq!(api.delete(&format!("{path}?force=maybe")).await.status, StatusCode::BAD_REQUEST);
    assert_eq!(api.delete(&format!("{path}?force=true")).await.status, StatusCode::NO_CONTENT);
    assert_eq!(api.post("/api/dispatch/jobs", &api.job()).await.fields(), ["credentialsId"]);
}
