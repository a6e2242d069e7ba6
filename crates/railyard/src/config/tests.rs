//! The rules of loading, and the checked-in file against the types.

use std::path::PathBuf;

use super::load::known_paths;
use super::{Config, Environment};

fn environment(pairs: &[(&str, &str)]) -> Environment {
    pairs.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect()
}

fn load(file: &str, pairs: &[(&str, &str)]) -> Result<Config, String> {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("railyard.toml");
    std::fs::write(&path, file).unwrap();
    let said = Config::load(Some(&path), &environment(pairs));
    said.map_err(|error| error.to_string())
}

fn refused(file: &str, pairs: &[(&str, &str)]) -> String {
    load(file, pairs).expect_err("must be refused")
}

fn documented() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../config/railyard.toml")
}

#[test]
fn nothing_set_is_the_defaults_and_they_pass() {
    assert_eq!(Config::load(None, &environment(&[])).unwrap(), Config::default());
}

#[test]
fn the_environment_wins_over_the_file_and_the_file_over_the_defaults() {
    let file = "[lease]\nlease_s = 30\nrenewal_s = 9\n[node]\nname = \"file\"";
    let config = load(file, &[("RAILYARD_LEASE__RENEWAL_S", "7"), ("RAILYARD_TOKEN", "x")]).unwrap();
    assert_eq!((config.lease.lease_s, config.lease.renewal_s), (30, 7));
    assert_eq!(config.node.name.as_deref(), Some("file"));
    assert_eq!(config.cache.ttl_s, 5);
}

