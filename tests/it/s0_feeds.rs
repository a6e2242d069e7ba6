//! Files of payments, by the command line, against a real node: each form, rejects, kills, flat memory, and the account of
//! it all.

use std::io::Write;
use std::path::PathBuf;
use std::time::Duration;

use railyard_testkit::{FakeRail, NodeProcess, Output, eventually};
use serde_json::{Value, json};

use crate::fleet::{Fleet, LATER};
use crate::s0_dispatch;

const DEBTORS: [&str; 3] = ["DE89370400440532013000", "GB82WEST12345698765432", "CH9300762011623852957"];
const NAMES: &str = "paymentId,debtorName,debtorIban,creditorName,creditorIban,amount,currency,requestedTime";

struct Place {
    fleet: Fleet,
    node: NodeProcess,
    /// A day that does not come in a test, and that a payment may be asked for.
    day: String,
}

impl Place {
    async fn new() -> Self {
        let fleet = Fleet::new().await;
        let set = "UPDATE rate_limit_config SET max_per_window = 100000";
        fleet.world.sql.batch_execute(set).await.unwrap();
        Self::of(fleet).await
    }

    async fn of(fleet: Fleet) -> Self {
        let node = fleet.ready("a").await;
        let day = fleet.world.one("SELECT ((now() AT TIME ZONE 'UTC')::date + 200)::text").await;
        Self { fleet, node, day }
    }

    /// A moment of that day.
    fn then(&self) -> String {
        format!("{}T16:00:00Z", self.day)
    }

    fn file(&self, name: &str, text: &str) -> String {
        let path = self.path(name);
        std::fs::write(&path, text).unwrap();
        path.to_string_lossy().into_owned()
    }

    fn path(&self, name: &str) -> PathBuf {
        self.fleet.sandbox.home().join(name)
    }

    async fn run(&self, words: &[&str]) -> Output {
        self.fleet.sandbox.run_at(&self.node, words, "").await
    }

    async fn import(&self, file: &str, more: &[&str]) -> (Option<i32>, Value) {
        let mut words = vec!["payments", "import", file, "--json"];
        words.extend(more);
        let output = self.run(&words).await;
        let said = serde_json::from_str(&output.stdout).unwrap_or_else(|_| panic!("{output:?}"));
        (output.code, said)
    }

    async fn reconcile(&self, feed: &str) -> (Option<i32>, Value) {
        let output = self.run(&["reconcile", "--feed", feed, "--json"]).await;
        let said = serde_json::from_str(&output.stdout).unwrap_or_else(|_| panic!("{output:?}"));
        (output.code, said)
    }

    async fn count(&self, table: &str) -> i64 {
        self.fleet.world.one(&format!("SELECT count(*) FROM {table}")).await
    }
}

fn counts(said: &Value) -> [u64; 3] {
    ["accepted", "existing", "rejected"].map(|name| said[name].as_u64().unwrap())
}

fn standing(said: &Value, name: &str) -> (u64, Value) {
    let all = said["standings"].as_array().unwrap();
    let one = all.iter().find(|one| one["standing"] == name).unwrap();
    (one["count"].as_u64().unwrap(), one["totals"].clone())
}

fn csv_row(id: &str, debtor: usize, amount: &str, requested: &str) -> String {
    format!("{id},Anna,{},Bert,ES9121000418450200051332,{amount},EUR,{requested}\n", DEBTORS[debtor % 3])
}

fn object(id: &str, debtor: usize, amount: &str, requested: &str) -> Value {
    json!({ "paymentId": id, "debtorName": "Anna", "debtorIban": DEBTORS[debtor], "creditorName": "Bert",
        "creditorIban": "ES9121000418450200051332", "amount": amount, "currency": "EUR", "requestedTime": requested })
}

fn transfer(iban: &str, amount: &str) -> String {
    format!(
        "<CdtTrfTxInf><PmtId><EndToEndId>e</EndToEndId></PmtId><Amt><InstdAmt Ccy=\"EUR\">{amount}</InstdAmt></Amt>
<Cdtr><Nm>Bert</Nm></Cdtr><CdtrAcct><Id><IBAN>{iban}</IBAN></Id></CdtrAcct></CdtTrfTxInf>\n"
    )
}

