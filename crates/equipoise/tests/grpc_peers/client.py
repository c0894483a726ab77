"""A gRPC client of server.py behind a proxy. Usage: client.py PORT CHECK [PORT OF A BUSY SERVER].

Ends with an error if a call goes wrong.
"""

import os
import queue
import sys
import time
from concurrent.futures import ThreadPoolExecutor

import grpc


class Demo:
    def __init__(self, port):
        self.channel = grpc.insecure_channel(f"127.0.0.1:{port}")
        name = "/demo.Demo/{}".format
        self.echo = self.channel.unary_unary(name("Echo"))
        self.fail = self.channel.unary_unary(name("Fail"))
        self.count = self.channel.unary_stream(name("Count"))
        self.add = self.channel.stream_unary(name("Add"))
        self.chat = self.channel.stream_stream(name("Chat"))
        self.sleep = self.channel.unary_unary(name("Sleep"))
        self.counted = self.channel.unary_unary(name("Counted"))
        self.try_echo = self.channel.unary_unary(name("TryEcho"))
        self.begin = self.channel.unary_unary(name("Begin"))
        self.try_add = self.channel.stream_unary(name("TryAdd"))


class Chat:
    """A stream in which each message is answered before the next is sent."""

    def __init__(self, demo):
        self.messages = queue.Queue()
        self.answers = demo.chat(iter(self.messages.get, None))

    def say(self, message):
        self.messages.put(message)
        answer = next(self.answers)
        assert answer == message, (answer, message)

    def end(self):
        self.messages.put(None)
        assert list(self.answers) == []
        assert self.answers.code() == grpc.StatusCode.OK, self.answers


def unary(demo):
    def call(at):
        message = bytes([at % 256]) * (at * 997 % 200_000)
        assert demo.echo(message) == message

    with ThreadPoolExecutor(20) as threads:
        list(threads.map(call, range(400)))
    answer, made = demo.echo.with_call(b"", metadata=(("x-request", "1"),))
    assert answer == b""
    assert ("x-initial", "1") in made.initial_metadata(), made.initial_metadata()
    trailing = dict(made.trailing_metadata())
    assert trailing["x-trailing_bin-bin"] == bytes(range(256)), trailing
    large = os.urandom(3 << 20)
    assert demo.echo(large) == large


def statuses(demo):
    for at in range(20):
        error = error_of(lambda: demo.fail(b""))
        assert error.code() == grpc.StatusCode.NOT_FOUND, error
        assert error.details() == "keine Bestellung für %d €", error


def streams(demo):
    assert [int(message) for message in demo.count(b"5000")] == list(range(5000))
    assert demo.add(str(at).encode() for at in range(1000)) == b"499500"
    chats = [Chat(demo) for _ in range(20)]
    for at in range(50):
        for chat in chats:
            chat.say(f"message {at}".encode())
    for chat in chats:
        chat.end()


def deadline(demo):
    begun = time.monotonic()
    error = error_of(lambda: demo.sleep(b"", timeout=0.5))
    assert error.code() == grpc.StatusCode.DEADLINE_EXCEEDED, error
    assert 0.4 < time.monotonic() - begun < 30
    wait_for_count(demo, b"ended", 1)


def cancel(demo):
    before = int(demo.counted(b"ended"))
    calls = [demo.sleep.future(b"") for _ in range(10)]
    wait_for_count(demo, b"begun", before + 10)
    for call in calls:
        call.cancel()
    wait_for_count(demo, b"ended", before + 10)
    # An endless stream that its client leaves.
    stream = demo.count(b"100000000")
    next(stream)
    stream.cancel()
    assert demo.echo(b"still there") == b"still there"


def goaway(demo):
    """The server replaces connections while calls run on them."""
    chats, peers = [Chat(demo) for _ in range(20)], set()

    def call(at):
        answer, made = demo.echo.with_call(b"%d" % at)
        peers.add(dict(made.trailing_metadata())["x-peer"])
        return int(answer)

    with ThreadPoolExecutor(10) as threads:
        while len(peers) < 6:
            calls = threads.map(call, range(500))
            for at in range(20):
                for chat in chats:
                    chat.say(b"%d" % at)
            assert list(calls) == list(range(500))
    for chat in chats:
        chat.end()


def retried(demo):
    """One of two servers is busy: the other one answers."""
    busy = Demo(sys.argv[3])
    for at in range(20):
        message = b"%d" % at
        assert demo.try_echo(message) == message
    refused = int(busy.counted(b"refused"))
    assert 5 <= refused <= 20, refused
    for _ in range(6):
        assert demo.try_add(str(number).encode() for number in range(1000)) == b"499500"
    assert int(busy.counted(b"refused")) > refused
    # A response that has begun is passed on, and so is that to a call whose messages are not kept.
    for call, message in [(demo.begin, b"1"), (demo.try_echo, bytes(200_000))]:
        before = int(busy.counted(b"refused"))
        codes = [code_of(lambda: call(message)) for _ in range(10)]
        refused = int(busy.counted(b"refused")) - before
        assert codes.count(grpc.StatusCode.UNAVAILABLE) == refused > 0, (codes, refused)


def not_retried(demo):
    """One of two servers is busy, and its status is not retried."""
    codes = [code_of(lambda: demo.try_echo(b"1")) for _ in range(10)]
    assert codes.count(grpc.StatusCode.UNAVAILABLE) > 0, codes


def down(demo):
    """No backend can serve."""
    error = error_of(lambda: demo.echo(b"", timeout=30))
    assert error.code() == grpc.StatusCode.UNAVAILABLE, error
    print(error.details())


def wait_for_count(demo, what, count):
    until = time.monotonic() + 60
    while int(demo.counted(what)) < count:
        assert time.monotonic() < until, f"{what}: {demo.counted(what)} of {count}"
        time.sleep(0.01)


def code_of(call):
    try:
        call()
    except grpc.RpcError as error:
        return error.code()
    return grpc.StatusCode.OK


def error_of(call):
    try:
        call()
    except grpc.RpcError as error:
        return error
    raise AssertionError("the call succeeded")


CHECKS = {
    check.__name__: check
    for check in [unary, statuses, streams, deadline, cancel, goaway, retried, not_retried, down]
}


def main():
    demo = Demo(sys.argv[1])
    CHECKS[sys.argv[2]](demo)
    demo.channel.close()


main()
