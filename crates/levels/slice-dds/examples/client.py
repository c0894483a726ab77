#!/usr/bin/env python3
"""A client in Python, with the `cyclonedds` package: publishes COUNT items and prints the id and text of each reply.

    pip install cyclonedds
    client.py DOMAIN SLICES COUNT [INTERFACE [modulo|hash|range [checkpoints]]]

Types, QoS and assignment functions are in dpslb.py, which must be in the same folder.

The client keeps each item until its reply has arrived, and republishes it after a second without a reply. So no item is lost
with a worker. The successor of a lost worker asks for the items of some slices. The client answers which ones it keeps, so that
the successor knows when it has them all. It republishes these items at once, and
again when it discovers the successor's readers. It republishes through a second writer, with the item's first source timestamp.
The user data of this writer names the first one, so workers can distinguish republished items from new ones.

With `checkpoints`, for a stream that has them, the client keeps each item until a checkpoint contains it, and ends when one
contains the last item.

Without an assignment argument, the client publishes in no partition, where every worker reads. With one, it opens a pair of
writers for each group of slices at the group's first item. Then an item reaches only the workers of its group.
"""

import os
import random
import sys
import time

from cyclonedds.core import DDSException, Policy, Qos
from cyclonedds.domain import Domain, DomainParticipant
from cyclonedds.pub import DataWriter, Publisher
from cyclonedds.sub import DataReader
from cyclonedds.topic import Topic

from dpslb import GROUPS, LEASE, MESSAGES, POLICIES, QOS, WATERMARKS, Control, DataItem, Reply
from dpslb import by_hash, by_modulo, by_range, covered_by, keeps, lacking, slices_asked_for

# Value of `control` in the file of the controller.
CONTROL = os.environ.get("CONTROL", "equipoise/slice")

# All clients receive all replies. The sender distinguishes this client's replies from others, and the timestamp distinguishes
# them from replies to an earlier run.
SENDER = random.getrandbits(31)
AGAIN_S = 1.0
# A request of a successor counts for this long.
ASKING_S = 4.0
PATIENCE_S = 60.0


def numbered(kind, number):
    """QoS of a writer whose source timestamps number its items."""
    return Qos(*POLICIES, Policy.Userdata(f"equipoise-slice/1/{kind}/{number:016x}".encode()))


def matched(listed):
    """What a method of the binding lists. It fails if one more comes while it makes its list."""
    while True:
        try:
            return listed()
        except IndexError:
            pass


class Writers:
    """Two writers: for new items, and for republished ones."""

    def __init__(self, participant, items, partition, replies):
        self.number = number = random.getrandbits(64)
        qos = Qos(Policy.Partition([partition])) if partition else None
        publisher = Publisher(participant, qos=qos)
        self.first = DataWriter(publisher, items, qos=numbered("first", number))
        self.again = DataWriter(publisher, items, qos=numbered("again", number))
        self.wait_for_workers(replies)
        self.met = self.readers()

    def readers(self):
        """The readers that the two writers have discovered."""
        return {*matched(self.first.get_matched_subscriptions), *matched(self.again.get_matched_subscriptions)}

    def has_met_others(self):
        """Whether there are new readers since the last call. They lack the items published before."""
        before, self.met = self.met, self.readers()
        return not self.met <= before

    def wait_for_workers(self, replies):
        """Waits until a worker reads items and its replies arrive here: DDS delivers no earlier items."""
        end = time.monotonic() + PATIENCE_S
        while not (
            matched(self.first.get_matched_subscriptions)
            and matched(self.again.get_matched_subscriptions)
            and matched(replies.get_matched_publications)
        ):
            if time.monotonic() > end:
                sys.exit("there is no worker")
            time.sleep(0.01)
        # Time for the other workers.
        time.sleep(0.2)


