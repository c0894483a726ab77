#!/usr/bin/env python3
"""The clients: requests that are sent when they are due, whether earlier ones were answered or not.

Groups of clients share a resolver's answers, as behind one resolver; the first group is the largest. A client tries
the addresses of its answer in turn. Each time counts from the moment when the request was due (no coordinated
omission). Reads a plan in JSON from standard input; prints a JSON list of
[due in s, kind, seconds or null, reason of a failure or ""].
"""

import asyncio
import contextlib
import json
import random
import resource
import struct
import sys
import time

CONNECT_S, PATIENCE_S, DNS_S = 0.5, 3.0, 0.5


def question(number, name):
    labels = b"".join(bytes([len(label)]) + label.encode() for label in name.split("."))
    return struct.pack(">HHHHHH", number, 0x0100, 1, 0, 0, 0) + labels + b"\0" + struct.pack(">HH", 1, 1)


def answers(message, asked):
    """The addresses and the smallest TTL in an answer to `asked`."""
    if message[:2] != asked[:2] or message[3] & 15:
        return [], 0
    at, found, ttls = len(asked), [], []
    for _ in range(struct.unpack_from(">H", message, 6)[0]):
        # The owner's name is a pointer, or labels.
        while message[at] not in (0,) and message[at] < 0xC0:
            at += 1 + message[at]
        at += 2 if message[at] >= 0xC0 else 1
        kind, _, ttl, length = struct.unpack_from(">HHIH", message, at)
        at += 10
        if kind == 1 and length == 4:
            found.append(".".join(map(str, message[at:at + 4])))
            ttls.append(ttl)
        at += length
    return found, min(ttls, default=0)


class Query(asyncio.DatagramProtocol):
    def __init__(self):
        self.reply = asyncio.get_running_loop().create_future()

    def datagram_received(self, data, _):
        if not self.reply.done():
            self.reply.set_result(data)

    def error_received(self, error):
        if not self.reply.done():
            self.reply.set_exception(error)


class Resolver:
    """One resolver: keeps an answer for its TTL, and the last one while no server answers."""

    def __init__(self, plan, number, dice):
        self.servers, self.name, self.fixed = plan["servers"], plan["name"], plan["fixed"]
        self.dice, self.number = dice, number
        self.kept, self.until, self.lock = [], 0.0, asyncio.Lock()

    async def addresses(self):
        if not self.fixed:
            async with self.lock:
                if time.monotonic() >= self.until:
                    await self.ask()
        # Resolvers turn the addresses of an answer round.
        found = self.fixed or self.kept
        self.number += 1
        at = self.number % max(1, len(found))
        return found[at:] + found[:at]

    async def ask(self):
        servers = self.dice.sample(self.servers, len(self.servers))
        for server in servers:
            asked = question(self.dice.randrange(65536), self.name)
            loop = asyncio.get_running_loop()
            transport, query = await loop.create_datagram_endpoint(Query, remote_addr=(server, 53))
            try:
                transport.sendto(asked)
                found, ttl = answers(await asyncio.wait_for(query.reply, DNS_S), asked)
            except (OSError, asyncio.TimeoutError):
                continue
            finally:
                transport.close()
            if found:
                self.kept, self.until = found, time.monotonic() + ttl
                return


async def connect(addresses):
    error = OSError("no address")
    for address in addresses:
        try:
            return await asyncio.wait_for(asyncio.open_connection(address, 80), CONNECT_S)
        except (OSError, asyncio.TimeoutError) as failure:
            error = failure
    raise error


async def request(resolver, kind, size):
    addresses = await resolver.addresses()
    reader, writer = await connect(addresses)
    try:
        if kind == "transfer":
            head = f"POST /echo HTTP/1.1\r\nHost: www\r\nConnection: close\r\nContent-Length: {size}\r\n\r\n"
            writer.write(head.encode() + bytes(size))
        else:
            writer.write(b"GET /work HTTP/1.1\r\nHost: www\r\nConnection: close\r\n\r\n")
        await writer.drain()
        head = await reader.readuntil(b"\r\n\r\n")
        status = int(head.split(b" ", 2)[1])
        length = next((int(line.split(b":")[1]) for line in head.lower().split(b"\r\n")
                       if line.startswith(b"content-length:")), 0)
        await reader.readexactly(length)
        return status
    finally:
        writer.close()
        with contextlib.suppress(OSError):
            await writer.wait_closed()


async def one(resolver, begun, due, kind, size, seen):
    reason = ""
    try:
        status = await asyncio.wait_for(request(resolver, kind, size), PATIENCE_S)
        if status != 200:
            reason = str(status)
    except (asyncio.TimeoutError, TimeoutError):
        reason = "time-out"
    except (OSError, asyncio.IncompleteReadError) as failure:
        reason = type(failure).__name__
    took = time.monotonic() - begun - due
    seen.append([round(due, 4), kind, None if reason else round(took, 4), reason])


async def main():
    plan = json.load(sys.stdin)
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    dice = random.Random(plan["seed"])
    resolvers = [Resolver(plan, number, dice) for number in range(plan["resolvers"])]
    # Clients behind the resolvers: 1, 1/2, 1/3, ...
    weights = [1 / (1 + number) for number in range(plan["resolvers"])]
    dues = []
    for phase in plan["phases"]:
        for kind in ("transfer", "computing"):
            for at in range(round(phase[kind] * phase["seconds"])):
                due = phase["begin"] + dice.random() * phase["seconds"]
                # A crowd is behind the first resolver.
                crowd = phase.get("crowd", 0.0)
                weighed = dice.choices(resolvers, weights)[0]
                dues.append((due, kind, resolvers[0] if dice.random() < crowd else weighed))
    dues.sort(key=lambda it: it[0])
    begun, seen, tasks = time.monotonic(), [], set()
    print(f"begun {begun}", file=sys.stderr, flush=True)
    for due, kind, resolver in dues:
        wait = begun + due - time.monotonic()
        if wait > 0:
            await asyncio.sleep(wait)
        task = asyncio.create_task(one(resolver, begun, due, kind, plan["transfer_bytes"], seen))
        tasks.add(task)
        task.add_done_callback(tasks.discard)
    await asyncio.gather(*tasks)
    print(json.dumps(seen))


if __name__ == "__main__":
    asyncio.run(main())
