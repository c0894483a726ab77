"""The declarations of `lab/registry`: every experiment of the lab, once.

`papers.toml` lists the papers and their figures. Each other file is a program of the lab with its experiments;
lab/README.md has the keys. An experiment takes its title, claim, notes, plots and goals from the description in
`experiments/` that its program reads, so that nothing stands twice.
"""

import dataclasses
import pathlib
import tomllib

ROOT = pathlib.Path(__file__).resolve().parents[2]
FOLDER = ROOT / "lab/registry"

PROGRAM_KEYS = {"name", "title", "paper", "peers", "readme", "setup", "figures", "why", "biases", "command", "quick", "seed",
                "root", "needs", "needs-file", "exits", "build", "make", "experiments", "folder", "experiment"}
EXPERIMENT_KEYS = {"name", "only", "quick-only", "template", "shows", "check", "plot", "known", "verdict", "judgement", "quick", "seconds",
                   "quick-seconds", "not-quick", "command", "title", "paper", "notes", "table", "here", "beside", "csv",
                   "needs", "root", "exits", "build", "make"}
CHECK_KEYS = {"what", "for", "csv", "column", "where", "over", "by", "take", "at-least", "at-most"}


class RegistryError(Exception):
    """A declaration is wrong."""


@dataclasses.dataclass
class Part:
    """A table of an experiment: one CSV file, with its plots and goals."""

    name: str
    title: str
    paper: str
    notes: str = ""
    conclusion: str = ""
    table: list = dataclasses.field(default_factory=list)
    plots: list = dataclasses.field(default_factory=list)
    goals: list = dataclasses.field(default_factory=list)
    # Columns that a description names beside its table: parameters of cases, and those of its plots.
    columns: set = dataclasses.field(default_factory=set)


@dataclasses.dataclass
class Experiment:
    name: str
    program: dict
    declared: dict
    parts: list
    seconds: float
    quick_seconds: float

    @property
    def title(self):
        return self.declared.get("title") or self.parts[0].title

    @property
    def claim(self):
        return (self.declared.get("paper") or self.parts[0].paper).strip()

    def setting(self, key, default=None):
        """A setting of the experiment, or else of its program."""
        return self.declared.get(key, self.program.get(key, default))

    @property
    def not_quick(self):
        """Why `all --quick` leaves it out; empty if it does not."""
        return self.declared.get("not-quick", "")

    def folder(self, results):
        return results / self.name

    def command(self, quick, out, binaries, extra=()):
        """The words to run, from the root of the repository."""
        declared = self.setting("command")
        more = self.setting("quick", []) if quick else []
        values = {"bin": relative(binaries), "out": relative(out), "only": ",".join(self.only(quick)),
                  "seed": str(self.setting("seed", "")), "file": self.needed_file()}
        return [word.format(**values) for word in [*declared, *more]] + list(extra)

    def shows(self):
        """The figures of papers that it shows; one empty name if none."""
        return self.declared.get("shows") or [""]

    def only(self, quick=False):
        """The names by which its program knows what to measure."""
        only = self.declared.get("only", [self.declared["name"]])
        return self.declared.get("quick-only", only) if quick else only

    def needed_file(self):
        """The newest file that the program needs beside the binaries, if it names one."""
        pattern = self.program.get("needs-file", "")
        found = sorted(ROOT.glob(pattern)) if pattern else []
        return relative(found[-1]) if found else ""


@dataclasses.dataclass
class Registry:
    papers: list
    programs: list
    experiments: list

    def chosen(self, names):
        """Experiments by their names, by those of their programs, or `all`."""
        found = []
        for name in names:
            some = [one for one in self.experiments if name in ("all", one.name, one.program["name"])]
            if not some:
                raise RegistryError(f"there is no experiment {name}: `equipoise-lab list` prints all")
            found += [one for one in some if one not in found]
        return found

    def figures(self):
        """`(paper, figure)` of every figure of the papers."""
        return [(paper, figure) for paper in self.papers for figure in paper["figure"]]

    def showing(self, paper, figure):
        """The experiments that show a figure of a paper."""
        return [one for one in self.experiments if key_of(paper, figure) in one.declared.get("shows", [])]


