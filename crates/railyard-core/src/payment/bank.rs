//! How accounts and banks are named: IBAN (ISO 13616) and BIC (ISO 9362).

use std::str::FromStr;

use iban::{IbanLike, ParseBaseIbanError, ParseIbanError};
use iso_currency::Country;

/// An account number whose form, check digits and country are right. Whether there is such an account, only its bank knows.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Iban(String);

impl Iban {
    /// As banks send it, or as it is printed, in groups of four.
    ///
    /// ```
    /// use railyard_core::payment::Iban;
    /// assert_eq!(Iban::parse("DE89 3704 0044 0532 0130 00").unwrap().as_str(), "DE89370400440532013000");
    /// assert_eq!(Iban::parse("DE88370400440532013000").err(), Some("has wrong check digits"));
    /// ```
    ///
    /// # Errors
    /// What is wrong with it, for people.
    pub fn parse(text: &str) -> Result<Self, &'static str> {
        match text.parse::<iban::Iban>() {
            Ok(iban) => Ok(Self(iban.electronic_str().to_owned())),
            Err(ParseIbanError::InvalidBaseIban { source: ParseBaseIbanError::InvalidChecksum }) => {
                Err("has wrong check digits")
            }
            Err(ParseIbanError::InvalidBaseIban { source: ParseBaseIbanError::InvalidFormat }) => {
                Err("is not an IBAN like DE89370400440532013000")
            }
            Err(ParseIbanError::InvalidBban(_)) => Err("is not an IBAN of the form that its country has"),
            Err(ParseIbanError::UnknownCountry(_)) => Err("is of a country that has no IBANs"),
        }
    }

    /// Without spaces.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// Two letters.
    #[must_use]
    pub fn country(&self) -> &str {
        &self.0[..2]
    }
}

/// A bank's code of the right form.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Bic(String);

impl Bic {
    /// Eight or eleven capital letters and digits: bank, country, place, branch.
    ///
    /// # Errors
    /// What is wrong with it, for people.
    pub fn parse(text: &str) -> Result<Self, &'static str> {
        let form = matches!(text.len(), 8 | 11)
            && text.bytes().all(|b| b.is_ascii_uppercase() || b.is_ascii_digit())
            && text[4..6].bytes().all(|b| b.is_ascii_uppercase());
        if !form {
            return Err("is not a BIC like COBADEFFXXX");
        }
        // Kosovo has a code that ISO 3166 only lets its users agree on.
        if &text[4..6] != "XK" && Country::from_str(&text[4..6]).is_err() {
            return Err("is of a country that does not exist");
        }
        Ok(Self(text.to_owned()))
    }

    /// As it was given.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// The bank, whatever the branch: the first eight characters.
    #[must_use]
    pub fn bank(&self) -> &str {
        &self.0[..8]
    }

    /// Two letters.
    #[must_use]
    pub fn country(&self) -> &str {
        &self.0[4..6]
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn ibans() {
        for good in [
            "DE89370400440532013000",
            "GB82WEST12345698765432",
            "NL91ABNA0417164300",
            "MT84 MALT 0110 0001 2345 MTLC AST0 01S",
        ] {
            assert!(Iban::parse(good).is_ok(), "{good}");
        }
        for (bad, why) in [
            ("", "is not an IBAN"),
            ("89370400440532013000", "is not an IBAN"),
            ("DE8937040044053201300\u{660}", "is not an IBAN"),
            ("DE90370400440532013000", "has wrong check digits"),
        ] {
            let said = Iban::parse(bad).err().unwrap_or("nothing");
            assert!(said.starts_with(why), "{bad}: {said}");
        }
    }

    #[test]
    fn bics() {
        for good in ["COBADEFF", "COBADEFFXXX", "DEUTDEFF500", "NCBVXKPR"] {
            assert!(Bic::parse(good).is_ok(), "{good}");
        }
        for bad in
            ["", "COBADEF", "COBADEFFX", "cobadeff", "COBAZZFF", "COBA12FF", "COBADEFF ", "CÖBADEF", "COBADEFFXXXX"]
        {
            assert!(Bic::parse(bad).is_err(), "{bad}");
        }
        let bic = Bic::parse("DEUTDEFF500").unwrap();
        assert_eq!((bic.bank(), bic.country()), ("DEUTDEFF", "DE"));
    }

    proptest! {
        #[test]
        fn one_wrong_digit_is_always_noticed(account in 0_u64..10_000_000_000, place in 12_usize..22, by in 1_u8..10) {
            let bban = format!("37040044{account:010}");
            // ISO 7064: the letters as numbers behind the account, 98 minus the rest by 97.
            let rest = format!("{bban}131400").bytes().fold(0_u64, |rest, digit| (rest * 10 + u64::from(digit - b'0')) % 97);
            let iban = format!("DE{:02}{bban}", 98 - rest);
            prop_assert!(Iban::parse(&iban).is_ok());
            let mut wrong = iban.into_bytes();
            wrong[place] = b'0' + (wrong[place] - b'0' + by) % 10;
            prop_assert!(Iban::parse(std::str::from_utf8(&wrong).unwrap()).is_err());
        }

        #[test]
        fn any_text_gets_an_answer(text in ".{0,40}") {
            let _ = (Iban::parse(&text), Bic::parse(&text));
        }
    }
}
