"""An HTTP/3 client: aioquic_client.py CA PORT NAME. Prints one line for each request."""

import asyncio
import sys

from aioquic.asyncio.client import connect
from aioquic.asyncio.protocol import QuicConnectionProtocol
from aioquic.h3.connection import H3_ALPN, H3Connection
from aioquic.h3.events import DataReceived, HeadersReceived
from aioquic.quic.configuration import QuicConfiguration
from aioquic.quic.events import ProtocolNegotiated

BODY = b"aioquic" * 50_000


class Client(QuicConnectionProtocol):
    def __init__(self, *arguments, **named):
        super().__init__(*arguments, **named)
        self.http, self.answers = None, {}

    def quic_event_received(self, event):
        if isinstance(event, ProtocolNegotiated):
            self.http = H3Connection(self._quic)
        for received in self.http.handle_event(event) if self.http else []:
            if not isinstance(received, (HeadersReceived, DataReceived)):
                continue
            answer = self.answers[received.stream_id]
            if isinstance(received, HeadersReceived):
                answer["fields"] += received.headers
            else:
                answer["body"] += received.data
            if received.stream_ended:
                answer["ended"].set()

    async def ask(self, name, method, path, body=b""):
        stream = self._quic.get_next_available_stream_id()
        answer = {"fields": [], "body": b"", "ended": asyncio.Event()}
        self.answers[stream] = answer
        pseudo = [(":method", method), (":scheme", "https"), (":authority", name), (":path", path)]
        fields = [(key.encode(), value.encode()) for key, value in pseudo]
        self.http.send_headers(stream, fields, end_stream=not body)
        if body:
            self.http.send_data(stream, body, end_stream=True)
        self.transmit()
        await asyncio.wait_for(answer["ended"].wait(), 60)
        return dict(answer["fields"]), answer["body"]


async def main():
    authority, port, name = sys.argv[1], int(sys.argv[2]), sys.argv[3]
    configuration = QuicConfiguration(alpn_protocols=H3_ALPN, server_name=name)
    configuration.load_verify_locations(authority)
    async with connect(
        "127.0.0.1", port, configuration=configuration, create_protocol=Client
    ) as client:
        fields, body = await client.ask(name, "GET", "/aioquic")
        print("GET", fields[b":status"].decode(), body.decode(), flush=True)
        fields, body = await client.ask(name, "POST", "/echo", BODY)
        print("POST", fields[b":status"].decode(), body.endswith(BODY), flush=True)
        many = [client.ask(name, "GET", f"/{number}") for number in range(80)]
        answers = await asyncio.gather(*many)
        right = [body.decode() == f"/{number}" for number, (_, body) in enumerate(answers)]
        wrong = [answer for answer, it in zip(answers, right, strict=True) if not it]
        print("MANY", len(right), wrong, flush=True)


asyncio.run(main())
