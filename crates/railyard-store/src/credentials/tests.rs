use uuid::Uuid;
use zeroize::Zeroizing;

use super::*;
use crate::crypt::MasterKey;
use crate::rails::{self, RailSpec};
use crate::testing::{TestStore, new_credentials};
use railyard_core::rail::{OnUnknown, RailKind};

fn secrets(looked: Looked) -> Secrets {
    let Looked::Found(secrets) = looked else { panic!("{looked:?}") };
    secrets
}

#[tokio::test]
async fn s3_44_secrets_are_sealed_at_rest_and_open_for_the_node() {
    let t = TestStore::new().await;
    let found = secrets(load(&t.store, &t.keys, t.credentials).await.unwrap());
    assert_eq!(found.bearer_token.as_str(), "sk_test_very_private");
    assert_eq!(found.signing_secret.as_str(), "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw");
    assert_eq!(found.schemes, Scheme::ALL);
    assert!(!format!("{found:?}").contains("private"));
    let row: String = t.one("SELECT row_to_json(c)::text FROM dispatch_credentials c").await;
    assert!(!row.contains("private") && !row.contains(&hex::encode("very_private")), "{row}");
    let audit: String = t.one("SELECT string_agg(row_to_json(a)::text, '') FROM admin_audit a").await;
    assert!(audit.contains("credentials.create") && !audit.contains("private"), "{audit}");
}

#[tokio::test]
async fn a_missing_master_key_is_named_and_the_job_waits() {
    let t = TestStore::new().await;
    let others = MasterKeys::new(vec![MasterKey::read("other", &"17".repeat(32)).unwrap()]).unwrap();
    let looked = load(&t.store, &others, t.credentials).await.unwrap();
    let Looked::Closed(error) = looked else { panic!("{looked:?}") };
    assert_eq!(error, CryptError::UnknownKey { key_id: "test".to_owned() });
    assert!(matches!(load(&t.store, &t.keys, CredentialsId(Uuid::nil())).await.unwrap(), Looked::Unknown));
}

#[tokio::test]
async fn s3_12_deletion_is_refused_while_open_work_needs_them_and_forced_leaves_a_tombstone() {
    let t = TestStore::new().await;
    let mut listening = t.store.listen().await.unwrap();
    let id = t.create(&t.job(Some("g"))).await.outbox_id;
    let in_use = async || match delete(&t.store, t.credentials, false, "ops").await.unwrap() {
        Deletion::InUse(usage) => usage.open_work,
        Deletion::Deleted | Deletion::Unknown => false,
    };
    assert!(in_use().await, "a waiting job uses them");
    t.begin(id).await;
    assert!(in_use().await, "a job in flight uses them");
    assert_eq!(delete(&t.store, t.credentials, true, "ops").await.unwrap(), Deletion::Deleted);
    assert!(matches!(load(&t.store, &t.keys, t.credentials).await.unwrap(), Looked::Deleted));
    assert!(matches!(load_all(&t.store, &t.keys).await.unwrap()[..], [(_, Looked::Deleted)]));
    assert_eq!(t.one::<Vec<u8>>("SELECT sealed FROM dispatch_credentials").await, b"");
    assert_eq!(get(&t.store, t.credentials).await.unwrap(), None);
    assert!(list(&t.store).await.unwrap().is_empty());
    assert_eq!(delete(&t.store, t.credentials, true, "ops").await.unwrap(), Deletion::Unknown);
    let heard = tokio::time::timeout(std::time::Duration::from_secs(10), listening.next()).await.unwrap().unwrap();
    assert_eq!(heard, crate::listen::Heard::Cache("credentials".to_owned()));
}

