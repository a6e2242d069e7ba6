//! Sums of amounts, exact: control sums add amounts up whatever their currencies.

use std::fmt;

/// Digits behind the point that are kept: more than any currency has.
const PLACES: usize = 6;
const SCALE: i128 = 1_000_000;

/// A sum.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Decimal(i128);

impl Decimal {
    fn parse(text: &str) -> Option<Self> {
        let (whole, fraction) = text.split_once('.').unwrap_or((text, ""));
        let digits = |part: &str| part.bytes().all(|b| b.is_ascii_digit());
        let fraction = fraction.trim_end_matches('0');
        let some = !whole.is_empty() || !fraction.is_empty();
        if !some || !digits(whole) || !digits(fraction) || whole.len() > 24 || fraction.len() > PLACES {
            return None;
        }
        format!("{whole}{fraction:0<PLACES$}").parse().ok().map(Self)
    }

    /// Adds an amount. One that is none is refused elsewhere, and adds nothing.
    pub(super) fn add(&mut self, amount: &str) {
        if let Some(amount) = Self::parse(amount) {
            self.0 = self.0.saturating_add(amount.0);
        }
    }

    /// Whether it is this number.
    pub(super) fn is(self, text: &str) -> bool {
        Self::parse(text) == Some(self)
    }
}

impl fmt::Display for Decimal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let fraction = format!("{:0PLACES$}", self.0 % SCALE);
        match fraction.trim_end_matches('0') {
            "" => write!(f, "{}", self.0 / SCALE),
            fraction => write!(f, "{}.{fraction}", self.0 / SCALE),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tenths_add_up() {
        let mut sum = Decimal::default();
        for amount in ["0.1", "0.2", "999999999999999999", "0.00005", "nothing", "-1", "."] {
            sum.add(amount);
        }
        assert_eq!(sum.to_string(), "999999999999999999.30005");
        assert!(sum.is("999999999999999999.300050") && sum.is("0999999999999999999.30005"));
        assert!(!sum.is("999999999999999999.3") && !sum.is("") && !sum.is("1e3"));
        assert_eq!(Decimal::default().to_string(), "0");
        assert!(Decimal::default().is("0.00"));
    }
}
