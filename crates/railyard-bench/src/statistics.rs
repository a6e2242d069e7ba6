//! Medians and what else is made of single values. Pure.

/// The middle value, or the mean of the two in the middle; 0 of none.
pub(crate) fn median(values: &[f64]) -> f64 {
    let sorted = sorted(values);
    let middle = sorted.len() / 2;
    match sorted.len() {
        0 => 0.0,
        odd if odd % 2 == 1 => sorted[middle],
        _ => f64::midpoint(sorted[middle - 1], sorted[middle]),
    }
}

/// How far apart the values are: (max − min) ÷ median; 0 if there is no median to divide by.
pub(crate) fn spread(values: &[f64]) -> f64 {
    let sorted = sorted(values);
    match (sorted.first(), sorted.last()) {
        (Some(min), Some(max)) => ratio(max - min, median(values)),
        _ => 0.0,
    }
}

/// `part ÷ whole`, and 0 where there is nothing to divide by.
pub(crate) fn ratio(part: f64, whole: f64) -> f64 {
    if whole.abs() < f64::EPSILON { 0.0 } else { part / whole }
}

/// The smallest value that `percent` of all values do not exceed; 0 of none.
pub(crate) fn percentile(values: &[f64], percent: usize) -> f64 {
    let sorted = sorted(values);
    let rank = (sorted.len() * percent).div_ceil(100).max(1);
    sorted.get(rank - 1).copied().unwrap_or(0.0)
}

/// What two steps in a row allow, if each alone allows so many per second: 1 ÷ (1/a + 1/b).
pub(crate) fn in_a_row(a_per_second: f64, b_per_second: f64) -> f64 {
    ratio(1.0, ratio(1.0, a_per_second) + ratio(1.0, b_per_second))
}

fn sorted(values: &[f64]) -> Vec<f64> {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    sorted
}

#[cfg(test)]
mod tests {
    use super::*;

    fn close(a: f64, b: f64) -> bool {
        (a - b).abs() < 1e-9
    }

    #[test]
    fn the_median_is_in_the_middle() {
        assert!(close(median(&[]), 0.0));
        assert!(close(median(&[3.0, 1.0, 2.0]), 2.0));
        assert!(close(median(&[4.0, 1.0, 2.0, 3.0]), 2.5));
    }

    #[test]
    fn the_spread_is_relative() {
        assert!(close(spread(&[90.0, 100.0, 120.0]), 0.3));
        assert!(close(spread(&[5.0]), 0.0));
        assert!(close(spread(&[]), 0.0));
        assert!(close(spread(&[0.0, 0.0]), 0.0));
    }

    #[test]
    fn percentiles_are_values_that_occurred() {
        let values: Vec<f64> = (1..=200).map(f64::from).collect();
        assert!(close(percentile(&values, 50), 100.0));
        assert!(close(percentile(&values, 99), 198.0));
        assert!(close(percentile(&values, 100), 200.0));
        assert!(close(percentile(&[7.0], 1), 7.0));
        assert!(close(percentile(&[], 50), 0.0));
    }

    #[test]
    fn two_steps_in_a_row_take_the_sum_of_their_times() {
        assert!(close(in_a_row(100.0, 100.0), 50.0));
        assert!(close(in_a_row(100.0, 25.0), 20.0));
    }

    #[test]
    fn nothing_is_divided_by_nothing() {
        assert!(close(ratio(1.0, 0.0), 0.0));
        assert!(close(ratio(1.0, 4.0), 0.25));
    }
}
