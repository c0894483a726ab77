#!/usr/bin/env python3
"""A client of the stream: stream.py EXAMPLES DOMAIN SLICES ITEMS_PER_S SECONDS.

EXAMPLES is the folder of the slice level's examples. Prints JSON: items published, items without a reply at the end,
and [seconds from the begin, seconds until the reply] of each item.
"""

import json
import sys
import time

PATIENCE_S = 30


def main():
    sys.path.insert(0, sys.argv[1])
    number, slices, rate, seconds = (int(word) for word in sys.argv[2:])
    from client import Client
    from cyclonedds.domain import Domain, DomainParticipant
    from dpslb import LEASE, WATERMARKS, by_modulo
    network = '<General><Interfaces><NetworkInterface name="eth0"/></Interfaces></General>'
    domain = Domain(number, f"<CycloneDDS><Domain>{network}{LEASE}{WATERMARKS}</Domain></CycloneDDS>")
    client = Client(DomainParticipant(number), by_modulo(slices), False)
    begun, published, begins, delays = time.monotonic(), 0, {}, []
    while published < rate * seconds or client.waiting:
        now = time.monotonic() - begun
        if published < rate * seconds and now >= published / rate:
            begins[published] = now
            client.publish(published, b"item")
            published += 1
        else:
            time.sleep(0.002)
        for reply in client.answers():
            delays.append([round(begins[reply.id], 3), round(time.monotonic() - begun - begins[reply.id], 4)])
        client.publish_again()
        if now > seconds + PATIENCE_S:
            break
    print(json.dumps({"published": published, "lost": len(client.waiting), "delays_s": delays}))
    del client, domain


if __name__ == "__main__":
    main()
