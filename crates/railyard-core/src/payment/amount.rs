//! Money: whole minor units of a currency (ISO 4217). No floating point touches it.

use std::fmt;

/// Digits of an amount, as ISO 20022 bounds them.
pub const AMOUNT_DIGITS_MAX: usize = 18;

/// A currency that money can be moved in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Currency {
    code: &'static str,
    decimals: u8,
}

impl Currency {
    /// The currency of this code; none if there is no such currency, it has been replaced by another one, or it has no
    /// minor unit (gold, test codes).
    #[must_use]
    pub fn of(code: &str) -> Option<Self> {
        let known = iso_currency::Currency::from_code(code)?;
        if known.is_special() || known.is_superseded().is_some() {
            return None;
        }
        Some(Self { code: known.code(), decimals: known.exponent().and_then(|digits| u8::try_from(digits).ok())? })
    }

    /// Three capital letters.
    #[must_use]
    pub fn code(self) -> &'static str {
        self.code
    }

    /// Digits behind the point: 2 for EUR, 0 for JPY, 3 for BHD.
    #[must_use]
    pub fn decimals(self) -> u8 {
        self.decimals
    }
}

/// An amount above zero.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Amount {
    minor: u64,
    currency: Currency,
}

impl Amount {
    /// From decimal text: digits, and behind a point no more of them than the currency has. Neither sign nor exponent
    /// nor thousands; and no more decimals even if they are zeros, since `1.000` euros may be a thousand to whoever
    /// typed them.
    ///
    /// ```
    /// use railyard_core::payment::{Amount, Currency};
    /// let eur = Currency::of("EUR").unwrap();
    /// assert_eq!(Amount::parse("99.9", eur).unwrap().to_string(), "99.90");
    /// assert!(Amount::parse("99.900", eur).is_err());
    /// ```
    ///
    /// # Errors
    /// What is wrong with it, for people.
    pub fn parse(text: &str, currency: Currency) -> Result<Self, String> {
        let (whole, fraction) = split(text).ok_or("is not a decimal number like 99.90")?;
        let decimals = usize::from(currency.decimals);
        if fraction.len() > decimals {
            return Err(format!("has {} decimals; {} has {decimals}", fraction.len(), currency.code));
        }
        let whole = whole.trim_start_matches('0');
        if whole.len() + decimals > AMOUNT_DIGITS_MAX {
            return Err(format!("has more than {AMOUNT_DIGITS_MAX} digits"));
        }
        match minor_units(whole, fraction, decimals) {
            Some(minor) if minor > 0 => Ok(Self { minor, currency }),
            Some(_) | None => Err("is not above zero".to_owned()),
        }
    }

    /// The largest amount of this currency that is not above a decimal number: what a limit allows. None if the text is
    /// no such number.
    #[must_use]
    pub fn at_most(text: &str, currency: Currency) -> Option<Self> {
        let (whole, fraction) = split(text)?;
        let decimals = usize::from(currency.decimals);
        let fraction = fraction.get(..decimals).unwrap_or(fraction);
        // What is too large for any amount allows every amount.
        let minor = minor_units(whole, fraction, decimals).unwrap_or(u64::MAX);
        Some(Self { minor, currency })
    }

    /// Its currency.
    #[must_use]
    pub fn currency(self) -> Currency {
        self.currency
    }

    /// In minor units: cents of EUR.
    #[must_use]
    pub fn minor(self) -> u64 {
        self.minor
    }

    /// Whether it is more than another one of the same currency.
    #[must_use]
    pub fn exceeds(self, limit: Self) -> bool {
        self.currency == limit.currency && self.minor > limit.minor
    }
}

/// With exactly the currency's decimals, without its code.
impl fmt::Display for Amount {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let decimals = usize::from(self.currency.decimals);
        let digits = format!("{:0width$}", self.minor, width = decimals + 1);
        let (whole, fraction) = digits.split_at(digits.len() - decimals);
        match fraction {
            "" => f.write_str(whole),
            fraction => write!(f, "{whole}.{fraction}"),
        }
    }
}

/// Digits before and behind the point.
fn split(text: &str) -> Option<(&str, &str)> {
    let digits = |part: &str| !part.is_empty() && part.bytes().all(|b| b.is_ascii_digit());
    match text.split_once('.') {
        Some((whole, fraction)) => (digits(whole) && digits(fraction)).then_some((whole, fraction)),
        None => digits(text).then_some((text, "")),
    }
}

