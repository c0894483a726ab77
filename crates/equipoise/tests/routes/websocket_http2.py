"""A WebSocket client over HTTP/2 (RFC 8441) with the library h2 (Debian: python3-h2).

HOST:PORT PATH: sends a message, reads its echo, closes in order; prints the steps.
"""

import socket, sys

import h2.config, h2.connection, h2.events, h2.settings

host, port = sys.argv[1].rsplit(":", 1)
sock = socket.create_connection((host, int(port)), timeout=30)
http2 = h2.connection.H2Connection(h2.config.H2Configuration(header_encoding="utf-8"))
http2.initiate_connection()
MASK = bytes([1, 2, 3, 4])


def frame(opcode, payload):
    masked = bytes(byte ^ MASK[at % 4] for at, byte in enumerate(payload))
    return bytes([0x80 | opcode, 0x80 | len(payload)]) + MASK + masked


def flush():
    sock.sendall(http2.data_to_send())


def events():
    while True:
        flush()
        data = sock.recv(65536)
        if not data:
            sys.exit("the connection ended")
        yield from http2.receive_data(data)


stream, received = None, b""
for event in events():
    if isinstance(event, h2.events.RemoteSettingsChanged):
        code = h2.settings.SettingCodes.ENABLE_CONNECT_PROTOCOL
        if code in event.changed_settings and event.changed_settings[code].new_value == 1:
            stream = http2.get_next_available_stream_id()
            head = [(":method", "CONNECT"), (":protocol", "websocket"), (":scheme", "http"),
                    (":path", sys.argv[2]), (":authority", "a.example"), ("sec-websocket-version", "13")]
            http2.send_headers(stream, head)
    elif isinstance(event, h2.events.ResponseReceived):
        print("status", dict(event.headers)[":status"])
        http2.send_data(stream, frame(1, b"hello"))
    elif isinstance(event, h2.events.DataReceived):
        http2.acknowledge_received_data(event.flow_controlled_length, stream)
        received += event.data
        if received == b"\x81\x05hello":
            print("echoed")
            http2.send_data(stream, frame(8, b""))
    elif isinstance(event, h2.events.StreamEnded):
        print("closed" if received[7:8] == b"\x88" else f"cut {received}")
        break
    elif isinstance(event, (h2.events.StreamReset, h2.events.ConnectionTerminated)):
        sys.exit(f"{event}")
