#!/usr/bin/env python3
"""Builds the book of docs/ with mdBook, and checks the links of its pages.

    scripts/book.py MDBOOK [PROGRAM]      builds target/book/html; PROGRAM prints its own commands

mdBook reads a copy of docs/ in target/book/src. The copy also has the files outside docs/ that its pages link to
(pages become chapters below `repository/`), and the chapters that SUMMARY.md names without a file: the commands, from
the help texts of PROGRAM, and the routes of the API, from openapi.json.
"""

import json
import os
import re
import shutil
import subprocess
import sys
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote

from links import ELSEWHERE, FENCE, LINK

ROOT = Path(__file__).resolve().parent.parent
DOCS, BOOK = ROOT / "docs", ROOT / "target/book"
SOURCE, HTML = BOOK / "src", BOOK / "html"


class Pages:
    """Files of the book: the place in the copy of each file of the repository."""

    def __init__(self):
        self.placed, self.open = {}, []

    def place(self, file):
        """The place of a file in the copy, which is made if need be; None for a folder."""
        if file.is_dir():
            return None
        if file not in self.placed:
            inside = file.is_relative_to(DOCS)
            place = SOURCE / (file.relative_to(DOCS) if inside else Path("repository") / file.relative_to(ROOT))
            # mdBook makes index.html of a README.md, but not of links to it.
            self.placed[file] = place.with_name("index.md") if place.name == "README.md" else place
            self.open.append(file)
        return self.placed[file]

    def copy_all(self):
        while self.open:
            file = self.open.pop()
            target = self.placed[file]
            target.parent.mkdir(parents=True, exist_ok=True)
            if file.suffix == ".md":
                target.write_text(self.rewritten(file, target))
            else:
                shutil.copy(file, target)

    def rewritten(self, file, target):
        """The text of a page with the links of its new place."""

        def link(match):
            path, mark, anchor = match[1].partition("#")
            if ELSEWHERE.match(match[1]) or not path:
                return match[0]
            place = self.place((file.parent / path).resolve())
            return f"]({os.path.relpath(place, target.parent)}{mark}{anchor})" if place else "]()"

        lines, fenced = [], False
        for line in file.read_text().split("\n"):
            fenced ^= bool(FENCE.match(line))
            lines.append(line if fenced else LINK.sub(link, line))
        return re.sub(r"\[([^]]*)\]\(\)", r"\1", "\n".join(lines)) if file.name != "SUMMARY.md" else "\n".join(lines)

    def outside(self):
        """Pages outside docs/, for the summary."""
        return sorted(file for file in self.placed if file.suffix == ".md" and not file.is_relative_to(DOCS))


def title(file):
    return next((line[2:] for line in file.read_text().split("\n") if line.startswith("# ")), file.name)


def commands(program, words=()):
    """The help texts of a command and those below it, as Markdown."""
    # Help texts show the values of variables.
    clean = {name: value for name, value in os.environ.items() if not name.startswith("EQUIPOISE")}
    text = subprocess.run([program, *words, "--help"], env=clean, capture_output=True, text=True, check=True).stdout
    yield f"{'#' * min(len(words) + 1, 4)} equipoise {' '.join(words)}".rstrip() + f"\n\n```text\n{text.strip()}\n```\n"
    below = re.search(r"^Commands:\n(.*?)\n\n", text, re.M | re.S)
    for name in re.findall(r"^  ([a-z-]+)  ", below[1], re.M) if below else ():
        if name != "help":
            yield from commands(program, (*words, name))


def routes():
    """The routes of openapi.json, as a table."""
    described = json.loads((DOCS / "openapi.json").read_text())
    yield "# Routes of the API\n\n[The API](operations/api.md) explains roles, ETags and errors.\n\n| request | |\n|---|---|\n"
    for path, methods in described["paths"].items():
        for method, operation in methods.items():
            summary = operation.get("summary") or operation.get("description", "").split(". ")[0]
            yield f"| `{method.upper()} {path}` | {' '.join(summary.split()).replace('|', chr(92) + '|')} |\n"


def summary(pages, program):
    """The summary of the copy: with the generated chapters, and those of the repository."""
    text = (SOURCE / "SUMMARY.md").read_text()
    (SOURCE / "routes.md").write_text("".join(routes()))
    text = text.replace("[Routes of the API]()", "[Routes of the API](routes.md)")
    if program:
        (SOURCE / "commands.md").write_text("\n".join(commands(program)))
        text = text.replace("[Commands]()", "[Commands](commands.md)")
    rows = [f"- [{title(file)}]({pages.placed[file].relative_to(SOURCE)})" for file in pages.outside()]
    (SOURCE / "SUMMARY.md").write_text(text + "\n# Repository\n\n" + "\n".join(rows) + "\n")


class Html(HTMLParser):
    """The links and the anchors of a page."""

    def __init__(self, file):
        super().__init__()
        self.links, self.anchors = [], set()
        self.feed(file.read_text())

    def handle_starttag(self, tag, attributes):
        attributes = dict(attributes)
        self.anchors.add(attributes.get("id"))
        if tag == "a" and "href" in attributes:
            self.links.append(unquote(attributes["href"]))


def broken():
    """Links of the built pages that lead nowhere."""
    # A page of all pages, whose links are not those of a reader.
    pages = {file: Html(file) for file in HTML.rglob("*.html") if file.name not in ("print.html", "404.html", "toc.html")}
    for file, page in pages.items():
        for link in page.links:
            path, _, anchor = link.partition("#")
            target = (file.parent / path).resolve() if path else file
            if ELSEWHERE.match(link) or target.name in ("print.html", "toc.html"):
                continue
            if not target.exists() or anchor and (target not in pages or anchor not in pages[target].anchors):
                yield f"{file.relative_to(HTML)}: {link}"


def main():
    mdbook, program = sys.argv[1], (sys.argv[2:] or [None])[0]
    shutil.rmtree(BOOK, ignore_errors=True)
    pages = Pages()
    for file in DOCS.rglob("*"):
        if file.name != "book.toml":
            pages.place(file)
    pages.copy_all()
    summary(pages, program)
    shutil.copy(DOCS / "book.toml", BOOK)
    subprocess.run([mdbook, "build", BOOK], check=True, env={**os.environ, "RUST_LOG": "warn"})
    found = sorted(set(broken()))
    print("\n".join([*found, f"{HTML}/index.html: {len(found)} broken links"]))
    return int(bool(found))


if __name__ == "__main__":
    sys.exit(main())
