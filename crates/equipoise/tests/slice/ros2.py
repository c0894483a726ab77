"""A publisher like those of ROS 2, without ROS 2: with its names of topics and types and its user data, and without keys
and partitions.

ros2.py DOMAIN SLICES COUNT    publishes items 0.. and prints each reply; then a writer of a shorter type publishes three samples
"""

import sys
import time
from dataclasses import dataclass

from cyclonedds.core import Policy, Qos
from cyclonedds.domain import Domain, DomainParticipant
from cyclonedds.idl import IdlStruct
from cyclonedds.idl.annotations import final
from cyclonedds.idl.types import int32
from cyclonedds.pub import DataWriter
from cyclonedds.sub import DataReader
from cyclonedds.topic import Topic
from cyclonedds.util import duration

# In crates/levels/slice-dds/examples, found by PYTHONPATH.
from dpslb import types_of

LOOPBACK = (
    '<CycloneDDS><Domain><General><Interfaces><NetworkInterface name="lo"/></Interfaces></General></Domain></CycloneDDS>'
)
PATIENCE_S = 60
PACKAGE = "equipoise_msgs.msg.dds_."
# rclcpp::QoS(1000), which is reliable, and the user data that rmw sets for each endpoint.
QOS = Qos(
    Policy.Reliability.Reliable(duration(milliseconds=100)),
    Policy.History.KeepLast(1000),
    Policy.Durability.Volatile,
    Policy.Userdata(b"typehash=RIHS01_" + 64 * b"0" + b";"),
)


@dataclass
@final
class Short(IdlStruct, typename=PACKAGE + "DataItem_"):
    sliceId: int32


def until(what, holds):
    end = time.monotonic() + PATIENCE_S
    while not holds():
        if time.monotonic() > end:
            sys.exit(what)
        time.sleep(0.01)


def main():
    number, slices, count = (int(arg) for arg in sys.argv[1:4])
    domain = Domain(number, LOOPBACK)
    participant = DomainParticipant(number)
    item_type, reply_type = types_of(PACKAGE + "DataItem_", PACKAGE + "Reply_", keyed=False)
    writer = DataWriter(participant, Topic(participant, "rt/items", item_type), qos=QOS)
    reader = DataReader(participant, Topic(participant, "rt/replies", reply_type), qos=QOS)
    until("no worker is present", lambda: writer.get_matched_subscriptions() and reader.get_matched_publications())
    for id in range(count):
        writer.write(item_type(id % slices, id, 42, 1000 + id, f"item {id}".encode()))
    got = {}
    def all_came():
        for reply in reader.take(N=100):
            if reply.sample_info.valid_data:
                assert reply.senderId == 42 and reply.timestamp == 1000 + reply.id, reply
                got[reply.id] = bytes(reply.message).decode()
        return len(got) == count
    until("replies are missing", all_came)
    for id, text in sorted(got.items()):
        print(id, text, flush=True)
    other = DomainParticipant(number)
    short = DataWriter(other, Topic(other, "rt/items", Short), qos=QOS)
    until("no reader matches the shorter type", short.get_matched_subscriptions)
    for slice in range(3):
        short.write(Short(slice))
    short.wait_for_acks(duration(seconds=PATIENCE_S))
    del participant, other, domain


main()
