"""The types of the slice level's topics and the QoS of their readers and writers, for Python's `cyclonedds` package.

    from dpslb import DataItem, Reply, QOS          # the stream's usual types
    DataItem, Reply = types_of("my_msgs.msg.dds_.DataItem_", "my_msgs.msg.dds_.Reply_", keyed=False)    # as ROS 2 has them
"""

from dataclasses import dataclass

from cyclonedds.core import Policy, Qos
from cyclonedds.idl import IdlStruct
from cyclonedds.idl.annotations import final, keylist
from cyclonedds.idl.types import byte, int32, int64, sequence
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

# Nothing is lost, all is kept, and a writer that ends has not taken back what it wrote.
POLICIES = (
    Policy.Reliability.Reliable(duration(seconds=10)),
    Policy.History.KeepAll,
    Policy.WriterDataLifecycle(autodispose=False),
)
QOS = Qos(*POLICIES)
