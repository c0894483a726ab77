"""Types and QoS of the slice level's topics, and functions that assign items to slices, for Python's `cyclonedds` package.

    from dpslb import DataItem, Reply, QOS          # the stream's usual types
    DataItem, Reply = types_of("my_msgs.msg.dds_.DataItem_", "my_msgs.msg.dds_.Reply_", keyed=False)    # as in ROS 2
"""

from bisect import bisect_right
from dataclasses import dataclass

from cyclonedds.core import Policy, Qos
from cyclonedds.idl import IdlStruct
from cyclonedds.idl.annotations import final, keylist
from cyclonedds.idl.types import byte, int32, int64, sequence, uint64
from cyclonedds.util import duration


def types_of(item_type, reply_type, keyed=True):
    """Types of items and replies with these names (modules with `.`). `keyed`: the keys are slice and id."""

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
    """Messages between workers, controllers and clients. On the topic `CONTROL/again` workers ask clients for items, and
    on `CONTROL/down` clients answer them."""

    to: uint64
    body: sequence[byte]


def body_of(numbers):
    """A message to workers with these numbers."""
    body = bytearray([VERSION])
    for number in numbers:
        while number > 0x7F:
            body.append(number & 0x7F | 0x80)
            number >>= 7
        body.append(number)
    return bytes(body)


def numbers_of(body):
    """The numbers of a message of a worker."""
    numbers, number, shift = [], 0, 0
    # A version, then numbers of seven bits per byte, the lowest first. All bytes but the last of a number have the highest bit set.
    for octet in bytes(body[1:]):
        number |= (octet & 0x7F) << shift
        shift += 7
        if octet < 0x80:
            numbers.append(number)
            number, shift = 0, 0
    return numbers


def slices_asked_for(body):
    """The slices that the successor of a lost worker asks for, its number of slices, and the resize that set this number. It
    asks for the items with a `sliceId` modulo that number in the set. An empty set, 1 and 0 if the message is of another kind."""
    numbers = numbers_of(body)
    # The kind, the count of slices, the slices; then the numbering: its resize, the number of slices, the number of ids ever used.
    if numbers[:1] != [AGAIN] or numbers[1:2] != [len(numbers) - 5]:
        return set(), 1, 0
    return set(numbers[2:-3]), max(numbers[-2], 1), numbers[-3]


def keeps(group, writer, through, slices, resize):
    """The answer to such a request: for each slice that was asked for, the positions of the items of this writer that the client
    keeps. It is complete for items up to the position `through`."""
    numbers = [KEEPS, group, writer, through, len(slices)]
    for slice, positions in slices.items():
        numbers += [slice, len(positions), *positions]
    return Control(WORKERS, body_of([*numbers, resize]))


def lacking(body):
    """The items that a successor still lacks: a set of (group, writer, position). Empty if the message is of another kind."""
    numbers, items = numbers_of(body), set()
    if numbers[:1] != [LACKS]:
        return items
    rest = iter(numbers[1:])
    for _ in range(next(rest)):
        group, writer = next(rest), next(rest)
        items |= {(group, writer, next(rest)) for _ in range(next(rest))}
    return items


def covered_by(body):
    """What checkpoints contain: for each (slice, group, writer) a position. And the number of slices. No positions and 1 if the
    message is of another kind."""
    numbers, covered = numbers_of(body), {}
    if numbers[:1] != [COVERED]:
        return covered, 1
    rest = iter(numbers[1:])
    for _ in range(next(rest)):
        slice = next(rest)
        for _ in range(next(rest)):
            group, writer, position = next(rest), next(rest), next(rest)
            covered[slice, group, writer] = max(position, covered.get((slice, group, writer), 0))
        # The number of the checkpoint, if there is one.
        if next(rest):
            next(rest), next(rest)
    _resize, slices, _ids = rest
    return covered, max(slices, 1)


# The version of messages, and their recipient if they are for all workers.
VERSION, WORKERS = 9, 0
# The kinds of messages: a request for the items of some slices, the answer to it, items in checkpoints, items that are missing.
AGAIN, KEEPS, COVERED, LACKS = 3, 4, 5, 7

# Reliable; keeps all samples; the end of a writer does not dispose of its samples.
POLICIES = (
    Policy.Reliability.Reliable(duration(seconds=10)),
    Policy.History.KeepAll,
    Policy.WriterDataLifecycle(autodispose=False),
)
QOS = Qos(*POLICIES)
# Of messages to workers: the last ones, as a worker that does not read must not block others.
MESSAGES = Qos(Policy.Reliability.Reliable(duration(milliseconds=20)), Policy.History.KeepLast(64))

# For Cyclone DDS's configuration, beside <General>. DDS declares a program dead that is silent for its lease. Until then workers
# keep its replies, so a shorter pause loses nothing. The default lease is 10 s, renewed after 8 s of silence.
LEASE = "<Discovery><LeaseDuration>5 s</LeaseDuration><SPDPInterval>1 s</SPDPInterval></Discovery>"

# Beside it. By default the limit of a writer's unacknowledged data falls to 1 kB in time. Then a new or slightly late worker
# blocks its clients.
WATERMARKS = "<Internal><Watermarks><WhcLow>64 kB</WhcLow><WhcHighInit>128 kB</WhcHighInit></Watermarks></Internal>"

# Number of groups of slices. The partition of a group is `g` and its number.
GROUPS = 64


def by_modulo(slices):
    """For ids that are counted up."""
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
    """Adjacent ids have the same slice. `bounds`: the first ids of slice 1, slice 2 and so on, ascending."""
    return lambda id: bisect_right(bounds, id)
