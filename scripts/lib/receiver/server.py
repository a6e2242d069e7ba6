"""HTTP/1.1 on a bare socket: keep-alive, Content-Length or chunked, one exchange at a time on a connection.

A receipt is logged when its exchange is over. If this process dies the log holds every exchange that ended.
"""

import argparse
import asyncio
import collections
import json
import os
import signal
import socket
import struct
import sys
import time

from .ledger import Ledger
from .mischief import Mischief
from .verify import Verifier

HEAD_BYTES_MAX = 64 * 1024
BODY_BYTES_MAX = 32 * 1024 * 1024
BEAT_S = 0.002
MARKS = 4
REASONS = {200: "OK", 400: "Bad Request", 404: "Not Found", 429: "Too Many Requests", 500: "Internal Server Error",
           502: "Bad Gateway", 503: "Service Unavailable", 504: "Gateway Timeout"}


class BadRequest(Exception):
    """Not HTTP as this server speaks it."""


def parse_head(raw):
    """(method, path, {lower-case name: [values]})"""
    lines = raw.decode("latin-1").split("\r\n")
    words = lines[0].split(" ")
    if len(words) != 3 or words[2] != "HTTP/1.1":
        raise BadRequest(f"request line {lines[0]!r}")
    headers = {}
    for line in lines[1:]:
        name, colon, value = line.partition(":")
        if not colon or not name or name != name.strip():
            raise BadRequest(f"header line {line!r}")
        headers.setdefault(name.lower(), []).append(value.strip(" \t"))
    return words[0], words[1], headers


def take_body(buffer, headers):
    """(body, rest) once it is all there, else None."""
    if "transfer-encoding" in headers:
        return take_chunks(buffer)
    lengths = headers.get("content-length", ["0"])
    if len(lengths) != 1 or not lengths[0].isdigit() or int(lengths[0]) > BODY_BYTES_MAX:
        raise BadRequest(f"content length {lengths!r}")
    length = int(lengths[0])
    return (buffer[:length], buffer[length:]) if len(buffer) >= length else None


def take_chunks(buffer):
    body = b""
    while True:
        line, newline, rest = buffer.partition(b"\r\n")
        if not newline:
            return None
        size = int(line.split(b";")[0], 16)
        if len(rest) < size + 2:
            return None
        body, buffer = body + rest[:size], rest[size + 2:]
        if size == 0:
            return body, buffer


class Beat:
    """How late this process may be with what it reads. The loop marks the time every few milliseconds, by a timer of its
    own and not a thread's, since what waits behind other work of the loop is late as well. What is read now was not there
    a few marks ago, however long the process had to wait for a CPU since: each turn reads what is there, and a new
    connection is read two turns after it was accepted."""

    def __init__(self):
        self.marks = collections.deque([time.monotonic_ns()], maxlen=MARKS)

    def go_on(self, loop):
        self.marks.append(time.monotonic_ns())
        loop.call_later(BEAT_S, self.go_on, loop)

    def read_now(self):
        """(now, since when it was not looked), both in nanoseconds of the monotonic clock."""
        return time.monotonic_ns(), self.marks[0]


class Gateway:
    """What all connections share."""

    def __init__(self, verifier, ledger, mischief, log):
        self.beat = Beat()
        self.verifier = verifier
        self.ledger = ledger
        self.mischief = mischief
        self.log = log

    def record(self, exchange, answer):
        """Ends an exchange: out of the group, into the sums, onto the log."""
        self.ledger.leave(exchange["instruction"])
        instruction = exchange["instruction"]
        self.ledger.count(answer, exchange["order"], exchange["faults"], instruction.id)
        head = exchange["head"]
        first_ns, since_ns = exchange["first"]
        self.log.write(json.dumps({
            "at_ms": exchange["at_ms"],
            "first_ns": first_ns,
            "since_ns": since_ns,
            "took_ms": round((time.monotonic() - exchange["began"]) * 1000, 1),
            "instruction": instruction.id,
            "group": instruction.group,
            "ordinal": instruction.ordinal,
            "job": head.get("idempotency-key"),
            "attempt": int(head["x-railyard-attempt"]) if head.get("x-railyard-attempt", "").isdigit() else None,
            "receipt": exchange["receipt"],
            "answer": answer,
            "accepted": exchange["accepted"],
            "order": exchange["order"],
            "faults": exchange["faults"],
        }) + "\n")

    def stranger(self, answer, faults, body, first):
        """A receipt that belongs to no instruction: a body that the feed does not hold, which is a fault, or a request that
        broke off."""
        start = body[:200].decode("latin-1")
        self.ledger.count(answer, [], faults, start)
        self.log.write(json.dumps({"at_ms": time.time_ns() // 1_000_000, "first_ns": first[0], "since_ns": first[1],
                                   "instruction": None, "answer": answer, "accepted": False, "order": [],
                                   "faults": faults, "body": start}) + "\n")


