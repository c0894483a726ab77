"""A gRPC server without TLS, whose messages are plain bytes.

Usage: server.py PORT [AGE | busy]. It sends GOAWAY on each connection after AGE ms, and goes on with its open calls.
`busy`: calls that a busy server refuses are UNAVAILABLE. SIGUSR1: the health service changes between SERVING and
NOT_SERVING.
"""

import signal
import sys
import threading
from concurrent.futures import ThreadPoolExecutor

import grpc

SERVING, NOT_SERVING = b"\x08\x01", b"\x08\x02"

state = {"health": SERVING, "begun": 0, "ended": 0, "refused": 0}
lock = threading.Lock()


def echo(request, context):
    context.send_initial_metadata((("x-initial", "1"),))
    context.set_trailing_metadata((("x-trailing_bin-bin", bytes(range(256))), ("x-peer", context.peer())))
    return request


def fail(request, context):
    context.abort(grpc.StatusCode.NOT_FOUND, "keine Bestellung für %d €")


def refuse(context):
    """Ends the call if this server is busy."""
    if "busy" in sys.argv:
        with lock:
            state["refused"] += 1
        context.abort(grpc.StatusCode.UNAVAILABLE, "busy")


def try_echo(request, context):
    refuse(context)
    return request


def begin(request, context):
    """Is refused behind its first metadata."""
    context.send_initial_metadata((("x-initial", "1"),))
    refuse(context)
    return request


def try_add(requests, context):
    """Is refused after its first message, while its client sends more."""
    first = next(requests)
    refuse(context)
    return str(int(first) + sum(int(request) for request in requests)).encode()


def count(request, context):
    for at in range(int(request)):
        yield str(at).encode()


def add(requests, context):
    return str(sum(int(request) for request in requests)).encode()


def chat(requests, context):
    yield from requests


def sleep(request, context):
    """Lasts until its client leaves or its deadline passes."""
    ended = threading.Event()
    if not context.add_callback(ended.set):
        ended.set()
    with lock:
        state["begun"] += 1
    ended.wait()
    with lock:
        state["ended"] += 1
    return b""


def counted(request, context):
    """How many calls of `sleep` have begun, or have ended; how many calls were refused."""
    return str(state[request.decode()]).encode()


def check(request, context):
    service = request[2:].decode()
    if service not in ("", "demo.Demo"):
        context.abort(grpc.StatusCode.NOT_FOUND, "unknown service")
    return state["health"]


def server(port, options):
    handlers = {
        "Echo": grpc.unary_unary_rpc_method_handler(echo),
        "Fail": grpc.unary_unary_rpc_method_handler(fail),
        "Count": grpc.unary_stream_rpc_method_handler(count),
        "Add": grpc.stream_unary_rpc_method_handler(add),
        "Chat": grpc.stream_stream_rpc_method_handler(chat),
        "Sleep": grpc.unary_unary_rpc_method_handler(sleep),
        "Counted": grpc.unary_unary_rpc_method_handler(counted),
        "TryEcho": grpc.unary_unary_rpc_method_handler(try_echo),
        "Begin": grpc.unary_unary_rpc_method_handler(begin),
        "TryAdd": grpc.stream_unary_rpc_method_handler(try_add),
    }
    made = grpc.server(ThreadPoolExecutor(64), options=options)
    made.add_generic_rpc_handlers(
        (
            grpc.method_handlers_generic_handler("demo.Demo", handlers),
            grpc.method_handlers_generic_handler(
                "grpc.health.v1.Health", {"Check": grpc.unary_unary_rpc_method_handler(check)}
            ),
        )
    )
    assert made.add_insecure_port(f"127.0.0.1:{port}") == port
    made.start()
    return made


def main():
    port = int(sys.argv[1])
    options = [("grpc.max_connection_age_ms", int(age)) for age in sys.argv[2:] if age != "busy"]
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGUSR1})
    running = server(port, options)
    print("ready", flush=True)
    while signal.sigwait({signal.SIGUSR1}):
        state["health"] = NOT_SERVING if state["health"] == SERVING else SERVING
    running.stop(None)


main()
