"""Turns the checksum offload of an interface off, as `ethtool -K INTERFACE tx off` does."""

import ctypes
import fcntl
import socket
import struct
import sys

SIOCETHTOOL = 0x8946
ETHTOOL_STXCSUM = 0x17

value = ctypes.create_string_buffer(struct.pack("II", ETHTOOL_STXCSUM, 0))
request = struct.pack("16sP", sys.argv[1].encode(), ctypes.addressof(value))
with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as any_socket:
    fcntl.ioctl(any_socket, SIOCETHTOOL, request)
