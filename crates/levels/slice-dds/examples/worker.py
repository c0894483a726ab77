#!/usr/bin/env python3
"""A slice worker's program in Python: turns images (PPM, P6) to greyscale (PGM, P5).

It receives batches of items on its standard input, and acknowledges each item on its standard output. The reply to the client is
"processed WIDTH HEIGHT"; the program discards the grey image. It also counts the items of each slice, as an example of a state
that moves with its slice. The reply to an item that is not an image has this count. With --crash-after N it exits after N items.

    equipoise slice worker ... -- python3 worker.py
"""

import struct
import sys

HEAD = struct.Struct("<QiqiqI")
COUNT = struct.Struct("<Q")
ITEM, IMPORT, LOST, EXPORT = range(4)  # the two highest bits of a job


def grey(image):
    """0.3 R + 0.59 G + 0.11 B of every pixel. None if the bytes are not a P6 image with 8 bits."""
    parts = image.split(maxsplit=4) if image[:2] == b"P6" else []
    if len(parts) < 4 or parts[3] != b"255":
        return None
    width, height = int(parts[1]), int(parts[2])
    pixels = image[len(image) - 3 * width * height:]
    red, green, blue = pixels[0::3], pixels[1::3], pixels[2::3]
    return width, height, bytes((77 * r + 151 * g + 28 * b) >> 8 for r, g, b in zip(red, green, blue))


def batches(stream):
    """Yields batches of items: job, slice, id, sender, timestamp, message."""
    while len(length := stream.read(4)) == 4:
        batch, at, items = stream.read(int.from_bytes(length, "little")), 0, []
        while at < len(batch):
            *head, size = HEAD.unpack_from(batch, at)
            at += HEAD.size
            items.append((*head, batch[at:at + size]))
            at += size
        yield items


def work(counts, kind, slice, message):
    """Processes a job. Returns the reply."""
    if kind == EXPORT:
        return COUNT.pack(counts.pop(slice, 0))
    if kind in (IMPORT, LOST):
        counts[slice] = COUNT.unpack(message)[0] if message else 0
        return b""
    counts[slice] = counts.get(slice, 0) + 1
    image = grey(message)
    return f"processed {image[0]} {image[1]}".encode() if image else f"received {counts[slice]}".encode()


def main():
    counts = {}
    left = int(sys.argv[2]) if sys.argv[1:2] == ["--crash-after"] else None
    for items in batches(sys.stdin.buffer):
        answers = b""
        for job, slice, _id, _sender, _timestamp, message in items:
            if left is not None:
                left -= 1
                if left < 0:
                    sys.exit(1)
            reply = work(counts, job >> 62, slice, message)
            answers += struct.pack("<QI", job, len(reply)) + reply
        sys.stdout.buffer.write(struct.pack("<I", len(answers)) + answers)
        sys.stdout.buffer.flush()


main()
