//! What goes out is accepted by receivers that others have written: the official Standard Webhooks verifiers of three
//! registries, and S3's rule in Python. All of them refuse what was altered on the way and what is old.

use std::io::Write;
use std::path::PathBuf;
use std::process::{Command, Stdio};

use http::{HeaderMap, HeaderName, HeaderValue};
use railyard_testkit::{FakeRail, Receipt};
use serde_json::{Map, Value, json};

use crate::world::{SECRET, SOON, World};

/// JSON as verifiers of some languages want it, with what parsers would not give back as it was.
const BODIES: [&str; 3] =
    ["{\"orderId\":\"12345\",\"amount\":99.99}", "{\"é\": \"\\u00e9 \u{1f600}\",  \"a\":1.10}", "[]"];
/// How a body is altered, and its time put back.
const ALTERATIONS: [fn(&mut Value); 3] = [
    |seen| seen["body"] = json!(format!("{}20", seen["body"].as_str().unwrap())),
    |seen| seen["secret"] = json!("whsec_bm90IHRoZSBzZWNyZXQ="),
    |seen| {
        // Someone who has the body signs nothing: an older time alone is put in.
        for (header, old) in
            [("webhook-timestamp", "1700000000"), ("x-flowcatalyst-timestamp", "2023-11-14T22:13:20.000Z")]
        {
            seen["headers"][header] = json!(old);
        }
    },
];

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

fn received(receipt: &Receipt) -> Value {
    let names = [
        "webhook-id",
        "webhook-timestamp",
        "webhook-signature",
        "x-flowcatalyst-timestamp",
        "x-flowcatalyst-signature",
    ];
    let headers: Map<String, Value> =
        names.iter().map(|name| ((*name).to_owned(), json!(receipt.header(name).unwrap()))).collect();
    json!({ "secret": SECRET, "body": hex(&receipt.body), "headers": headers })
}

/// The bodies, delivered for real, one of them at its second attempt.
async fn delivered() -> Vec<Value> {
    let world = World::new().await;
    let rail = FakeRail::start().await.fails(1).then_ok();
    let node = world.node().await;
    for body in BODIES {
        let id = world.hook(&rail.url(), body, |_| {}).await;
        world.ended(id).await;
    }
    let receipts = rail.await_answered(BODIES.len() + 1, SOON).await;
    node.stop(SOON).await;
    receipts.iter().map(received).collect()
}

/// All deliveries, then each of them altered in each way.
fn with_alterations(genuine: &[Value]) -> Vec<Value> {
    let mut all = genuine.to_vec();
    for alter in ALTERATIONS {
        all.extend(genuine.iter().cloned().map(|mut seen| {
            alter(&mut seen);
            seen
        }));
    }
    all
}

/// The first `genuine` were accepted, every other one was refused.
fn assert_judged(genuine: usize, verdicts: &[bool], said: &str) {
    assert_eq!(verdicts.len(), genuine * (1 + ALTERATIONS.len()), "{said}");
    for (index, accepted) in verdicts.iter().enumerate() {
        assert_eq!(*accepted, index < genuine, "no. {index}: {said}");
    }
}

/// Where `scripts/verifiers` has put the verifiers.
fn verifiers() -> PathBuf {
    let script = concat!(env!("CARGO_MANIFEST_DIR"), "/../scripts/verifiers");
    let output = Command::new(script).stderr(Stdio::inherit()).output().unwrap();
    assert!(output.status.success(), "scripts/verifiers failed");
    PathBuf::from(String::from_utf8(output.stdout).unwrap().trim())
}

/// What a verifier of another language says to each of these.
fn ask(program: &PathBuf, script: &PathBuf, seen: &[Value]) -> (Vec<bool>, String) {
    let mut child = Command::new(program).arg(script).stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    child.stdin.take().unwrap().write_all(json!(seen).to_string().as_bytes()).unwrap();
    let output = child.wait_with_output().unwrap();
    let said = String::from_utf8(output.stdout).unwrap();
    assert!(output.status.success(), "{said}");
    (said.lines().map(|line| line == "accepted").collect(), said)
}

/// The verifiers of the npm registry and of PyPI.
#[tokio::test(flavor = "multi_thread")]
async fn s3_42_standard_webhooks_verifiers_of_npm_and_pypi_agree() {
    let genuine = delivered().await;
    let seen = with_alterations(&genuine);
    let folder = verifiers();
    for (program, script) in [("node", "verify.js"), ("python", "verify.py")] {
        let (verdicts, said) = ask(&folder.join(program), &folder.join(script), &seen);
        assert_judged(genuine.len(), &verdicts, &format!("{script}:\n{said}"));
    }
}

/// The verifier of the Rust registry.
#[tokio::test(flavor = "multi_thread")]
async fn s3_42_the_standard_webhooks_verifier_of_rust_agrees() {
    let genuine = delivered().await;
    let seen = with_alterations(&genuine);
    let verify = |seen: &Value| {
        let verifier = standardwebhooks::Webhook::new(seen["secret"].as_str().unwrap()).unwrap();
        let headers: HeaderMap = seen["headers"]
            .as_object()
            .unwrap()
            .iter()
            .map(|(name, value)| {
                let value = HeaderValue::from_str(value.as_str().unwrap()).unwrap();
                (HeaderName::from_bytes(name.as_bytes()).unwrap(), value)
            })
            .collect();
        let body = seen["body"].as_str().unwrap();
        let bytes: Vec<u8> =
            (0..body.len()).step_by(2).map(|at| u8::from_str_radix(&body[at..at + 2], 16).unwrap()).collect();
        verifier.verify(&bytes, &headers).is_ok()
    };
    let verdicts: Vec<bool> = seen.iter().map(verify).collect();
    assert_judged(genuine.len(), &verdicts, "standardwebhooks");
}

/// S3's own rule, in Python: the time as it stands there, 300 seconds, constant time.
#[tokio::test(flavor = "multi_thread")]
async fn s3_42_s3s_rule_in_python_accepts_ours_and_refuses_altered_and_old_ones() {
    let genuine = delivered().await;
    let script = PathBuf::from(concat!(env!("CARGO_MANIFEST_DIR"), "/verifiers/s3.py"));
    let (verdicts, said) = ask(&"python3".into(), &script, &with_alterations(&genuine));
    assert_judged(genuine.len(), &verdicts, &said);
    // The same deliveries, shown to a receiver later.
    let signed = |seen: &Value| seen["headers"]["webhook-timestamp"].as_str().unwrap().parse::<u64>().unwrap();
    let last = genuine.iter().map(signed).max().unwrap();
    for (clock, accepted) in [(last + 240, true), (last + 302, false)] {
        let mut seen = genuine.clone();
        seen.iter_mut().for_each(|seen| seen["now"] = json!(clock));
        let (verdicts, said) = ask(&"python3".into(), &script, &seen);
        assert!(verdicts.iter().all(|verdict| *verdict == accepted), "{clock}: {said}");
    }
}
