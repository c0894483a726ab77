"""The other side of python.rs: publishes items, answers items.

peer.py publish DOMAIN COUNT     publishes items 0.. and prints the ids of the replies, as they come
peer.py answer DOMAIN COUNT      answers items, until it has answered COUNT
"""

import sys
import time

from cyclonedds.core import InstanceState, ReadCondition, SampleState, ViewState, WaitSet
from cyclonedds.domain import Domain, DomainParticipant
from cyclonedds.pub import DataWriter
from cyclonedds.sub import DataReader
from cyclonedds.topic import Topic
from cyclonedds.util import duration

# Of crates/levels/slice-dds/examples, by PYTHONPATH.
from dpslb import QOS, DataItem, Reply

LOOPBACK = (
    '<CycloneDDS><Domain><General><Interfaces><NetworkInterface name="lo"/></Interfaces></General>'
    "<Discovery><LeaseDuration>30 s</LeaseDuration></Discovery></Domain></CycloneDDS>"
)
PATIENCE_S = 60


def samples(participant, reader):
    """Valid samples as they come, until none has for PATIENCE_S."""
    waitset = WaitSet(participant)
    waitset.attach(ReadCondition(reader, SampleState.Any | InstanceState.Any | ViewState.Any))
    while waitset.wait(duration(seconds=PATIENCE_S)):
        for sample in reader.take(N=100):
            if sample.sample_info.valid_data:
                yield sample
    sys.exit("no samples came")


def met(writer):
    end = time.monotonic() + PATIENCE_S
    while not writer.get_matched_subscriptions():
        if time.monotonic() > end:
            sys.exit("no reader is there")
        time.sleep(0.005)


def publish(participant, writer, reader, count):
    met(writer)
    for id in range(count):
        writer.write(DataItem(id % 10, id, 42, 1000 + id, bytes([id % 256]) * (id % 5)))
    for answered, reply in enumerate(samples(participant, reader), start=1):
        assert reply.senderId == 42 and reply.timestamp == 1000 + reply.id, reply
        print(reply.id, bytes(reply.message).decode(), flush=True)
        if answered == count:
            return


def answer(participant, writer, reader, count):
    for answered, item in enumerate(samples(participant, reader), start=1):
        text = f"slice {item.sliceId} {bytes(item.message).hex()}"
        met(writer)
        writer.write(Reply(item.id, item.timestamp, item.senderId, text.encode()))
        if answered == count:
            writer.wait_for_acks(duration(seconds=PATIENCE_S))
            return


def main():
    what, number, count = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
    domain = Domain(number, LOOPBACK)
    participant = DomainParticipant(number)
    items = Topic(participant, "items", DataItem)
    replies = Topic(participant, "replies", Reply)
    if what == "publish":
        publish(participant, DataWriter(participant, items, qos=QOS), DataReader(participant, replies, qos=QOS), count)
    else:
        answer(participant, DataWriter(participant, replies, qos=QOS), DataReader(participant, items, qos=QOS), count)
    del participant, domain


main()
