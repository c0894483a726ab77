"""A WebSocket server and client (RFC 6455) of Python's standard library.

server: echoes messages; at /push it sends one every 100 ms for 3 s, and closes.
HOST:PORT PATH idle: sends one message, and then waits for the end of the connection.
HOST:PORT PATH talk: sends a message every 100 ms for 3 s, and closes.
HOST:PORT PATH listen: reads messages until the server closes.
"""

import base64, hashlib, os, socket, struct, sys, threading, time

GUID = b"258EAFA5-E914-47DA-95CA-C5AB0DC85B11"
TEXT, CLOSE = 1, 8


def accept_of(key):
    return base64.b64encode(hashlib.sha1(key + GUID).digest())


class Connection:
    def __init__(self, sock, masks):
        self.sock, self.masks, self.buffer = sock, masks, b""

    def read(self, count):
        while len(self.buffer) < count:
            some = self.sock.recv(65536)
            if not some:
                raise EOFError
            self.buffer += some
        data, self.buffer = self.buffer[:count], self.buffer[count:]
        return data

    def head(self):
        lines = b""
        while not lines.endswith(b"\r\n\r\n"):
            lines += self.read(1)
        first, *fields = lines.decode().strip().split("\r\n")
        pairs = (field.split(":", 1) for field in fields)
        return first, {name.strip().lower(): value.strip() for name, value in pairs}

    def send(self, opcode, payload):
        length = bytes([len(payload) | (0x80 if self.masks else 0)])
        if not self.masks:
            return self.sock.sendall(bytes([0x80 | opcode]) + length + payload)
        key = os.urandom(4)
        masked = bytes(byte ^ key[at % 4] for at, byte in enumerate(payload))
        self.sock.sendall(bytes([0x80 | opcode]) + length + key + masked)

    def receive(self):
        first, length = self.read(2)
        is_masked, length = length & 0x80, length & 0x7F
        assert first & 0x80 and length < 126 and bool(is_masked) != self.masks
        key = self.read(4) if is_masked else bytes(4)
        payload = bytes(byte ^ key[at % 4] for at, byte in enumerate(self.read(length)))
        return first & 0x0F, payload


def serve(sock):
    peer = Connection(sock, masks=False)
    try:
        first, fields = peer.head()
        answer = accept_of(fields["sec-websocket-key"].encode()).decode()
        lines = ["HTTP/1.1 101 Switching Protocols", "Upgrade: websocket", "Connection: Upgrade"]
        lines += ["Sec-WebSocket-Accept: " + answer, "", ""]
        sock.sendall("\r\n".join(lines).encode())
        if first.split()[1].endswith("/push"):
            for number in range(30):
                peer.send(TEXT, b"%d" % number)
                time.sleep(0.1)
            peer.send(CLOSE, struct.pack("!H", 1000))
        while True:
            opcode, payload = peer.receive()
            peer.send(opcode, payload)
            if opcode == CLOSE:
                break
    except (EOFError, OSError):
        pass
    sock.close()


def server():
    listener = socket.create_server(("127.0.0.1", 0))
    print("ready http=%d" % listener.getsockname()[1], flush=True)
    while True:
        sock, _ = listener.accept()
        threading.Thread(target=serve, args=[sock], daemon=True).start()


def client(place, path, work):
    host, port = place.rsplit(":", 1)
    sock = socket.create_connection((host, int(port)), timeout=60)
    peer, key = Connection(sock, masks=True), base64.b64encode(os.urandom(16))
    lines = ["GET %s HTTP/1.1" % path, "Host: " + place, "Upgrade: websocket", "Connection: Upgrade"]
    lines += ["Sec-WebSocket-Version: 13", "Sec-WebSocket-Key: " + key.decode(), "", ""]
    sock.sendall("\r\n".join(lines).encode())
    first, fields = peer.head()
    assert " 101 " in first and fields["sec-websocket-accept"] == accept_of(key).decode(), first
    if work == "listen":
        count = 0
        while (message := peer.receive())[0] == TEXT:
            count += 1
        assert message[0] == CLOSE
        print("heard", count)
        return
    messages = 30 if work == "talk" else 1
    for number in range(messages):
        since = time.monotonic()
        peer.send(TEXT, b"%d" % number)
        assert peer.receive() == (TEXT, b"%d" % number)
        if work == "talk":
            time.sleep(0.1)
    if work == "talk":
        peer.send(CLOSE, struct.pack("!H", 1000))
        assert peer.receive()[0] == CLOSE
        print("talked", messages)
        return
    try:
        peer.receive()
        print("message")
    except (EOFError, ConnectionResetError):
        print("ended %.3f" % (time.monotonic() - since))


server() if sys.argv[1] == "server" else client(*sys.argv[1:])
