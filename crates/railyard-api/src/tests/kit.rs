//! A router over a migrated database, and a client without a network.

use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use axum::Router;
use axum::body::{Body, to_bytes};
use axum::extract::{ConnectInfo, Request};
use axum::http::request::Builder;
use axum::http::{HeaderMap, StatusCode};
use prometheus::Registry;
use railyard_core::NodeId;
use railyard_store::crypt::{MasterKey, MasterKeys};
use railyard_store::{Store, StoreConfig, migrate};
use railyard_testkit::TestDb;
use serde_json::{Value, json};
use sha2::{Digest, Sha256};
use tokio_postgres::Client;
use tower::ServiceExt;
use uuid::Uuid;

use crate::{ApiOptions, ApiState, Auth, Future, Links, NodeView, Question, Readiness, Role, Token, router};

/// A token for each role is the role's name.
pub(super) const ADMIN: &str = "admin";

#[derive(Default)]
pub(super) struct FakeNode {
    pub(super) wakes: AtomicUsize,
    pub(super) flushes: AtomicUsize,
    pub(super) works: AtomicBool,
    pub(super) node_id: Mutex<Option<NodeId>>,
    pub(super) links: Mutex<Option<Links>>,
}

impl NodeView for FakeNode {
    fn ready(&self) -> Readiness {
        let ready = self.works.load(Ordering::SeqCst);
        Readiness { ready, reasons: if ready { Vec::new() } else { vec!["no lease".to_owned()] } }
    }

    fn live(&self) -> bool {
        true
    }

    fn wake(&self) {
        self.wakes.fetch_add(1, Ordering::SeqCst);
    }

    fn groups(&self) -> Value {
        json!({ "groups": [] })
    }

    fn flush_caches(&self) {
        self.flushes.fetch_add(1, Ordering::SeqCst);
    }

    fn node_id(&self) -> Option<NodeId> {
        *self.node_id.lock().unwrap()
    }

    fn links(&self) -> Option<Links> {
        self.links.lock().unwrap().clone()
    }

    fn ask(&self, process: Option<Uuid>, question: Question) -> Future<Option<Value>> {
        // One that is linked and says nothing; this one says what it was asked.
        Box::pin(async move { process.is_none().then(|| json!({ "asked": format!("{question:?}") })) })
    }
}

pub(super) struct Answer {
    pub(super) status: StatusCode,
    pub(super) headers: HeaderMap,
    pub(super) body: Vec<u8>,
}

impl Answer {
    pub(super) fn json(&self) -> Value {
        serde_json::from_slice(&self.body).unwrap_or_else(|error| panic!("{error}: {:?}", self.text()))
    }

    pub(super) fn text(&self) -> String {
        String::from_utf8_lossy(&self.body).into_owned()
    }

    /// The fields that a problem document names.
    pub(super) fn fields(&self) -> Vec<String> {
        assert_eq!(self.status, StatusCode::BAD_REQUEST, "{}", self.text());
        assert_eq!(self.headers["content-type"], "application/problem+json");
        let errors = self.json()["errors"].as_array().cloned().unwrap_or_default();
        errors.iter().map(|error| error["field"].as_str().unwrap().to_owned()).collect()
    }
}

pub(super) struct Api {
    pub(super) router: Router,
    pub(super) node: Arc<FakeNode>,
    pub(super) sql: Client,
    pub(super) credentials: String,
    // Dropped last.
    _db: TestDb,
}

pub(super) fn token(role: Role, name: &str) -> Token {
    Token::new(&format!("{name}'s"), role, &hex::encode(Sha256::digest(name.as_bytes()))).unwrap()
}

pub(super) fn tokens() -> Vec<Token> {
    vec![token(Role::Producer, "producer"), token(Role::Viewer, "viewer"), token(Role::Admin, ADMIN)]
}

