"""Scripted backends and a name server, each at the address that the configurations state.

An http backend answers with a JSON object: its name, and the request as it arrived.
"""

import base64
import contextlib
import hashlib
import json
import pathlib
import socket
import ssl
import struct
import subprocess
import threading
import time

import world

# Response headers of http backends, for rules that change them.
HEADERS = "Server: app/1.0\r\nX-Powered-By: PHP/8.2\r\n"


class Backend:
    """One backend. `kind`: http, https, tcp, udp or h2 (nghttpd).

    `state`: "up", a status as text for every response, "sick" (500 on `health` alone) or "down"
    (connections are refused).
    """

    def __init__(self, address, name, kind="http", certificate=None, health="/healthz", proxied=False, state="up", files=(),
                 delay_ms=0, host="backends"):
        ip, port = address.rsplit(":", 1)
        self.address, self.host = (ip, int(port)), host
        self.name, self.kind, self.health, self.is_proxied, self.delay_ms = name, kind, health, proxied, delay_ms
        self.lock = threading.Lock()
        self.connections = set()
        self.in_flight = self.in_flight_max = 0
        self.context = None
        if certificate:
            self.context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
            self.context.load_cert_chain(*certificate)
        self.files, self.process, self.listener = files, None, None
        self.state = state
        if state != "down":
            self._open()

    def become(self, state):
        """Changes the state; a backend that goes down refuses connections when this returns."""
        before, self.state = self.state, state
        if state == "down" and before != "down":
            self._close()
        elif before == "down" and state != "down":
            self._open()

    def _open(self):
        if self.kind == "h2":
            self._start_nghttpd()
            return
        kind = socket.SOCK_DGRAM if self.kind == "udp" else socket.SOCK_STREAM
        with world.on(self.host):
            self.listener = socket.socket(socket.AF_INET, kind)
        self.listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        self.listener.bind(self.address)
        if self.kind == "udp":
            serve = self._datagrams
        else:
            self.listener.listen(256)
            serve = self._accept
        threading.Thread(target=serve, args=(self.listener,), daemon=True).start()

    def _close(self):
        if self.process:
            self.process.terminate()
            self.process.wait()
            return
        # `shutdown` wakes the thread that accepts, which `close` alone does not.
        with self.lock:
            sockets, self.connections = [self.listener, *self.connections], set()
        for one in sockets:
            with contextlib.suppress(OSError):
                one.shutdown(socket.SHUT_RDWR)
        self.listener.close()

    def _start_nghttpd(self):
        """nghttpd serves files with the backend's name, at these paths."""
        folder = pathlib.Path("/run/nghttpd", self.name)
        for path in self.files:
            file = folder / path.lstrip("/")
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(json.dumps({"backend": self.name}))
        host, port = self.address
        command = ["ip", "netns", "exec", self.host, "nghttpd", "--no-tls", f"--address={host}", f"--htdocs={folder}", "--trailer=grpc-status: 0", str(port)]
        self.process = subprocess.Popen(command, stdout=subprocess.DEVNULL)
        until(lambda: accepts(self.address), f"nghttpd at {host}:{port}")

    def _accept(self, listener):
        while True:
            try:
                connection, client = listener.accept()
            except OSError:
                return
            with self.lock:
                self.connections.add(connection)
            threading.Thread(target=self._serve, args=(connection, client), daemon=True).start()

    def _serve(self, accepted, client):
        connection = accepted
        with contextlib.suppress(OSError, ValueError):
            connection.settimeout(60)
            prefix = read_proxy_header(connection) if self.is_proxied else None
            if self.context:
                connection = self.context.wrap_socket(connection, server_side=True)
            with connection.makefile("rb") as reader:
                if self.kind == "tcp":
                    self._lines(connection, reader, prefix, client)
                else:
                    while self._answer(connection, reader, prefix):
                        pass
        with contextlib.suppress(OSError):
            connection.close()
        with self.lock:
            self.connections.discard(accepted)

    def _lines(self, connection, reader, prefix, client):
        """Greets each line that arrives with the name, the client's address and the line."""
        source = prefix or client[0]
        for line in reader:
            connection.sendall(json.dumps({"backend": self.name, "client": source, "line": line.decode().strip()}).encode() + b"\n")

    def _datagrams(self, listener):
        while True:
            try:
                data, client = listener.recvfrom(65536)
                if client is None:
                    return
                listener.sendto(json.dumps({"backend": self.name, "client": client[0], "line": data.decode()}).encode(), client)
            except OSError:
                return

    def _answer(self, connection, reader, prefix):
        """Answers one request; returns whether the connection continues."""
        request = read_head(reader)
        if not request:
            return False
        start, headers = request
        method, target, _ = start.split(" ", 2)
        body = read_body(reader, headers)
        if header(headers, "upgrade").lower() == "websocket":
            connection.sendall(f"HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n"
                               f"Sec-WebSocket-Accept: {accepted(header(headers, 'sec-websocket-key'))}\r\n\r\n".encode())
            for line in reader:
                connection.sendall(self.name.encode() + b" " + line)
            return False
        is_check = target.split("?")[0] == self.health
        if not is_check:
            self._load()
        text = json.dumps({"backend": self.name, "method": method, "target": target, "headers": headers, "body": body,
                           "proxied": prefix})
        status = self._status(target, is_check)
        if is_check:
            text = "ready" if status < 400 else "not ready"
        head = f"HTTP/1.1 {status} Status\r\nContent-Type: application/json\r\n{HEADERS}Content-Length: {len(text)}\r\n\r\n"
        connection.sendall(head.encode() + (b"" if method == "HEAD" else text.encode()))
        return True

    def _load(self):
        """Counts a request while it is served."""
        with self.lock:
            self.in_flight += 1
            self.in_flight_max = max(self.in_flight_max, self.in_flight)
        time.sleep(self.delay_ms / 1000)
        with self.lock:
            self.in_flight -= 1

    def _status(self, target, is_check):
        if self.state.isdigit():
            return int(self.state)
        if is_check and self.state == "sick":
            return 500
        if target.startswith("/status/"):
            return int(target.split("/")[2])
        return 200


