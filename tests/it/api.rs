//! A node as a process of its own, spoken to over HTTP: what a producer has before it.

use railyard_testkit::{Answer, FakeRail, Http, NodeProcess, Sandbox, TestDb, eventually_some};
use serde_json::{Value, json};

use crate::world::{SECRET, SOON, TOKEN};

/// Where jobs are created.
pub(crate) const JOBS: &str = "/api/dispatch/jobs";
/// Where credentials are.
pub(crate) const CREDENTIALS: &str = "/api/admin/dispatch/credentials";

/// A database, a running node that may call this machine, one set of credentials.
pub(crate) struct Api {
    /// Before the sandbox, which it stands in.
    pub(crate) node: NodeProcess,
    pub(crate) credentials: String,
    /// Where the node's files are.
    pub(crate) sandbox: Sandbox,
    pub(crate) db: TestDb,
}

impl Api {
    /// Starts everything.
    pub(crate) async fn new() -> Self {
        Self::with(|sandbox| sandbox).await
    }

    /// The same with other settings.
    pub(crate) async fn with(change: impl FnOnce(Sandbox) -> Sandbox) -> Self {
        let db = crate::world::database().await;
        let sandbox = change(Sandbox::new(db.url()).set("http.allow_networks", r#"["127.0.0.0/8"]"#));
        let node = sandbox.node().await;
        let set = json!({ "bearerToken": TOKEN, "signingSecret": SECRET });
        let made = node.http().post(CREDENTIALS, &set).await.unwrap().expect_status(201);
        let credentials = made.json()["id"].as_str().unwrap().to_owned();
        Self { node, credentials, sandbox, db }
    }

    /// Its API.
    pub(crate) fn http(&self) -> Http {
        self.node.http()
    }

    /// A webhook job that is retried at once, with other fields or these ones changed.
    pub(crate) fn job(&self, rail: &FakeRail, payload: &str, others: &Value) -> Value {
        let mut job = json!({
            "source": "orders", "type": "order.created", "targetUrl": rail.url(), "payload": payload,
            "credentialsId": self.credentials, "retryStrategy": "immediate", "timeoutSeconds": 5,
        });
        if let (Some(job), Some(others)) = (job.as_object_mut(), others.as_object()) {
            job.extend(others.clone());
        }
        job
    }

    /// Creates a job; whatever the answer.
    pub(crate) async fn post(&self, job: &Value) -> Answer {
        self.http().post(JOBS, job).await.unwrap()
    }

    /// Waits until the job that this answer made has ended, and returns it as the API shows it.
    pub(crate) async fn ended(&self, made: &Answer) -> Value {
        let path = format!("{JOBS}/{}", made.json()["id"].as_str().unwrap());
        eventually_some(SOON, "the job's end", || async {
            let job = self.http().get(&path).await.ok()?.expect_status(200).json();
            job["completedAt"].is_string().then_some(job)
        })
        .await
    }
}

/// The fields that a problem document names.
pub(crate) fn fields(refused: &Answer) -> Vec<String> {
    assert_eq!(refused.header("content-type"), Some("application/problem+json"), "{}", refused.text());
    let document = refused.json();
    let errors = document["errors"].as_array().cloned().unwrap_or_default();
    errors.iter().map(|error| error["field"].as_str().unwrap_or_default().to_owned()).collect()
}
