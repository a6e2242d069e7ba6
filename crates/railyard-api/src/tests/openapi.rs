//! The description and the router say the same.

use std::collections::{BTreeMap, BTreeSet};

use axum::body::Body;
use axum::http::StatusCode;
use serde_json::Value;

use super::kit::{ADMIN, Api, asking};
use crate::openapi_json;

/// Files of the documentation page: served, and no operations.
const NO_OPERATIONS: [&str; 2] = ["/docs", crate::docs::FILES];
const METHODS: [&str; 5] = ["GET", "PUT", "POST", "DELETE", "PATCH"];

fn document() -> Value {
    serde_json::from_str(openapi_json()).unwrap()
}

/// Path and methods of each documented operation.
fn documented(document: &Value) -> BTreeMap<String, BTreeSet<String>> {
    let paths = document["paths"].as_object().unwrap();
    let methods = |item: &Value| item.as_object().unwrap().keys().map(|method| method.to_uppercase()).collect();
    paths.iter().map(|(path, item)| (path.clone(), methods(item))).collect()
}

/// What axum says of itself: every path that the router has, but those of its fallback.
fn routed(api: &Api) -> BTreeSet<String> {
    let said = format!("{:?}", api.router);
    let paths = said.split('"').skip(1).step_by(2).filter(|text| text.starts_with('/'));
    paths.filter(|path| *path != "/" && !path.contains("__private")).map(str::to_owned).collect()
}

#[tokio::test]
async fn every_route_is_documented_and_every_operation_is_a_route() {
    let api = Api::new().await;
    let documented = documented(&document());
    let mut expected: BTreeSet<String> = documented.keys().cloned().collect();
    expected.extend(NO_OPERATIONS.map(str::to_owned));
    assert_eq!(routed(&api), expected);
    for (path, methods) in &documented {
        for method in METHODS {
            let at = path.replace("{id}", "x").replace("{rail}", "x").replace("{itemType}", "x").replace("{day}", "x");
            let answer = api.call(asking(method, &at, ADMIN).body(Body::empty()).unwrap()).await;
            let routed = answer.status != StatusCode::METHOD_NOT_ALLOWED;
            assert_eq!(routed, methods.contains(method), "{method} {path}: {}", answer.status);
        }
    }
}

#[test]
fn each_operation_has_a_name_of_its_own_a_tag_and_the_refusals_of_its_kind() {
    let document = document();
    assert!(document["openapi"].as_str().unwrap().starts_with("3.1"));
    let tags: BTreeSet<&str> =
        document["tags"].as_array().unwrap().iter().map(|tag| tag["name"].as_str().unwrap()).collect();
    let mut ids = BTreeSet::new();
    for (path, item) in document["paths"].as_object().unwrap() {
        for (method, operation) in item.as_object().unwrap() {
            let what = format!("{method} {path}");
            assert!(ids.insert(operation["operationId"].as_str().unwrap().to_owned()), "{what}");
            for tag in operation["tags"].as_array().unwrap() {
                assert!(tags.contains(tag.as_str().unwrap()), "{what}: {tag}");
            }
            assert!(operation["summary"].is_string(), "{what} says nothing about itself");
            let answers = operation["responses"].as_object().unwrap();
            assert!(answers.keys().any(|status| status.starts_with(['2', '3'])), "{what}");
            let by_name = ["getRateConfig", "forecastRate", "replanRate", "assignSlot", "assignSlots", "processJob"];
            let by_name = by_name.contains(&operation["operationId"].as_str().unwrap());
            let open = operation["security"] == serde_json::json!([{}]);
            for (refused, when) in [
                ("401", !open),
                ("503", !open),
                ("404", path.contains('{') || by_name),
                ("415", operation["requestBody"].is_object()),
                ("400", operation["requestBody"].is_object()),
            ] {
                assert_eq!(
                    answers.contains_key(refused),
                    when || refused == "400" && answers.contains_key("400"),
                    "{what}: {refused}"
                );
            }
        }
    }
}

/// Every reference leads somewhere, so that a generator can read it.
#[test]
fn every_reference_leads_somewhere() {
    fn references<'a>(value: &'a Value, found: &mut Vec<&'a str>) {
        match value {
            Value::Object(fields) => {
                found.extend(fields.get("$ref").and_then(Value::as_str));
                fields.values().for_each(|value| references(value, found));
            }
            Value::Array(items) => items.iter().for_each(|item| references(item, found)),
            Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
        }
    }
    let document = document();
    let mut found = Vec::new();
    references(&document, &mut found);
    assert!(found.len() > 50);
    for reference in found {
        assert!(document.pointer(reference.trim_start_matches('#')).is_some(), "{reference}");
    }
}

#[tokio::test]
async fn the_document_and_its_page_need_no_token_and_no_network() {
    let api = Api::new().await;
    let get = |path: &str| super::kit::from("192.0.2.1:4242", "GET", path).body(Body::empty()).unwrap();
    let document = api.call(get("/openapi.json")).await;
    assert_eq!((document.status, document.text().as_str()), (StatusCode::OK, openapi_json()));
    assert_eq!(api.call(get("/docs")).await.headers["location"], "/docs/");
    let page = api.call(get("/docs/")).await;
    assert_eq!((page.status, &page.headers["content-type"]), (StatusCode::OK, &"text/html".parse().unwrap()));
    let parts = page.text();
    let parts: Vec<&str> =
        parts.split(['"', '\'']).filter(|part| part.ends_with(".js") || part.ends_with(".css")).collect();
    assert!(parts.len() >= 3, "{parts:?}");
    for part in parts {
        let file = api.call(get(&format!("/docs/{}", part.trim_start_matches("./")))).await;
        assert_eq!(file.status, StatusCode::OK, "{part}");
    }
    let settings = api.call(get("/docs/swagger-initializer.js")).await.text();
    assert!(settings.contains("/openapi.json") && !settings.contains("petstore"), "{settings}");
    let none = api.call(get("/docs/none")).await;
    assert_eq!(
        (none.status, &none.headers["content-type"]),
        (StatusCode::NOT_FOUND, &"application/problem+json".parse().unwrap())
    );
}
