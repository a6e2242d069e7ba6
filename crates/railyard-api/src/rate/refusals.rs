//! What these operations refuse in words of their own.

use crate::problem::Problem;
use railyard_store::rate::RateError;

impl From<RateError> for Problem {
    fn from(error: RateError) -> Self {
        match error {
            RateError::Store(error) => error.into(),
            RateError::UnknownConfig { .. } => Self::not_found(error.to_string()),
            RateError::Exhausted { .. } => Self::no_slot(error.to_string()),
        }
    }
}
