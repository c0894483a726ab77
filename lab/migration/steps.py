"""The steps of a configuration's `expect.toml`: requests, changes of backends, and their results."""

import collections
import concurrent.futures
import ssl
import time

from backends import header
from client import Client

# Options of a step that send something, with those of its expectation beside them.
SENT = {"path", "method", "host", "to", "from", "headers", "body", "body-size", "tls", "certificate", "http2", "line", "datagram",
        "tunnel", "proxy-header", "client", "times", "at-once", "hold"}
EXPECTED = {"status", "backend", "shares", "within", "sticks", "header", "received", "target", "contains", "served-certificate",
            "in-flight-max", "proxied", "statuses"}
OTHER = {"until", "note", "lost", "ours", "peer"}
LIMIT_S = 60


class Runner:
    """Runs steps against one proxy. `side` is "peer" or "ours"."""

    def __init__(self, side, backends, names, certificates, defaults, host):
        self.host, self.side, self.backends, self.names, self.certificates, self.defaults = host, side, backends, names, certificates, defaults
        self.clients = collections.defaultdict(self._client)

    def _client(self):
        return Client(self.certificates, self.host)

    def run(self, step):
        """Returns the first answer and the problems of a step."""
        if "set" in step:
            for name, state in step["set"].items():
                self.backends[name].become(state)
            return None, []
        if "names" in step:
            self.names.update(step["names"])
            return None, []
        if "closed" in step:
            return None, self._closed(step["closed"])
        step = {**self.defaults, **step, **step.get(self.side, {})}
        # `tls = false` where the defaults have a name.
        step = {key: value for key, value in step.items() if value is not False}
        unknown = step.keys() - SENT - EXPECTED - OTHER
        if unknown:
            raise ValueError(f"unknown options {sorted(unknown)}")
        if not step.get("until"):
            answers = self._ask(step)
            return answers[0], self._problems(step, answers)
        return self._until(step)

    def _closed(self, client):
        """Waits until the connection that a client holds ends."""
        try:
            left = self.clients[client].wait_for_end(LIMIT_S)
        except TimeoutError:
            return [f"the connection of {client} is open after {LIMIT_S} s"]
        return [f"the connection of {client} has brought {left!r}"] if left else []

    def _until(self, step):
        """Repeats a step until it is right five times in a row."""
        end, right = time.monotonic() + LIMIT_S, 0
        while True:
            answers = self._ask(step)
            problems = self._problems(step, answers)
            right = 0 if problems else right + 1
            if right == 5 or time.monotonic() > end:
                return answers[0], problems
            time.sleep(0.05)

    def _ask(self, step):
        times = step.get("times", 1)
        if "client" in step:
            client = self.clients[step["client"]]
            return [client.ask(step) for _ in range(times)]
        if "at-once" in step:
            with concurrent.futures.ThreadPoolExecutor(step["at-once"]) as pool:
                return list(pool.map(lambda _: self._client().ask(step), range(times)))
        return [self._client().ask(step) for _ in range(times)]

    def _problems(self, step, answers):
        problems = []
        self._judge_many(step, answers, problems)
        for answer in answers:
            for name in EXPECTED & step.keys():
                judge = getattr(self, "_" + name.replace("-", "_"), None)
                problem = judge and judge(step[name], answer)
                if problem and problem not in problems:
                    problems.append(problem)
        return problems[:3]

    def _judge_many(self, step, answers, problems):
        """Expectations of all answers together."""
        counts = collections.Counter(answer.backend for answer in answers)
        for name, share in step.get("shares", {}).items():
            found = counts[name] / len(answers)
            if abs(found - share) > step.get("within", 0.0) + 1e-9:
                problems.append(f"{name} received {found:.3f} of {len(answers)} requests, not {share} within {step.get('within', 0)}")
        if step.get("sticks") and len(counts) != 1:
            problems.append(f"requests reached {dict(counts)}, not one backend")
        if "statuses" in step:
            found = collections.Counter(str(answer.status) for answer in answers)
            for status, bounds in step["statuses"].items():
                if not bounds[0] <= found[status] <= bounds[1]:
                    problems.append(f"{found[status]} answers of status {status}, not {bounds[0]} to {bounds[1]}: {dict(found)}")
        if "in-flight-max" in step:
            for name, limit in step["in-flight-max"].items():
                if self.backends[name].in_flight_max > limit:
                    problems.append(f"{name} had {self.backends[name].in_flight_max} requests in flight, not {limit}")

    @staticmethod
    def _status(wanted, answer):
        return None if answer.status == wanted else f"status {answer.status}, not {wanted}: {answer.body[:200]}"

    @staticmethod
    def _backend(wanted, answer):
        allowed = [wanted] if isinstance(wanted, str) else wanted
        return None if answer.backend in allowed else f"backend {answer.backend or 'none'}, not {wanted}"

    @staticmethod
    def _header(wanted, answer):
        """Response headers; an empty value: there is none."""
        return differences("response header", wanted, answer.headers)

    @staticmethod
    def _received(wanted, answer):
        """Request headers at the backend."""
        return differences("header at the backend", wanted, answer.echo().get("headers", []))

    @staticmethod
    def _target(wanted, answer):
        found = answer.echo().get("target")
        return None if found == wanted else f"the backend received {found}, not {wanted}"

    @staticmethod
    def _contains(wanted, answer):
        return None if wanted in answer.body else f"the body has no {wanted!r}: {answer.body[:200]!r}"

    @staticmethod
    def _proxied(wanted, answer):
        found = answer.echo().get("proxied") or answer.echo().get("client")
        return None if found == wanted else f"the PROXY header named {found}, not {wanted}"

    def _served_certificate(self, wanted, answer):
        pem, _ = self.certificates.pair([wanted])
        expected = ssl.PEM_cert_to_DER_cert(pem.read_text())
        return None if answer.certificate == expected else f"another certificate than that of {wanted}"


def differences(what, wanted, headers):
    for name, value in wanted.items():
        found = header(headers, name)
        if found != value and not (value == "*" and found):
            return f"{what} {name} is {found or 'absent'!r}, not {value or 'absent'!r}"
    return None
