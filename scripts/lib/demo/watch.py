"""What the receiver says of itself while the run goes on, and what people see of it."""

import json
import sys
import time
import urllib.request

POLL_S = 0.05


class Teller:
    """Steps and progress for people: on one rewritten line in a terminal, else a line for each tenth."""

    def __init__(self, stream):
        self.stream = stream
        self.live = stream.isatty()
        self.shown = -1
        self.open_line = False

    def step(self, text):
        self._end_line()
        print(f"\n== {text}", file=self.stream, flush=True)

    def say(self, text):
        self._end_line()
        print(f"   {text}", file=self.stream, flush=True)

    def progress(self, done, total, note):
        if self.live:
            filled = 40 * done // max(total, 1)
            self.stream.write(f"\r   [{'#' * filled}{'.' * (40 - filled)}] {done}/{total} {note:<28}")
            self.stream.flush()
            self.open_line = True
        elif done * 10 // max(total, 1) != self.shown:
            self.shown = done * 10 // max(total, 1)
            self.say(f"{done:>6} of {total} delivered  {note}")

    def _end_line(self):
        if self.open_line:
            print(file=self.stream)
            self.open_line = False


class Receiver:
    """The running receiver's own report."""

    def __init__(self, url):
        self.report_url = url.rsplit("/", 1)[0] + "/__report"

    def report(self):
        with urllib.request.urlopen(self.report_url, timeout=10) as answer:
            return json.load(answer)


def wait_until(condition, children, timeout_s, what):
    """Polls until `condition()` gives something true, and gives that. A child that ends, or time that runs out, ends it."""
    deadline = time.monotonic() + timeout_s
    while time.monotonic() < deadline:
        found = condition()
        if found:
            return found
        for child in children:
            child.check()
        time.sleep(POLL_S)
    raise TimeoutError(f"{what}: not within {timeout_s} s")


def teller(json_mode):
    """Standard output is for the report alone where a machine reads it."""
    return Teller(sys.stderr if json_mode else sys.stdout)
