//! Files as banks and spreadsheets make them, whole and broken.

use std::io::BufReader;

use proptest::prelude::*;
use serde_json::{Value, json};

use super::*;

fn clock() -> Clock {
    Clock { time: Time::midnight(), zone: TimeZone::UTC }
}

/// Rows of a file that is read in pieces of so many bytes.
fn read_in(format: Format, text: &[u8], capacity: usize, clock: &Clock) -> Result<Vec<Row>, Broken> {
    let mut reading = Reading::new(format, BufReader::with_capacity(capacity, text), clock);
    let mut rows = Vec::new();
    while let Some(row) = reading.next()? {
        rows.push(row);
    }
    assert_eq!(reading.bytes(), u64::try_from(text.len()).unwrap(), "all of it was read");
    Ok(rows)
}

fn read(format: Format, text: &str) -> Result<Vec<Row>, Broken> {
    read_in(format, text.as_bytes(), 7, &clock())
}

fn payment(row: &Row) -> Value {
    serde_json::from_str(row.payment.as_ref().unwrap_or_else(|unreadable| panic!("{unreadable:?}"))).unwrap()
}

#[test]
fn lines_of_json() {
    let rows =
        read(Format::Ndjson, "\u{feff}{\"paymentId\": \"a\"}\r\n\n  \n[1]\n{\"a\":\n{\"paymentId\":\"b\"}").unwrap();
    let lines: Vec<(u64, u64, bool)> = rows.iter().map(|row| (row.item, row.line, row.payment.is_ok())).collect();
    assert_eq!(lines, [(1, 1, true), (2, 4, false), (3, 5, false), (4, 6, true)]);
    assert_eq!(payment(&rows[3]), json!({"paymentId": "b"}));
    assert_eq!(rows[1].payment.as_ref().unwrap_err().reason, "is not a JSON object");
    let reason = &rows[2].payment.as_ref().unwrap_err().reason;
    assert!(reason.starts_with("is not JSON: EOF"), "{reason}");
    assert_eq!(read(Format::Ndjson, ""), Ok(Vec::new()));
    let long = format!("{{}}\n{}", "x".repeat(metered::PIECE_BYTES_MAX + 1));
    assert_eq!(read(Format::Ndjson, &long).unwrap_err().line, 2);
}

const NAMES: &str = "paymentId,debtorName,debtorIban,creditorName,creditorIban,amount,currency";

#[test]
fn rows_of_a_table_know_their_lines() {
    for end in ["\n", "\r\n"] {
        let text = [
            NAMES,
            "a,Anna,DE89,Bert,NL91,1.50,EUR",
            "",
            "b,\"Anna \"\"A\"\"\",DE89,\"B, C\",NL91,,EUR",
            "c,short",
            "d,x,DE89,y,NL91,2,\"EUR\"",
            "\"e\",x,DE89,y,NL91,3,EUR",
        ]
        .join(end);
        for text in [text.clone(), format!("{text}{end}")] {
            let rows = read(Format::Csv, &text).unwrap();
            let lines: Vec<(u64, u64)> = rows.iter().map(|row| (row.item, row.line)).collect();
            assert_eq!(lines, [(1, 2), (2, 4), (3, 5), (4, 6), (5, 7)], "{text:?}");
            assert_eq!(payment(&rows[0])["currency"], "EUR");
            assert_eq!(payment(&rows[1])["debtorName"], "Anna \"A\"");
            assert_eq!(
                (&payment(&rows[1])["creditorName"], &payment(&rows[1])["amount"]),
                (&json!("B, C"), &Value::Null)
            );
            let short = rows[2].payment.as_ref().unwrap_err();
            assert_eq!(
                (short.payment_id.as_deref(), short.reason.as_str()),
                (Some("c"), "has 2 fields, and the names are 7")
            );
            assert_eq!(payment(&rows[3])["currency"], "EUR");
        }
    }
    let semicolons = format!("\u{feff}{}\nx;A, B;DE;C;NL;1;EUR", NAMES.replace(',', ";"));
    assert_eq!(payment(&read(Format::Csv, &semicolons).unwrap()[0])["debtorName"], "A, B");
}

