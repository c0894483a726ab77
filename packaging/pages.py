#!/usr/bin/env python3
"""Writes README.md, SECURITY.md, GLOSSARY.md and docs/ to a package's folder of documents.

    packaging/pages.py FOLDER

The README has first steps with the installed package in place of those with the sources. Links lead to files of the
package; a link to a file that only the sources have becomes its text and that file's path.
"""

import os
import re
import shutil
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
# Where the package has files of the repository, from its folder of documents; `/`: elsewhere in the system.
PLACES = {
    "README.md": "README.md",
    "SECURITY.md": "SECURITY.md",
    "GLOSSARY.md": "GLOSSARY.md",
    "LICENSE": "LICENSE",
    "CHANGELOG.md": "changelog.gz",
    "docs": "docs",
    "packaging/examples": "examples",
    "packaging/equipoise.service.d": "examples/equipoise.service.d",
    "packaging/ros2": "examples/ros2",
    "crates/levels/slice-dds/examples": "examples/slice",
    "packaging/equipoise.service": "/usr/lib/systemd/system/equipoise.service",
    "packaging/equipoise-announce.service": "/usr/lib/systemd/system/equipoise-announce.service",
}
# Sections of the README for those who have the sources.
OF_SOURCES = ("Start", "Five minutes", "Your backends")
LINK = re.compile(r"\[((?:[^\[\]]|\[[^\[\]]*\])*)\]\(([^()\s]+)\)")
# Parts in which a link is no link.
CODE = re.compile(r"(^ *```.*?^ *```$|`[^`\n]*`(?!\]))", re.M | re.S)


def place(path):
    """Where the package has a file of the repository, or None."""
    for prefix in sorted(PLACES, key=len, reverse=True):
        if path == prefix or path.startswith(prefix + "/"):
            return PLACES[prefix] + path[len(prefix):]
    return None


def installed(text, source, page):
    """The text of the repository's page `source` with the links that it needs as the package's `page`."""

    def link(found):
        words, (target, _, anchor) = found[1], found[2].partition("#")
        if ":" in target or not target:
            return found[0]
        path = os.path.normpath(os.path.join(os.path.dirname(source), target))
        to = place(path)
        if to is None:
            is_path = path.startswith(words.strip("`"))
            return f"`{path}` (sources)" if is_path else f"{words} (sources: `{path}`)"
        if to.startswith("/"):
            return f"{words} (`{to}`)"
        to = os.path.relpath(to, os.path.dirname(page) or ".")
        return f"[{words}]({to}{'#' + anchor if anchor else ''})"

    parts = CODE.split(text)
    return "".join(part if number % 2 else LINK.sub(link, part) for number, part in enumerate(parts))


def readme():
    """The README, in two parts with their sources."""
    sections = re.split(r"^(?=## )", (ROOT / "README.md").read_text(), flags=re.M)
    is_replaced = [section.startswith(tuple(f"## {title}\n" for title in OF_SOURCES)) for section in sections]
    if sum(is_replaced) != len(OF_SOURCES):
        sys.exit(f"pages.py: README.md lacks one of the sections {OF_SOURCES}")
    first = is_replaced.index(True)
    kept = [section for section, replaced in zip(sections, is_replaced) if not replaced]
    steps = (ROOT / "packaging/first-steps.md").read_text() + "\n"
    return "".join(
        installed(text, source, "README.md")
        for text, source in [
            ("".join(kept[:first]), "README.md"),
            (steps, "packaging/first-steps.md"),
            ("".join(kept[first:]), "README.md"),
        ]
    )


def main(folder):
    shutil.copytree(ROOT / "docs", folder / "docs")
    pages = [*(page.relative_to(ROOT) for page in (ROOT / "docs").rglob("*.md")), "SECURITY.md", "GLOSSARY.md"]
    for page in map(str, pages):
        (folder / page).write_text(installed((ROOT / page).read_text(), page, page))
    (folder / "README.md").write_text(readme())


if __name__ == "__main__":
    main(Path(sys.argv[1]))
