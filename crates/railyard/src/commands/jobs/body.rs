//! From a line, or from options, to the body of a request. Values of a line are kept letter for letter: what was
//! exported is what is sent.

use std::collections::BTreeMap;

use anyhow::Context;
use serde_json::value::RawValue;
use uuid::Uuid;

use crate::cli::JobFields;
use crate::files;

/// A job as JSON: its fields by name, not yet complete.
#[derive(Clone, Debug, Default)]
pub(super) struct Job(BTreeMap<String, Box<RawValue>>);

/// A job that can be sent.
#[derive(Clone, Debug)]
pub(super) struct Ready {
    /// Its lane: jobs with the same group are created one after the other.
    pub(super) group: Option<String>,
    /// The request.
    pub(super) body: Vec<u8>,
}

/// What fills in the fields that a job leaves out.
#[derive(Clone, Debug)]
pub(super) struct Defaults(BTreeMap<String, Box<RawValue>>);

impl Job {
    /// Reads one line.
    ///
    /// # Errors
    /// It is not a JSON object.
    pub(super) fn parse(line: &[u8]) -> Result<Self, String> {
        serde_json::from_slice(line).map(Self).map_err(|error| {
            if error.classify() == serde_json::error::Category::Data {
                return "is not a JSON object".to_owned();
            }
            format!("is not JSON: {error}")
        })
    }

    fn text(&self, field: &str) -> Option<String> {
        serde_json::from_str(self.0.get(field)?.get()).ok()
    }
}

impl Defaults {
    /// What the options say.
    ///
    /// # Errors
    /// A payload file that cannot be read or is not UTF-8.
    pub(super) fn of(fields: &JobFields) -> anyhow::Result<Self> {
        let mut all = BTreeMap::new();
        let mut put = |field: &str, value: serde_json::Value| -> anyhow::Result<()> {
            all.insert(field.to_owned(), serde_json::value::to_raw_value(&value)?);
            Ok(())
        };
        let payload = match &fields.payload_file {
            Some(file) => {
                let text = String::from_utf8(files::bytes(file)?);
                Some(text.with_context(|| format!("{}: a payload must be UTF-8", file.display()))?)
            }
            None => fields.payload.clone(),
        };
        let texts = [
            ("source", fields.source.as_deref()),
            ("type", fields.kind.as_deref()),
            ("groupId", fields.group.as_deref()),
            ("targetUrl", fields.target_url.as_deref()),
            ("payload", payload.as_deref()),
            ("payloadContentType", fields.payload_content_type.as_deref()),
            ("credentialsId", fields.credentials.as_deref()),
            ("railType", fields.rail_type.as_deref()),
            ("mode", fields.mode.map(crate::cli::ModeName::as_str)),
            ("retryStrategy", fields.retry_strategy.as_deref()),
            ("scheduledFor", fields.scheduled_for.as_deref()),
            ("expiresAt", fields.expires_at.as_deref()),
            ("externalId", fields.external_id.as_deref()),
            ("idempotencyKey", fields.idempotency_key.as_deref()),
        ];
        for (field, text) in texts {
            text.map_or(Ok(()), |text| put(field, text.into()))?;
        }
        for (field, number) in [("maxRetries", fields.max_retries), ("timeoutSeconds", fields.timeout_seconds)] {
            number.map_or(Ok(()), |number| put(field, number.into()))?;
        }
        for (field, pairs) in [("headers", &fields.headers), ("metadata", &fields.metadata)] {
            if !pairs.is_empty() {
                let table = pairs.iter().map(|(name, value)| (name.clone(), value.clone().into()));
                put(field, serde_json::Value::Object(table.collect()))?;
            }
        }
        Ok(Self(all))
    }

    /// Fills in what the job leaves out, and a key of its own where it has none: what is sent again after a cut
    /// connection must not become a second job.
    ///
    /// # Errors
    /// Never for what [`Job::parse`] gave.
    pub(super) fn complete(&self, mut job: Job) -> anyhow::Result<Ready> {
        // Two names for one field: a job that has one of them leaves nothing out.
        let given = |job: &Job, field: &str| {
            job.0.contains_key(field) || (field == "credentialsId" && job.0.contains_key("serviceAccountId"))
        };
        for (field, value) in &self.0 {
            if !given(&job, field) {
                job.0.insert(field.clone(), value.clone());
            }
        }
        if !job.0.contains_key("idempotencyKey") {
            let key = format!("cli-{}", Uuid::new_v4());
            job.0.insert("idempotencyKey".to_owned(), serde_json::value::to_raw_value(&key)?);
        }
        let group = job.text("groupId").filter(|_| job.text("mode").as_deref() != Some("IMMEDIATE"));
        Ok(Ready { group, body: serde_json::to_vec(&job.0)? })
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn complete(line: &str, fields: &JobFields) -> (Option<String>, Value) {
        let ready = Defaults::of(fields).unwrap().complete(Job::parse(line.as_bytes()).unwrap()).unwrap();
        (ready.group, serde_json::from_slice(&ready.body).unwrap())
    }

    #[test]
    fn options_fill_in_what_a_line_leaves_out() {
        let fields = JobFields {
            target_url: Some("http://a".to_owned()),
            credentials: Some("c".to_owned()),
            max_retries: Some(5),
            headers: vec![("X-A".to_owned(), "1".to_owned())],
            ..JobFields::default()
        };
        let (group, body) = complete(r#"{"groupId":"g","targetUrl":"http://b","idempotencyKey":"k"}"#, &fields);
        assert_eq!(group.as_deref(), Some("g"));
        let expect = json!({"groupId": "g", "targetUrl": "http://b", "idempotencyKey": "k", "credentialsId": "c",
            "maxRetries": 5, "headers": {"X-A": "1"}});
        assert_eq!(body, expect);
        assert!(complete(r#"{"serviceAccountId":"s"}"#, &fields).1.get("credentialsId").is_none());
    }

    #[test]
    fn a_job_without_a_key_gets_one_of_its_own() {
        let key = || complete("{}", &JobFields::default()).1["idempotencyKey"].as_str().unwrap().to_owned();
        assert_ne!(key(), key());
    }

    #[test]
    fn jobs_without_order_have_no_lane() {
        assert_eq!(complete(r#"{"groupId":"g","mode":"IMMEDIATE"}"#, &JobFields::default()).0, None);
        assert_eq!(complete("{}", &JobFields::default()).0, None);
    }

    #[test]
    fn values_keep_their_letters() {
        let line = r#"{"payload":"{\"amount\": 1.10}\u0041\/","metadata":{"n":"1e2"},"maxRetries":3.0}"#;
        let ready = Defaults(BTreeMap::new()).complete(Job::parse(line.as_bytes()).unwrap()).unwrap();
        let body = String::from_utf8(ready.body).unwrap();
        assert!(body.contains(r#""payload":"{\"amount\": 1.10}\u0041\/""#), "{body}");
        assert!(body.contains(r#""maxRetries":3.0"#), "{body}");
    }

    #[test]
    fn what_is_no_object_is_refused() {
        for line in ["[]", "1", "{", "", "null", "{\"a\":}"] {
            assert!(Job::parse(line.as_bytes()).is_err(), "{line}");
        }
    }
}
