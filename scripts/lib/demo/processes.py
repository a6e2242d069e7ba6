"""Child processes that don't outlive the demo: each leads a process group, is told by the kernel when its parent dies,
and is ended in reverse order of start, politely first."""

import ctypes
import os
import signal
import subprocess
import threading
import time

GRACE_S = 10
PR_SET_PDEATHSIG = 1
_libc = ctypes.CDLL(None, use_errno=True)


class Gone(Exception):
    """A child ended that should have gone on. The text names it and quotes its last words."""


def _die_with_parent():
    _libc.prctl(PR_SET_PDEATHSIG, signal.SIGTERM)


class Child:
    """One running program; its output goes to a file, of which the end is shown if it fails."""

    def __init__(self, name, command, log_path, env=None):
        self.name = name
        self.log_path = log_path
        with open(log_path, "ab") as log:
            self.process = subprocess.Popen(
                command, stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True, env=env,
                preexec_fn=_die_with_parent)

    @property
    def pid(self):
        return self.process.pid

    def running(self):
        return self.process.poll() is None

    def check(self):
        """Raises Gone if it is no longer running."""
        if not self.running():
            raise Gone(f"{self.name} ended with status {self.process.returncode}:\n{self.tail()}")

    def check_success(self):
        """Raises Gone if it ended with anything but 0."""
        if self.process.returncode != 0:
            raise Gone(f"{self.name} ended with status {self.process.returncode}:\n{self.tail()}")

    def tail(self, lines=15):
        with open(self.log_path, "rb") as log:
            return b"\n".join(log.read().splitlines()[-lines:]).decode("utf-8", "replace")

    def line_with(self, prefix, timeout_s):
        """What follows `prefix` on the first line that begins with it; waits for it."""
        deadline = time.monotonic() + timeout_s
        while time.monotonic() < deadline:
            with open(self.log_path, encoding="utf-8", errors="replace") as log:
                for line in log:
                    if line.startswith(prefix) and line.endswith("\n"):
                        return line[len(prefix):].strip()
            self.check()
            time.sleep(0.02)
        raise Gone(f"{self.name} did not print {prefix!r} within {timeout_s} s:\n{self.tail()}")

    def kill(self):
        """kill -9, of the process alone: nobody gets to clean up for it."""
        self.process.kill()
        self.process.wait()

    def term(self):
        """SIGTERM, and no wait."""
        self.process.terminate()

    def stop(self):
        """SIGTERM, a grace period, then SIGKILL for the whole group."""
        if self.running():
            self.process.terminate()
            try:
                self.process.wait(GRACE_S)
            except subprocess.TimeoutExpired:
                pass
        try:
            os.killpg(self.process.pid, signal.SIGKILL)
        except ProcessLookupError:
            pass
        self.process.wait()


class Processes:
    """All children of a run. Use as a context: leaving it, by whatever way, ends them."""

    def __init__(self):
        self.children = []

    def __enter__(self):
        for number in (signal.SIGTERM, signal.SIGHUP):
            signal.signal(number, self._interrupted)
        return self

    @staticmethod
    def _interrupted(number, _frame):
        raise SystemExit(128 + number)

    def start(self, name, command, log_path, env=None):
        child = Child(name, command, log_path, env)
        self.children.append(child)
        return child

    def __exit__(self, *_):
        if threading.current_thread() is threading.main_thread():
            for number in (signal.SIGTERM, signal.SIGHUP, signal.SIGINT):
                signal.signal(number, signal.SIG_IGN)
        for child in reversed(self.children):
            child.stop()
        return False
