use super::*;
use proptest::prelude::*;

const CAP: Duration = Duration::from_secs(3600);

fn read(kind: RailKind, status: u16, retry_after: Option<&str>, body: &str) -> CallOutcome {
    let terminal_codes = ["ACCOUNT_CLOSED".to_owned(), "14".to_owned()];
    let rules = Rules { kind, terminal_codes: &terminal_codes, deferral_cap: CAP };
    let received = Received {
        status,
        retry_after: retry_after.map(str::to_owned),
        body: body.as_bytes().to_vec(),
        ..Received::default()
    };
    classify(rules, received, SystemTime::UNIX_EPOCH)
}

/// The outcome in one line: what the table in the documents says.
fn told(outcome: &CallOutcome) -> String {
    match outcome {
        CallOutcome::Delivered(_) => "delivered".to_owned(),
        CallOutcome::Deferred { after, code, .. } => format!("deferred {} {code}", after.as_secs()),
        CallOutcome::Failed { code, retryable: true, .. } => format!("retry {code}"),
        CallOutcome::Failed { code, retryable: false, .. } => format!("end {code}"),
        CallOutcome::NotStarted { .. } => "not started".to_owned(),
    }
}

fn webhook(status: u16, retry_after: Option<&str>, body: &str) -> String {
    told(&read(RailKind::Webhook, status, retry_after, body))
}

fn payment(status: u16, body: &str) -> String {
    told(&read(RailKind::Payment, status, None, body))
}