#[test]
fn names_that_are_wrong_break_a_table() {
    for (names, line, place, what) in [
        ("", 1, None, "there is no row of names"),
        ("paymentId,amout", 1, Some("column amout"), "is not one of"),
        ("\npaymentId,paymentId", 2, Some("column paymentId"), "stands there twice"),
        ("paymentId,debtorName", 1, Some("column debtorIban"), "is missing"),
    ] {
        let broken = read(Format::Csv, names).unwrap_err();
        assert_eq!((broken.line, broken.place.as_deref()), (line, place), "{broken}");
        assert!(broken.what.starts_with(what), "{broken}");
    }
    for swallowed in ["b,\"A", "b,\"A\nc,x,DE,y,NL,1,EUR\nd,\"z\",DE,y,NL,1,EUR"] {
        let broken = read(Format::Csv, &format!("{NAMES}\n\na,x,DE,y,NL,1,EUR\n{swallowed}\n")).unwrap_err();
        assert_eq!((broken.line, broken.what.as_str()), (4, "a quoted field goes on behind the end of its line"));
    }
    let open = format!("{NAMES}\na,\"never closed,{}", "x,\n".repeat(metered::PIECE_BYTES_MAX));
    assert!(read(Format::Csv, &open).unwrap_err().what.contains("bytes"));
}

/// A message of two blocks, the second with one transfer.
fn message(version: &str, transfers: &str) -> String {
    let (day, bic) = match version {
        "03" => ("2026-12-01".to_owned(), "BIC"),
        _ => ("<Dt>2026-12-01</Dt>".to_owned(), "BICFI"),
    };
    let count = transfers.matches("<CdtTrfTxInf>").count();
    format!(
        "<?xml version=\"1.0\" encoding=\"UTF-8\"?>
<Document xmlns=\"urn:iso:std:iso:20022:tech:xsd:pain.001.001.{version}\">
 <CstmrCdtTrfInitn>
  <GrpHdr><MsgId>MSG-1</MsgId><CreDtTm>2026-11-30T10:00:00</CreDtTm><NbOfTxs>{}</NbOfTxs></GrpHdr>
  <PmtInf>
   <PmtInfId>B1</PmtInfId><PmtMtd>TRF</PmtMtd><NbOfTxs>{count}</NbOfTxs>
   <ReqdExctnDt>{day}</ReqdExctnDt>
   <Dbtr><Nm>Anna &amp; S&#246;hne</Nm></Dbtr><DbtrAcct><Id><IBAN>DE89370400440532013000</IBAN></Id></DbtrAcct>
   <DbtrAgt><FinInstnId><{bic}>COBADEFFXXX</{bic}></FinInstnId></DbtrAgt>
{transfers}
  </PmtInf>
  <PmtInf><PmtMtd>CHK</PmtMtd><ReqdExctnDt>{day}</ReqdExctnDt>
   <CdtTrfTxInf><Amt><InstdAmt Ccy=\"EUR\">1</InstdAmt></Amt></CdtTrfTxInf>
  </PmtInf>
 </CstmrCdtTrfInitn>
</Document>",
        count + 1
    )
}

fn transfer(to_end: &str, amount: &str, more: &str) -> String {
    format!(
        "   <CdtTrfTxInf>
    <PmtId><InstrId>i</InstrId><EndToEndId>{to_end}</EndToEndId></PmtId>
    <Amt><InstdAmt Ccy=\"EUR\">{amount}</InstdAmt></Amt>
    <Cdtr><Nm><![CDATA[Bert <B>]]></Nm></Cdtr><CdtrAcct><Id><IBAN>NL91ABNA0417164300</IBAN></Id></CdtrAcct>
    {more}
   </CdtTrfTxInf>\n"
    )
}

#[test]
fn both_versions_of_pain_001() {
    for version in ["03", "09"] {
        let more = "<RmtInf><Ustrd>one</Ustrd><Ustrd>two</Ustrd></RmtInf>";
        let structured = "<RmtInf><Strd><CdtrRefInf><Ref>RF18</Ref></CdtrRefInf></Strd></RmtInf>";
        let text = message(version, &(transfer("e1", "10.50", more) + &transfer("e2", "7", structured)));
        let rows = read(Format::Pain001, &text).unwrap();
        let lines: Vec<(u64, u64)> = rows.iter().map(|row| (row.item, row.line)).collect();
        assert_eq!(lines, [(1, 10), (2, 16), (3, 25)]);
        let expected = json!({
            "paymentId": "MSG-1:1", "debtorName": "Anna & Söhne", "debtorIban": "DE89370400440532013000",
            "debtorBic": "COBADEFFXXX", "creditorName": "Bert <B>", "creditorIban": "NL91ABNA0417164300",
            "amount": "10.50", "currency": "EUR", "requestedTime": "2026-12-01T00:00:00Z", "endToEndId": "e1",
            "remittanceInformation": "one two",
        });
        assert_eq!(payment(&rows[0]), expected, "{version}");
        assert_eq!(payment(&rows[1])["remittanceInformation"], "RF18");
        let cheque = rows[2].payment.as_ref().unwrap_err();
        assert_eq!((cheque.payment_id.as_deref(), cheque.field.as_deref()), (Some("MSG-1:3"), Some("PmtInf/PmtMtd")));
    }
}

