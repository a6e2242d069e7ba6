"""The verdict over made-up logs and records: what it counts, and what makes a run fail."""

import unittest

from demo.judge import Bounds, Death, Job, judge
from demo.rate import Limit, errors_ms, surely_together

MS = 1_000_000
FEED = {"a": "g1", "b": "g1", "c": "g2"}


def receipt(instruction, at_ms, attempt, answer, **other):
    out = {"instruction": instruction, "group": FEED[instruction], "at_ms": at_ms, "attempt": attempt, "answer": answer,
           "first_ns": at_ms * MS, "since_ns": (at_ms - 1) * MS, "accepted": answer == 200, "job": f"job-{instruction}", "receipt": attempt, "order": [], "faults": []}
    return {**out, **other}


def completed(instruction, *attempts):
    job = Job(f"job-{instruction}", 0, "COMPLETED")
    job.attempts = {n: attempt for n, attempt in enumerate(attempts, start=1)}
    return job


DONE = ("DISPATCHED", None)


class JudgeTest(unittest.TestCase):
    def run_with(self, middle, attempts, how="SIGKILL", seen_ms=26, last_ms=190, limit=None):
        """`middle`: the receipts of b; `attempts`: its record. A node ended at 25, with a call of g1 in flight; c, of g2,
        came at `last_ms`."""
        receipts = [receipt("a", 10, 1, 200), *middle, receipt("c", last_ms, 1, 200)]
        jobs = {"a": completed("a", DONE), "b": completed("b", *attempts), "c": completed("c", DONE)}
        return judge(FEED, receipts, jobs, Death(how, 25, seen_ms, {"g1"}, {"g2"}), 3, Bounds(3, 5), limit or Limit(100, 1000))

    def test_a_clean_run_with_a_retry(self):
        report, problems = self.run_with([receipt("b", 20, 1, 503), receipt("b", 140, 2, 200)],
                                         [("RETRYABLE", "HTTP_503"), DONE])
        self.assertEqual(problems, [])
        self.assertEqual((report["delivered"], report["retries"]), (3, 1))
        self.assertEqual((report["takeover_ms"], report["idle_takeover_ms"]), (115, 165))
        self.assertEqual((report["duplicates_marked"], report["duplicates_unmarked"]), (0, 0))

    def test_a_repeat_after_the_kill_is_marked_by_its_zombie(self):
        cut = receipt("b", 20, 1, "cut", accepted=True)
        report, problems = self.run_with([cut, receipt("b", 60, 2, 200)], [("ZOMBIE_REQUEUE", None), DONE])
        self.assertEqual((report["duplicates_marked"], problems), (1, []))

    def test_a_repeat_after_a_lost_answer_is_marked(self):
        reset = receipt("b", 20, 1, "reset", accepted=True)
        report, problems = self.run_with([reset, receipt("b", 60, 2, 200)], [("RETRYABLE", "CONNECTION_RESET"), DONE])
        self.assertEqual((report["duplicates_marked"], problems), (1, []))

    def test_what_the_dead_node_had_sent_is_no_takeover(self):
        report, _ = self.run_with([receipt("b", 27, 1, 503), receipt("b", 150, 2, 200)], [("RETRYABLE", "HTTP_503"), DONE])
        self.assertEqual(report["takeover_ms"], 125)

    def test_a_repeat_that_nothing_explains_fails_the_run(self):
        report, problems = self.run_with([receipt("b", 20, 1, 200), receipt("b", 60, 2, 200)],
                                         [("RETRYABLE", "HTTP_500"), DONE])
        self.assertEqual(report["duplicates_unmarked"], 1)
        self.assertTrue(problems)

    def test_a_receipt_without_an_attempt_on_record_fails_the_run(self):
        _, problems = self.run_with([receipt("b", 20, 1, 503), receipt("b", 40, 2, 200)], [("RETRYABLE", "HTTP_503")])
        self.assertIn("received but not on record", problems[0])

    def test_completed_on_record_and_never_received_is_lost(self):
        report, problems = self.run_with([], [DONE])
        self.assertEqual((report["lost"], report["delivered"]), (1, 2))
        self.assertIn("completed on record, never taken by the receiver: ['b']", problems)

    def test_a_run_without_an_end_is_no_success(self):
        receipts = [receipt(i, 10 + n, 1, 200) for n, i in enumerate(FEED)]
        _, problems = judge(FEED, receipts, {i: completed(i, DONE) for i in FEED}, None, 3, Bounds(3, 5), Limit(100, 1000))
        self.assertIn("no node was ended", problems[0])

    def test_a_takeover_that_takes_too_long_fails_the_run(self):
        late = [receipt("b", 20, 1, 503), receipt("b", 10_026, 2, 200)]
        for how, last_ms, expected in (
            ("SIGKILL", 5_025, ["takeover_ms is 10001, more than 10000"]),
            ("SIGKILL", 5_026, ["takeover_ms is 10001, more than 10000", "idle_takeover_ms is 5001, more than 5000"]),
            ("SIGTERM", 1_026, ["takeover_ms is 10001, more than 10000", "idle_takeover_ms is 1001, more than 1000"]),
        ):
            _, problems = self.run_with(late, [("RETRYABLE", "HTTP_503"), DONE], how, last_ms=last_ms)
            self.assertEqual(problems, expected)

    def test_what_a_node_sent_before_it_was_asked_to_end_did_not_wait(self):
        report, problems = self.run_with([receipt("b", 100, 1, 200)], [DONE], "SIGTERM", seen_ms=12, last_ms=22)
        self.assertEqual((report["idle_takeover_ms"], problems), (None, []))

    def test_one_call_too_many_in_a_second_fails_the_run(self):
        retry = [receipt("b", 20, 1, 503), receipt("b", 140, 2, 200)]
        attempts = [("RETRYABLE", "HTTP_503"), DONE]
        report, problems = self.run_with(retry, attempts, limit=Limit(4, 1000))
        self.assertEqual((report["rate_violations"], report["rate_most"], problems), (0, 4, []))
        report, problems = self.run_with(retry, attempts, limit=Limit(3, 1000))
        self.assertEqual((report["rate_violations"], problems), (1, ["rate_violations is 1"]))


def read_at(ms, late_ms=1):
    return {"first_ns": ms * MS, "since_ns": (ms - late_ms) * MS}


class RateTest(unittest.TestCase):
    def test_windows_begin_anywhere(self):
        self.assertEqual(surely_together([read_at(at) for at in (1800, 0, 900, 1100)], 1000), [2, 3, 2, 1])

    def test_a_window_is_over_after_a_second(self):
        self.assertEqual(surely_together([read_at(0, 0), read_at(1000)], 1000), [1, 1])
        self.assertEqual(surely_together([read_at(0, 0), read_at(999)], 1000), [2, 1])

    def test_a_receiver_that_ran_late_accuses_nobody(self):
        """The first may have come 30 ms before it was read; how late the last was read changes nothing."""
        self.assertEqual(surely_together([read_at(100, 30), read_at(1075)], 1000), [1, 1])
        self.assertEqual(surely_together([read_at(100, 20), read_at(1075, 30)], 1000), [2, 1])
        self.assertEqual(surely_together([read_at(5000, 4000), read_at(5001, 4000)], 1000), [1, 1])
        self.assertEqual(errors_ms([read_at(100, 30), read_at(1075)]), [1, 30])

    def test_nothing_came(self):
        self.assertEqual((surely_together([], 1000), errors_ms([])), ([], []))


if __name__ == "__main__":
    unittest.main()