class Connection(asyncio.Protocol):
    """One connection: bytes in, exchanges out."""

    def __init__(self, gateway):
        self.gateway = gateway
        self.buffer = b""
        self.transport = None
        self.exchange = None
        # When the first byte was read of the request that is being read.
        self.first = None

    def connection_made(self, transport):
        self.transport = transport
        transport.get_extra_info("socket").setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

    def connection_lost(self, exc):
        if self.exchange is not None:
            self.gateway.record(self.exchange, "cut")
            self.exchange = None
        elif self.first is not None:
            self.gateway.stranger("incomplete", [], self.buffer, self.first)

    def data_received(self, data):
        self.buffer += data
        if self.first is None and self.buffer:
            self.first = self.gateway.beat.read_now()
        if self.exchange is None:
            try:
                self.read()
            except (BadRequest, ValueError) as error:
                self.send(400, str(error))
                self.transport.close()

    def read(self):
        """Takes one whole request off the buffer, if there is one."""
        head, blank, rest = self.buffer.partition(b"\r\n\r\n")
        if not blank:
            if len(self.buffer) > HEAD_BYTES_MAX:
                raise BadRequest("head too long")
            return
        method, path, headers = parse_head(head)
        taken = take_body(rest, headers)
        if taken is None:
            return
        body, self.buffer = taken
        first, self.first = self.first, None
        if (method, path) == ("GET", "/__report"):
            self.send(200, self.gateway.ledger.report())
        elif method == "POST":
            self.deliver(headers, body, first)
        else:
            self.send(404, "POST a payment, or GET /__report")

    def deliver(self, headers, body, first):
        gateway = self.gateway
        faults = gateway.verifier.faults(headers, body)
        instruction = gateway.ledger.find(body)
        if instruction is None:
            gateway.stranger("unknown", faults + ["body is not that of any instruction"], body, first)
            self.send(400, "no such instruction")
            return
        head = {name: values[0] for name, values in headers.items()}
        order, numbers = gateway.ledger.receive(instruction, head)
        answer = gateway.mischief.answer(instruction.id, instruction.receipts, instruction.bad)
        if faults:
            answer.status, answer.accepted = 400, False
        gateway.ledger.decide(instruction, answer.accepted, answer.status != 200)
        self.exchange = {
            "instruction": instruction, "head": head, "order": order, "faults": faults + numbers,
            "accepted": answer.accepted, "receipt": instruction.receipts, "first": first,
            "at_ms": time.time_ns() // 1_000_000, "began": time.monotonic(),
        }
        if answer.delay_ms:
            asyncio.get_running_loop().call_later(answer.delay_ms / 1000, self.finish, answer)
        else:
            self.finish(answer)

    def finish(self, answer):
        """Answers, unless the sender has gone."""
        if self.exchange is None:
            return
        exchange, self.exchange = self.exchange, None
        self.gateway.record(exchange, answer.status)
        if answer.status == "reset":
            # Linger 0: the sender sees a reset, not an orderly end.
            self.transport.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            self.transport.abort()
            return
        self.send(answer.status, {"instruction": exchange["instruction"].id}, answer.retry_after)
        if self.buffer:
            self.data_received(b"")

    def send(self, status, content, retry_after=None):
        body = json.dumps(content).encode()
        extra = f"Retry-After: {retry_after}\r\n" if retry_after is not None else ""
        self.transport.write(
            f"HTTP/1.1 {status} {REASONS[status]}\r\nContent-Type: application/json\r\n{extra}"
            f"Content-Length: {len(body)}\r\n\r\n".encode() + body)


async def serve(gateway, port):
    loop = asyncio.get_running_loop()
    stop = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop.set)
    gateway.beat.go_on(loop)
    server = await loop.create_server(lambda: Connection(gateway), "127.0.0.1", port, backlog=1024)
    print(f"listening: http://127.0.0.1:{server.sockets[0].getsockname()[1]}/payments", flush=True)
    await stop.wait()
    server.close()


def main():
    parser = argparse.ArgumentParser(
        description="Receives the demo's payments, checks each and misbehaves now and then. GET /__report tells the sums.",
        epilog="The environment gives DEMO_SIGNING_SECRET (whsec_ and base64) and DEMO_BEARER_TOKEN.")
    parser.add_argument("--feed", required=True, help="the NDJSON file that is being delivered")
    parser.add_argument("--log", required=True, help="where each receipt goes, one JSON object a line")
    parser.add_argument("--port", type=int, default=0, help="0: any free port (default)")
    parser.add_argument("--seed", type=int, default=1, help="of the misbehaviour (default 1)")
    parser.add_argument("--well-behaved", action="store_true", help="no misbehaviour at all")
    options = parser.parse_args()
    try:
        verifier = Verifier(os.environ["DEMO_SIGNING_SECRET"], os.environ["DEMO_BEARER_TOKEN"])
    except (KeyError, ValueError) as error:
        print(f"demo-receiver: DEMO_SIGNING_SECRET and DEMO_BEARER_TOKEN are needed: {error!r}", file=sys.stderr)
        return 2
    with open(options.log, "a", encoding="utf-8", buffering=1) as log:
        gateway = Gateway(verifier, Ledger(options.feed), Mischief(options.seed, options.well_behaved), log)
        asyncio.run(serve(gateway, options.port))
    return 0
