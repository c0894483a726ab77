#!/usr/bin/env python3
"""Checks that every relative link in the Markdown files leads to a file and a heading, and that docs/SUMMARY.md has
every page of docs/.

    scripts/links.py            fails if a link is broken or a page is missing; prints file:line of each
    scripts/links.py FOLDER     the same for the pages of a package

Links to other sites are not followed. Text in code blocks and between backticks is not read.
"""

import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
LINK = re.compile(r"\]\(([^()\s]*(?:\([^()\s]*\)[^()\s]*)*)\)")
CODE = re.compile(r"`[^`]*`")
ELSEWHERE = re.compile(r"[a-z][a-z0-9+.-]*:", re.I)
FENCE = re.compile(r"^\s*(```|~~~)")


def prose(text):
    """Yields `(line number, line)` for the lines outside code blocks."""
    fenced = False
    for number, line in enumerate(text.splitlines(), 1):
        if FENCE.match(line):
            fenced = not fenced
        elif not fenced:
            yield number, line


def anchors(text):
    """The anchors of a page's headings, as GitHub makes them."""
    found = set()
    for _, line in prose(text):
        if not (heading := re.match(r"#{1,6} +(.*?) *#*$", line)):
            continue
        title = re.sub(r"\[([^]]*)\]\([^)]*\)", r"\1", heading[1]).replace("`", "")
        base = re.sub(r"[^\w\- ]", "", title.lower()).replace(" ", "-")
        anchor, repeated = base, 0
        while anchor in found:
            repeated += 1
            anchor = f"{base}-{repeated}"
        found.add(anchor)
    return found


def links(text):
    """Yields `(line number, target)` for every link, also one whose text spans two lines."""
    for number, line in prose(text):
        for link in LINK.finditer(CODE.sub("", line)):
            yield number, link[1]


def problem(root, page, target):
    """The reason why a link is broken, or None."""
    path, _, anchor = target.partition("#")
    file = (page.parent / path).resolve() if path else page
    if not file.exists():
        return f"there is no {path}"
    if not file.is_relative_to(root):
        return f"{path} is outside {root}"
    if anchor and (file.suffix != ".md" or anchor not in anchors(file.read_text())):
        return f"{file.relative_to(root)} has no heading for #{anchor}"
    return None


def own_pages():
    """The Markdown files of the repository."""
    listed = subprocess.run(
        ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard", "*.md"],
        cwd=ROOT, capture_output=True, text=True, check=True,
    )
    return [ROOT / name for name in listed.stdout.split("\0") if name and (ROOT / name).exists()]


def main():
    root = Path(sys.argv[1]).resolve() if len(sys.argv) > 1 else ROOT
    pages = own_pages() if root == ROOT else list(root.rglob("*.md"))
    checked, broken = 0, []
    for page in sorted(set(pages)):
        for number, target in links(page.read_text()):
            if ELSEWHERE.match(target):
                continue
            checked += 1
            if text := problem(root, page, target):
                broken.append(f"{page.relative_to(root)}:{number}: {target}: {text}")
    if not pages:
        sys.exit("links.py: found no Markdown files")
    summary = root / "docs/SUMMARY.md"
    chapters = {(summary.parent / target).resolve() for _, target in links(summary.read_text())}
    for page in sorted(set(pages) - chapters - {summary}):
        if page.is_relative_to(summary.parent):
            broken.append(f"{page.relative_to(root)}: docs/SUMMARY.md does not list it")
    print("\n".join(broken + [f"links.py: {checked} links in {len(pages)} pages, {len(broken)} errors"]))
    sys.exit(1 if broken else 0)


if __name__ == "__main__":
    main()
