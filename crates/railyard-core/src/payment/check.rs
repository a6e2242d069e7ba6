//! What is checked before money moves: amount, currency and destination (S2).
//!
//! The amount is decided on its decimal text. No floating point touches it: `0.1` is not a binary fraction, and
//! `1e-400` is more than zero although every float says otherwise. The payload itself stays as it is; these checks
//! only read it.

use crate::error_code::ErrorCode;
use crate::json_fields::{Field, Fields, string_of};

const NAMES: &[&str] = &["amount", "currency", "destination"];

/// Why a payment is never sent.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refusal {
    /// `INVALID_PAYLOAD`, `INVALID_AMOUNT`, `INVALID_CURRENCY` or `INVALID_DESTINATION`.
    pub code: ErrorCode,
    /// For people. Repeats nothing of the payload.
    pub detail: &'static str,
}

/// Checks a payment's payload.
///
/// ```
/// use railyard_core::payment::check;
/// assert!(check(br#"{"amount":"99.90","currency":"EUR","destination":"DE89370400440532013000"}"#).is_ok());
/// assert!(check(br#"{"amount":0.00,"currency":"EUR","destination":"DE89370400440532013000"}"#).is_err());
/// ```
///
/// # Errors
/// The first check that fails, in the order object, amount, currency, destination.
pub fn check(payload: &[u8]) -> Result<(), Refusal> {
    let refuse = |code, detail| Err(Refusal { code, detail });
    let fields = Fields::read(payload, NAMES);
    if !fields.complete {
        return refuse(ErrorCode::InvalidPayload, "payload is not one JSON object in UTF-8");
    }
    // Which of two amounts is meant? Parsers differ, so ours and the bank's might.
    if NAMES.iter().any(|name| fields.get(name) == Field::Repeated) {
        return refuse(ErrorCode::InvalidPayload, "amount, currency or destination stands there more than once");
    }
    if !fields.get("amount").once().is_some_and(amount_is_positive) {
        return refuse(ErrorCode::InvalidAmount, "amount is not a decimal above zero");
    }
    let currency = fields.get("currency").string();
    if !currency.is_some_and(|text| text.len() == 3 && text.bytes().all(|b| b.is_ascii_uppercase())) {
        return refuse(ErrorCode::InvalidCurrency, "currency is not three capital letters");
    }
    if !fields.get("destination").once().is_some_and(destination_is_named) {
        return refuse(ErrorCode::InvalidDestination, "destination is blank");
    }
    Ok(())
}

/// A JSON number, or a string with one in it.
fn amount_is_positive(json: &str) -> bool {
    if json.starts_with('"') {
        string_of(json).is_some_and(|text| decimal_is_positive(&text))
    } else {
        decimal_is_positive(json)
    }
}

/// `digits`, `digits.digits`, either with an exponent, and a digit other than zero before it. The exponent moves the
/// point and cannot make anything of nothing. No sign is taken: a minus is a refusal anyway.
fn decimal_is_positive(text: &str) -> bool {
    let (mantissa, exponent) = match text.split_once(['e', 'E']) {
        Some((mantissa, exponent)) => (mantissa, Some(exponent)),
        None => (text, None),
    };
    let (whole, fraction) = match mantissa.split_once('.') {
        Some((whole, fraction)) => (whole, Some(fraction)),
        None => (mantissa, None),
    };
    let digits = |part: &str| !part.is_empty() && part.bytes().all(|b| b.is_ascii_digit());
    let well_formed = digits(whole)
        && fraction.is_none_or(digits)
        && exponent.is_none_or(|part| digits(part.strip_prefix(['+', '-']).unwrap_or(part)));
    well_formed && mantissa.bytes().any(|b| matches!(b, b'1'..=b'9'))
}

/// A string with something to see in it, or an object with something in it (an account and its bank).
fn destination_is_named(json: &str) -> bool {
    match json.as_bytes().first() {
        Some(b'"') => string_of(json).is_some_and(|text| text.chars().any(is_visible)),
        Some(b'{') => json[1..].trim_start() != "}",
        Some(_) | None => false,
    }
}

