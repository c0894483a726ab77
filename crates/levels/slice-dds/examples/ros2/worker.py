#!/usr/bin/env python3
"""A worker's program that gets messages of ROS 2: of each LaserScan it finds the nearest range, and answers with a Range message.

    equipoise slice worker --config slice.toml --name w1 -- python3 worker.py

The message of an item is the serialized sample, and so is the answer.
"""

import struct
import sys

from messages import LaserScan, Range

# Job, slice, id, sender, timestamp, length of the message.
HEAD = struct.Struct("<QiqiqI")

read, write = sys.stdin.buffer.read, sys.stdout.buffer.write
while len(length := read(4)) == 4:
    batch, at, answers = read(int.from_bytes(length, "little")), 0, b""
    while at < len(batch):
        job, _slice, _id, _sender, _timestamp, size = HEAD.unpack_from(batch, at)
        message = batch[at + HEAD.size:at + HEAD.size + size]
        at += HEAD.size + size
        scan = LaserScan.deserialize(message)
        nearest = Range(scan.header, min_range=scan.range_min, max_range=scan.range_max, range=min(scan.ranges))
        answer = nearest.serialize()
        answers += struct.pack("<QI", job, len(answer)) + answer
    write(struct.pack("<I", len(answers)) + answers)
    sys.stdout.buffer.flush()
