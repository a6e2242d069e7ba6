"""Payments for one instant: accept them all ahead of it, watch them go out, kill a node twice and throw the switch once on
the way, and judge."""

import argparse
import json
import os
import shutil
import sys
import tempfile
import time
from datetime import datetime, timedelta, timezone

from demo import record
from demo.judge import Bounds, judge
from demo.processes import Gone, Processes
from demo.watch import Receiver, teller, wait_until

from . import feed, figures, receipts, switch
from .stand import Stand

HERE = os.path.dirname(os.path.abspath(__file__))
ROOT = os.path.dirname(os.path.dirname(os.path.dirname(HERE)))
BATCH = 1000
# Nothing moves for so long: a claim of a dispatcher that was killed is stale after a minute, and this is much longer.
STALLED_S = 180
# How long READY is watched while the switch is off, once the cycle that may have been under way is over.
OFF_S, CYCLE_S = 4, 3
# At these shares of the deliveries.
KILLS, SWITCH = (0.2, 0.6), 0.4
# A receiver that runs later than this with half of what it reads says nothing about what came together.
ERROR_MS_MAX = 250


def ahead_s(payments):
    """Until the instant, where nobody says: time to accept at 800 a second, and to start with."""
    return 30 + payments // 800


class Watch:
    """What is seen between acceptance and the end, and what is wrong with it."""

    def __init__(self, stand, receiver, tell, payments, instant):
        self.stand, self.receiver, self.tell, self.payments, self.instant = stand, receiver, tell, payments, instant
        # Each look counts the whole queue, which must not be what the machine is busy with.
        self.every_s = max(0.5, payments / 100_000)
        self.ready = None
        self.grown = 0
        self.most = {"CLAIMED": 0, "DISPATCHED": 0}
        self.problems = []
        self.thrown = None
        self.last = ((0, 0), time.monotonic())

    def look(self, note=""):
        """How many are accepted by the receiver; the queue's figures are kept."""
        time.sleep(self.every_s)
        try:
            report = self.receiver.report()
        except OSError:
            # Too busy to answer: nothing has moved that anybody knows of.
            return self._stalled_or(self.last[0])[0]
        if report["signature_failures"] or report["order_violations"]:
            raise Gone(f"the receiver found fault with a request: {report['samples'][0]}")
        now = figures.statuses(self.stand.database_url)
        ready = now.get("READY", 0)
        if self.ready is not None:
            self.grown += max(0, ready - self.ready)
        self.ready = ready
        for status, most in self.most.items():
            self.most[status] = max(most, now.get(status, 0))
        self.tell.progress(report["accepted"], self.payments, note or f"READY {ready}")
        return self._stalled_or((report["accepted"], ready))[0]

    def _stalled_or(self, state):
        """The state, unless it has been the same for too long."""
        if state != self.last[0] or datetime.now(timezone.utc) < self.instant:
            self.last = (state, time.monotonic())
        elif time.monotonic() - self.last[1] > STALLED_S:
            raise TimeoutError(f"nothing has moved for {STALLED_S} s: {state[0]} delivered, {state[1]} READY")
        return state

    def until(self, share, patience_s):
        least = int(self.payments * share)
        wait_until(lambda: self.look() >= least, self.stand.steady(), patience_s, f"{least} deliveries")

    def kill_one(self):
        node = self.stand.nodes[0]
        node.process.kill()
        self.stand.start(node)
        wait_until(node.ready, [*self.stand.steady(), node.process], 60, "the killed node is back")
        self.tell.say(f"kill -9 to {node.name} with {self.last[0][0]} of {self.payments} delivered; it is back")

    def switch_off_for_a_while(self):
        """READY stays as it is while the switch is off; what the receiver saw meanwhile is judged from its log."""
        self.stand.set_dispatch(enabled=False)
        off_ns = time.monotonic_ns()
        until = time.monotonic() + CYCLE_S
        while time.monotonic() < until:
            self.look("the switch is off")
        held, until = self.ready, time.monotonic() + OFF_S
        while time.monotonic() < until:
            self.look("the switch is off")
            if self.ready != held:
                self.problems.append(f"READY went from {held} to {self.ready} while the switch was off")
                held = self.ready
        self.thrown = switch.Thrown(off_ns, time.monotonic_ns())
        self.stand.set_dispatch(enabled=True)
        self.tell.say(f"the switch was off for {(self.thrown.on_ns - off_ns) / 1e9:.0f} s: {held} stayed READY")

    def through(self, patience_s):
        for share, act in sorted([*((kill, self.kill_one) for kill in KILLS), (SWITCH, self.switch_off_for_a_while)],
                                 key=lambda step: step[0]):
            self.until(share, patience_s)
            act()
        self.until(1, patience_s)
        wait_until(self.is_done, self.stand.steady(), STALLED_S, "the last outcomes on record")

    def is_done(self):
        time.sleep(self.every_s)
        return figures.statuses(self.stand.database_url) == {"COMPLETED": self.payments}