/// A message whose transfers begin in line 5.
fn message(version: &str, day: &str, transfers: &[String]) -> String {
    let (day, bic) = match version {
        "03" => (day.to_owned(), "BIC"),
        _ => (format!("<Dt>{day}</Dt>"), "BICFI"),
    };
    format!(
        "<?xml version=\"1.0\"?>
<Document xmlns=\"urn:iso:std:iso:20022:tech:xsd:pain.001.001.{version}\"><CstmrCdtTrfInitn>
<GrpHdr><MsgId>MSG-{version}</MsgId><NbOfTxs>{}</NbOfTxs></GrpHdr><PmtInf><PmtMtd>TRF</PmtMtd><ReqdExctnDt>{day}</ReqdExctnDt>
<Dbtr><Nm>Anna</Nm></Dbtr><DbtrAcct><Id><IBAN>{}</IBAN></Id></DbtrAcct><DbtrAgt><FinInstnId><{bic}>COBADEFF</{bic}></FinInstnId></DbtrAgt>
{}</PmtInf></CstmrCdtTrfInitn></Document>",
        transfers.len(),
        DEBTORS[0],
        transfers.concat()
    )
}

#[tokio::test(flavor = "multi_thread")]
async fn each_form_is_imported_and_rejects_have_line_field_and_reason() {
    let place = Place::new().await;
    let spanish = "ES9121000418450200051332";
    let then = place.then();
    let then = then.as_str();
    let lines =
        [object("n1", 0, "0.10", then), object("n2", 1, "1.000", then), json!([1]), object("n3", 2, "0.20", then)];
    let ndjson = lines.map(|line| format!("{line}\n\n")).concat();
    let csv = [
        format!("{NAMES}\n"),
        csv_row("c1", 0, "0.10", then),
        csv_row("c2", 1, "1.000", then),
        "c9,short\n".to_owned(),
        csv_row("c3", 2, "0.20", then),
    ];
    let transfers =
        [transfer(spanish, "0.10"), transfer(spanish, "1.000"), transfer("ES00", "3"), transfer(spanish, "0.20")];
    let files = [
        (place.file("a.ndjson", &ndjson), [3, 5], ["amount", "-"]),
        (place.file("a.csv", &csv.concat()), [3, 4], ["amount", "-"]),
        (
            place.file("a03.xml", &message("03", &place.day, &transfers)),
            [7, 9],
            ["CdtTrfTxInf/Amt/InstdAmt", "CdtTrfTxInf/CdtrAcct/Id/IBAN"],
        ),
        (
            place.file("a09.xml", &message("09", &place.day, &transfers)),
            [7, 9],
            ["CdtTrfTxInf/Amt/InstdAmt", "CdtTrfTxInf/CdtrAcct/Id/IBAN"],
        ),
    ];
    for (file, lines, fields) in &files {
        let rejects = place.path("rejects.ndjson");
        let (code, said) = place.import(file, &["--rejects", &rejects.to_string_lossy()]).await;
        assert_eq!((code, counts(&said)), (Some(1), [2, 0, 2]), "{file}: {said}");
        let written = std::fs::read_to_string(&rejects).unwrap();
        let written: Vec<Value> = written.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
        let places: Vec<(u64, &str)> =
            written.iter().map(|one| (one["line"].as_u64().unwrap(), one["field"].as_str().unwrap_or("-"))).collect();
        assert_eq!(places, lines.iter().copied().zip(fields.iter().copied()).collect::<Vec<_>>(), "{file}");
        assert!(written[0]["reason"].as_str().unwrap().contains("EUR has 2"), "{}", written[0]);
        let (code, account) = place.reconcile(said["feedId"].as_str().unwrap()).await;
        let total = json!([{ "currency": "EUR", "count": 2, "amount": "0.30" }]);
        assert_eq!((code, standing(&account, "SCHEDULED")), (Some(0), (2, total)), "{account}");
        assert_eq!(standing(&account, "REJECTED").0, 2);
    }
    assert_eq!(place.count("payment").await, 8);
    // The same file again is the same payments; its rejects as a table, which says the same.
    let table = place.path("rejects.csv");
    let (code, said) = place.import(&files[1].0, &["--rejects", &table.to_string_lossy()]).await;
    assert_eq!((code, counts(&said)), (Some(1), [0, 2, 2]));
    let written = std::fs::read_to_string(&table).unwrap();
    assert!(written.starts_with("line,item,paymentId,field,reason\n3,2,c2,amount,"), "{written}");
    // And under a feed's name that another file has, it is refused.
    let taken = said["feedId"].as_str().unwrap();
    let other = place.run(&["payments", "import", &files[0].0, "--feed-id", taken]).await;
    assert!(other.code == Some(1) && other.stderr.contains("is another file"), "{other:?}");
    assert_eq!((place.count("payment").await, place.count("payment_feed").await), (8, 4));
    // One of them, and all of them.
    let one: Value = serde_json::from_str(&place.run(&["payments", "get", "MSG-09:1", "--json"]).await.ok()).unwrap();
    assert_eq!(
        (&one["standing"], &one["requestedTime"]),
        (&json!("SCHEDULED"), &json!(format!("{}T00:00:00.000Z", place.day)))
    );
    let all =
        place.run(&["payments", "list", "--all", "--json", "--debtor", DEBTORS[0], "--status", "scheduled"]).await.ok();
    assert_eq!(all.lines().count(), 6, "{all}");
    let words = [
        "payments",
        "create",
        "alone",
        "--debtor-name",
        "Anna",
        "--debtor-iban",
        DEBTORS[1],
        "--creditor-name",
        "Bert",
    ];
    let more = ["--creditor-iban", spanish, "--amount", "1", "--currency", "EUR", "--requested-time", then];
    let made = [&words[..], &more[..]].concat();
    assert!(place.run(&made).await.ok().starts_with(&format!("ENQUEUED {}T16:00:0", place.day)));
    assert!(place.run(&made).await.ok().starts_with("KNOWN"));
}