/// The template's name changes with the migrations.
async fn database() -> TestDb {
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/../railyard-store/migrations");
    let mut files: Vec<_> = std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()).collect();
    files.sort();
    let text: String = files.iter().map(|file| std::fs::read_to_string(file).unwrap()).collect();
    TestDb::from_template(&text, |url| async move {
        migrate::migrate(&url).await.unwrap();
    })
    .await
}

pub(super) fn keys() -> Arc<MasterKeys> {
    Arc::new(MasterKeys::new(vec![MasterKey::read("test", &"42".repeat(32)).unwrap()]).unwrap())
}

impl Api {
    pub(super) async fn new() -> Self {
        Self::with(Auth::new(tokens()), ApiOptions::default()).await
    }

    pub(super) async fn with(auth: Auth, options: ApiOptions) -> Self {
        Self::over(auth, options, |_| {}).await
    }

    /// With another way to the database.
    pub(super) async fn over(auth: Auth, options: ApiOptions, change: impl FnOnce(&mut StoreConfig)) -> Self {
        let db = database().await;
        let mut config = StoreConfig::at(db.url());
        change(&mut config);
        let store = Store::new(config).unwrap();
        let node = Arc::new(FakeNode::default());
        let view: Arc<dyn NodeView> = node.clone();
        let state = ApiState::new(store, keys(), view, auth, Registry::new(), options).unwrap();
        let sql = db.connect().await;
        let mut api = Self { router: router(state), node, sql, credentials: String::new(), _db: db };
        let new = json!({"bearerToken": "sk_very_private", "signingSecret": "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"});
        let made = api.post("/api/admin/dispatch/credentials", &new).await;
        if made.status == StatusCode::CREATED {
            made.json()["id"].as_str().unwrap().clone_into(&mut api.credentials);
        }
        api
    }

    pub(super) async fn call(&self, request: Request) -> Answer {
        call(&self.router, request).await
    }

    pub(super) async fn post(&self, path: &str, body: &Value) -> Answer {
        self.post_text(path, &body.to_string()).await
    }

    pub(super) async fn post_text(&self, path: &str, body: &str) -> Answer {
        let request = asking("POST", path, ADMIN).header("content-type", "application/json");
        self.call(request.body(Body::from(body.to_owned())).unwrap()).await
    }

    pub(super) async fn get(&self, path: &str) -> Answer {
        self.call(asking("GET", path, ADMIN).body(Body::empty()).unwrap()).await
    }

    pub(super) async fn delete(&self, path: &str) -> Answer {
        self.call(asking("DELETE", path, ADMIN).body(Body::empty()).unwrap()).await
    }

    /// S3's body, as small as it may be.
    pub(super) fn job(&self) -> Value {
        json!({
            "source": "order-service",
            "type": "order.created",
            "targetUrl": "https://partner.example/webhooks/orders",
            "payload": "{\"orderId\":\"12345\",\"amount\":99.99}",
            "credentialsId": self.credentials,
        })
    }

    /// The same with other fields.
    pub(super) fn job_with(&self, other: Value) -> Value {
        let mut job = self.job();
        let (Value::Object(fields), Value::Object(other)) = (&mut job, other) else { panic!("two objects") };
        fields.extend(other);
        job
    }
}

pub(super) async fn call(router: &Router, request: Request) -> Answer {
    let response = router.clone().oneshot(request).await.unwrap();
    let (parts, body) = response.into_parts();
    let body = to_bytes(body, usize::MAX).await.unwrap().to_vec();
    Answer { status: parts.status, headers: parts.headers, body }
}

/// A request from this machine with a token.
pub(super) fn asking(method: &str, path: &str, token: &str) -> Builder {
    from("127.0.0.1:4242", method, path).header("authorization", format!("Bearer {token}"))
}

/// A request without a token.
pub(super) fn from(peer: &str, method: &str, path: &str) -> Builder {
    let peer: SocketAddr = peer.parse().unwrap();
    Request::builder().method(method).uri(path).header("host", "localhost:8080").extension(ConnectInfo(peer))
}