#[test]
fn s3_28_webhook_statuses() {
    for (status, expect) in [
        (200, "delivered"),
        (204, "delivered"),
        (299, "delivered"),
        (301, "end REDIRECT_REFUSED"),
        (304, "end REDIRECT_REFUSED"),
        (307, "end REDIRECT_REFUSED"),
        (400, "retry HTTP_400"),
        (401, "retry HTTP_401"),
        (403, "retry HTTP_403"),
        (404, "retry HTTP_404"),
        (408, "retry HTTP_408"),
        (410, "end GONE"),
        (422, "retry HTTP_422"),
        (425, "retry HTTP_425"),
        (429, "deferred 30 RATE_LIMITED"),
        (500, "retry HTTP_500"),
        (503, "retry HTTP_503"),
        (101, "retry HTTP_101"),
        (999, "retry HTTP_999"),
    ] {
        assert_eq!(webhook(status, None, ""), expect);
        // A webhook's body is the receiver's own business.
        assert_eq!(webhook(status, None, r#"{"code":"ACCOUNT_CLOSED","retryable":false}"#), expect);
    }
}

#[test]
fn s3_28_payment_statuses_without_a_code() {
    for status in [400, 401, 403, 404, 405, 409, 413, 415, 422] {
        assert_eq!(payment(status, "declined, ACCOUNT_CLOSED"), format!("end HTTP_{status}"));
    }
    for status in [402, 408, 418, 425, 500, 502, 504] {
        assert_eq!(payment(status, "{}"), format!("retry HTTP_{status}"));
    }
    assert_eq!(payment(410, r#"{"retryable":true}"#), "end GONE");
}

#[test]
fn s2_12_codes_and_flag() {
    for (body, expect) in [
        (r#"{"railCode":"ACCOUNT_CLOSED"}"#, "end RAIL_REFUSED"),
        (r#"{"code":"ACCOUNT_CLOSED"}"#, "end RAIL_REFUSED"),
        (r#"{"code":14}"#, "end RAIL_REFUSED"),
        (r#"{"code":"14"}"#, "end RAIL_REFUSED"),
        (r#"{"code":"TRY_LATER"}"#, "retry HTTP_400"),
        (r#"{"code":"ACCOUNT_CLOSED","retryable":true}"#, "retry HTTP_400"),
        (r#"{"code":"TRY_LATER","retryable":false}"#, "end RAIL_REFUSED"),
        (r#"{"retryable":true}"#, "retry HTTP_400"),
        (r#"{"retryable":"true"}"#, "end HTTP_400"),
        // No substrings, no other letters, no other level.
        (r#"{"code":"ACCOUNT_CLOSED_TODAY"}"#, "retry HTTP_400"),
        (r#"{"code":"account_closed"}"#, "retry HTTP_400"),
        (r#"{"error":{"code":"ACCOUNT_CLOSED"}}"#, "end HTTP_400"),
        (r#"{"railCode":"TRY_LATER","code":"ACCOUNT_CLOSED"}"#, "retry HTTP_400"),
        (r#"{"code":"","retryable":null}"#, "end HTTP_400"),
        // A body that was cut still said what it said.
        (r#"{"code":"ACCOUNT_CLOSED","text":"aaaa"#, "end RAIL_REFUSED"),
    ] {
        assert_eq!(payment(400, body), expect, "{body}");
    }
    assert_eq!(payment(500, r#"{"code":"ACCOUNT_CLOSED"}"#), "end RAIL_REFUSED");
}

#[test]
fn s2_10_reference_and_code_are_kept() {
    let outcome = read(RailKind::Payment, 200, None, r#"{"railReference":"R-1","code":"00","reference":"x"}"#);
    let answer = outcome.answer().unwrap();
    assert_eq!((answer.rail_reference.as_deref(), answer.rail_code.as_deref()), (Some("R-1"), Some("00")));
    let long = format!(r#"{{"code":"{}\u0000"}}"#, "x".repeat(100));
    let outcome = read(RailKind::Payment, 400, None, &long);
    assert_eq!(outcome.answer().unwrap().rail_code.as_ref().unwrap().len(), 64);
}

#[test]
fn s3_26_not_acknowledged() {
    for (body, expect) in [
        (r#"{"ack":false,"delaySeconds":7}"#, "deferred 7 NOT_ACKNOWLEDGED"),
        (r#"{"ack":false,"delaySeconds":7.5}"#, "deferred 7 NOT_ACKNOWLEDGED"),
        (r#"{"ack":false}"#, "deferred 30 NOT_ACKNOWLEDGED"),
        (r#"{"ack":false,"delaySeconds":0}"#, "deferred 1 NOT_ACKNOWLEDGED"),
        (r#"{"ack":false,"delaySeconds":-3}"#, "deferred 30 NOT_ACKNOWLEDGED"),
        (r#"{"ack":false,"delaySeconds":"7"}"#, "deferred 30 NOT_ACKNOWLEDGED"),
        (r#"{"ack":false,"delaySeconds":1e300}"#, "deferred 3600 NOT_ACKNOWLEDGED"),
        (r#"{"ack":false,"delaySeconds":99999999999999999999999}"#, "deferred 3600 NOT_ACKNOWLEDGED"),
        (r#"{"ack":true,"delaySeconds":7}"#, "delivered"),
        (r#"{"ack":"false"}"#, "delivered"),
        (r#"{"ack":false,"delaySec"#, "delivered"),
        (r#"{"ack":true,"ack":false}"#, "delivered"),
        (r#"[{"ack":false}]"#, "delivered"),
        ("ok", "delivered"),
    ] {
        assert_eq!(webhook(200, None, body), expect, "{body}");
    }
    assert_eq!(webhook(500, None, r#"{"ack":false}"#), "retry HTTP_500");
}

#[test]
fn s3_27_retry_after() {
    assert_eq!(webhook(429, Some("120"), ""), "deferred 120 RATE_LIMITED");
    assert_eq!(webhook(429, Some("7200"), ""), "deferred 3600 RATE_LIMITED");
    assert_eq!(webhook(429, Some("0"), ""), "deferred 1 RATE_LIMITED");
    assert_eq!(webhook(429, Some("soon"), ""), "deferred 30 RATE_LIMITED");
    assert_eq!(webhook(503, Some("120"), ""), "deferred 120 SERVICE_UNAVAILABLE");
    assert_eq!(webhook(503, Some("soon"), ""), "retry HTTP_503");
    assert_eq!(webhook(500, Some("120"), ""), "retry HTTP_500");
    assert_eq!(webhook(200, Some("120"), ""), "delivered");
}

proptest! {
    #[test]
    fn any_answer_has_an_outcome(
        status in any::<u16>(),
        is_payment in any::<bool>(),
        retry in proptest::option::of(".{0,20}"),
        body in proptest::collection::vec(any::<u8>(), 0..100),
    ) {
        let kind = if is_payment { RailKind::Payment } else { RailKind::Webhook };
        let rules = Rules { kind, terminal_codes: &[], deferral_cap: CAP };
        let received = Received { status, retry_after: retry, date: None, body: body.clone(), truncated: false };
        let outcome = classify(rules, received, SystemTime::UNIX_EPOCH);
        prop_assert_eq!(&outcome.answer().unwrap().body, &body);
        if let CallOutcome::Deferred { after, .. } = outcome {
            prop_assert!((DEFERRAL_MIN..=CAP).contains(&after));
        }
    }
}
