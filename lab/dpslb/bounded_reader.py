#!/usr/bin/env python3
"""Measures how a bounded DDS reader affects others: the reason why a full worker does not block its writers.

Two publishers write reliably, keeping all, one in partition g1 and one in g2: processes of their own. Two processes read
both partitions. From second 3 on the one called full takes nothing of g1, where its reader is bounded. Prints the items that each
writes and reads in each second. Wanted: g1 waits, and nothing else changes.

    pip install cyclonedds; python3 bounded_reader.py [samples=100 [CSV]]
    ASYNC=1 python3 bounded_reader.py     # delivery by Cyclone's queue in the place of its receive thread
"""

import csv
import multiprocessing
import os
import sys
import threading
import time
from dataclasses import dataclass

ASYNC = """<Internal><SynchronousDeliveryPriorityThreshold>100</SynchronousDeliveryPriorityThreshold>
<DeliveryQueueMaxSamples>100000</DeliveryQueueMaxSamples></Internal>"""
os.environ["CYCLONEDDS_URI"] = (
    "<CycloneDDS><Domain><General><Interfaces><NetworkInterface name='lo'/></Interfaces></General>"
    + (ASYNC if os.environ.get("ASYNC") else "")
    + "</Domain></CycloneDDS>"
)

from cyclonedds.core import DDSException, Policy, Qos
from cyclonedds.domain import DomainParticipant
from cyclonedds.idl import IdlStruct
from cyclonedds.idl.annotations import key
from cyclonedds.idl.types import int32, sequence, uint8
from cyclonedds.pub import DataWriter, Publisher
from cyclonedds.sub import DataReader, Subscriber
from cyclonedds.topic import Topic
from cyclonedds.util import duration

DOMAIN = 57
PARTITIONS = ("g1", "g2")
BOUND = int(sys.argv[1]) if len(sys.argv) > 1 else 100
A_SECOND = 1000
STOPS_S, WRITES_S, READS_S = 3, 7, 9
RELIABLE = [Policy.Reliability.Reliable(duration(seconds=10)), Policy.History.KeepAll]


@dataclass
class Item(IdlStruct, typename="Item"):
    slice: int32
    key("slice")
    id: int32
    message: sequence[uint8]


def partition(name):
    return Qos(Policy.Partition([name]))


def read(name, bound, stops, told):
    participant = DomainParticipant(DOMAIN)
    topic = Topic(participant, "items", Item)

    def reader(group):
        limits = [Policy.ResourceLimits(bound, -1, -1)] if bound and group == "g1" else []
        of = Subscriber(participant, qos=partition(group))
        return DataReader(of, topic, qos=Qos(*RELIABLE, *limits))

    readers = {group: reader(group) for group in PARTITIONS}
    begun, counts = time.time(), dict.fromkeys(PARTITIONS, 0)
    for second in range(1, READS_S + 1):
        before = dict(counts)
        while time.time() < begun + second:
            for group, of in readers.items():
                if not (bound and group == "g1" and stops.is_set()):
                    counts[group] += len(of.take(N=500))
            time.sleep(0.002)
        told.put((second, f"{name} reads", {group: counts[group] - before[group] for group in PARTITIONS}))


def write(group, told):
    participant = DomainParticipant(DOMAIN)
    topic = Topic(participant, "items", Item)
    writer = DataWriter(Publisher(participant, qos=partition(group)), topic, qos=Qos(*RELIABLE))
    time.sleep(1.0)
    begun, written = time.time(), [0]

    def publish():
        while True:
            try:
                writer.write(Item(1, written[0], [0] * 200))
                written[0] += 1
            except DDSException:
                pass  # It waited for 10 s.
            time.sleep(1 / A_SECOND)

    threading.Thread(target=publish, daemon=True).start()
    before = 0
    for second in range(1, WRITES_S + 1):
        time.sleep(max(0.0, begun + second - time.time()))
        told.put((second + 1, "writes " + group, written[0] - before))
        before = written[0]


def main():
    told, stops = multiprocessing.Queue(), multiprocessing.Event()
    roles = [(read, ("full", BOUND, stops, told)), (read, ("other", 0, stops, told))]
    roles += [(write, (group, told)) for group in PARTITIONS]
    processes = [multiprocessing.Process(target=role, args=args) for role, args in roles]
    for process in processes:
        process.start()
    time.sleep(STOPS_S + 0.5)
    stops.set()
    rows, end = [], time.time() + READS_S
    while time.time() < end:
        try:
            rows.append(told.get(timeout=0.5))
        except Exception:
            continue
    for process in processes:
        process.kill()
    rows.sort(key=lambda row: row[:2])
    for second, who, what in rows:
        print(second, who, what)
    if len(sys.argv) > 2:
        with open(sys.argv[2], "w", newline="") as out:
            writer = csv.writer(out)
            writer.writerow(["second", "who", "g1", "g2"])
            for second, who, what in rows:
                one = {who.removeprefix("writes "): what} if isinstance(what, int) else what
                writer.writerow([second, who.split()[0] if isinstance(what, int) else who, one.get("g1", ""), one.get("g2", "")])


if __name__ == "__main__":
    main()