#[test]
fn a_day_has_a_time_and_a_place() {
    let at = |text: &str| {
        let clock = Clock { time: Time::constant(16, 0, 0, 0), zone: TimeZone::get("America/Denver").unwrap() };
        let text = message("09", &transfer("e", "1", "")).replace("<Dt>2026-12-01</Dt>", text);
        let rows = read_in(Format::Pain001, text.as_bytes(), 64, &clock).unwrap();
        rows[0].payment.clone().map(|payment| serde_json::from_str::<Value>(&payment).unwrap()["requestedTime"].clone())
    };
    assert_eq!(at("<Dt>2026-12-01</Dt>"), Ok(json!("2026-12-01T23:00:00Z")));
    assert_eq!(at("<DtTm>2026-12-01T10:00:00</DtTm>"), Ok(json!("2026-12-01T17:00:00Z")));
    assert_eq!(at("<DtTm>2026-12-01T10:00:00+01:00</DtTm>"), Ok(json!("2026-12-01T09:00:00Z")));
    for (wrong, element) in [
        ("", "PmtInf/ReqdExctnDt"),
        ("<Dt>2026-13-01</Dt>", "PmtInf/ReqdExctnDt"),
        ("<DtTm>soon</DtTm>", "PmtInf/ReqdExctnDt/DtTm"),
    ] {
        assert_eq!(at(wrong).unwrap_err().field.as_deref(), Some(element), "{wrong}");
    }
}

#[test]
fn what_is_broken_names_its_line_and_element() {
    let good = message("03", &transfer("e", "1", ""));
    let inside = "Document/CstmrCdtTrfInitn/PmtInf/CdtTrfTxInf";
    for (from, to, line, place, what) in [
        ("</Amt>", "</Amount>", 12, format!("{inside}/Amt"), "expected `</Amt>`"),
        ("</PmtId>", "&nbsp;</PmtId>", 11, format!("{inside}/PmtId"), "entity"),
        (
            "Ccy=\"EUR\">1</InstdAmt></Amt>\n    <Cdtr>",
            "Ccy=EUR>1</InstdAmt></Amt>\n    <Cdtr>",
            12,
            format!("{inside}/Amt/InstdAmt"),
            "",
        ),
        (".001.001.03", ".001.001.02", 2, "Document".to_owned(), "is not of pain.001.001.03 or 09"),
        (
            "CstmrCdtTrfInitn>\n  <GrpHdr",
            "CstmrDrctDbtInitn>\n  <GrpHdr",
            3,
            "Document/CstmrDrctDbtInitn".to_owned(),
            "is not an element",
        ),
        ("<MsgId>MSG-1</MsgId>", "", 5, "GrpHdr/MsgId".to_owned(), "is missing"),
        ("<NbOfTxs>2</NbOfTxs></GrpHdr>", "</GrpHdr>", 22, "GrpHdr/NbOfTxs".to_owned(), "is missing"),
        ("<NbOfTxs>2<", "<NbOfTxs>3<", 22, "GrpHdr/NbOfTxs".to_owned(), "is 3, and there are 2 transfers"),
        ("<NbOfTxs>1<", "<NbOfTxs>2<", 17, "PmtInf/NbOfTxs".to_owned(), "is 2, and there are 1 transfers"),
        (
            "</NbOfTxs></GrpHdr>",
            "</NbOfTxs><CtrlSum>2.01</CtrlSum></GrpHdr>",
            22,
            "GrpHdr/CtrlSum".to_owned(),
            "is 2.01, and the amounts come to 2",
        ),
        ("<Document", "<!DOCTYPE a [<!ENTITY b \"c\">]><Document", 2, String::new(), "document type"),
        ("UTF-8", "ISO-8859-1", 1, String::new(), "encoding"),
        ("</Document>", "</Document><Document/>", 22, String::new(), "behind the end"),
        ("</Document>", "", 22, "Document".to_owned(), "breaks off"),
    ] {
        let text = good.replacen(from, to, 1);
        assert_ne!(text, good, "{from}");
        let broken = read(Format::Pain001, &text).unwrap_err();
        assert_eq!((broken.line, broken.place.unwrap_or_default()), (line, place), "{to}: {}", broken.what);
        assert!(broken.what.contains(what), "{to}: {}", broken.what);
    }
    for nothing in ["", " \n", "no markup", "<Document"] {
        assert!(read(Format::Pain001, nothing).is_err(), "{nothing:?}");
    }
    let cut: Vec<usize> = (0..good.len()).step_by(37).collect();
    for end in cut {
        assert!(read(Format::Pain001, &good[..end]).is_err(), "cut off at {end}");
    }
}

