#!/usr/bin/env python3
"""A client in Python, with the `cyclonedds` package: publishes COUNT items and prints the id and text of each reply.

    pip install cyclonedds
    client.py DOMAIN SLICES COUNT [INTERFACE]

Types and QoS are in dpslb.py, which has to lie beside it. It keeps each item until its reply has come, and publishes it again after a
second without one, so that nothing is lost with a worker. So that workers know what comes again from what is new, it does so through a
second writer, which names the first one in its user data, and with the item's first source timestamp. It publishes in no partition,
where every worker reads.
"""

import random
import sys
import time

from cyclonedds.core import Policy, Qos
from cyclonedds.domain import Domain, DomainParticipant
from cyclonedds.pub import DataWriter
from cyclonedds.sub import DataReader
from cyclonedds.topic import Topic

from dpslb import POLICIES, QOS, DataItem, Reply

SENDER = 42
AGAIN_S = 1.0
PATIENCE_S = 60.0


def numbered(kind, number):
    """QoS of a writer whose source timestamps number its items."""
    return Qos(*POLICIES, Policy.Userdata(f"equipoise-slice/1/{kind}/{number:016x}".encode()))


def wait_for_workers(first, again, reader):
    """Until items reach somebody and replies come here: what is written before, DDS delivers to nobody."""
    end = time.monotonic() + PATIENCE_S
    while not (
        first.get_matched_subscriptions()
        and again.get_matched_subscriptions()
        and reader.get_matched_publications()
    ):
        if time.monotonic() > end:
            sys.exit("there is no worker")
        time.sleep(0.01)
    # The other workers.
    time.sleep(0.5)


def main():
    number, slices, count = (int(arg) for arg in sys.argv[1:4])
    interface = f'<Interfaces><NetworkInterface name="{sys.argv[4]}"/></Interfaces>' if sys.argv[4:] else ""
    domain = Domain(number, f"<CycloneDDS><Domain><General>{interface}</General></Domain></CycloneDDS>")
    participant = DomainParticipant(number)
    items, writer = Topic(participant, "items", DataItem), random.getrandbits(64)
    first = DataWriter(participant, items, qos=numbered("first", writer))
    again = DataWriter(participant, items, qos=numbered("again", writer))
    reader = DataReader(participant, Topic(participant, "replies", Reply), qos=QOS)
    wait_for_workers(first, again, reader)

    waiting, position = {}, 0
    for id in range(count):
        # Grows with each item.
        position = max(time.time_ns(), position + 1)
        item = DataItem(id % slices, id, SENDER, position, f"item {id}".encode())
        first.write(item, timestamp=position)
        waiting[id] = (item, time.monotonic())
    end = time.monotonic() + PATIENCE_S
    while waiting:
        for reply in reader.take(N=1000):
            if reply.sample_info.valid_data and reply.senderId == SENDER and waiting.pop(reply.id, None):
                print(reply.id, bytes(reply.message).decode(), flush=True)
        now = time.monotonic()
        if now > end:
            sys.exit(f"{len(waiting)} items have no reply")
        for id, (item, said) in waiting.items():
            if now - said > AGAIN_S:
                again.write(item, timestamp=item.timestamp)
                waiting[id] = (item, now)
        time.sleep(0.002)
    del participant, domain


main()
