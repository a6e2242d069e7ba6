use jiff::Timestamp;
use proptest::prelude::*;

use super::*;

const NOW: &str = "2031-03-04T10:00:00Z";

fn now() -> Timestamp {
    at(NOW)
}

fn at(text: &str) -> Timestamp {
    text.parse().unwrap()
}

fn request() -> PaymentRequest {
    PaymentRequest {
        payment_id: "pay-1".to_owned(),
        debtor_name: "Anna Example".to_owned(),
        debtor_iban: "DE89370400440532013000".to_owned(),
        creditor_name: "Bert Example".to_owned(),
        creditor_iban: "NL91ABNA0417164300".to_owned(),
        amount: "99.90".to_owned(),
        currency: "EUR".to_owned(),
        ..PaymentRequest::default()
    }
}

fn payment() -> Payment {
    request().validate().unwrap()
}

fn fields<T>(refused: Result<T, Vec<crate::job::FieldError>>) -> Vec<String> {
    refused.err().unwrap_or_default().into_iter().map(|error| error.field).collect()
}

#[test]
fn s0_02_everything_wrong_is_named_at_once() {
    let all = ["paymentId", "debtorName", "debtorIban", "creditorName", "creditorIban", "currency", "amount"];
    assert_eq!(fields(PaymentRequest::default().validate()), all);
    let wrong = PaymentRequest {
        payment_id: "pay/1".to_owned(),
        debtor_iban: "DE88370400440532013000".to_owned(),
        debtor_bic: Some("cobadeff".to_owned()),
        creditor_name: "n".repeat(141),
        amount: "1.001".to_owned(),
        end_to_end_id: Some(String::new()),
        remittance_information: Some("a\u{7}".to_owned()),
        ..request()
    };
    let expect =
        ["paymentId", "debtorIban", "debtorBic", "creditorName", "amount", "endToEndId", "remittanceInformation"];
    assert_eq!(fields(wrong.validate()), expect);
    let own = PaymentRequest { creditor_iban: "DE89 3704 0044 0532 0130 00".to_owned(), ..request() };
    assert_eq!(fields(own.validate()), ["creditorIban"], "nobody pays themselves");
    let both = PaymentRequest { amount: "-1".to_owned(), currency: "EURO".to_owned(), ..request() };
    assert_eq!(fields(both.validate()), ["currency", "amount"]);
}

#[test]
fn what_is_repeated_is_the_same_only_if_all_of_it_is() {
    let same = PaymentRequest { debtor_iban: "DE89 3704 0044 0532 0130 00".to_owned(), ..request() };
    assert_eq!(same.validate().unwrap().content_hash(), payment().content_hash());
    let others = [
        PaymentRequest { amount: "99.91".to_owned(), ..request() },
        PaymentRequest { currency: "USD".to_owned(), ..request() },
        PaymentRequest { creditor_name: "Bert".to_owned(), ..request() },
        PaymentRequest { requested_time: Some(now()), ..request() },
        PaymentRequest { end_to_end_id: Some("x".to_owned()), ..request() },
        PaymentRequest { remittance_information: Some("x".to_owned()), ..request() },
        PaymentRequest { debtor_bic: Some("COBADEFF".to_owned()), ..request() },
        PaymentRequest { creditor_bic: Some("COBADEFF".to_owned()), ..request() },
    ];
    let mut hashes: Vec<_> = others.map(|other| other.validate().unwrap().content_hash()).into();
    hashes.push(payment().content_hash());
    let count = hashes.len();
    hashes.sort_unstable();
    hashes.dedup();
    assert_eq!(hashes.len(), count);
}

#[test]
fn what_was_left_out_is_filled_in() {
    let planned = enrich(payment(), now()).unwrap();
    assert_eq!((planned.requested, planned.moved), (now(), false));
    let past = Payment { requested_time: Some(at("2031-03-04T09:59:59Z")), ..payment() };
    assert_eq!(enrich(past, now()).unwrap().requested, now());
    let later = Payment { requested_time: Some(at("2031-03-04T16:00:00Z")), ..payment() };
    assert_eq!(enrich(later, now()).unwrap().requested, at("2031-03-04T16:00:00Z"));
    let far = Payment { requested_time: Some(at("2032-03-04T10:00:01Z")), ..payment() };
    assert_eq!(fields(enrich(far, now())), ["requestedTime"]);
}