#[test]
fn a_message_with_prefixes_and_a_mark_of_its_byte_order_is_one() {
    let text = message("09", &transfer("e", "1", ""));
    let prefixed = text.replace("</", "</p:").replace('<', "<p:").replace("<p:/p:", "</p:").replace("<p:?", "<?");
    let prefixed = prefixed.replace("<p:![CDATA[Bert <p:B>]]>", "Bert &lt;B&gt;").replace("xmlns=", "xmlns:p=");
    let plain = read(Format::Pain001, &text).unwrap();
    assert_eq!(read(Format::Pain001, &format!("\u{feff}{prefixed}")).unwrap(), plain);
}

#[test]
fn nothing_is_held_that_has_no_bound() {
    let piece = metered::PIECE_BYTES_MAX;
    for more in ["x".repeat(piece), "&amp;".repeat(piece), format!("<a{}/>", "b".repeat(piece)), "<a>".repeat(1000)] {
        let text = message("03", &transfer("e", "1", &more));
        let broken = read_in(Format::Pain001, text.as_bytes(), 8192, &clock()).unwrap_err();
        assert_eq!(broken.line, 14, "{}", broken.what);
    }
}

fn said() -> impl Strategy<Value = String> {
    "[a-zA-Zäß€,;\"'<>&\\]\\[ ]{0,20}x"
}

proptest! {
    /// What was written is what is read, wherever the pieces of the file end.
    #[test]
    fn tables_and_messages_are_read_as_they_were_written(
        names in proptest::collection::vec((said(), said()), 1..8),
        capacity in 1_usize..64,
        crlf in any::<bool>(),
    ) {
        let quoted = |text: &str| format!("\"{}\"", text.replace('"', "\"\""));
        let escaped = |text: &str| text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&#62;");
        let end = if crlf { "\r\n" } else { "\n" };
        let mut table = format!("{NAMES}{end}");
        let mut transfers = String::new();
        for (debtor, creditor) in &names {
            table.push_str(&format!("id,{},DE,{},NL,1,EUR{end}", quoted(debtor), quoted(creditor)));
            let cdata = format!("<![CDATA[{}]]>", creditor.replace("]]>", "]] >"));
            let of_creditor = if creditor.contains("]]>") { escaped(creditor) } else { cdata };
            transfers.push_str(&transfer(&escaped(debtor), "1", "").replace("<![CDATA[Bert <B>]]>", &of_creditor));
        }
        let rows = read_in(Format::Csv, table.as_bytes(), capacity, &clock()).unwrap();
        prop_assert_eq!(rows.len(), names.len());
        for (row, (debtor, creditor)) in rows.iter().zip(&names) {
            let payment = payment(row);
            prop_assert_eq!((payment["debtorName"].as_str(), payment["creditorName"].as_str()), (Some(&**debtor), Some(&**creditor)));
        }
        let rows = read_in(Format::Pain001, message("09", &transfers).as_bytes(), capacity, &clock()).unwrap();
        prop_assert_eq!(rows.len(), names.len() + 1);
        for (row, (debtor, creditor)) in rows.iter().zip(&names) {
            let payment = payment(row);
            prop_assert_eq!(payment["endToEndId"].as_str(), Some(debtor.trim()));
            prop_assert_eq!(payment["creditorName"].as_str(), Some(creditor.trim()));
        }
    }

    /// Any bytes get an end.
    #[test]
    fn any_file_is_read_or_broken(bytes in proptest::collection::vec(any::<u8>(), 0..300), capacity in 1_usize..32) {
        for format in [Format::Ndjson, Format::Csv, Format::Pain001] {
            let mut reading = Reading::new(format, BufReader::with_capacity(capacity, &bytes[..]), &clock());
            for _ in 0..400 {
                match reading.next() {
                    Ok(Some(_)) => {}
                    Ok(None) | Err(_) => break,
                }
            }
        }
    }
}