def accept(stand, payments, debtors, instant, tell):
    """Feeds all of them in. (resident kB at a tenth, at the end, seconds)"""
    tenth_kb, began = None, time.monotonic()
    for first in range(0, payments, BATCH):
        numbers = range(first, min(first + BATCH, payments))
        answer = stand.call("POST", "/api/payments/batch", [feed.payment(n, debtors, instant) for n in numbers])
        # SKIPPED: accepted by the same call before, whose answer was lost.
        refused = [result for result in answer["results"] if result["status"] not in ("SUCCESS", "SKIPPED")]
        if refused or len(answer["results"]) != len(numbers):
            raise Gone(f"not all were accepted: {refused[:1]}")
        if tenth_kb is None and numbers.stop * 10 >= payments:
            tenth_kb = stand.resident_kb()
        tell.progress(numbers.stop, payments, "accepted")
    return tenth_kb, stand.resident_kb(), time.monotonic() - began


def reconcile(stand, payments, accepted):
    """Both sides' sums: every payment executed once, and the money is what was asked for."""
    total = sum(feed.cents(n) for n in range(payments))
    found = figures.reconciliation(stand.database_url)
    if found != {"executed": (payments, total)}:
        yield f"the record accounts for {found}; asked for were {payments}, {total} cents"
    taken = sum(feed.cents(feed.number_of(one)) for one in accepted)
    if (len(accepted), taken) != (payments, total):
        yield f"the receiver took {len(accepted)} payments, {taken} cents"
    left = figures.left_over(stand.database_url)
    if left:
        yield f"{left} rows are left of what is executed"


