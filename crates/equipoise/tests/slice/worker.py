"""The program of a worker: appends the id of each item to the file in its first argument, and replies with the message.

The optional second argument is a pause for each item, in milliseconds. The program ends when its input ends, after the
items that it has received.
"""

import os
import struct
import sys
import time

HEAD = struct.Struct("<QiqiqI")
log = os.open(sys.argv[1], os.O_WRONLY | os.O_APPEND | os.O_CREAT)
pause_s = float(sys.argv[2]) / 1000 if len(sys.argv) > 2 else 0
while len(length := sys.stdin.buffer.read(4)) == 4:
    batch, at = sys.stdin.buffer.read(int.from_bytes(length, "little")), 0
    answers = b""
    while at < len(batch):
        job, _slice, id, _sender, _timestamp, size = HEAD.unpack_from(batch, at)
        message = batch[at + HEAD.size:at + HEAD.size + size]
        at += HEAD.size + size
        time.sleep(pause_s)
        os.write(log, id.to_bytes(8, "little"))
        answers += struct.pack("<QI", job, len(message)) + message
    sys.stdout.buffer.write(struct.pack("<I", len(answers)) + answers)
    sys.stdout.buffer.flush()
