#!/usr/bin/env python3
"""Prints the licences of everything that is part of the binary."""

import re
import sys

import shipped

LICENCE_FILE = re.compile(r"(?i)^(licen[cs]e|copying|copyright|notice|unlicense)")

HEAD = """\
equipoise is under the Apache License 2.0 (LICENSE). Its packet programs (bpf/) are under the Apache
License 2.0 or the GPL 2.0 (LICENSE.GPL-2.0), at your choice; the kernel loads them under the GPL.

The binary also has the libraries below, and the standard library of Rust (MIT OR Apache-2.0,
https://github.com/rust-lang/rust). The sources of all of them, in these versions, are the crates of
these names on https://crates.io, and those of the dashboard's libraries the packages of these names
on https://www.npmjs.com. libelf is linked statically: `make deb` in the sources of equipoise links it
again, also with a changed one.
"""


def line(character):
    print(character * 100)


def texts(package):
    """The licence files of a crate, without those of folders in it."""
    names = sorted(path for path in shipped.folder(package).iterdir() if LICENCE_FILE.match(path.name))
    return [path.read_text(errors="replace").strip() for path in names if path.is_file()]


def main():
    crates, _ = shipped.crates()
    by_name = {name: package for (name, _), package in crates.items()}
    print(HEAD)
    for name, crate, licence, files in shipped.C_LIBRARIES:
        package = by_name[crate]
        line("=")
        print(f"{name}, in the crate {crate} {package['version']}: {licence}\n")
        for file in files:
            print((shipped.folder(package) / file).read_text(errors="replace").strip() + "\n")
    for library in shipped.dashboard():
        line("=")
        print(f"{library['name']} {library['version']}, in the dashboard: {library['license']}\n")
        print(library["text"] + "\n")
    users, wordings = {}, {}
    for (name, version), package in crates.items():
        if not package["license"]:
            sys.exit(f"{name} {version} names no licence")
        for text in texts(package) or [""]:
            # Copies of one text differ in line breaks.
            key = " ".join(text.split())
            wordings.setdefault(key, text)
            users.setdefault(key, []).append(f"{name} {version}: {package['license']}")
    for key, names in sorted(users.items(), key=lambda it: it[1]):
        line("=")
        print("\n".join(names))
        print("\n" + (wordings[key] or "(The crate has no file with the text of its licence.)") + "\n")


main()
