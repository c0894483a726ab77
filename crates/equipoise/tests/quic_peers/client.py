"""QUIC clients whose address changes: client.py ADDRESS PORT CONNECTIONS.

Prints the servers of its connections. With each SIGUSR1, every connection fetches bytes, goes on
from another port in the middle, and asks for the server's name again; then it prints `round N` with
the connections whose server is another one, or that got no answer.
"""

import asyncio
import contextlib
import signal
import socket
import ssl
import sys

from aioquic.asyncio import connect
from aioquic.quic.configuration import QuicConfiguration

FETCHED = 1 << 19
PATIENCE = 45


class Client:
    def __init__(self, number, protocol):
        self.number, self.protocol = number, protocol

    async def ask(self, question):
        reader, writer = await self.protocol.create_stream()
        writer.write(question)
        writer.write_eof()
        return reader

    async def who(self):
        return (await (await self.ask(b"who")).read()).decode()

    async def rebind(self):
        """Sends from a new socket from now on; the old one is gone."""
        new = socket.socket(socket.AF_INET6, socket.SOCK_DGRAM)
        new.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 0)
        new.bind(("::", 0))
        old = self.protocol._transport
        loop = asyncio.get_running_loop()
        await loop.create_datagram_endpoint(lambda: self.protocol, sock=new)
        old.close()
        # A client that moves uses another connection id (RFC 9000, section 9.5); one behind a NAT
        # does not know that its address has changed.
        if self.number % 2:
            self.protocol.change_connection_id()

    async def fetch(self):
        reader = await self.ask(b"get %d" % FETCHED)
        first = await reader.readexactly(FETCHED // 8)
        await self.rebind()
        rest = await reader.read()
        return len(first) + len(rest)

    async def ping(self):
        """Sends a PING every second.

        A server sends to an address that it has not validated at most three times the bytes that
        came from there (RFC 9000, section 8.1). If its challenge or the answer is lost, and the
        client has nothing to send, both ends wait.
        """
        while True:
            await asyncio.sleep(1)
            self.protocol._quic.send_ping(0)
            self.protocol.transmit()

    async def round(self, server):
        pings = asyncio.create_task(self.ping())
        try:
            async with asyncio.timeout(PATIENCE):
                fetched = await self.fetch()
                if fetched != FETCHED:
                    return f"{server}: {fetched} bytes"
                now = await self.who()
                return "" if now == server else f"{server}: now {now}"
        except (TimeoutError, ConnectionError) as error:
            return f"{server}: {error!r}"
        finally:
            pings.cancel()


async def main():
    address, port, count = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
    asked = asyncio.Queue()
    asyncio.get_running_loop().add_signal_handler(signal.SIGUSR1, asked.put_nowait, None)
    configuration = QuicConfiguration(alpn_protocols=["x"], idle_timeout=120)
    configuration.verify_mode = ssl.CERT_NONE
    async with contextlib.AsyncExitStack() as stack:
        clients = []
        for number in range(count):
            opened = connect(address, port, configuration=configuration)
            clients.append(Client(number, await stack.enter_async_context(opened)))
        servers = [await client.who() for client in clients]
        print("opened", *servers, flush=True)
        rounds = 0
        while True:
            await asked.get()
            rounds += 1
            ends = await asyncio.gather(*map(Client.round, clients, servers))
            print(f"round {rounds}:", *(end for end in ends if end), flush=True)


asyncio.run(main())
