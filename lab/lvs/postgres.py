"""A client of PostgreSQL for simple queries without a password: protocol version 3."""

import socket
import struct


class Postgres:
    """One connection; not for several threads at once."""

    def __init__(self, address, user="postgres"):
        family = socket.AF_INET if isinstance(address, tuple) else socket.AF_UNIX
        self.stream = socket.socket(family)
        self.stream.settimeout(120)
        self.stream.connect(address)
        if family == socket.AF_INET:
            self.stream.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.input = self.stream.makefile("rb")
        parameters = f"user\0{user}\0database\0postgres\0\0".encode()
        self.stream.sendall(struct.pack("!II", len(parameters) + 8, 196608) + parameters)
        self.rows()

    def query(self, text):
        """Returns the rows, each a list of strings or None."""
        body = text.encode() + b"\0"
        self.stream.sendall(b"Q" + struct.pack("!I", len(body) + 4) + body)
        return self.rows()

    def rows(self):
        """Reads messages until the server is ready for a query."""
        rows, error = [], None
        while True:
            kind, length = struct.unpack("!cI", self.input.read(5))
            body = self.input.read(length - 4)
            if kind == b"D":
                rows.append(columns(body))
            elif kind == b"E":
                error = body.replace(b"\0", b" ").decode(errors="replace")
                if b"FATAL" in body:
                    raise RuntimeError(error)
            elif kind == b"Z":
                if error:
                    raise RuntimeError(error)
                return rows


def columns(body):
    row, at = [], 2
    for _ in range(struct.unpack_from("!H", body)[0]):
        (length,) = struct.unpack_from("!i", body, at)
        at += 4
        row.append(None if length < 0 else body[at:at + length].decode())
        at += max(0, length)
    return row
