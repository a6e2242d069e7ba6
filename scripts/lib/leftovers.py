#!/usr/bin/env python3
"""leftovers.py DIR: exits 1 and names them if processes still use DIR, or files are left in it.

A process uses DIR if its command line, environment or working directory names it. A server of ours that outlives its
test, and a temporary folder that nobody removes, are failures like any other.
"""

import os
import sys
import time

PATIENCE_S = 10


def read(path):
    try:
        with open(path, "rb") as f:
            return f.read()
    except OSError:
        return b""


def ancestors():
    """This process and those that it came from: they name DIR by right."""
    out, pid = set(), os.getpid()
    while pid > 1:
        out.add(pid)
        stat = read(f"/proc/{pid}/stat")
        pid = int(stat.rpartition(b")")[2].split()[1]) if stat else 0
    return out


def processes(dir_bytes):
    """[(pid, command line)] of those that use the folder."""
    mine, out = ancestors(), []
    for name in os.listdir("/proc"):
        if not name.isdigit() or int(name) in mine:
            continue
        command = read(f"/proc/{name}/cmdline")
        try:
            cwd = os.readlink(f"/proc/{name}/cwd").encode()
        except OSError:
            cwd = b""
        if any(dir_bytes in text for text in (command, read(f"/proc/{name}/environ"), cwd)):
            out.append((int(name), command.replace(b"\0", b" ").decode("utf-8", "replace").strip()))
    return out


def main():
    folder = os.path.realpath(sys.argv[1])
    deadline = time.monotonic() + PATIENCE_S
    while (left := processes(folder.encode())) and time.monotonic() < deadline:
        time.sleep(0.1)
    files = sorted(os.listdir(folder))
    for pid, command in left:
        print(f"still running: {pid} {command[:200]}", file=sys.stderr)
    for name in files[:20]:
        print(f"left in the temporary folder: {name}", file=sys.stderr)
    return 1 if left or files else 0


if __name__ == "__main__":
    sys.exit(main())