#[test]
fn the_environment_takes_lists_of_tables() {
    let hash = "0".repeat(64);
    let tokens = format!(r#"[{{name="ops", role="admin", sha256="{hash}"}}]"#);
    let config = load("", &[("RAILYARD_API__TOKENS", &tokens), ("RAILYARD_API__LISTEN", "0.0.0.0:8080")]).unwrap();
    assert_eq!(config.api.tokens[0].name, "ops");
    let url = "postgres://u:p%40@[::1]:5432/r?options=-c%20a%3Db";
    let config = load("", &[("RAILYARD_DATABASE__URL", url)]).unwrap();
    assert_eq!(config.database.url.as_deref(), Some(url));
}

#[test]
fn unknown_keys_are_named_wherever_they_come_from() {
    let said = refused("[lease]\nleas_s = 3", &[]);
    assert!(said.contains("lease.leas_s: unknown key; known are lease_s, renewal_s (in "), "{said}");
    assert!(refused("[leese]", &[]).contains("leese: unknown key"));
    assert!(refused("top = 1", &[]).contains("top: unknown key"));
    let said = refused("", &[("RAILYARD_LEASE__LEAS_S", "3")]);
    assert!(said.contains("lease.leas_s: unknown key"), "{said}");
    assert!(said.contains("(from RAILYARD_LEASE__"), "{said}");
    assert!(
        refused("[[api.tokens]]\nname = \"a\"\nrole = \"admin\"\nsha256 = \"\"\ntoken = \"t\"", &[])
            .contains("token: unknown key")
    );
}

#[test]
fn wrong_types_and_forms_name_the_key() {
    let said = refused("[lease]\nlease_s = \"long\"", &[]);
    assert!(said.contains("lease.lease_s: ") && said.contains("u32"), "{said}");
    assert!(refused("[api]\nlisten = \"here\"", &[]).contains("api.listen: "));
    assert!(refused("[node", &[]).contains("expected"), "broken TOML");
}

#[test]
fn values_out_of_range_are_named_all_at_once() {
    let said = refused("[dispatch]\npoll_ms = 249\ndebounce_ms = 51\n[node]\ngrace_s = 90", &[]);
    assert!(said.contains("dispatch.poll_ms: 249 is not between 250 and 1000"), "{said}");
    assert!(said.contains("dispatch.debounce_ms: 51 is not between 25 and 50"), "{said}");
    assert!(said.contains("node.grace_s: 90 s do not outlast the longest call"), "{said}");
}

#[test]
fn settings_are_checked_against_each_other() {
    for (file, expect) in [
        ("[lease]\nlease_s = 14", "lease.lease_s: 14 s are less than three renewals"),
        ("[retention]\nkeys_days = 29", "retention.keys_days: "),
        ("[retention]\nitems_days = 34", "retention.items_days: "),
        ("[retention]\nfeeds_days = 399", "retention.feeds_days: "),
        ("[database]\nlock_timeout_ms = 10000", "database.lock_timeout_ms: "),
        ("[dispatch]\ncredits = 255", "dispatch.credits: "),
        ("[reaper]\nzombie_after_s = 90", "reaper.zombie_after_s: "),
        ("[secrets]\nmaster_keys = [{ id = \"a\" }]", "secrets.master_keys[0]: needs one of"),
        ("[log]\nfilter = \"railyard=loud\"", "log.filter: "),
    ] {
        let said = refused(file, &[]);
        assert!(said.contains(expect), "{file}: {said}");
    }
}

#[test]
fn without_a_token_only_loopback() {
    let said = refused("[api]\nlisten = \"0.0.0.0:8080\"", &[]);
    assert!(said.contains("api.tokens: is empty, and api.listen = 0.0.0.0:8080"), "{said}");
    assert!(load("[api]\nlisten = \"[::1]:8080\"", &[]).is_ok());
}

#[test]
fn links_need_an_address_a_cookie_and_certificates() {
    let said = refused("[cluster]\nlisten = \"0.0.0.0:7400\"", &[]);
    for expect in [
        "cluster.advertise: is not set, and cluster.listen = 0.0.0.0:7400",
        "cluster: needs one of cookie_file and cookie_env",
        "cluster.certificate_file: is not set",
        "cluster.key_file: is not set",
        "cluster.authority_file: is not set",
    ] {
        assert!(said.contains(expect), "{expect}: {said}");
    }
    let plain = "[cluster]\nlisten = \"127.0.0.1:7400\"\ncookie_env = \"C\"\nplaintext = true";
    let config = load(plain, &[]).unwrap();
    assert!(refused(&format!("{plain}\nkey_file = \"k\""), &[]).contains("cluster.key_file: is set, and"));
    assert!(refused(&format!("{plain}\nadvertise = \"here\""), &[]).contains("cluster.advertise: here is not"));
    assert!(refused(&plain.replace("7400", "0"), &[]).contains("cluster.listen: port 0"));
    let options = |cookie: &str| config.cluster.options(&environment(&[("C", cookie)]));
    let said = options("too short and secret").unwrap_err().to_string();
    assert!(said.contains("cluster.cookie_env: ") && !said.contains("secret"), "{said}");
    let options = options(&"x".repeat(32)).unwrap().unwrap();
    assert_eq!(options.advertise, "127.0.0.1:7400");
    assert!(!format!("{options:?}").contains("xxx"));
}

#[test]
fn one_underscore_for_two_is_caught() {
    let said = refused("", &[("RAILYARD_DATABASE_URL", "postgres://x")]);
    assert!(said.contains("RAILYARD_DATABASE__URL"), "{said}");
}

#[test]
fn the_documented_file_is_the_defaults() {
    let config = Config::load(Some(&documented()), &environment(&[])).unwrap();
    assert_eq!(config, Config::default());
}

/// Every key stands in the file: set to its default, or, where there is none, as a comment.
#[test]
fn the_documented_file_names_every_key() {
    let text = std::fs::read_to_string(documented()).unwrap();
    let paths = known_paths();
    assert!(paths.contains(&"http.breaker.open_s".to_owned()) && paths.len() > 40, "{paths:?}");
    for path in paths.iter().filter(|path| *path != "rails") {
        let (section, key) = path.rsplit_once('.').unwrap();
        let body = text.split(&format!("\n[{section}]\n")).nth(1).unwrap_or_else(|| panic!("no [{section}]"));
        let body = body.split("\n[").next().unwrap();
        let stands = |line: &str| line.trim_start_matches("# ").starts_with(&format!("{key} = "));
        assert!(body.lines().any(stands), "{path} is not documented");
    }
}

#[test]
fn limits_are_read_and_each_fault_names_its_key() {
    let file = "[rails.sepa]\nkind = \"payment\"\nlimit = { starts = 50 }\n\
                [limits]\nstarts = 1000\nendpoints = { \"https://bank.example:443\" = { starts = 5, window_ms = 2000 } }";
    let config = load(file, &[]).unwrap();
    let limit = config.rails.0["sepa"].limit.unwrap();
    assert_eq!((limit.starts, limit.window_ms, config.limits.starts), (50, 1000, Some(1000)));
    assert_eq!(config.limits.endpoints["https://bank.example:443"].window_ms, 2000);
    for (file, expect) in [
        ("[rails.sepa]\nkind = \"payment\"\nlimit = { starts = 0 }", "rails.sepa.limit.starts"),
        ("[rails.sepa]\nkind = \"payment\"\nlimit = { starts = -1 }", "rails.sepa.limit.starts: "),
        ("[rails.sepa]\nkind = \"payment\"\nlimit = { starts = 1.5 }", "rails.sepa.limit.starts: "),
        ("[rails.sepa]\nkind = \"payment\"\nlimit = { starts = 100001 }", "rails.sepa.limit.starts"),
        ("[rails.sepa]\nkind = \"payment\"\nlimit = { start = 5 }", "rails.sepa.limit.start: unknown key"),
        ("[rails.sepa]\nkind = \"payment\"\nlimit = { window_ms = 5000 }", "starts"),
        ("[limits]\nstarts = 10\nwindow_ms = 999", "limits.window_ms"),
        (
            "[limits]\nendpoints = { \"https://bank.example\" = { starts = 5 } }",
            "limits.endpoints.https://bank.example: is not",
        ),
        (
            "[limits]\nendpoints = { \"https://b.example:443\" = { starts = 0 } }",
            "limits.endpoints.https://b.example:443.starts",
        ),
    ] {
        let said = refused(file, &[]);
        assert!(said.contains(expect), "{file}: {said}");
    }
}

#[test]
fn rails_are_added_to_the_two_that_are_always_there() {
    let config =
        load("[rails.sepa]\nkind = \"payment\"\n[rails.payment_webhook]\nkind = \"payment\"\nidempotent = true", &[]);
    let rails = config.unwrap().rails.0;
    assert_eq!(rails.keys().collect::<Vec<_>>(), ["payment_webhook", "sepa", "webhook"]);
    assert!(rails["payment_webhook"].idempotent && !rails["sepa"].idempotent);
    assert!(
        refused("[rails.sepa]\nkind = \"payment\"\nidempotant = true", &[])
            .contains("rails.sepa.idempotant: unknown key")
    );
    assert!(refused("[rails.sepa]\nkind = \"payment\"\nbackoff_cap_s = 0", &[]).contains("rails.sepa.backoff_cap_s: "));
    assert!(refused("[rails.\"a b\"]\nkind = \"webhook\"", &[]).contains("rails.a b: is not 1 to"));
}
