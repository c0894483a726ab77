"""Which real server gets which connection: the same openings and closings with every scheduler, one at a time."""

import collections
import itertools
import random
import select
import socket
import time

from network import Network

SERVERS = 4
FIRST_PORT = 10_000
SCHEDULERS = {"round-robin": "rr", "weighted-round-robin": "wrr", "least-connection": "lc",
              "weighted-least-connection": "wlc"}
Case = collections.namedtuple("Case", "vip scheduler weights")
CASES = [Case(f"203.0.113.{number}", scheduler, weights) for number, (scheduler, weights) in enumerate(
    ((scheduler, weights) for scheduler in SCHEDULERS for weights in ([1, 1, 1, 1], [1, 2, 3, 4], [5, 1, 1, 3])), 10)]


def network():
    return Network(SERVERS, [case.vip for case in CASES])


def steps(seed, number):
    """Openings, and closings of an open connection by its place in the list of those that are open."""
    dice, is_open = random.Random(seed), 0
    for _ in range(number):
        if is_open and dice.random() < 0.4:
            yield dice.randrange(is_open)
            is_open -= 1
        else:
            yield None
            is_open += 1


def choose(place, seed, number, reuse, settle_s):
    """Performs the steps with every VIP in turn. Returns the servers of the connections by case, from 0.

    `reuse`: a connection has the lowest port that is free; otherwise one that no earlier connection had.
    `settle_s`: pause after each closing, in which a balancer may learn of it.
    """
    listeners = []
    for server in place.servers:
        with server.entered():
            listeners.append(socket.create_server(("", 80)))
    chosen, pairs = [[] for _ in CASES], [[] for _ in CASES]
    try:
        for step in steps(seed, number):
            for at, case in enumerate(CASES):
                if step is not None:
                    close(*pairs[at].pop(step))
                    continue
                used = {client.getsockname()[1] for client, _ in pairs[at]}
                turn = itertools.count() if reuse else itertools.count(len(chosen[at]))
                own = next(port for port in (FIRST_PORT + len(CASES) * n + at for n in turn) if port not in used)
                with place.client.entered():
                    client = socket.create_connection((case.vip, 80), 30, source_address=("", own))
                listener = select.select(listeners, [], [], 30)[0][0]
                pairs[at].append((client, listener.accept()[0]))
                chosen[at].append(listeners.index(listener))
            if step is not None:
                time.sleep(settle_s)
    finally:
        for one in [*listeners, *(stream for kept in pairs for pair in kept for stream in pair)]:
            one.close()
    return chosen


def close(client, server):
    """The server first: the client's port is then free at once."""
    server.close()
    client.recv(1)
    client.close()