#[tokio::test]
async fn a_set_that_only_ended_jobs_used_can_be_deleted() {
    let t = TestStore::new().await;
    let id = t.create(&t.job(Some("g"))).await.outbox_id;
    t.begin(id).await;
    t.finish(id, "COMPLETED", false).await;
    let rail = RailSpec {
        rail_type: "bank".to_owned(),
        kind: RailKind::Payment,
        on_unknown: OnUnknown::Hold,
        target_url: None,
        credentials_id: Some(t.credentials),
    };
    rails::configure(&t.store, std::slice::from_ref(&rail)).await.unwrap();
    let refused = delete(&t.store, t.credentials, false, "ops").await.unwrap();
    assert_eq!(
        refused,
        Deletion::InUse(Usage { open_work: false, rails: vec!["bank".to_owned()], subscriptions: Vec::new() })
    );
    rails::configure(&t.store, &[RailSpec { credentials_id: None, ..rail }]).await.unwrap();
    assert_eq!(delete(&t.store, t.credentials, false, "ops").await.unwrap(), Deletion::Deleted);
}

#[tokio::test]
async fn standard_webhooks_is_off_where_the_secret_is_not_base64() {
    let t = TestStore::new().await;
    let mut new = new_credentials();
    new.signing_secret = Zeroizing::new("whsec_xyz789".to_owned());
    let made = create(&t.store, &t.keys, &new, "ops").await.unwrap();
    assert_eq!(made.schemes, [Scheme::Flowcatalyst]);
    assert_eq!(get(&t.store, made.credentials_id).await.unwrap(), Some(made));
}

#[test]
fn what_cannot_sign_is_refused_without_repeating_it() {
    let refused = |change: fn(&mut NewCredentials)| {
        let mut new = new_credentials();
        change(&mut new);
        new.validate().err().unwrap_or_default().into_iter().map(|error| error.field).collect::<Vec<_>>()
    };
    assert!(refused(|_| {}).is_empty());
    assert_eq!(refused(|new| new.bearer_token = Zeroizing::new("a b".to_owned())), ["bearerToken"]);
    assert_eq!(refused(|new| new.bearer_token = Zeroizing::new("a\r\nX: y".to_owned())), ["bearerToken"]);
    assert_eq!(refused(|new| new.signing_secret = Zeroizing::new("secret\n".to_owned())), ["signingSecret"]);
    assert_eq!(refused(|new| new.signing_secret = Zeroizing::new(String::new())), ["signingSecret"]);
    assert_eq!(refused(|new| new.schemes.clear()), ["schemes"]);
    let only_standard = |new: &mut NewCredentials| {
        new.schemes = vec![Scheme::Standard];
        new.signing_secret = Zeroizing::new("whsec_xyz789".to_owned());
    };
    assert_eq!(refused(only_standard), ["schemes"]);
}

fn replacing(token: Option<&str>, secret: Option<&str>) -> Rotation {
    let [bearer_token, signing_secret] = [token, secret].map(|text| text.map(|text| Zeroizing::new(text.to_owned())));
    Rotation { bearer_token, signing_secret, active_from: None, overlap_s: 3600 }
}

async fn next(t: &TestStore) -> Option<NextSecrets> {
    secrets(load(&t.store, &t.keys, t.credentials).await.unwrap()).next
}

/// What is sealed, opened: the store's own eyes.
async fn sealed(t: &TestStore) -> String {
    let row = t.sql.query_one("SELECT key_id, sealed FROM dispatch_credentials", &[]).await.unwrap();
    let plain = t.keys.open(t.credentials.0, row.get(0), row.get(1)).unwrap();
    String::from_utf8(plain.to_vec()).unwrap()
}

