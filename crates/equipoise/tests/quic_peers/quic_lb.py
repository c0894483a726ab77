"""Connection ids as servers make them: draft-ietf-quic-load-balancers, section "Server Actions"."""

import os

from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes


def connection_id(config, length):
    """A connection id of `length` bytes; bytes behind the nonce are random."""
    nonce = os.urandom(config["nonce_length"])
    plain = bytes.fromhex(config["server_id"]) + nonce
    first = config["rotation"] << 5 | os.urandom(1)[0] & 0x1F
    made = bytes([first]) + encrypted(config.get("key"), plain)
    return made + os.urandom(length - len(made))


def encrypted(key, plain):
    if key is None:
        return plain
    encrypt = Cipher(algorithms.AES128(bytes.fromhex(key)), modes.ECB()).encryptor().update
    if len(plain) == 16:
        return encrypt(plain)
    # As numbers of half bytes, so that an odd number of bytes has halves, too.
    count = len(plain)
    bits, size = 4 * count, (count + 1) // 2
    left, right = divmod(int.from_bytes(plain, "big"), 1 << bits)
    # The left half begins with its first byte, the right half ends with its last.
    unused = 8 * size - bits
    for number in (1, 2, 3, 4):
        half = left << unused if number % 2 else right
        block = half.to_bytes(size, "big").ljust(14, b"\0") + bytes([count, number])
        added = int.from_bytes(encrypt(block)[:size], "big")
        if number % 2:
            right ^= added & ((1 << bits) - 1)
        else:
            left ^= added >> unused
    return (left << bits | right).to_bytes(count, "big")
