#!/usr/bin/env python3
"""The clients of the study: N requests, each on a connection of its own, all at once or each when due.

With `--over S` the requests are due at random moments of S seconds, and are sent then, whether earlier ones were
answered or not. Each time counts from the moment when the request was due (no coordinated omission).
Prints JSON: response times in seconds, requests by server, failures by reason.
"""

import argparse
import collections
import errno
import json
import random
import resource
import selectors
import socket
import time

BODY = bytes(range(256)) * 4
PATIENCE_S = 600


class Clients:
    def __init__(self, address, first):
        self.address, self.first = address, first
        self.selector = selectors.DefaultSelector()
        self.times, self.servers, self.failures = [], collections.Counter(), collections.Counter()

    def connect(self, number, due):
        stream = socket.socket()
        stream.setblocking(False)
        code = stream.connect_ex(self.address)
        if code not in (0, errno.EINPROGRESS):
            stream.close()
            self.failures[errno.errorcode.get(code, str(code))] += 1
            return
        self.selector.register(stream, selectors.EVENT_WRITE, [number, due, b""])

    def step(self, seconds):
        for key, events in self.selector.select(seconds):
            try:
                is_done = self.send(key) if events & selectors.EVENT_WRITE else self.receive(key)
            except OSError as error:
                self.failures[errno.errorcode.get(error.errno, str(error))] += 1
                is_done = True
            if is_done:
                self.selector.unregister(key.fileobj)
                key.fileobj.close()

    def send(self, key):
        number = key.data[0]
        head = f"POST /{self.first + number} HTTP/1.1\r\nHost: lab\r\nContent-Length: {len(BODY)}\r\n\r\n"
        key.fileobj.send(head.encode() + BODY)
        self.selector.modify(key.fileobj, selectors.EVENT_READ, key.data)
        return False

    def receive(self, key):
        more = key.fileobj.recv(4096)
        if more:
            key.data[2] += more
            return False
        _, due, reply = key.data
        if b" 202 " not in reply:
            self.failures["no reply"] += 1
            return True
        self.times.append(time.monotonic() - due)
        self.servers[reply.rsplit(b"\n", 1)[1].decode()] += 1
        return True

    def run(self, dues):
        """`dues`: seconds from now, ascending."""
        begun, sent = time.monotonic(), 0
        while sent < len(dues) or self.selector.get_map():
            now = time.monotonic() - begun
            if now > PATIENCE_S:
                self.failures["timeout"] += len(self.selector.get_map())
                break
            # A few of those that are due, then whatever arrived.
            for _ in range(16):
                if sent < len(dues) and dues[sent] <= now:
                    self.connect(sent, begun + dues[sent])
                    sent += 1
            wait = max(0.0, dues[sent] - now) if sent < len(dues) else 1.0
            self.step(min(wait, 1.0))


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("address")
    parser.add_argument("requests", type=int)
    parser.add_argument("--over", type=float, default=0.0)
    parser.add_argument("--first", type=int, default=0, help="number of the first request")
    parser.add_argument("--seed", type=int, default=2017)
    options = parser.parse_args()
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    dice = random.Random(options.seed)
    clients = Clients((options.address, 80), options.first)
    clients.run(sorted(dice.random() * options.over for _ in range(options.requests)))
    print(json.dumps({"times": clients.times, "servers": clients.servers, "failures": clients.failures}))


if __name__ == "__main__":
    main()