/// None if the number is too large. `fraction` has at most `decimals` digits.
fn minor_units(whole: &str, fraction: &str, decimals: usize) -> Option<u64> {
    format!("{whole}{fraction:0<decimals$}").trim_start_matches('0').parse().ok().or_else(|| {
        let nothing = whole.bytes().chain(fraction.bytes()).all(|digit| digit == b'0');
        nothing.then_some(0)
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn parsed(text: &str, code: &str) -> Option<String> {
        Amount::parse(text, Currency::of(code).unwrap()).ok().map(|amount| amount.to_string())
    }

    #[test]
    fn amounts_have_the_decimals_of_their_currency() {
        for (text, code, expect) in [
            ("99.90", "EUR", "99.90"),
            ("99.9", "EUR", "99.90"),
            ("99", "EUR", "99.00"),
            ("0.01", "EUR", "0.01"),
            ("0007.5", "USD", "7.50"),
            ("120", "JPY", "120"),
            ("1.005", "BHD", "1.005"),
            ("9999999999999999.99", "EUR", "9999999999999999.99"),
            ("999999999999999999", "JPY", "999999999999999999"),
        ] {
            assert_eq!(parsed(text, code).as_deref(), Some(expect), "{text} {code}");
        }
        for (text, code) in [
            ("", "EUR"),
            ("0", "EUR"),
            ("0.00", "EUR"),
            ("-1", "EUR"),
            ("+1", "EUR"),
            ("1.", "EUR"),
            (".5", "EUR"),
            ("1e2", "EUR"),
            ("1,50", "EUR"),
            ("1.000", "EUR"),
            ("120.0", "JPY"),
            ("1.2.3", "EUR"),
            ("١", "EUR"),
            (" 1", "EUR"),
            ("NaN", "EUR"),
            ("10000000000000000.00", "EUR"),
            ("1000000000000000000", "JPY"),
            ("99999999999999999999999999999", "JPY"),
        ] {
            assert_eq!(parsed(text, code), None, "{text} {code}");
        }
    }

    #[test]
    fn currencies_that_money_moves_in() {
        for (code, decimals) in [("EUR", 2), ("JPY", 0), ("BHD", 3), ("CLF", 4), ("USD", 2)] {
            assert_eq!(Currency::of(code).map(Currency::decimals), Some(decimals), "{code}");
        }
        for code in ["", "eur", "EURO", "XYZ", "XXX", "XTS", "XAU", "HRK", "BGN"] {
            assert_eq!(Currency::of(code), None, "{code}");
        }
    }

    #[test]
    fn a_limit_is_rounded_down_and_never_too_large() {
        let eur = Currency::of("EUR").unwrap();
        let limit = |text| Amount::at_most(text, eur).unwrap();
        let amount = |text| Amount::parse(text, eur).unwrap();
        assert!(!amount("10.00").exceeds(limit("10.009")) && amount("10.01").exceeds(limit("10.009")));
        assert!(amount("0.01").exceeds(limit("0")) && !amount("0.01").exceeds(limit("0.0100")));
        assert!(!amount("9999999999999999.99").exceeds(limit("1000000000000000000000000")));
        assert_eq!(Amount::at_most("many", eur), None);
    }

    proptest! {
        #[test]
        fn what_is_printed_is_read_as_the_same(minor in 1_u64..1_000_000_000_000_000_000, which in 0_usize..4) {
            let currency = Currency::of(["EUR", "JPY", "BHD", "CLF"][which]).unwrap();
            let amount = Amount { minor, currency };
            let text = amount.to_string();
            prop_assert_eq!(Amount::parse(&text, currency), Ok(amount));
            prop_assert_eq!(Amount::at_most(&text, currency), Some(amount));
            let places = text.split_once('.').map_or(0, |(_, fraction)| fraction.len());
            prop_assert_eq!(places, usize::from(currency.decimals()));
        }

        #[test]
        fn any_text_gets_an_answer(text in ".{0,40}") {
            let _ = Amount::parse(&text, Currency::of("EUR").unwrap());
        }
    }
}
