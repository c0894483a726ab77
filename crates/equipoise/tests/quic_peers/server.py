"""A QUIC server whose connection ids have its server id: server.py ADDRESS PORT NAME CONFIGS.

CONFIGS is JSON: a list of `rotation`, `server_id`, `nonce_length` and `key` (hexadecimal, or null).
Each connection id is made by one of them. A stream with `who` is answered with NAME, one with
`get N` with N bytes.
"""

import asyncio
import datetime
import json
import os
import random
import sys
import tempfile

from aioquic.asyncio import QuicConnectionProtocol, serve
from aioquic.quic import connection
from aioquic.quic.configuration import QuicConfiguration
from aioquic.quic.events import StreamDataReceived
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec

import quic_lb

# aioquic's connection ids have one length.
ID_BYTES = 17


class Random:
    """The module `os` for aioquic, which takes its connection ids from `urandom`."""

    def __init__(self, configs):
        self.configs = configs

    def urandom(self, count):
        if count == ID_BYTES:
            return quic_lb.connection_id(random.choice(self.configs), ID_BYTES)
        return os.urandom(count)

    def __getattr__(self, name):
        return getattr(os, name)


class Server(QuicConnectionProtocol):
    name = b""

    def __init__(self, *args, **kwargs):
        super().__init__(*args, **kwargs)
        self.asked = {}

    def quic_event_received(self, event):
        if not isinstance(event, StreamDataReceived):
            return
        asked = self.asked.pop(event.stream_id, b"") + event.data
        if not event.end_stream:
            self.asked[event.stream_id] = asked
            return
        answer = self.name if asked == b"who" else bytes(int(asked.split()[1]))
        self._quic.send_stream_data(event.stream_id, answer, end_stream=True)
        self.transmit()


def certificate():
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "quic")])
    now = datetime.datetime.now(datetime.timezone.utc)
    builder = x509.CertificateBuilder().subject_name(name).issuer_name(name)
    builder = builder.public_key(key.public_key()).serial_number(1)
    day = datetime.timedelta(days=1)
    builder = builder.not_valid_before(now - day).not_valid_after(now + day)
    signed = builder.sign(key, hashes.SHA256())
    pem = serialization.Encoding.PEM
    plain = key.private_bytes(pem, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
    return signed.public_bytes(pem), plain


async def main():
    address, port, name, configs = sys.argv[1:]
    connection.os = Random(json.loads(configs))
    Server.name = name.encode()
    configuration = QuicConfiguration(is_client=False, alpn_protocols=["x"], idle_timeout=120)
    configuration.connection_id_length = ID_BYTES
    with tempfile.TemporaryDirectory() as folder:
        files = []
        for file, text in zip(("certificate", "key"), certificate()):
            files.append(os.path.join(folder, file))
            with open(files[-1], "wb") as out:
                out.write(text)
        configuration.load_cert_chain(*files)
    await serve(address, int(port), configuration=configuration, create_protocol=Server)
    print("ready", flush=True)
    await asyncio.Event().wait()


asyncio.run(main())
