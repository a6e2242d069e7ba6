//! The description of the API: what a server shows and what the command prints are one thing.

use railyard_testkit::Sandbox;

use crate::api::Api;

/// `railyard openapi` prints the bytes of `/openapi.json`, and needs neither a database nor a server for that.
#[tokio::test(flavor = "multi_thread")]
async fn the_command_prints_what_the_server_shows() {
    let api = Api::new().await;
    let shown = api.http().without_token().get("/openapi.json").await.unwrap().expect_status(200);
    let nowhere = Sandbox::new("postgres://nobody@127.0.0.1:1/nothing");
    let printed = nowhere.run(&["openapi"]).await.ok();
    assert!(shown.text().contains("\"/api/dispatch/jobs\""));
    assert!(printed == shown.text(), "they differ");
}
