"""The types of the slice level's topics, the QoS of their readers and writers, and the functions that give items their slices, for
Python's `cyclonedds` package.

    from dpslb import DataItem, Reply, QOS          # the stream's usual types
    DataItem, Reply = types_of("my_msgs.msg.dds_.DataItem_", "my_msgs.msg.dds_.Reply_", keyed=False)    # as ROS 2 has them
"""

from bisect import bisect_right
from dataclasses import dataclass

from cyclonedds.core import Policy, Qos
from cyclonedds.idl import IdlStruct
from cyclonedds.idl.annotations import final, keylist
from cyclonedds.idl.types import byte, int32, int64, sequence, uint64
from cyclonedds.util import duration


def types_of(item_type, reply_type, keyed=True):
    """Items and replies under these names (modules with `.`); `keyed`: by slice and by id."""

    @dataclass
    @final
    @keylist(["sliceId"] if keyed else [])
    class DataItem(IdlStruct, typename=item_type):
        sliceId: int32
        id: int64
        senderId: int32
        timestamp: int64
        message: sequence[byte]

    @dataclass
    @final
    @keylist(["id"] if keyed else [])
    class Reply(IdlStruct, typename=reply_type):
        id: int64
        timestamp: int64
        senderId: int32
        message: sequence[byte]

    return DataItem, Reply


DataItem, Reply = types_of("dpslb.DataItem", "dpslb.Reply")


@dataclass
@final
@keylist(["to"])
class Control(IdlStruct, typename="equipoise.Control"):
    """What workers and controllers write to each other; on the topic `CONTROL/again` workers ask clients."""

    to: uint64
    body: sequence[byte]


def slices_asked_for(body):
    """The slices whose items the successor of a lost worker asks for, and the number of slices by which it numbers them; an item
    is meant if its `sliceId` modulo that number is among them. An empty set and 1 if the message is another."""
    numbers, number, shift = [], 0, 0
    # After a version: numbers of seven bits a byte, the lowest first; all but their last bytes have the highest bit set.
    for octet in bytes(body[1:]):
        number |= (octet & 0x7F) << shift
        shift += 7
        if octet < 0x80:
            numbers.append(number)
            number, shift = 0, 0
    # A kind, how many slices, and these; then the numbering: the resize that introduced it, how many slices, how many ever.
    if numbers[:1] != [AGAIN] or numbers[1:2] != [len(numbers) - 5]:
        return set(), 1
    return set(numbers[2:-3]), max(numbers[-2], 1)


# The kind of message that asks for items again.
AGAIN = 3

# Nothing is lost, all is kept, and a writer that ends has not taken back what it wrote.
POLICIES = (
    Policy.Reliability.Reliable(duration(seconds=10)),
    Policy.History.KeepAll,
    Policy.WriterDataLifecycle(autodispose=False),
)
QOS = Qos(*POLICIES)

# Into Cyclone DDS's configuration, beside <General>. A program that is silent for its lease is taken for dead: a shorter pause costs
# it nothing, and until then workers keep replies for it. By default the lease is 10 s, and renewed after 8 s of silence.
LEASE = "<Discovery><LeaseDuration>5 s</LeaseDuration><SPDPInterval>1 s</SPDPInterval></Discovery>"

# Beside it. By default what a writer may have unacknowledged falls to 1 kB in time, and then a worker that is new or a moment late
# holds up its clients.
WATERMARKS = "<Internal><Watermarks><WhcLow>64 kB</WhcLow><WhcHighInit>128 kB</WhcHighInit></Watermarks></Internal>"

# A group of slices is one partition, `g` and its number.
GROUPS = 64


def by_modulo(slices):
    """For ids that count up."""
    return lambda id: id % slices


def by_hash(slices):
    """For ids that have a pattern. The same as `Assignment::Hash` of the library in Rust."""

    def slice_of(id):
        value = (id + 0x9E3779B97F4A7C15) % 2**64
        value = (value ^ (value >> 30)) * 0xBF58476D1CE4E5B9 % 2**64
        value = (value ^ (value >> 27)) * 0x94D049BB133111EB % 2**64
        return ((value ^ (value >> 31)) * slices) >> 64

    return slice_of


def by_range(bounds):
    """Ids that are near each other are of one slice. `bounds`: the first ids of slice 1, slice 2 and so on, ascending."""
    return lambda id: bisect_right(bounds, id)