def play(options, tell, processes, folder):
    """(report, problems)"""
    payments, cap = options.payments, options.cap
    debtors = max(1, min(1000, payments // 10))
    stand = Stand(ROOT, options.binary, folder, processes, cap)
    tell.step("A private PostgreSQL, a receiver, three nodes")
    tell.say(stand.start_database())
    target = stand.start_payments_receiver(payments, debtors)
    stand.configure(target)
    tell.say(stand.start_nodes())
    stand.command("rate", "set", "payments", "--max-per-window", str(cap), "--window-size-secs", "1")
    batch = min(cap, 10_000)
    stand.set_dispatch(batchSize=batch, dispatchIntervalSecs=1, jitterWindowMs=0, preStartBufferMins=0,
                       staleClaimThresholdMins=1)
    instant = datetime.now(timezone.utc).replace(microsecond=0) + timedelta(seconds=options.ahead or ahead_s(payments))
    at = instant.strftime("%Y-%m-%dT%H:%M:%SZ")
    tell.step(f"{payments} payments of {debtors} debtors for {at}, never more than {cap} calls in a second")
    forecast = stand.command("rate", "forecast", str(payments), "--name", "payments", "--at", at)
    for line in forecast.splitlines():
        tell.say(line)
    tenth_kb, end_kb, seconds = accept(stand, payments, debtors, at, tell)
    tell.say(f"accepted in {seconds:.0f} s, {payments / seconds:.0f} a second; resident {tenth_kb} kB at a tenth, {end_kb} kB at the end")
    problems = [] if forecast else ["nothing was forecast"]
    if datetime.now(timezone.utc) > instant:
        problems.append("acceptance took longer than until the instant: give more time with --ahead")
    grown = end_kb / tenth_kb
    # A tenth of few payments is a node that has just been started.
    if grown > (1.2 if payments >= 100_000 else 2):
        problems.append(f"resident memory grew to {grown:.2f} of what it was at a tenth")
    watch = Watch(stand, Receiver(target), tell, payments, instant)
    tell.step("They fall due; a node is killed twice, the switch is thrown once")
    try:
        watch.look()
        watch.through(300 + payments // 50)
    except (Gone, TimeoutError) as error:
        problems.append(str(error))
    tell.step("The receiver's log against the database's record")
    url = stand.database_url
    batches, recovered = figures.batches(url), figures.recovered(url)
    put_back = sum(back for _, back in batches)
    largest = max((count for count, _ in batches), default=0)
    if largest > batch:
        problems.append(f"a batch of {largest} was claimed; {batch} is its size")
    if watch.grown > recovered + put_back:
        problems.append(f"READY grew by {watch.grown}; {recovered} stale claims and {put_back} put back explain less")
    stand.nodes[0].process.stop()
    stand.stop_feeding_side()
    figures.analyze(url)
    seen = receipts.read(stand.receipts)
    of_feed = {sys.intern(feed.name(n)): n % debtors for n in range(payments)}
    report, found = judge(of_feed, seen, figures.jobs(url), None, len(stand.nodes), Bounds(stand.lease_s(), 30), stand.limit())
    accepted = {one["instruction"] for one in seen if one["accepted"]}
    problems += [problem for problem in found if not problem.startswith("no node was ended")]
    if seen and report["rate_error_ms"]["p50"] > ERROR_MS_MAX:
        problems.append("the receiver ran so late that its log does not show what came together")
    if watch.thrown is None:
        problems.append("the switch was never thrown")
    else:
        off, found = switch.judge(seen, watch.thrown, cap)
        report.update(off)
        problems += found
    problems += [*watch.problems, *reconcile(stand, payments, accepted)]
    report.update(accepted_per_second=round(payments / seconds), resident_growth=round(grown, 2), batches=len(batches),
                  largest_batch=largest, ready_grown=watch.grown, stale_claims=recovered, put_back=put_back,
                  most_dispatched=watch.most["DISPATCHED"])
    return report, problems


def print_report(report, problems, seconds, tell):
    error_ms = {key: value or 0 for key, value in report["rate_error_ms"].items()}
    for name, value in [
        ("payments", f"{report['messages']} of {report['groups']} debtors, {report['accepted_per_second']} accepted a second"),
        ("resident memory", f"{report['resident_growth']} of that at a tenth, once all were accepted"),
        ("delivered", f"{report['delivered']}, {report['per_second']} a second, kills and switch included"),
        ("lost", report["lost"]),
        ("order violations", report["order_violations"]),
        ("duplicates", f"{report['duplicates_marked']} marked in the record, {report['duplicates_unmarked']} unmarked"),
        ("calls in a second", f"{report['rate_most']} at most, {report['rate_limit']} allowed; measuring error "
                              f"{error_ms['p50']:.0f} ms, at worst {error_ms['max']:.0f} ms, taken off"),
        ("batches", f"{report['batches']}, the largest of {report['largest_batch']}; {report['stale_claims']} stale claims, "
                    f"{report['put_back']} put back, READY grew by {report['ready_grown']}"),
        ("switch", f"off for {report.get('off_s')} s, {report.get('off_started')} started after 400 ms, the last one after "
                   f"{report.get('off_last_ms')} ms; at most {report.get('on_burst')} in {switch.BURST_MS} ms once it was on again"),
        ("handed over at once", f"{report['most_dispatched']} at most"),
        ("whole run", f"{seconds:.0f} s"),
    ]:
        tell.say(f"{name:<20} {value}")
    for problem in problems:
        tell.say(f"FAILED: {problem}")
    if not problems:
        tell.say("everything holds")


def main():
    parser = argparse.ArgumentParser(prog="scripts/drill payments", description="See scripts/drill --help.")
    parser.add_argument("payments", type=int, metavar="N")
    parser.add_argument("--binary", required=True)
    parser.add_argument("--cap", type=int, default=2000, help="calls in any second (default 2000)")
    parser.add_argument("--ahead", type=int, help="seconds from the first payment's acceptance to the instant")
    parser.add_argument("--json", action="store_true", help="the report as one JSON object on the last line")
    parser.add_argument("--keep", action="store_true", help="keep the logs, and say where they are")
    options = parser.parse_args()
    if options.payments < 100:
        parser.error("at least 100 payments: there has to be time for what happens on the way")
    tell, began = teller(options.json), time.monotonic()
    folder = tempfile.mkdtemp(prefix="railyard-drill-")
    # The database's unprivileged user passes through to its own folder.
    os.chmod(folder, 0o711)
    try:
        with Processes() as processes:
            report, problems = play(options, tell, processes, folder)
    except (Gone, TimeoutError, record.Unreadable) as error:
        tell.say(f"FAILED: {error}")
        return 1
    except KeyboardInterrupt:
        return 130
    finally:
        if options.keep:
            tell.say(f"logs: {folder}")
        else:
            shutil.rmtree(folder, ignore_errors=True)
    print_report(report, problems, time.monotonic() - began, tell)
    if options.json:
        print(json.dumps(report))
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
