"""The crates, C libraries and libraries of the dashboard that are part of the binary in a package."""

import json
import subprocess
from pathlib import Path

WORKSPACE = Path(__file__).resolve().parent.parent
TARGET = "x86_64-unknown-linux-gnu"

# Libraries in C that crates have in their sources: name, crate, licence, files with its text.
C_LIBRARIES = [
    ("Eclipse Cyclone DDS", "cyclors", "EPL-2.0 OR BSD-3-Clause",
     ["cyclonedds/NOTICE.md", "cyclonedds/LICENSE"]),
    ("libbpf", "libbpf-sys", "LGPL-2.1-only OR BSD-2-Clause", ["libbpf/LICENSE.BSD-2-Clause"]),
    ("libelf", "libbpf-sys", "GPL-2.0-or-later OR LGPL-3.0-or-later",
     ["elfutils/COPYING-LGPLV3", "elfutils/COPYING"]),
    ("zlib", "libbpf-sys", "Zlib", ["zlib/LICENSE"]),
    ("AWS-LC", "aws-lc-sys", "ISC AND (Apache-2.0 OR ISC)", ["aws-lc/LICENSE"]),
]


def cargo(*arguments):
    command = ["cargo", *arguments, "--locked"]
    return subprocess.run(command, cwd=WORKSPACE, check=True, text=True, stdout=subprocess.PIPE).stdout


def crates():
    """Packages of `cargo metadata`, by name and version; those of the workspace are left out."""
    tree = cargo("tree", "--package", "equipoise", "--edges", "normal,no-proc-macro", "--target", TARGET,
                 "--prefix", "none", "--format", "{p}")
    linked = {tuple(line.split()[:2]) for line in tree.splitlines() if line.strip()}
    metadata = json.loads(cargo("metadata", "--format-version", "1", "--filter-platform", TARGET))
    found = {}
    for package in metadata["packages"]:
        key = (package["name"], "v" + package["version"])
        if key in linked and package["source"] is not None:
            found[package["name"], package["version"]] = package
    return dict(sorted(found.items())), metadata


def dashboard():
    """The npm packages in the dashboard's program, as `make web` has listed them; none without it."""
    listed = WORKSPACE / "web/dist/libraries.json"
    return json.loads(listed.read_text()) if listed.exists() else []


def folder(package):
    """The folder of the crate's sources."""
    return Path(package["manifest_path"]).parent
