//! What is put off keeps its place: nothing of its debtor is accepted before it.

use super::*;

fn of(id: &str, debtor: usize) -> Payment {
    PaymentRequest { debtor_iban: DEBTORS[debtor].to_owned(), ..request(id) }.validate().unwrap()
}

/// Somebody else writes the first of four at this moment. What stands behind it in its debtor's order is to come again as
/// well; another debtor's payments are accepted. Sent again, both come in their order.
#[tokio::test]
async fn s0_06_what_stands_behind_a_payment_that_is_put_off_is_put_off_too() {
    let t = TestStore::new().await;
    let first = t.db.connect().await;
    let sql = "BEGIN; INSERT INTO payment (payment_id, group_id, amount, currency, debtor_name, debtor_iban, creditor_name, creditor_iban, requested_time, content_hash, accepted_by)
               VALUES ('a', 'g', 1, 'EUR', 'x', 'x', 'y', 'y', now(), sha256('x'), 'other')";
    first.batch_execute(sql).await.unwrap();
    let call = [of("a", 0), of("c", 0), of("b", 1), of("d", 1), of("e", 0)];
    let answers = accept(&t.store, &call, "test").await;
    assert!(matches!(answers[0], Accepted::Later { step: Step::Persist, .. }), "{:?}", answers[0]);
    for behind in [1, 4] {
        assert!(matches!(answers[behind], Accepted::Later { .. }), "{:?}", answers[behind]);
    }
    assert_eq!((enqueued(&answers[2]).acceptance_no, enqueued(&answers[3]).acceptance_no), (1, 2));
    assert_eq!(rows(&t).await, [2; 4]);
    first.batch_execute("ROLLBACK").await.unwrap();
    let again = accept(&t.store, &call, "test").await;
    let places = [0, 1, 4].map(|index: usize| enqueued(&again[index]).clone());
    assert_eq!(places.each_ref().map(|place| place.acceptance_no), [1, 2, 3]);
    assert!(places[0].scheduled < places[1].scheduled && places[1].scheduled < places[2].scheduled, "{places:?}");
    assert_eq!(again[2..4], [Accepted::Repeated, Accepted::Repeated]);
    assert_eq!(rows(&t).await, [5; 4]);
}