#[tokio::test(flavor = "multi_thread")]
async fn nothing_is_taken_from_a_broken_file() {
    let place = Place::new().await;
    let whole = message(
        "09",
        &place.day,
        &[transfer("ES9121000418450200051332", "1"), transfer("ES9121000418450200051332", "2")],
    );
    for (from, to, said) in [
        (
            "</Cdtr><CdtrAcct><Id><IBAN>ES9121000418450200051332</IBAN></Id></CdtrAcct></CdtTrfTxInf>\n</PmtInf>",
            "</Crdtr>",
            "line 8, Document/CstmrCdtTrfInitn/PmtInf/CdtTrfTxInf/Cdtr",
        ),
        ("<NbOfTxs>2<", "<NbOfTxs>3<", "GrpHdr/NbOfTxs: is 3, and there are 2 transfers"),
        ("pain.001.001.09", "pain.008.001.02", "line 2, Document: is not of pain.001.001.03 or 09"),
    ] {
        let text = whole.replacen(from, to, 1);
        assert_ne!(text, whole);
        let file = place.file("broken.xml", &text);
        let output = place.run(&["payments", "import", &file]).await;
        assert_eq!(output.code, Some(1), "{output:?}");
        assert!(output.stderr.contains(said), "{said}: {}", output.stderr);
    }
    let file = place
        .file("broken.csv", &format!("{}\n{}", NAMES.replace("amount", "amout"), csv_row("a", 0, "1", &place.then())));
    let output = place.run(&["payments", "import", &file]).await;
    assert!(output.stderr.contains("line 1, column amout"), "{output:?}");
    assert_eq!((place.count("payment").await, place.count("payment_feed").await), (0, 0));
}

/// Killed with -9 in the middle, the command is given again: each payment is there once, and the account says so.
#[tokio::test(flavor = "multi_thread")]
async fn a_killed_import_is_given_again_and_takes_each_payment_once() {
    const ROWS: usize = 4500;
    let place = Place::new().await;
    let rows: String = (0..ROWS).map(|n| csv_row(&format!("p{n:05}"), n, "1.01", &place.then())).collect();
    let file = place.file("big.csv", &format!("{NAMES}\n{rows}"));
    let words = ["payments", "import", &file, "--feed-id", "big"];
    let mut killed = place.fleet.sandbox.start_at(&place.node, &words);
    eventually(LATER, "some were recorded", || async { place.count("payment_feed_line").await >= 1000 }).await;
    killed.kill().unwrap();
    killed.wait().unwrap();
    let before = place.count("payment_feed_line").await;
    assert!(before < 4500, "it was killed before its end");
    let (code, account) = place.reconcile("big").await;
    assert_eq!((code, &account["balanced"]), (Some(1), &json!(false)), "what is missing is missed");
    assert!(account["unanswered"].as_u64().unwrap() > 0, "{account}");
    // What the node was still at.
    eventually(LATER, "its last request is over", || async {
        let (payments, lines) = (place.count("payment").await, place.count("payment_feed_line").await);
        payments == lines
    })
    .await;
    let (code, said) = place.import(&file, &["--feed-id", "big"]).await;
    let [accepted, existing, rejected] = counts(&said);
    assert_eq!((code, accepted + existing, rejected), (Some(0), ROWS as u64, 0), "{said}");
    assert!(accepted > 0 && existing >= 1000, "{said}");
    for table in ["payment", "payment_exec_queue", "payment_exec_context", "payment_feed_line", "rate_limit_event_slot"]
    {
        assert_eq!(place.count(table).await, 4500, "{table}");
    }
    // The file's order is the order of acceptance of each debtor.
    let turned: i64 = place
        .fleet
        .world
        .one("SELECT count(*) FROM (SELECT payment_id < lag(payment_id) OVER (PARTITION BY group_id ORDER BY acceptance_no) AS turned FROM payment_exec_queue) q WHERE turned")
        .await;
    assert_eq!(turned, 0);
    let (code, account) = place.reconcile("big").await;
    let total = json!([{ "currency": "EUR", "count": ROWS, "amount": "4545.00" }]);
    assert_eq!((code, standing(&account, "SCHEDULED")), (Some(0), (ROWS as u64, total)));
}

