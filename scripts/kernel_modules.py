"""Modules of a Debian kernel for a virtual machine."""

import re


def modules(folder, names):
    """Files of these modules below `folder`, each after those that it depends on. A module that is built into the kernel
    has no file."""
    by_name = {path.stem.replace("-", "_"): path for path in folder.rglob("*.ko")}
    found = []

    def add(name):
        if name not in by_name:
            return
        depends = re.search(rb"\0depends=([^\0]*)\0", by_name[name].read_bytes()).group(1).decode()
        for other in filter(None, depends.split(",")):
            add(other)
        if by_name[name] not in found:
            found.append(by_name[name])

    for name in names:
        add(name)
    return found
