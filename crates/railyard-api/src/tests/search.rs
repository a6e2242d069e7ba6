use axum::body::Body;
use axum::http::StatusCode;
use serde_json::{Value, json};

use super::kit::{Answer, Api, asking};

const JOBS: &str = "/api/dispatch/jobs";

async fn make(api: &Api, other: Value) -> String {
    let made = api.post(JOBS, &api.job_with(other)).await;
    assert_eq!(made.status, StatusCode::CREATED, "{}", made.text());
    made.json()["id"].as_str().unwrap().to_owned()
}

fn ids(answer: &Answer) -> Vec<String> {
    assert_eq!(answer.status, StatusCode::OK, "{}", answer.text());
    let items = answer.json()["items"].as_array().cloned().unwrap();
    items.iter().map(|job| job["id"].as_str().unwrap().to_owned()).collect()
}

async fn search(api: &Api, query: &str) -> Answer {
    api.get(&format!("{JOBS}?{query}")).await
}

#[tokio::test]
async fn s3_05_an_external_id_is_stored_found_and_bounded() {
    let api = Api::new().await;
    let long = "é".repeat(32);
    let id = make(&api, json!({ "externalId": long })).await;
    make(&api, json!({ "externalId": "another" })).await;
    let escaped: String = long.bytes().map(|byte| format!("%{byte:02X}")).collect();
    let found = search(&api, &format!("externalId={escaped}")).await;
    assert_eq!(ids(&found), [id]);
    assert_eq!(found.json()["items"][0]["externalId"], long);
    let longer = api.post(JOBS, &api.job_with(json!({ "externalId": "e".repeat(33) }))).await;
    assert_eq!(longer.fields(), ["externalId"]);
}

#[tokio::test]
async fn s3_08_every_filter_of_the_source_finds_and_leaves_out() {
    let api = Api::new().await;
    let a =
        make(&api, json!({ "source": "a", "type": "x", "groupId": "g/1 ü", "metadata": {"k": "1", "l.m": "="} })).await;
    let b = make(&api, json!({ "source": "b", "type": "x", "metadata": {"k": "1"} })).await;
    let c = make(&api, json!({ "source": "b", "type": "y", "groupId": "g2" })).await;
    for (query, found) in [
        ("", vec![&c, &b, &a]),
        ("source=b", vec![&c, &b]),
        ("type=x", vec![&b, &a]),
        ("source=b&type=x", vec![&b]),
        ("groupId=g%2F1+%C3%BC", vec![&a]),
        ("metadata.k=1", vec![&b, &a]),
        ("metadata.k=1&metadata.l.m=%3D", vec![&a]),
        ("metadata.k=1&source=b&status=PENDING", vec![&b]),
        ("status=COMPLETED", vec![]),
        ("createdAfter=2999-01-01T00:00:00Z", vec![]),
        ("createdBefore=2999-01-01T00:00:00%2B02:00&createdAfter=2000-01-01T00:00:00Z", vec![&c, &b, &a]),
        ("createdBefore=2000-01-01T00:00:00Z", vec![]),
    ] {
        let answer = search(&api, query).await;
        assert_eq!(ids(&answer).iter().collect::<Vec<_>>(), found, "{query}");
        assert_eq!(answer.json()["totalItems"], found.len(), "{query}");
    }
    let found = search(&api, "source=a").await.json();
    let item = &found["items"][0];
    assert_eq!((&item["status"], &item["metadata"]["k"]), (&json!("PENDING"), &json!("1")));
    assert!(item.get("payload").is_none(), "lists carry no payloads");
    // A viewer and a producer may look, nobody else.
    for (token, status) in [("viewer", StatusCode::OK), ("producer", StatusCode::OK), ("x", StatusCode::UNAUTHORIZED)] {
        let asked = asking("GET", JOBS, token).body(Body::empty()).unwrap();
        assert_eq!(api.call(asked).await.status, status, "{token}");
    }
}

