#!/usr/bin/env python3
"""A slice worker's program in Python: turns images (PPM, P6) to greyscale (PGM, P5).

It gets batches of items on its standard input and acknowledges each on its standard output; the reply to the client is
"processed WIDTH HEIGHT". What it does with the grey image is up to you. It counts the items of each slice, and where state moves
with slices, the counts do: an item that is no image is answered by its slice's count. With --crash-after N it dies after N items.

    equipoise slice worker ... -- python3 worker.py
"""

import struct
import sys

HEAD = struct.Struct("<QiqiqI")
COUNT = struct.Struct("<Q")
ITEM, IMPORT, LOST, EXPORT = range(4)  # the two highest bits of a job


def grey(image):
    """0.3 R + 0.59 G + 0.11 B of every pixel; None if it is no P6 image with 8 bits."""
    parts = image.split(maxsplit=4) if image[:2] == b"P6" else []
    if len(parts) < 4 or parts[3] != b"255":
        return None
    width, height = int(parts[1]), int(parts[2])
    pixels = image[len(image) - 3 * width * height:]
    red, green, blue = pixels[0::3], pixels[1::3], pixels[2::3]
    return width, height, bytes((77 * r + 151 * g + 28 * b) >> 8 for r, g, b in zip(red, green, blue))


def batches(stream):
    """Items, batch by batch: job, slice, id, sender, timestamp, message."""
    while len(length := stream.read(4)) == 4:
        batch, at, items = stream.read(int.from_bytes(length, "little")), 0, []
        while at < len(batch):
            *head, size = HEAD.unpack_from(batch, at)
            at += HEAD.size
            items.append((*head, batch[at:at + size]))
            at += size
        yield items


def work(counts, kind, slice, message):
    """Does a job; the reply."""
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
