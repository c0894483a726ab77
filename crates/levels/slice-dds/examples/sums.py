#!/usr/bin/env python3
"""A slice worker's program in Python with a state that checkpoints save: sums by key.

An item is `KEY AMOUNT`; the reply is the sum of the amounts of the key so far. An item `?` is answered by all sums of its
slice as JSON. The state of a slice is that JSON, too: it moves with the slice, and with `checkpoint` in the stream's table it
survives the loss of the worker. Nothing of it has to be kept on disk.

    equipoise slice worker ... -- python3 sums.py
"""

import json
import struct
import sys

HEAD = struct.Struct("<QiqiqI")
ITEM, IMPORT, LOST, EXPORT = range(4)  # the two highest bits of a job
STAYS = 1  # the id of an export for a checkpoint: the slice stays


def work(slices, kind, slice, id, message):
    """Does a job; the reply."""
    if kind == EXPORT:
        sums = slices.get(slice, {}) if id == STAYS else slices.pop(slice, {})
        return json.dumps(sums).encode()
    if kind in (IMPORT, LOST):
        slices[slice] = json.loads(message) if message else {}
        return b""
    sums = slices.setdefault(slice, {})
    if message == b"?":
        return json.dumps(sums, sort_keys=True).encode()
    key, amount = message.decode().split()
    sums[key] = sums.get(key, 0) + int(amount)
    return str(sums[key]).encode()


def main():
    slices, read = {}, sys.stdin.buffer.read
    while len(length := read(4)) == 4:
        batch, at, answers = read(int.from_bytes(length, "little")), 0, b""
        while at < len(batch):
            job, slice, id, _sender, _timestamp, size = HEAD.unpack_from(batch, at)
            at += HEAD.size
            reply = work(slices, job >> 62, slice, id, batch[at:at + size])
            at += size
            answers += struct.pack("<QI", job, len(reply)) + reply
        sys.stdout.buffer.write(struct.pack("<I", len(answers)) + answers)
        sys.stdout.buffer.flush()


main()
