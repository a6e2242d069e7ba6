use super::*;

fn http(json: &str) -> Result<HttpOptions, String> {
    serde_json::from_str(json).map_err(|error| error.to_string())
}

#[test]
fn defaults_are_within_bounds() {
    assert_eq!(http("{}"), Ok(HttpOptions::default()));
    assert_eq!(HttpOptions::default().check("http"), []);
    assert_eq!(HttpOptions::default().breaker.policy(), breaker::Policy::default());
}

#[test]
fn unknown_keys_and_wrong_types_are_named() {
    assert!(http(r#"{"conect_timeout_s":1}"#).unwrap_err().contains("conect_timeout_s"));
    assert!(http(r#"{"breaker":{"open":1}}"#).unwrap_err().contains("open"));
    assert!(http(r#"{"connect_timeout_s":-1}"#).is_err());
    assert!(http(r#"{"connect_timeout_s":1.5}"#).is_err());
    assert!(http(r#"{"allow_networks":["10.0.0.0/33"]}"#).is_err());
    assert!(http(r#"{"proxy":"ftp://x"}"#).unwrap_err().contains("proxy"));
    let rail: Result<RailOptions, _> = serde_json::from_str(r#"{"kind":"payment","idempotant":true}"#);
    assert!(rail.unwrap_err().to_string().contains("idempotant"));
}

#[test]
fn zero_and_huge_values_name_their_key() {
    let options = http(
        r#"{"connect_timeout_s":0,"endpoint_concurrency":1001,"deferral_cap_s":0,
            "breaker":{"failure_percent":101,"calls_min":0,"window_s":0,"open_s":4000000000,"probes":0}}"#,
    )
    .unwrap();
    let keys: Vec<String> = options.check("http").into_iter().map(|error| error.key).collect();
    assert_eq!(
        keys,
        [
            "http.connect_timeout_s",
            "http.endpoint_concurrency",
            "http.deferral_cap_s",
            "http.breaker.failure_percent",
            "http.breaker.calls_min",
            "http.breaker.window_s",
            "http.breaker.open_s",
            "http.breaker.probes",
        ]
    );
    let rail = RailOptions {
        terminal_codes: vec!["OK".to_owned(), " ".to_owned()],
        backoff_cap_s: Some(86_401),
        ..RailOptions::new(RailKind::Payment)
    };
    let keys: Vec<String> = rail.check("rails.sepa").into_iter().map(|error| error.key).collect();
    assert_eq!(keys, ["rails.sepa.backoff_cap_s", "rails.sepa.terminal_codes"]);
}

#[test]
fn an_unknown_outcome_is_repeated_only_where_a_repeat_is_recognised() {
    let rail = |kind, idempotent| RailOptions { idempotent, ..RailOptions::new(kind) }.on_unknown();
    assert_eq!(rail(RailKind::Webhook, false), OnUnknown::Retry);
    assert_eq!(rail(RailKind::Payment, false), OnUnknown::Hold);
    assert_eq!(rail(RailKind::Payment, true), OnUnknown::Retry);
}

#[test]
fn the_proxys_password_does_not_show() {
    let options = http(r#"{"proxy":"http://user:secret@proxy.inside:3128/"}"#).unwrap();
    let text = format!("{options:?}");
    assert!(!text.contains("secret") && text.contains("proxy.inside:3128"), "{text}");
    assert_eq!(options.proxy_host().as_deref(), Some("proxy.inside"));
}
