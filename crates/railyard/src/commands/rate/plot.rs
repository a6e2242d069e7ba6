//! A plot that a terminal shows: a line a time, as long as what has been started by then.

/// One bar a line: at most `lines` of the points, the last one always among them, the largest `width` characters long.
pub(super) fn bars(points: &[(String, u64)], lines: usize, width: usize) -> Vec<String> {
    let lines = lines.max(1);
    let largest = points.iter().map(|(_, value)| *value).max().unwrap_or_default().max(1);
    let every = points.len().div_ceil(lines).max(1);
    // Counted from the end, so that the last one is shown.
    let shown = points.iter().rev().step_by(every).collect::<Vec<_>>().into_iter().rev();
    let digits = largest.to_string().len();
    shown
        .map(|(at, value)| {
            let length = usize::try_from(u128::from(*value) * width as u128 / u128::from(largest)).unwrap_or(width);
            format!("{at}  {value:>digits$}  {}", "█".repeat(length.max(1)))
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::bars;

    #[test]
    fn the_last_point_is_shown_at_full_length() {
        let points: Vec<_> = (1..=100).map(|n| (format!("t{n}"), n)).collect();
        let lines = bars(&points, 20, 50);
        assert_eq!(lines.len(), 20);
        assert_eq!(lines[0], "t5    5  ██");
        assert_eq!(lines[19], format!("t100  100  {}", "█".repeat(50)));
        assert_eq!(bars(&points[..1], 20, 4), ["t1  1  ████"]);
        assert!(bars(&[], 20, 50).is_empty());
    }
}