#[tokio::test]
async fn s3_08_pages_and_their_numbers() {
    let api = Api::new().await;
    for _ in 0..5 {
        make(&api, json!({})).await;
    }
    let default = search(&api, "").await.json();
    assert_eq!((&default["page"], &default["size"]), (&json!(0), &json!(20)));
    assert_eq!((&default["totalItems"], &default["totalPages"]), (&json!(5), &json!(1)));
    assert!(default.get("nextCursor").is_none());
    let second = search(&api, "page=1&size=2").await.json();
    assert_eq!((&second["page"], &second["size"], &second["totalPages"]), (&json!(1), &json!(2), &json!(3)));
    assert_eq!(second["items"].as_array().unwrap().len(), 2);
    assert_eq!(search(&api, "size=1000000").await.json()["size"], 100);
    let past = search(&api, "page=4294967295&size=100").await.json();
    assert_eq!((past["items"].as_array().unwrap().len(), &past["totalItems"]), (0, &json!(5)));

    let next = second["nextCursor"].as_str().unwrap();
    let behind = search(&api, &format!("size=2&cursor={next}")).await.json();
    assert_eq!(behind["items"].as_array().unwrap().len(), 1);
    assert!(["page", "totalItems", "totalPages", "nextCursor"].iter().all(|field| behind.get(field).is_none()));
    let front = search(&api, "size=2&cursor=").await.json();
    assert_eq!(front["items"], search(&api, "size=2").await.json()["items"]);
    let elsewhere = search(&api, &format!("size=2&source=other&cursor={next}")).await;
    assert_eq!(elsewhere.fields(), ["cursor"], "it belongs to another search");
}

#[tokio::test]
async fn s3_08_every_wrong_parameter_is_named_at_once() {
    let api = Api::new().await;
    let query = "status=DONE&createdAfter=yesterday&createdBefore=2025-10-04T15:00:00+02:00&page=-1&size=0&cursor=x\
                 &shoeSize=43&source=a%00b&metadata.k=%00&metadata.=1&metadata=1&type=a&type=b";
    let mut fields = search(&api, query).await.fields();
    fields.sort();
    let mut expected = vec![
        "status",
        "createdAfter",
        "createdBefore",
        "page",
        "size",
        "cursor",
        "shoeSize",
        "source",
        "metadata.k",
        "metadata.",
        "metadata",
        "type",
        "page",
    ];
    expected.sort_unstable();
    expected.dedup();
    fields.dedup();
    assert_eq!(fields, expected);
    assert_eq!(search(&api, "page=0&cursor=").await.fields(), ["page"]);
    for bad in ["size=1.5", "size=-1", "size=", "page=one"] {
        assert_eq!(search(&api, bad).await.fields().len(), 1, "{bad}");
    }
    let many: Vec<String> = (0..17).map(|n| format!("metadata.k{n}=v")).collect();
    assert_eq!(search(&api, &many.join("&")).await.fields(), ["metadata"]);
}

#[tokio::test]
async fn s3_22_cancel_over_http() {
    let api = Api::new().await;
    let cancel = async |id: &str, body: &str| {
        let mut request = asking("POST", &format!("{JOBS}/{id}/cancel"), "admin");
        if !body.is_empty() {
            request = request.header("content-type", "application/json");
        }
        api.call(request.body(Body::from(body.to_owned())).unwrap()).await
    };
    let id = make(&api, json!({ "groupId": "g" })).await;
    assert_eq!(cancel(&id, r#"{"reason": " "}"#).await.fields(), ["reason"]);
    assert_eq!(cancel(&id, r#"{"why": "x"}"#).await.fields(), ["why"]);
    let done = cancel(&id, r#"{"reason": "ordered twice"}"#).await;
    assert_eq!((done.status, &done.json()["status"]), (StatusCode::OK, &json!("CANCELLED")));
    let again = cancel(&id, "").await;
    assert_eq!(again.status, StatusCode::CONFLICT);
    assert!(again.json()["detail"].as_str().unwrap().contains("CANCELLED"), "{}", again.text());
    let bare = make(&api, json!({})).await;
    assert_eq!(cancel(&bare, "").await.status, StatusCode::OK, "a reason may be left out");
    for unknown in ["x", "00000000-0000-7000-8000-000000000000"] {
        assert_eq!(cancel(unknown, "").await.status, StatusCode::NOT_FOUND);
    }
    for (token, status) in
        [("producer", StatusCode::FORBIDDEN), ("viewer", StatusCode::FORBIDDEN), ("x", StatusCode::UNAUTHORIZED)]
    {
        let asked = asking("POST", &format!("{JOBS}/{id}/cancel"), token).body(Body::empty()).unwrap();
        assert_eq!(api.call(asked).await.status, status, "{token}");
    }
    let audit = api.get("/admin/audit").await.json();
    assert_eq!(
        (&audit["items"][1]["action"], &audit["items"][1]["reason"]),
        (&json!("job.cancel"), &json!("ordered twice"))
    );
    assert_eq!(audit["items"][1]["groupId"], "g");
}