def load(folder=FOLDER):
    papers = tomllib.loads((folder / "papers.toml").read_text())["paper"]
    order = {paper["key"]: at for at, paper in enumerate(papers)}
    files = {path: tomllib.loads(path.read_text()) for path in folder.glob("*.toml") if path.name != "papers.toml"}
    programs, experiments = [], []
    # Those of the papers first, in their order.
    for path, program in sorted(files.items(), key=lambda one: (order.get(one[1].get("paper"), len(order)), one[0].stem)):
        unknown(path.name, program, PROGRAM_KEYS)
        programs.append(program)
        experiments += [experiment(path.name, program, one) for one in program["experiment"]]
    names = [one.name for one in experiments]
    if twice := {name for name in names if names.count(name) > 1}:
        raise RegistryError(f"declared twice: {', '.join(sorted(twice))}")
    keys = {key_of(paper, figure) for paper in papers for figure in paper["figure"]}
    for one in experiments:
        if strange := set(one.declared.get("shows", [])) - keys:
            raise RegistryError(f"{one.name} shows {', '.join(sorted(strange))}, which papers.toml does not have")
        for check in one.declared.get("check", []):
            if check.get("for", one.shows()[0]) not in one.shows():
                raise RegistryError(f"{one.name}: a check for {check['for']}, which it does not show")
    return Registry(papers, programs, experiments)


def key_of(paper, figure):
    """The name by which an experiment shows a figure."""
    return f"{paper['key']} {figure['name']}"


def relative(path):
    """From the root of the repository, so that a record names no folder of its machine."""
    return str(path.relative_to(ROOT)) if path.is_relative_to(ROOT) else str(path)


def unknown(where, table, known):
    if strange := set(table) - known:
        raise RegistryError(f"{where}: unknown keys {', '.join(sorted(strange))}")


def experiment(where, program, declared):
    unknown(f"{where}, {declared.get('name')}", declared, EXPERIMENT_KEYS)
    for check in declared.get("check", []):
        unknown(f"{where}, a check of {declared['name']}", check, CHECK_KEYS)
    parts, full, quick = [], 0.0, 0.0
    folder = program.get("experiments")
    if folder and "command" not in declared:
        for name in declared.get("only", [declared["name"]]):
            described = description(ROOT / folder, name, declared.get("template"))
            parts.append(part(described))
            full += sum(case.get("cost", 1.0) for case in described["cases"])
            quick += sum(case.get("cost", 1.0) for case in described["quick"])
    else:
        parts.append(Part(declared.get("csv", declared["name"]), declared["title"], declared["paper"], declared.get("notes", ""),
                          table=declared.get("table", [])))
    for plot in declared.get("plot", []):
        of = next((one for one in parts if one.name == plot.get("csv")), parts[0])
        # A plot of the same name is drawn in the place of the description's.
        of.plots = [one for one in of.plots if one["name"] != plot["name"]] + [plot]
    return Experiment(f"{program['name']}/{declared['name']}", program, declared, parts,
                      declared.get("seconds", full), declared.get("quick-seconds", quick))


def description(folder, name, template):
    """A description of the lab's runner; `template` names the file of several, with what stands for its marks."""
    path = folder / (template["file"] if template else f"{name}.toml")
    text = path.read_text()
    for mark, value in (template or {}).items():
        text = text.replace(f"@{mark}@", value)
    return tomllib.loads(text)


def part(described):
    return Part(described["name"], described["title"], described["paper"], described.get("notes", ""),
                described.get("conclusion", ""), described["table"], described.get("plot", []), described.get("goal", []),
                {name for case in described["cases"] for name in case}
                | {series.get("column") for plot in described.get("plot", []) for series in plot["series"]})
