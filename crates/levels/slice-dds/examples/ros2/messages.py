"""Messages of ROS 2 for Python's `cyclonedds` package: with the names that ROS 2 gives types in DDS, and without keys.

With ROS 2 itself they are `from sensor_msgs.msg import LaserScan, Range`, and rclpy serializes them.
"""

from dataclasses import dataclass, field

from cyclonedds.core import Policy, Qos
from cyclonedds.idl import IdlStruct
from cyclonedds.idl.annotations import final
from cyclonedds.idl.types import float32, int32, sequence, uint8, uint32
from cyclonedds.util import duration


@dataclass
@final
class Time(IdlStruct, typename="builtin_interfaces.msg.dds_.Time_"):
    sec: int32 = 0
    nanosec: uint32 = 0


@dataclass
@final
class Header(IdlStruct, typename="std_msgs.msg.dds_.Header_"):
    stamp: Time = field(default_factory=Time)
    frame_id: str = ""


@dataclass
@final
class LaserScan(IdlStruct, typename="sensor_msgs.msg.dds_.LaserScan_"):
    header: Header = field(default_factory=Header)
    angle_min: float32 = 0.0
    angle_max: float32 = 0.0
    angle_increment: float32 = 0.0
    time_increment: float32 = 0.0
    scan_time: float32 = 0.0
    range_min: float32 = 0.0
    range_max: float32 = 0.0
    ranges: sequence[float32] = field(default_factory=list)
    intensities: sequence[float32] = field(default_factory=list)


@dataclass
@final
class Range(IdlStruct, typename="sensor_msgs.msg.dds_.Range_"):
    header: Header = field(default_factory=Header)
    radiation_type: uint8 = 0
    field_of_view: float32 = 0.0
    min_range: float32 = 0.0
    max_range: float32 = 0.0
    range: float32 = 0.0
    variance: float32 = 0.0


# rclpy's QoSProfile(reliability=RELIABLE, history=KEEP_LAST, depth=1000), and what rmw says of each endpoint.
QOS = Qos(
    Policy.Reliability.Reliable(duration(milliseconds=100)),
    Policy.History.KeepLast(1000),
    Policy.Durability.Volatile,
    Policy.Userdata(b"typehash=RIHS01_" + 64 * b"0" + b";"),
)
