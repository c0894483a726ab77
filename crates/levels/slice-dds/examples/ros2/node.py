#!/usr/bin/env python3
"""A node as ROS 2 has them, without ROS 2: publishes COUNT laser scans of ten robots on /scan and prints each message on /nearest.

    node.py DOMAIN COUNT WORKERS [INTERFACE]

It waits for WORKERS workers: what is published before a reader is there, DDS delivers to nobody.
"""

import sys
import time

from cyclonedds.domain import Domain, DomainParticipant
from cyclonedds.pub import DataWriter
from cyclonedds.sub import DataReader
from cyclonedds.topic import Topic

from messages import QOS, Header, LaserScan, Range, Time

PATIENCE_S = 60


def until(what, holds):
    end = time.monotonic() + PATIENCE_S
    while not holds():
        if time.monotonic() > end:
            sys.exit(what)
        time.sleep(0.01)


def main():
    number, count, workers = (int(arg) for arg in sys.argv[1:4])
    interface = f'<Interfaces><NetworkInterface name="{sys.argv[4]}"/></Interfaces>' if sys.argv[4:] else ""
    domain = Domain(number, f"<CycloneDDS><Domain><General>{interface}</General></Domain></CycloneDDS>")
    participant = DomainParticipant(number)
    scans = DataWriter(participant, Topic(participant, "rt/scan", LaserScan), qos=QOS)
    nearest = DataReader(participant, Topic(participant, "rt/nearest", Range), qos=QOS)
    until(
        "the workers are not there",
        lambda: len(scans.get_matched_subscriptions()) >= workers and len(nearest.get_matched_publications()) >= workers,
    )
    # The workers also have to discover this writer.
    time.sleep(0.5)
    for n in range(count):
        header = Header(Time(n, 0), f"robot_{n % 10}/base_scan")
        scans.write(LaserScan(header, range_max=30.0, ranges=[5.0 + n, 1.0 + n, 9.0], intensities=[0.5]))
    got = {}

    def all_came():
        for message in nearest.take(N=100):
            if message.sample_info.valid_data:
                got[message.header.stamp.sec] = message
        return len(got) == count

    until("messages are missing", all_came)
    for n, message in sorted(got.items()):
        print(n, message.header.frame_id, message.range, flush=True)
    del participant, domain


main()
