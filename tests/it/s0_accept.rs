//! S0's acceptance by a node that dies in the middle of it, and that is asked again.

use railyard_store::failpoint;
use railyard_testkit::eventually;
use serde_json::{Value, json};

use crate::fleet::{Fleet, LATER};
use crate::world::SOON;

const PAYMENTS: &str = "/api/payments";

/// Payments, their rows in the queue that are READY, contexts, what their groups have counted, slots.
async fn rows(fleet: &Fleet) -> [i64; 5] {
    let sql = "SELECT (SELECT count(*) FROM payment), (SELECT count(*) FROM payment_exec_queue WHERE queue_status = 'READY'),
                      (SELECT count(*) FROM payment_exec_context), (SELECT coalesce(sum(accepted), 0)::bigint FROM exec_group),
                      (SELECT count(*) FROM rate_limit_event_slot)";
    let row = fleet.world.sql.query_one(sql, &[]).await.unwrap();
    [0, 1, 2, 3, 4].map(|column| row.get(column))
}

/// Rows of the queue without their context or their payment.
async fn halves(fleet: &Fleet) -> i64 {
    let sql = "SELECT count(*) FROM payment_exec_queue q
               LEFT JOIN payment_exec_context c ON c.item_type = q.item_type AND c.payment_id = q.payment_id
               LEFT JOIN payment p ON p.payment_id = q.payment_id
               WHERE c.payment_id IS NULL OR p.payment_id IS NULL";
    fleet.world.one(sql).await
}

/// For a day that does not come in a test: nothing is claimed.
async fn payment(fleet: &Fleet) -> Value {
    let day: String = fleet.world.one("SELECT ((now() AT TIME ZONE 'UTC')::date + 200)::text").await;
    json!({ "paymentId": "pay-1", "debtorName": "Anna", "debtorIban": "DE89370400440532013000", "creditorName": "Bert",
        "creditorIban": "ES9121000418450200051332", "amount": "99.90", "currency": "EUR",
        "requestedTime": format!("{day}T16:00:00Z") })
}

/// Killed with -9 at each step that leaves something: the same call again is one payment, in one slot, with its context.
#[tokio::test(flavor = "multi_thread")]
async fn s0_05_s0_06_a_node_that_dies_in_the_middle_of_a_payment_accepts_it_once() {
    for name in failpoint::ACCEPT_NAMES {
        // What stands then, and how the same call is answered.
        let (stands, status) = match name {
            // The slot is given on condition, and is the payment's when it comes again.
            "accept_slot_given" | "accept_before_commit" => ([0, 0, 0, 0, 1], 201),
            "accept_after_commit" => ([1; 5], 200),
            _ => panic!("{name} is a step that this test does not know"),
        };
        let fleet = Fleet::new().await;
        let body = payment(&fleet).await;
        let node = fleet.node(name);
        node.set_failpoint(name);
        node.start();
        node.await_ready().await;
        let lost = node.http().post(PAYMENTS, &body).await;
        assert!(!lost.as_ref().is_ok_and(|answer| answer.status < 300), "{name}: {lost:?}");
        assert_eq!(node.await_exit(SOON).await, -9, "{name} kills");
        assert_eq!((rows(&fleet).await, halves(&fleet).await), (stands, 0), "{name}");
        node.clear_failpoint();
        node.start();
        node.await_ready().await;
        // While the database still has the dead one's transaction, it is to come again.
        eventually(LATER, "it is answered", || async {
            let answer = node.http().post(PAYMENTS, &body).await.unwrap();
            assert!(answer.status == status || answer.status == 503, "{name}: {} {}", answer.status, answer.text());
            answer.status == status
        })
        .await;
        for _ in 0..2 {
            assert_eq!((rows(&fleet).await, halves(&fleet).await), ([1; 5], 0), "{name}");
            node.http().post(PAYMENTS, &body).await.unwrap().expect_status(200);
        }
        let open = "SELECT count(*) FROM rate_limit_event_slot WHERE confirm_by IS NOT NULL";
        assert_eq!(fleet.world.one::<i64>(open).await, 0, "{name}: the slot is its own");
    }
}
