#!/usr/bin/python3
"""Asks a front door with TLS as httpx does: over HTTP/2, and over HTTP/1.1. Its backend answers with what it received.

    httpx_client.py URL AUTHORITY
"""

import asyncio
import sys

import httpx

REQUESTS = 200
PIECES, PIECE = 64, b"0123456789abcdef" * 1024


async def pieces():
    for _ in range(PIECES):
        yield PIECE


async def ask(client, url, protocol):
    first = await client.get(f"{url}/first")
    assert (first.status_code, first.http_version) == (200, protocol), first.http_version

    answers = await asyncio.gather(*(client.get(f"{url}/{number}", headers={"x-number": str(number)}) for number in range(REQUESTS)))
    for number, answer in enumerate(answers):
        lines = answer.text.split("\r\n")
        assert answer.status_code == 200 and lines[0] == f"GET /{number} HTTP/1.1", lines
        assert f"x-number: {number}" in lines, lines

    upload = await client.post(f"{url}/upload", content=pieces())
    assert upload.status_code == 200 and upload.http_version == protocol
    assert upload.content.endswith(PIECES * PIECE), len(upload.content)

    async with client.stream("GET", f"{url}/left") as left:
        assert left.status_code == 200
    after = await client.get(f"{url}/after")
    assert after.status_code == 200


async def main(url, authority):
    for http2, protocol in [(True, "HTTP/2"), (False, "HTTP/1.1")]:
        async with httpx.AsyncClient(http2=http2, verify=authority, timeout=60) as client:
            await ask(client, url, protocol)


asyncio.run(main(*sys.argv[1:]))
