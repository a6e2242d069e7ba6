//! Order and concurrency within groups, judged by when requests came and when their answers were out.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use crate::Receipt;

/// A client that gave up is noticed by the end of its connection, which may reach the receiver with, or just after,
/// the first byte of its next try; nothing is known about when it really ended.
const ABORT_SLACK: Duration = Duration::from_millis(50);

/// Ordered requests by group; those without a group or a sequence number have no order.
fn by_group(receipts: &[Receipt]) -> BTreeMap<&str, Vec<&Receipt>> {
    let mut groups: BTreeMap<&str, Vec<&Receipt>> = BTreeMap::new();
    for receipt in receipts {
        if let (Some(group), Some(_)) = (receipt.group(), receipt.sequence()) {
            groups.entry(group).or_default().push(receipt);
        }
    }
    groups
}

/// A request for message n of a group after one for a later message: n was not ended when the later was begun, or it
/// was overtaken. `receipts` in the order in which they came.
pub fn order_violations(receipts: &[Receipt]) -> Vec<String> {
    let mut offences = Vec::new();
    for requests in by_group(receipts).values() {
        let mut furthest = requests[0];
        for request in requests {
            if request.sequence() < furthest.sequence() {
                offences.push(format!("{} came after {}", request.line(), furthest.line()));
            } else {
                furthest = request;
            }
        }
    }
    offences
}

/// Two requests of a group of which the second began before the first was answered.
pub fn overlaps(receipts: &[Receipt]) -> Vec<String> {
    let mut offences = Vec::new();
    for requests in by_group(receipts).values() {
        let mut requests = requests.clone();
        requests.sort_by_key(|request| request.first_byte_at);
        let mut open = requests[0];
        for request in &requests[1..] {
            if end(open).is_none_or(|end| request.first_byte_at < end) {
                offences.push(format!("{} began before the end of {}", request.line(), open.line()));
            }
            // The one that ends last is what the next must wait for; one that never ended stays.
            let later = match (end(open), end(request)) {
                (Some(open), Some(other)) => other > open,
                (Some(_), None) => true,
                (None, _) => false,
            };
            if later {
                open = request;
            }
        }
    }
    offences
}

/// The largest number of requests of one group that were open at once; 0 if there was none.
pub fn max_concurrent_per_group(receipts: &[Receipt]) -> usize {
    let mut max = 0;
    for requests in by_group(receipts).values() {
        let mut edges: Vec<(Instant, bool)> = Vec::new();
        let mut for_ever = 0;
        for request in requests {
            edges.push((request.first_byte_at, true));
            match end(request) {
                Some(end) => edges.push((end.max(request.first_byte_at), false)),
                None => for_ever += 1,
            }
        }
        // At the same instant the end comes first (false before true).
        edges.sort_unstable();
        let mut open = 0_usize;
        for (_, begins) in edges {
            open = if begins { open + 1 } else { open.saturating_sub(1) };
            max = max.max(open);
        }
        max = max.max(for_ever.min(requests.len()));
    }
    max
}

fn end(request: &Receipt) -> Option<Instant> {
    let end = request.finished_at?;
    Some(if request.client_aborted { end.checked_sub(ABORT_SLACK).unwrap_or(end) } else { end })
}

#[cfg(test)]
mod tests {
    use std::time::SystemTime;

    use bytes::Bytes;

    use super::*;
    use crate::Reply;
    use crate::verify::{NONE, attempt_violations, resent_after_acceptance};

    /// "g2.1": group g, sequence 2, attempt 1; open from `from` to `to` milliseconds.
    fn request(start: Instant, text: &str, from: u64, to: u64) -> Receipt {
        let (group, rest) = text.split_at(1);
        let (sequence, attempt) = rest.split_once('.').expect("g2.1");
        let headers = [
            ("X-Railyard-Group", group),
            ("X-Railyard-Sequence", sequence),
            ("X-Railyard-Attempt", attempt),
            ("Idempotency-Key", &format!("{group}{sequence}")),
        ];
        Receipt {
            index: 0,
            connection: 0,
            first_byte_at: start + Duration::from_millis(from),
            complete_at: Some(start + Duration::from_millis(from)),
            #[expect(clippy::disallowed_methods, reason = "not looked at here")]
            clock: SystemTime::now(),
            head: Bytes::new(),
            method: "POST".into(),
            path: "/".into(),
            headers: headers.map(|(name, value)| (name.to_owned(), value.to_owned())).to_vec().into(),
            body: Bytes::new(),
            reply: Some(Reply::status(200)),
            finished_at: Some(start + Duration::from_millis(to)),
            client_aborted: false,
        }
    }

    fn run(requests: &[(&str, u64, u64)]) -> Vec<Receipt> {
        let start = Instant::now();
        requests.iter().map(|(text, from, to)| request(start, text, *from, *to)).collect()
    }

    #[test]
    fn an_orderly_run_is_clean() {
        let run = run(&[("a1.1", 0, 5), ("b1.1", 1, 9), ("a1.2", 5, 6), ("a2.1", 7, 8), ("b2.1", 10, 11)]);
        assert_eq!(order_violations(&run), NONE);
        assert_eq!(overlaps(&run), NONE);
        assert_eq!(attempt_violations(&run), NONE);
        assert_eq!(max_concurrent_per_group(&run), 1);
    }

    #[test]
    fn a_message_after_a_later_one_is_an_offence() {
        let run = run(&[("a1.1", 0, 1), ("a2.1", 2, 3), ("a1.2", 4, 5), ("a3.1", 6, 7)]);
        assert_eq!(order_violations(&run).len(), 1);
    }

    #[test]
    fn two_at_once_are_an_overlap_also_behind_a_short_one() {
        let run = run(&[("a1.1", 0, 100), ("a2.1", 10, 20), ("a3.1", 30, 40)]);
        assert_eq!(overlaps(&run).len(), 2);
        assert_eq!(max_concurrent_per_group(&run), 2);
    }

    #[test]
    fn an_answer_that_never_ended_overlaps_what_follows() {
        let mut run = run(&[("a1.1", 0, 1), ("a2.1", 10, 20)]);
        run[0].finished_at = None;
        assert_eq!(overlaps(&run).len(), 1);
        assert_eq!(max_concurrent_per_group(&run), 2);
    }

    #[test]
    fn the_same_attempt_twice_is_an_offence_and_a_second_attempt_a_duplicate() {
        let run = run(&[("a1.1", 0, 1), ("a1.1", 2, 3), ("a1.2", 4, 5)]);
        assert_eq!(attempt_violations(&run).len(), 1);
        let resent = resent_after_acceptance(&run);
        assert_eq!((resent.len(), resent[0].after_acceptance().len()), (1, 2));
    }
}