/// Neither space nor control character, nor one of those that take no room on paper.
fn is_visible(c: char) -> bool {
    let invisible = matches!(c, '\u{ad}' | '\u{200b}'..='\u{200f}' | '\u{2060}'..='\u{2064}' | '\u{feff}' | '\u{3164}');
    !(c.is_whitespace() || c.is_control() || invisible)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn code(payload: &str) -> Option<ErrorCode> {
        check(payload.as_bytes()).err().map(|refusal| refusal.code)
    }

    fn with_amount(amount: &str) -> Option<ErrorCode> {
        code(&format!(r#"{{"amount":{amount},"currency":"EUR","destination":"x"}}"#))
    }

    #[test]
    fn s2_13_amounts() {
        for good in [
            "1",
            "0.01",
            "\"0.01\"",
            "1e2",
            "1E-2",
            "1e-400",
            "1e999999999999",
            "\"1.5e+3\"",
            "\"0007.00\"",
            "12345678901234567890.000",
            "\"\\u0031\"",
            "0.00000000000000000000000000000000000000000001",
        ] {
            assert_eq!(with_amount(good), None, "{good}");
        }
        for bad in [
            "0",
            "0.00",
            "\"0.00\"",
            "0e5",
            "-1",
            "\"-1\"",
            "-0",
            "\"\"",
            "\"+1\"",
            "\" 1\"",
            "\"1,5\"",
            "\"1.\"",
            "\".5\"",
            "\"1e\"",
            "\"NaN\"",
            "\"Infinity\"",
            "\"0x10\"",
            "\"١\"",
            "\"1.2.3\"",
            "null",
            "true",
            "[1]",
            "{\"value\":1}",
            "\"\\ud800\"",
        ] {
            assert_eq!(with_amount(bad), Some(ErrorCode::InvalidAmount), "{bad}");
        }
        assert_eq!(code(r#"{"currency":"EUR","destination":"x"}"#), Some(ErrorCode::InvalidAmount));
    }

    #[test]
    fn s2_13_currencies() {
        let with = |currency: &str| code(&format!(r#"{{"amount":1,"currency":{currency},"destination":"x"}}"#));
        assert_eq!(with("\"CHF\""), None);
        for bad in ["\"eur\"", "\"EU\"", "\"EURO\"", "\"\"", "\"ÉUR\"", "\"E R\"", "978", "null", "[\"EUR\"]"] {
            assert_eq!(with(bad), Some(ErrorCode::InvalidCurrency), "{bad}");
        }
    }

    #[test]
    fn s2_13_destinations() {
        let with = |destination: &str| code(&format!(r#"{{"amount":1,"currency":"EUR","destination":{destination}}}"#));
        for good in ["\"DE89\"", "\" x \"", "{\"iban\":\"DE89\"}"] {
            assert_eq!(with(good), None, "{good}");
        }
        for bad in ["\"\"", "\"  \"", "\"\\t\\n\"", "\"\\u0000\"", "\"\\u200b\\ufeff\"", "{}", "{ }", "[]", "null", "7"]
        {
            assert_eq!(with(bad), Some(ErrorCode::InvalidDestination), "{bad}");
        }
    }

    #[test]
    fn what_is_not_one_object_or_says_it_twice_is_refused() {
        let good = r#"{"amount":1,"currency":"EUR","destination":"x"}"#;
        for bad in [
            String::new(),
            "[1]".into(),
            format!("{good}{good}"),
            format!("\u{feff}{good}"),
            r#"{"amount":1,"amount":1,"currency":"EUR","destination":"x"}"#.into(),
            r#"{"amount":1,"currency":"EUR","destination":"x","\u0061mount":-5}"#.into(),
        ] {
            assert_eq!(code(&bad), Some(ErrorCode::InvalidPayload), "{bad}");
        }
        assert_eq!(
            check(b"{\"amount\":1,\"currency\":\"EUR\",\"destination\":\"\xff\"}").unwrap_err().code,
            ErrorCode::InvalidPayload
        );
        // Fields that are none of our business may hold anything, and hold it twice.
        let deep = format!("{}{}", "[".repeat(10_000), "]".repeat(10_000));
        let odd =
            r#"{"amount":1,"a":"\ud800","a":2,"deep":DEEP,"currency":"EUR","destination":"x"}"#.replace("DEEP", &deep);
        assert_eq!(code(&odd), None);
    }

    proptest! {
        #[test]
        fn positive_exactly_when_a_digit_of_the_mantissa_is(whole in "[0-9]{1,30}", fraction in "[0-9]{1,30}", e in -99_i32..99) {
            let expect = whole.bytes().chain(fraction.bytes()).any(|b| b != b'0');
            let text = format!("{whole}.{fraction}e{e}");
            prop_assert_eq!(decimal_is_positive(&text), expect);
            let negative = format!("-{text}");
            prop_assert!(!decimal_is_positive(&negative));
        }

        #[test]
        fn any_bytes_get_an_answer(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
            let _ = check(&bytes);
        }
    }
}
