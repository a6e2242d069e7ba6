"""Ports for servers that begin to listen a moment later."""

import random
import socket

# Below Linux's ephemeral range (32768 and up): in it, any client on the machine may be given the port in the meantime.
FIRST, LAST = 20_000, 32_000
TRIES = 1_000

_given = set()


def free_port():
    """A TCP port of 127.0.0.1 on which nobody listens, never the same twice in a process."""
    for port in random.sample(range(FIRST, LAST), TRIES):
        with socket.socket() as probe:
            try:
                probe.bind(("127.0.0.1", port))
            except OSError:
                continue
        if port not in _given:
            _given.add(port)
            return port
    raise OSError(f"no free port between {FIRST} and {LAST}")