/// Delivered money is told to the cent, and a row that vanishes is missed.
#[tokio::test(flavor = "multi_thread")]
async fn what_was_delivered_is_accounted_for_and_what_was_lost_is_missed() {
    let rail = FakeRail::start().await;
    let fleet = s0_dispatch::fleet(&rail).await;
    let place = Place::of(fleet).await;
    let rows: String = (0..9).map(|n| csv_row(&format!("p{n}"), n, &format!("0.{}", n + 1), "")).collect();
    let file = place.file("due.csv", &format!("{NAMES}\n{rows}"));
    let (code, said) = place.import(&file, &["--feed-id", "due"]).await;
    assert_eq!((code, counts(&said)), (Some(0), [9, 0, 0]), "{said}");
    s0_dispatch::completed(&place.fleet.world, 9).await;
    let (code, account) = place.reconcile("due").await;
    let total = json!([{ "currency": "EUR", "count": 9, "amount": "4.50" }]);
    assert_eq!((code, standing(&account, "DELIVERED")), (Some(0), (9, total)), "{account}");
    let today: String = place.fleet.world.one("SELECT (now() AT TIME ZONE 'UTC')::date::text").await;
    let day = place.run(&["payments", "reconcile", "--day", &today]).await.ok();
    assert!(day.contains("4.50") && day.contains("9 accepted, 0 not answered: everything is accounted for"), "{day}");
    let lost = "DELETE FROM payment_exec_queue WHERE payment_id = 'p4'";
    place.fleet.world.sql.batch_execute(lost).await.unwrap();
    for words in [["--feed", "due"], ["--day", &today]] {
        let output = place.run(&["reconcile", words[0], words[1]]).await;
        assert_eq!(output.code, Some(1), "{output:?}");
        assert!(output.stdout.contains("p4") && output.stdout.contains("NOT everything"), "{output:?}");
    }
}

/// What the process that reads them needs does not grow with the file: ten times the rows, the same memory.
#[tokio::test(flavor = "multi_thread")]
async fn memory_is_flat_however_long_the_file_is() {
    let place = Place::new().await;
    let iban = "ES9121000418450200051332";
    for (name, head, row, tail) in [
        (
            "flat.csv",
            format!("{NAMES}\n"),
            csv_row("p", 0, "1.01", &place.then()),
            format!("x,\"{}", "never closed ".repeat(40_000)),
        ),
        (
            "flat.xml",
            message("03", &place.day, &[]).replace("</PmtInf></CstmrCdtTrfInitn></Document>", ""),
            transfer(iban, "1.01"),
            String::new(),
        ),
    ] {
        let mut peaks = Vec::new();
        for rows in [20_000, 200_000] {
            let path = place.path(name);
            let mut file = std::io::BufWriter::new(std::fs::File::create(&path).unwrap());
            file.write_all(head.as_bytes()).unwrap();
            for _ in 0..rows {
                file.write_all(row.as_bytes()).unwrap();
            }
            // It is broken at its very end, so that all of it is read and nothing is sent.
            file.write_all(tail.as_bytes()).unwrap();
            file.flush().unwrap();
            drop(file);
            let mut child = place.fleet.sandbox.start_at(&place.node, &["payments", "import", &path.to_string_lossy()]);
            let status = format!("/proc/{}/status", child.id());
            let mut peak_kib = 0;
            while child.try_wait().unwrap().is_none() {
                let text = std::fs::read_to_string(&status).unwrap_or_default();
                let line = text.lines().find_map(|line| line.strip_prefix("VmHWM:"));
                let kib = line.and_then(|line| line.trim().trim_end_matches(" kB").parse::<u64>().ok());
                peak_kib = kib.unwrap_or(0).max(peak_kib);
                tokio::time::sleep(Duration::from_millis(2)).await;
            }
            let output = child.wait_with_output().unwrap();
            assert_eq!(output.status.code(), Some(1), "{output:?}");
            assert!(String::from_utf8_lossy(&output.stderr).contains("nothing was taken from it"), "{output:?}");
            peaks.push(peak_kib);
        }
        println!("{name}: {peaks:?} KiB");
        assert!(peaks[0] > 1000 && peaks[1] <= peaks[0] + 4096, "{name}: {peaks:?} KiB");
    }
    assert_eq!(place.count("payment").await, 0);
}
