#!/usr/bin/env python3
"""Checks the language of comments, crate by crate, the names of tests, and those of public types.

    scripts/plain_words.py            fails if an area exceeds a limit; prints file:line of each offence
    scripts/plain_words.py --table    prints the counts of every area
    scripts/plain_words.py dns        prints every offence of one area, also within its limits

An area is a crate, `bpf` (C) or `lab`. Text between backticks is code and is not counted. Every area
keeps to `GOALS`.
"""

import re
import sys
from collections import defaultdict
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent

# The words of each check, with the highest number of them in 1,000 words of comment.
WORDS = {
    "who": (re.compile(r"\b(who|whom|whose)\b", re.I), 0.3),
    "told": (re.compile(r"\b(told|said|heard)\b", re.I), 0.1),
    "nobody": (re.compile(r"\b(nobody|somebody|one's)(?!\w)", re.I), 0.1),
    "phrase": (re.compile(r"\b(goes by|gone by|so often|by now|meanwhile|what there is|what it is)\b", re.I), 0.1),
}
# No sentence of a comment begins like this.
OPENERS = re.compile(r"(?:^|(?<=[.!?] ))(?:What|Who|Whose|Whether what|That which|So many|Those that)\b")
COLUMNS = 100
# The name of a test is a sentence with an actor and a verb.
TEST = re.compile(r"#\[(?:tokio::)?test\b[^\]]*\]\s*(?:#\[[^\]]*\]\s*)*(?:async )?fn (\w+)")
RIDDLES = frozenset(
    "what who whom whose whoever whatever wherever however told tell tells said say says heard hears hear gone goes"
    " nobody somebody someone ones those believed".split()
)

CHECKS = ("opener", "wide", "test", *WORDS)
GOALS = {"opener": 0.0, "wide": 0.0, "test": 0.0, **{name: rate for name, (_, rate) in WORDS.items()}}

# Names of public types that two or more crates have, by the reason why. A new one needs a reason
# here, or another name.
HOMONYMS = {
    "the API's form of a level's type": "BackendStatus Changed DispatchStatus FrontDoorStatus InterfaceStatus Liveness"
    " MirrorStatus NodeStatus Phase Pins PoolStatus Role RouteStatus Status VipStatus WorkerState",
    "each level has one": "ApplyError BackendSpec BackendState BindError Config Engine EngineOptions Figures Limits Mode"
    " Options PoolView Registry RegistryError Settings Snapshot StartError Stopped Transport",
    "the protocol without I/O, and the same over DDS": "Client Controller Driver Member Process PublishError Reader Reply"
    " Sample Worker Writer",
    "the arguments of a command": "Args",
    "the client of one interface, and what it reports": "ClientError Endpoint ListenError OpenError",
    "the field's word in several fields": "Cause Counter Entry Fingerprint Host Key Memory Multicast Name Outcome Plain"
    " Event Policy Ports Prefix Pressure Program Protocol Token Update",
    "test support has its own, so that it shares nothing with the code under test": "Answer Gate Intake",
    "to rename": "Access Ask Change Fault Place Problem Reading Refused Region Report Source Standing Surroundings Term Tick"
    " Verdict Wanted",
}
EXPLAINED = {name for names in HOMONYMS.values() for name in names.split()}

TYPE = re.compile(r"^pub (?:unsafe )?(?:struct|enum|trait|union|type) (\w+)", re.M)
COMMENT = re.compile(r"^\s*//[/!]? ?(.*)$")
CODE = re.compile(r"`[^`]*`")
WORD = re.compile(r"[A-Za-z']+")
BLOCK_LINE = re.compile(r"^\s*/?\*+/? ?")


def comments(lines, is_c):
    """Yields `(line number, text, starts a paragraph)` for every line of comment."""
    in_block = fenced = False
    before = False
    for number, line in enumerate(lines, 1):
        text = None
        stripped = line.lstrip()
        if in_block or stripped.startswith("/*"):
            in_block = "*/" not in line
            text = BLOCK_LINE.sub("", line).replace("*/", "").rstrip()
        elif stripped.startswith("//"):
            text = COMMENT.match(line).group(1)
        elif "// " in line or (is_c and "/* " in line):
            # A comment after code. An odd number of quotes before it means that it is inside a string.
            at = line.find("// ") if "// " in line else line.find("/* ")
            if line.count('"', 0, at) % 2 == 0:
                text = line[at + 3 :].replace("*/", "").rstrip()
                in_block = is_c and line.find("/* ", at) == at and "*/" not in line
                yield number, text, True
                before = False
                continue
        if text is None:
            before = fenced = False
            continue
        if text.startswith("```"):
            fenced = not fenced
            before = False
            continue
        if fenced or not text.strip():
            before = False
            continue
        yield number, text, not before or text.startswith(("- ", "* ", "| "))
        before = True


