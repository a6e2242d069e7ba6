use super::*;

fn good() -> NewJob {
    let mut job = NewJob::new(
        "order-service",
        "order.created",
        RailKind::Webhook,
        "https://partner.com/webhooks/orders",
        bytes::Bytes::from_static(b"{}"),
    );
    job.credentials_id = Some(CredentialsId(uuid::Uuid::nil()));
    job
}

/// The fields that are refused after `change`.
fn refused(change: impl FnOnce(&mut NewJob)) -> Vec<String> {
    let mut job = good();
    change(&mut job);
    job.validate().err().unwrap_or_default().into_iter().map(|error| error.field).collect()
}

#[test]
fn defaults_follow_the_rail() {
    let job = good();
    assert_eq!(job.validate(), Ok(()));
    assert_eq!((job.mode, job.max_attempts, job.rail_type.as_str()), (Mode::NextOnError, 3, "webhook"));
    let payment = NewJob::new("a", "b", RailKind::Payment, "https://x", bytes::Bytes::new());
    assert_eq!((payment.mode, payment.max_attempts), (Mode::BlockOnError, 20));
    assert_eq!(payment.rail_type, "payment_webhook");
}

#[test]
fn s3_02_every_wrong_field_is_named_at_once() {
    let fields = refused(|job| {
        job.source = String::new();
        job.kind = "  ".to_owned();
        job.target_url = "ftp://x".to_owned();
        job.credentials_id = None;
        job.max_attempts = 0;
        job.timeout_s = 91;
        job.headers = vec![("host".to_owned(), "x".to_owned())];
    });
    assert_eq!(fields, ["source", "type", "targetUrl", "credentialsId", "headers", "maxRetries", "timeoutSeconds"]);
}

#[test]
fn s3_05_external_id_counts_characters() {
    assert!(refused(|job| job.external_id = Some("ä".repeat(32))).is_empty());
    assert_eq!(refused(|job| job.external_id = Some("a".repeat(33))), ["externalId"]);
}

#[test]
fn text_that_no_column_takes() {
    let nul = "a\0b".to_owned();
    assert_eq!(refused(|job| job.source.clone_from(&nul)), ["source"]);
    assert_eq!(
        refused(|job| job.source = SOURCE_RESERVED.to_owned()),
        ["source"],
        "that is what scheduled items are told by"
    );
    assert_eq!(refused(|job| job.group = Some(ParticipantId::new("a\0b"))), ["groupId"]);
    assert_eq!(refused(|job| job.group = Some(ParticipantId::new("a\r\nX-Other: b"))), ["groupId"]);
    assert_eq!(refused(|job| job.group = Some(ParticipantId::new("x".repeat(513)))), ["groupId"]);
    assert_eq!(refused(|job| job.idempotency_key = Some(nul.clone())), ["idempotencyKey"]);
    assert_eq!(refused(|job| job.pool = Some(nul.clone())), ["pool"]);
    let metadata = |key: &str, value: &str| BTreeMap::from([(key.to_owned(), value.to_owned())]);
    assert_eq!(refused(|job| job.metadata = metadata("a", &nul)), ["metadata.a"]);
    assert_eq!(refused(|job| job.metadata = metadata("", "x")), ["metadata."]);
    assert_eq!(refused(|job| job.metadata = metadata("a", &"x".repeat(1025))), ["metadata.a"]);
    let many = (0..51).map(|n| (n.to_string(), String::new())).collect();
    assert_eq!(refused(|job| job.metadata = many), ["metadata"]);
}

#[test]
fn content_types() {
    for good in ["application/json", "text/plain; charset=utf-8", "application/vnd.a+json"] {
        assert!(refused(|job| job.payload_content_type = good.to_owned()).is_empty(), "{good}");
    }
    for bad in ["", "json", "a/b\r\nX: y", "a/", "/b", "a b/c", "text/plänn"] {
        assert_eq!(refused(|job| job.payload_content_type = bad.to_owned()), ["payloadContentType"], "{bad}");
    }
}

#[test]
fn s3_47_targets() {
    for (target, expect) in [
        ("http://example.com", Ok("http://example.com:80")),
        ("https://EXAMPLE.com:8443/x?y#z", Ok("https://example.com:8443")),
        ("https://example.com./", Ok("https://example.com:443")),
        // Disguises are undone by the parser; whether the address may be called is decided when connecting.
        ("http://0x7f.1/", Ok("http://127.0.0.1:80")),
        ("http://[::ffff:127.0.0.1]:81", Ok("http://[::ffff:7f00:1]:81")),
        ("http://bücher.example/", Ok("http://xn--bcher-kva.example:80")),
        ("", Err(TargetError::NotAUrl)),
        ("/path", Err(TargetError::NotAUrl)),
        ("http://", Err(TargetError::NotAUrl)),
        ("https:example.com", Err(TargetError::NotAUrl)),
        ("https:/example.com", Err(TargetError::NotAUrl)),
        ("https:///example.com", Err(TargetError::NotAUrl)),
        ("https:\\\\example.com", Err(TargetError::NotAUrl)),
        ("https://example.com\\x", Err(TargetError::NotAUrl)),
        ("http://x:99999/", Err(TargetError::NotAUrl)),
        ("http://x:0/", Err(TargetError::Host)),
        ("http://./", Err(TargetError::Host)),
        ("file:///etc/passwd", Err(TargetError::Scheme)),
        ("javascript:alert(1)", Err(TargetError::Scheme)),
        ("ws://x/", Err(TargetError::Scheme)),
        ("https://user@x/", Err(TargetError::UserInfo)),
        ("https://:secret@x/", Err(TargetError::UserInfo)),
        ("https://@x/", Err(TargetError::UserInfo)),
        ("https://x/@y", Ok("https://x:443")),
        ("http://exa\nmple.com/", Err(TargetError::Characters)),
        (" http://example.com/", Err(TargetError::Characters)),
        ("http://x/a b", Err(TargetError::Characters)),
    ] {
        assert_eq!(endpoint_of(target).as_deref().map_err(|error| *error), expect, "{target:?}");
    }
    assert_eq!(endpoint_of(&format!("http://x/{}", "a".repeat(2048))), Err(TargetError::TooLong));
}

#[test]
fn times_and_trace() {
    let at = |second| Some(Timestamp::from_second(second).unwrap());
    assert_eq!(refused(|job| (job.scheduled_for, job.expires_at) = (at(5), at(5))), ["expiresAt"]);
    assert!(refused(|job| (job.scheduled_for, job.expires_at) = (at(5), at(6))).is_empty());
    assert!(traceparent_is_valid("00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"));
    for bad in [
        "",
        "00-4BF92F3577B34DA6A3CE929D0E0E4736-00f067aa0ba902b7-01",
        "00-00000000000000000000000000000000-00f067aa0ba902b7-01",
        "ff-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01",
        "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01-x\r\n",
    ] {
        assert_eq!(refused(|job| job.traceparent = Some(bad.to_owned())), ["traceparent"], "{bad}");
    }
}

#[test]
fn s3_46_debug_shows_no_payload_and_no_headers() {
    let mut job = good();
    job.payload = bytes::Bytes::from_static(b"very private");
    job.headers = vec![("X-Key".to_owned(), "very private".to_owned())];
    assert!(!format!("{job:?}").contains("very private"));
}