class Client:
    def __init__(self, participant, slice_of, by_group, checkpoints=False):
        self.participant, self.slice_of, self.by_group = participant, slice_of, by_group
        # Items with replies that are in no checkpoint, and the positions that checkpoints contain.
        self.kept, self.covered, self.count, self.checkpoints = {}, {}, 1, checkpoints
        self.items = Topic(participant, "items", DataItem)
        self.replies = DataReader(participant, Topic(participant, "replies", Reply), qos=QOS)
        self.asks = DataReader(participant, Topic(participant, f"{CONTROL}/again", Control), qos=QOS)
        self.to_workers = DataWriter(participant, Topic(participant, f"{CONTROL}/down", Control), qos=MESSAGES)
        # Writers by group, and the time of the last request for each slice.
        self.writers, self.waiting, self.asked, self.used, self.position = {}, {}, {}, set(), 0

    def group_of(self, slice):
        """The group of the writers of a slice. GROUPS stands for no partition."""
        return slice % GROUPS if self.by_group else GROUPS

    def writers_of(self, slice):
        group = self.group_of(slice)
        if group not in self.writers:
            partition = f"g{group}" if self.by_group else None
            self.writers[group] = Writers(self.participant, self.items, partition, self.replies)
        return self.writers[group]

    def place_of(self, item):
        """The item as workers name it: group, writer, position."""
        return self.group_of(item.sliceId), self.writers_of(item.sliceId).number, item.timestamp

    def all_items(self):
        """All kept items, with replies and without."""
        return [*self.kept.values(), *(item for item, _ in self.waiting.values())]

    def publish(self, id, message):
        slice = self.slice_of(id)
        self.used.add(slice)
        writers = self.writers_of(slice)
        # Grows with each item.
        self.position = max(time.time_ns(), self.position + 1)
        item = DataItem(slice, id, SENDER, self.position, message)
        writers.first.write(item, timestamp=item.timestamp)
        self.waiting[id] = (item, time.monotonic())

    def answers(self):
        """Takes all replies that have arrived. Yields the first one to each item."""
        while replies := self.replies.take(N=1000):
            for reply in replies:
                if not reply.sample_info.valid_data or reply.senderId != SENDER:
                    continue
                item, _ = self.waiting.get(reply.id, (None, 0))
                if item and item.timestamp == reply.timestamp:
                    del self.waiting[reply.id]
                    if self.checkpoints and not self.is_covered(item):
                        self.kept[reply.id] = item
                    yield reply

    def is_covered(self, item):
        """Whether a checkpoint contains the item."""
        group, writer, position = self.place_of(item)
        return position <= self.covered.get((item.sliceId % self.count, group, writer), 0)

    def answer(self, asked, count, resize):
        """Answers a successor which items of these slices this client keeps."""
        answers = {}
        for slice in self.used:
            if slice % count in asked:
                answers.setdefault(self.group_of(slice), {})[slice % count] = []
        for item in self.all_items():
            if item.sliceId % count in asked:
                group, _, position = self.place_of(item)
                answers[group][item.sliceId % count].append(position)
        for group, slices in answers.items():
            try:
                # The position of the next item is larger.
                self.to_workers.write(keeps(group, self.writers[group].number, self.position, slices, resize))
            except DDSException:
                # A worker that has no answer asks again.
                pass

    def wanted(self):
        """The slices to republish now: with a new request of a successor, or with a request and new readers. And the places of
        items that a successor lacks."""
        now, wanted, lacked = time.monotonic(), set(), set()
        for sample in self.asks.take(N=1000):
            if sample.sample_info.valid_data:
                covered, count = covered_by(sample.body)
                if covered:
                    self.count = count
                    self.covered.update(covered)
                    self.kept = {id: item for id, item in self.kept.items() if not self.is_covered(item)}
                lacked |= lacking(sample.body)
                asked, count, resize = slices_asked_for(sample.body)
                if asked:
                    self.answer(asked, count, resize)
                slices = {slice for slice in self.used if slice % count in asked}
                wanted |= {slice for slice in slices if now - self.asked.get(slice, -ASKING_S) >= ASKING_S}
                self.asked.update(dict.fromkeys(slices, now))
        self.asked = {slice: said for slice, said in self.asked.items() if now - said < ASKING_S}
        if self.asked:
            new = {group for group, writers in self.writers.items() if writers.has_met_others()}
            wanted |= {slice for slice in self.asked if self.group_of(slice) in new}
        return wanted, lacked

    def publish_again(self):
        """Republishes items for a successor, and items without a reply. Call it after `answers`, which removes answered items."""
        (wanted, lacked), now = self.wanted(), time.monotonic()
        for item in self.kept.values():
            if lacked and self.place_of(item) in lacked:
                self.writers_of(item.sliceId).again.write(item, timestamp=item.timestamp)
        for id, (item, said) in self.waiting.items():
            if item.sliceId in wanted or now - said > AGAIN_S:
                self.writers_of(item.sliceId).again.write(item, timestamp=item.timestamp)
                self.waiting[id] = (item, now)


def main():
    number, slices, count = (int(arg) for arg in sys.argv[1:4])
    interface, assignment = (sys.argv[4:6] + [None, None])[:2]
    checkpoints = sys.argv[6:7] == ["checkpoints"]
    slice_of = {
        None: by_modulo(slices),
        "modulo": by_modulo(slices),
        "hash": by_hash(slices),
        # The same number of ids for each slice.
        "range": by_range([count * slice // slices for slice in range(1, slices)]),
    }[assignment]
    interface = f'<Interfaces><NetworkInterface name="{interface}"/></Interfaces>' if interface else ""
    domain = Domain(number, f"<CycloneDDS><Domain><General>{interface}</General>{LEASE}{WATERMARKS}</Domain></CycloneDDS>")
    client = Client(DomainParticipant(number), slice_of, assignment is not None, checkpoints)
    published, end = 0, time.monotonic() + PATIENCE_S
    while published < count or client.waiting or client.kept:
        if published < count:
            client.publish(published, f"item {published}".encode())
            published += 1
            end = time.monotonic() + PATIENCE_S
        else:
            time.sleep(0.002)
        for reply in client.answers():
            print(reply.id, bytes(reply.message).decode(), flush=True)
        client.publish_again()
        if time.monotonic() > end:
            sys.exit(f"{len(client.waiting)} items have no reply, {len(client.kept)} are in no checkpoint")
    del client, domain


if __name__ == "__main__":
    main()
