"""Requests of clients: HTTP/1.1 by hand, HTTP/2 by curl, lines over TCP, datagrams, WebSocket."""

import contextlib
import dataclasses
import http.cookies
import ipaddress
import itertools
import json
import socket
import ssl
import subprocess

import world
from backends import header, read_body, read_head

LIMIT_S = 20


@dataclasses.dataclass
class Answer:
    """What a client received. `status` 0: the connection was refused, reset or closed."""

    status: int = 0
    headers: list = dataclasses.field(default_factory=list)
    body: str = ""
    certificate: bytes = b""

    def echo(self):
        """The JSON object of the backend; empty if a proxy answered."""
        try:
            return json.loads(self.body)
        except ValueError:
            return {}

    @property
    def backend(self):
        return self.echo().get("backend", "")


NUMBERS = itertools.count(1)


def source_of(prefix):
    """The address, or of a prefix the next one: another client each time."""
    network = ipaddress.ip_network(prefix)
    # Neighbours differ in more than their last bits.
    return str(network[NUMBERS.__next__() * 7919 % network.num_addresses])


class Client:
    """One client: an address and a jar of cookies."""

    def __init__(self, certificates, host=None):
        self.certificates, self.host = certificates, host
        self.cookies = {}
        self.held = None

    def ask(self, step):
        try:
            if "line" in step:
                return self._line(step)
            if "datagram" in step:
                return self._datagram(step)
            if step.get("http2"):
                return self._curl(step)
            return self._http(step)
        except (OSError, EOFError, ValueError, IndexError):
            return Answer()

    def _connect(self, step):
        host, port = step["to"].rsplit(":", 1)
        source = (source_of(step["from"]), 0) if "from" in step else None
        with world.on(self.host):
            connection = socket.create_connection((host, int(port)), LIMIT_S, source)
        if "proxy-header" in step:
            connection.sendall(step["proxy-header"].encode() + b"\r\n")
        if "tls" not in step:
            return connection, b""
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
        context.set_alpn_protocols(["http/1.1"])
        if "certificate" in step:
            context.load_cert_chain(*self.certificates.pair(step["certificate"].split()))
        connection = context.wrap_socket(connection, server_hostname=step["tls"] or None)
        return connection, connection.getpeercert(binary_form=True)

    def _http(self, step):
        connection, certificate = self._connect(step)
        with connection, connection.makefile("rb") as reader:
            # A proxy may answer before it has the whole body, and close.
            with contextlib.suppress(OSError):
                connection.sendall(self._request(step))
            answer = self._read(reader, step["method"])
            answer.certificate = certificate
            if "tunnel" in step and answer.status == 101:
                connection.sendall(step["tunnel"].encode() + b"\n")
                name, text = reader.readline().decode().split(" ", 1)
                answer.body = json.dumps({"backend": name, "line": text.strip()})
        self._keep_cookies(answer)
        return answer

    def _request(self, step):
        lines = [f"{step['method']} {step['path']} HTTP/1.1", f"Host: {step['host']}", "Connection: close"]
        if "tunnel" in step:
            lines[2:] = ["Connection: Upgrade", "Upgrade: websocket", "Sec-WebSocket-Version: 13",
                         "Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ=="]
        lines += step.get("headers", [])
        if self.cookies:
            lines.append("Cookie: " + "; ".join(f"{name}={value}" for name, value in self.cookies.items()))
        body = step.get("body", "x" * step.get("body-size", 0))
        if body:
            lines.append(f"Content-Length: {len(body)}")
        return ("\r\n".join(lines) + "\r\n\r\n" + body).encode()

    @staticmethod
    def _read(reader, method):
        while True:
            head = read_head(reader)
            if not head:
                return Answer()
            start, headers = head
            status = int(start.split(" ")[1])
            if status >= 200 or status == 101:
                break
        is_bare = method == "HEAD" or status in (101, 204, 304)
        if is_bare:
            body = ""
        elif header(headers, "content-length") or header(headers, "transfer-encoding"):
            body = read_body(reader, headers)
        else:
            body = reader.read().decode("latin-1")
        return Answer(status, headers, body)

    def _keep_cookies(self, answer):
        for name, value in answer.headers:
            if name == "set-cookie":
                for cookie in http.cookies.SimpleCookie(value).values():
                    self.cookies[cookie.key] = cookie.value

    def _curl(self, step):
        port = step["to"].rsplit(":", 1)[1]
        scheme, how = ("https", "--http2") if "tls" in step else ("http", "--http2-prior-knowledge")
        name = step["host"].split(":")[0]
        headers = [word for line in step.get("headers", []) for word in ("--header", line)]
        body = ["--data-binary", step["body"]] if "body" in step else []
        command = ["curl", "--silent", "--insecure", "--include", how, "--max-time", str(LIMIT_S), "--noproxy", "*",
                   "--resolve", f"{name}:{port}:{step['to'].rsplit(':', 1)[0]}", "--request", step["method"], *headers, *body,
                   f"{scheme}://{name}:{port}{step['path']}"]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode != 0:
            return Answer()
        head, body = done.stdout.replace("\r\n", "\n").split("\n\n", 1)
        start, *lines = head.split("\n")
        pairs = [line.split(":", 1) for line in lines]
        headers = [[name.lower(), value.strip()] for name, value in pairs]
        if not start.startswith("HTTP/2 "):
            return Answer()
        # curl prints trailers after the body.
        return Answer(int(start.split(" ")[1]), headers, body.split("\n")[0])

    def _line(self, step):
        connection, certificate = self._connect(step)
        with contextlib.ExitStack() as stack:
            reader = stack.enter_context(connection.makefile("rb"))
            if step.get("hold"):
                self.held = connection
            else:
                stack.enter_context(connection)
            connection.sendall(step["line"].encode() + b"\n")
            text = reader.readline().decode()
        return Answer(200 if text else 0, [], text, certificate)

    def wait_for_end(self, limit_s):
        """Waits for the end of the connection of a step with `hold`; returns bytes that came before it."""
        with self.held as connection:
            connection.settimeout(limit_s)
            with contextlib.suppress(ConnectionResetError):
                return connection.recv(65536)
        return b""

    def _datagram(self, step):
        host, port = step["to"].rsplit(":", 1)
        with world.on(self.host):
            one = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        with one:
            one.settimeout(LIMIT_S)
            if "from" in step:
                one.bind((step["from"], 0))
            one.sendto(step["datagram"].encode(), (host, int(port)))
            return Answer(200, [], one.recv(65536).decode())