class Names:
    """A DNS server with A and SRV records: `names` maps a host to addresses or to HOST:PORT:WEIGHT."""

    def __init__(self, names):
        self.names = names
        with world.on("backends"):
            self.socket = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        self.socket.bind(("10.0.0.53", 53))
        threading.Thread(target=self._serve, daemon=True).start()

    def _serve(self):
        while True:
            query, client = self.socket.recvfrom(4096)
            with contextlib.suppress(IndexError, ValueError):
                self.socket.sendto(self._answer(query), client)

    def _answer(self, query):
        at, labels = 12, []
        while query[at]:
            labels.append(query[at + 1:at + 1 + query[at]].decode().lower())
            at += 1 + query[at]
        question = query[12:at + 5]
        kind = struct.unpack(">H", query[at + 1:at + 3])[0]
        known = self.names.get(".".join(labels))
        answers = [record for record in (self._record(kind, value) for value in known or ()) if record]
        code = 0 if known is not None else 3
        head = query[:2] + struct.pack(">HHHHH", 0x8480 | code, 1, len(answers), 0, 0)
        return head + question + b"".join(b"\xc0\x0c" + struct.pack(">HHIH", kind, 1, 2, len(one)) + one for one in answers)

    @staticmethod
    def _record(kind, value):
        parts = value.split(":")
        if kind == 1 and len(parts) == 1:
            return socket.inet_aton(value)
        if kind == 33 and len(parts) == 3:
            target = b"".join(bytes([len(label)]) + label.encode() for label in parts[0].split(".")) + b"\0"
            return struct.pack(">HHH", 1, int(parts[2]), int(parts[1])) + target
        return None


def read_head(reader):
    """The first line and the headers as pairs, or None at the end."""
    start = reader.readline().decode("latin-1").strip()
    if not start:
        return None
    headers = []
    while line := reader.readline().decode("latin-1").strip():
        name, value = line.split(":", 1)
        headers.append([name.lower(), value.strip()])
    return start, headers


def read_body(reader, headers):
    if header(headers, "transfer-encoding"):
        parts = []
        while size := int(reader.readline().split(b";")[0], 16):
            parts.append(reader.read(size))
            reader.readline()
        reader.readline()
        return b"".join(parts).decode("latin-1")
    return reader.read(int(header(headers, "content-length") or 0)).decode("latin-1")


def header(headers, name):
    """The values of a header, joined; empty if there is none."""
    return ", ".join(value for key, value in headers if key == name)


def accepted(key):
    """Sec-WebSocket-Accept of a key (RFC 6455, section 4.2.2)."""
    return base64.b64encode(hashlib.sha1((key + "258EAFA5-E914-47DA-95CA-C5AB0DC85B11").encode()).digest()).decode()


def read_proxy_header(connection):
    """The client's address in a PROXY protocol header, version 1 or 2."""
    start = read_exactly(connection, 12)
    if start == b"\r\n\r\n\0\r\nQUIT\n":
        _, _, length = struct.unpack(">BBH", read_exactly(connection, 4))
        return socket.inet_ntoa(read_exactly(connection, length)[:4])
    while not start.endswith(b"\r\n"):
        start += read_exactly(connection, 1)
    return start.split(b" ")[2].decode()


def read_exactly(connection, count):
    data = b""
    while len(data) < count:
        more = connection.recv(count - len(data))
        if not more:
            raise ValueError("the connection ended")
        data += more
    return data


def accepts(address):
    try:
        with socket.create_connection(address, 1):
            return True
    except OSError:
        return False


def until(condition, what, limit_s=60):
    """Polls until `condition` holds; for states without an event."""
    end = time.monotonic() + limit_s
    while not condition():
        if time.monotonic() > end:
            raise RuntimeError(f"waited {limit_s} s in vain for {what}")
        time.sleep(0.02)
