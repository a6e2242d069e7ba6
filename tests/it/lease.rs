//! Membership, statement by statement.

use crate::world::World;
use railyard_core::NodeId;
use railyard_store::lease;
use std::time::Duration;
use uuid::Uuid;

/// What joins can renew, and what leaves is gone.
#[tokio::test]
async fn join_renew_leave() {
    let world = World::new().await;
    let mut connection = world.store.dedicated("test").await.unwrap();
    let me = NodeId(Uuid::new_v4());
    let lease = Duration::from_secs(3);
    lease::join(&connection.client, me, "test", lease).await.unwrap();
    assert!(lease::renew(&connection.client, me, lease).await.unwrap());
    lease::leave(&mut connection.client, me).await.unwrap();
    assert_eq!(world.one::<i64>("SELECT count(*) FROM node").await, 0);
    assert!(!lease::renew(&connection.client, me, lease).await.unwrap(), "a membership that is over stays over");
}