def paragraphs(lines, is_c):
    """Yields paragraphs of comment as lists of `(line number, text)`."""
    paragraph = []
    for number, text, starts in comments(lines, is_c):
        if starts and paragraph:
            yield paragraph
            paragraph = []
        paragraph.append((number, text.removeprefix("- ")))
    if paragraph:
        yield paragraph


class Area:
    def __init__(self):
        self.words = 0
        self.found = defaultdict(list)

    def read(self, path, text):
        lines = text.split("\n")
        for paragraph in paragraphs(lines, path.suffix != ".rs"):
            starts, whole = [], ""
            for number, part in paragraph:
                starts.append((len(whole), number))
                whole += part + " "
            # Code keeps its length, so that offsets stay those of lines.
            prose = CODE.sub(lambda code: "`" + "_" * (len(code.group()) - 2) + "`", whole)
            self.words += len(WORD.findall(prose))
            for check, pattern in [("opener", OPENERS), *((name, p) for name, (p, _) in WORDS.items())]:
                for hit in pattern.finditer(prose):
                    line = next(n for at, n in reversed(starts) if at <= hit.start())
                    self.found[check].append((path, line, lines[line - 1].strip()))
            for number, _ in paragraph:
                if len(lines[number - 1]) > COLUMNS:
                    self.found["wide"].append((path, number, lines[number - 1].strip()))

        for test in TEST.finditer(text):
            if RIDDLES.intersection(test.group(1).split("_")):
                line = text.count("\n", 0, test.start(1)) + 1
                self.found["test"].append((path, line, test.group(1)))

    def limit(self, check):
        return int(GOALS[check] * self.words / 1000)


def crates():
    """The folders of the crates, each with its manifest."""
    return sorted((manifest.parent for manifest in (ROOT / "crates").rglob("Cargo.toml")), key=lambda at: at.name)


def sources():
    """Yields `(area, path)` of every file with comments to check."""
    for crate in crates():
        for path in sorted(crate.rglob("*.rs")):
            yield crate.name, path
    for suffix in ("*.c", "*.h", "*.rs"):
        for path in sorted((ROOT / "bpf").rglob(suffix)):
            yield "bpf", path
    for path in sorted((ROOT / "lab").rglob("*.rs")):
        if "target" not in path.parts:
            yield "lab", path


def main():
    areas, types = defaultdict(Area), defaultdict(dict)
    own = {crate.name: crate / "src" for crate in crates()}
    for name, path in sources():
        text = path.read_text()
        areas[name].read(path.relative_to(ROOT), text)
        if name in own and path.is_relative_to(own[name]):
            for found in TYPE.finditer(text):
                line = text.count("\n", 0, found.start()) + 1
                types[found.group(1)].setdefault(name, (path.relative_to(ROOT), line))
    homonyms = {name: at for name, at in sorted(types.items()) if len(at) > 1}

    if "--table" in sys.argv:
        print(f"{'area':15}{'words':>8}" + "".join(f"{check:>8}" for check in CHECKS))
        for name, area in areas.items():
            print(f"{name:15}{area.words:8}" + "".join(f"{len(area.found[check]):8}" for check in CHECKS))
        print(f"{len(homonyms)} names of public types that several crates have")
        return 0

    shown, failed = set(sys.argv[1:]), False
    for name, area in areas.items():
        for check in CHECKS:
            found, limit = area.found[check], area.limit(check)
            failed |= len(found) > limit
            if len(found) > limit or name in shown:
                print(f"{name}: {len(found)} of '{check}' in {area.words} words of comment; the limit is {limit}")
                for path, line, text in found:
                    print(f"  {path}:{line}: {text}")
    for name, at in homonyms.items():
        if name not in EXPLAINED:
            failed = True
            places = ", ".join(f"{path}:{line}" for path, line in at.values())
            print(f"public type {name} exists in several crates: {places}; rename one, or give a reason in HOMONYMS")
    for name in sorted(EXPLAINED - homonyms.keys()):
        print(f"note: no two crates have a public type {name} any more; delete it from HOMONYMS")
    if failed:
        print("plain words: see CONTRIBUTING.md, \"Rules of the house\"; limits are in scripts/plain_words.py")
    return int(failed)


if __name__ == "__main__":
    sys.exit(main())