#[tokio::test]
async fn s3_12_a_rotation_keeps_both_until_its_overlap_is_over_and_then_wipes_the_old_one() {
    let t = TestStore::new().await;
    let mut listening = t.store.listen().await.unwrap();
    let asked = replacing(Some("sk_new"), Some("bmV3IHNlY3JldA=="));
    let row = rotate(&t.store, &t.keys, t.credentials, &asked, "ops").await.unwrap().unwrap();
    let (from, until) = row.rotation.unwrap();
    assert_eq!(until.duration_since(from).as_secs(), 3600);
    let heard = tokio::time::timeout(std::time::Duration::from_secs(10), listening.next()).await.unwrap().unwrap();
    assert_eq!(heard, crate::listen::Heard::Cache("credentials".to_owned()));
    let brought = next(&t).await.unwrap();
    assert_eq!((brought.active_from, brought.overlap_until), (from, until));
    assert_eq!(brought.signing_secret.unwrap().as_str(), "bmV3IHNlY3JldA==");
    assert_eq!(wipe_retired(&t.store, &t.keys).await.unwrap(), 0, "the overlap goes on");
    t.sql
        .batch_execute("UPDATE dispatch_credentials SET active_from = '2000-01-01', overlap_until = '2000-01-02'")
        .await
        .unwrap();
    assert_eq!(get(&t.store, t.credentials).await.unwrap().unwrap().rotation, None, "over, if not wiped");
    assert!(sealed(&t).await.contains("very_private"));
    assert_eq!(wipe_retired(&t.store, &t.keys).await.unwrap(), 1);
    assert_eq!(wipe_retired(&t.store, &t.keys).await.unwrap(), 0);
    assert!(!sealed(&t).await.contains("very_private") && !sealed(&t).await.contains("MfKQ9r8GKY"));
    let found = secrets(load(&t.store, &t.keys, t.credentials).await.unwrap());
    assert_eq!((found.bearer_token.as_str(), found.signing_secret.as_str()), ("sk_new", "bmV3IHNlY3JldA=="));
    assert!(found.next.is_none());
    let audit: String = t.one("SELECT string_agg(row_to_json(a)::text, '') FROM admin_audit a").await;
    assert!(audit.contains("credentials.rotate") && !audit.contains("sk_new") && !audit.contains("bmV3"), "{audit}");
}

#[tokio::test]
async fn s3_12_a_second_rotation_within_an_overlap_replaces_what_the_first_brought() {
    let t = TestStore::new().await;
    let rotate = async |rotation: &Rotation| rotate(&t.store, &t.keys, t.credentials, rotation, "ops").await;
    rotate(&replacing(Some("sk_two"), Some("dHdv"))).await.unwrap();
    // The same again, as after a lost answer: nothing is lost, the old one least of all.
    rotate(&replacing(Some("sk_two"), Some("dHdv"))).await.unwrap();
    assert!(sealed(&t).await.contains("very_private"));
    // Another one: what signs now is what is replaced, and the first is gone at once.
    rotate(&replacing(None, Some("dGhyZWU="))).await.unwrap();
    let found = secrets(load(&t.store, &t.keys, t.credentials).await.unwrap());
    assert_eq!((found.bearer_token.as_str(), found.signing_secret.as_str()), ("sk_two", "dHdv"));
    let brought = found.next.unwrap();
    assert_eq!((brought.bearer_token, brought.signing_secret.unwrap().as_str()), (None, "dGhyZWU="));
    assert!(!sealed(&t).await.contains("very_private"));
    let field = |result: Result<_, CredentialsError>| match result {
        Err(CredentialsError::Store(StoreError::Invalid { field, .. })) => field,
        Err(CredentialsError::Store(StoreError::Conflict { .. })) => "conflict".to_owned(),
        Ok(Some(_)) => "done".to_owned(),
        Ok(None) => "unknown".to_owned(),
        Err(error) => panic!("{error}"),
    };
    assert_eq!(field(rotate(&replacing(Some("sk_two"), None)).await), "bearer_token", "it is in use");
    assert_eq!(field(rotate(&replacing(None, Some("not base64"))).await), "signing_secret");
    let later = t.one("SELECT clock_timestamp() + interval '1 hour'").await;
    let pending = Rotation { active_from: Some(later), ..replacing(Some("sk_four"), Some("Zm91cg==")) };
    assert_eq!(field(rotate(&pending).await), "done");
    assert_eq!(field(rotate(&replacing(None, Some("Zml2ZQ=="))).await), "conflict", "sk_four would be lost");
    let far = Rotation { active_from: Some("2100-01-01T00:00:00Z".parse().unwrap()), ..pending };
    assert_eq!(field(rotate(&far).await), "active_from");
    delete(&t.store, t.credentials, true, "ops").await.unwrap();
    assert_eq!(field(rotate(&replacing(None, Some("c2l4"))).await), "unknown");
}