#[test]
fn s0_02_rules_refuse_and_name_the_field() {
    let mut rules = Rules::default();
    assert!(rules.limit("EUR", "1000.00") && rules.limit("EUR", "99.895") && rules.limit("USD", "1"));
    rules.block("NL");
    let refused = rules.apply(enrich(payment(), now()).unwrap(), now()).unwrap_err();
    assert_eq!(refused[0].detail, "is above the limit of 99.89 EUR");
    assert_eq!(fields::<Planned>(Err(refused)), ["amount", "creditorIban"]);
    for term in ["DE89370400440532013000", "DE", "COBADEFFXXX", "COBADEFF"] {
        let mut rules = Rules::default();
        rules.block(term);
        // With eight characters it is the same head office.
        for bic in ["COBADEFFXXX", "COBADEFF"] {
            let payment = PaymentRequest { debtor_bic: Some(bic.to_owned()), ..request() }.validate().unwrap();
            assert!(blocking_terms(std::iter::once(&payment)).iter().any(|known| known == term));
            assert_eq!(fields(rules.apply(enrich(payment, now()).unwrap(), now())), ["debtorIban"], "{term} {bic}");
        }
    }
    let mut rules = Rules::default();
    assert!(!rules.limit("XXX", "1") && !rules.limit("EUR", "many") && !rules.cut_off(None, "16:00", "Mars/Base"));
    assert!(!rules.cut_off(Some("XXX"), "16:00", "UTC") && !rules.cut_off(None, "later", "UTC"));
}

#[test]
fn after_the_cut_off_a_payment_goes_to_the_next_day() {
    let planned = |requested: &str, rules: &Rules| {
        let payment = Payment { requested_time: Some(at(requested)), ..payment() };
        let planned = rules.apply(enrich(payment, now()).unwrap(), now()).unwrap();
        (planned.requested, planned.moved)
    };
    let mut early = Rules::default();
    // Ten o'clock in UTC is eleven in Berlin.
    assert!(early.cut_off(Some("EUR"), "10:30:00", "Europe/Berlin") && early.cut_off(Some("USD"), "00:00", "UTC"));
    assert_eq!(planned(NOW, &early), (at("2031-03-04T23:00:00Z"), true));
    assert_eq!(planned("2031-03-04T18:00:00Z", &early), (at("2031-03-04T23:00:00Z"), true));
    assert_eq!(planned("2031-03-05T18:00:00Z", &early), (at("2031-03-05T18:00:00Z"), false), "in time for tomorrow");
    let mut late = Rules::default();
    assert!(late.cut_off(None, "11:30", "Europe/Berlin"));
    assert_eq!(planned("2031-03-04T18:00:00Z", &late), (at("2031-03-04T18:00:00Z"), false), "accepted in time");
}

#[test]
fn steps_are_in_the_order_of_the_source() {
    let mut sorted = Step::ALL;
    sorted.sort_unstable();
    assert_eq!(sorted, Step::ALL);
    let names = Step::ALL.map(Step::as_str);
    assert_eq!((names[0], names[7]), ("VALIDATE", "ENQUEUE"));
}

proptest! {
    #[test]
    fn what_is_accepted_has_a_payload_that_a_payment_rail_takes(
        whole in 0_u64..1_000_000, cents in 1_u32..100, name in "[^\\p{C}\\s][^\\p{C}]{0,60}", moved in any::<bool>(),
    ) {
        let request = PaymentRequest { amount: format!("{whole}.{cents:02}"), creditor_name: name.clone(), ..request() };
        let payment = request.validate().unwrap();
        let planned = Planned { payment, requested: now(), moved };
        let context = context(&planned, now());
        let payload = context["instruction"].to_string();
        prop_assert!(check(payload.as_bytes()).is_ok(), "{payload}");
        prop_assert_eq!(context["instruction"]["creditor"]["name"].as_str(), Some(name.as_str()));
    }

    #[test]
    fn any_request_gets_an_answer_that_names_known_fields(
        texts in proptest::collection::vec(".{0,150}", 10),
    ) {
        let optional = |n: usize| Some(texts[n].clone()).filter(|text| text.len() % 2 == 0);
        let request = PaymentRequest {
            payment_id: texts[0].clone(),
            debtor_name: texts[1].clone(),
            debtor_iban: texts[2].clone(),
            debtor_bic: optional(3),
            creditor_name: texts[4].clone(),
            creditor_iban: texts[5].clone(),
            creditor_bic: optional(6),
            amount: texts[7].clone(),
            currency: texts[8].clone(),
            requested_time: None,
            end_to_end_id: optional(9),
            remittance_information: None,
        };
        let refused = fields(request.validate());
        prop_assert!(refused.iter().any(|field| field == "debtorIban"));
    }

    #[test]
    fn a_rule_never_brings_a_payment_forward(hour in 0_i8..24, minute in 0_i8..60, ahead_s in 0_i64..3_000_000) {
        let mut rules = Rules::default();
        let readable = rules.cut_off(None, &format!("{hour:02}:{minute:02}"), "America/Denver");
        prop_assert!(readable);
        let requested = now() + jiff::SignedDuration::from_secs(ahead_s);
        let payment = Payment { requested_time: Some(requested), ..payment() };
        let planned = rules.apply(enrich(payment, now()).unwrap(), now()).unwrap();
        prop_assert!(planned.requested >= requested);
        prop_assert_eq!(planned.moved, planned.requested > requested);
        // Moved once, it is in time.
        let again = rules.apply(planned.clone(), now()).unwrap();
        prop_assert_eq!(again.requested, planned.requested);
    }
}
