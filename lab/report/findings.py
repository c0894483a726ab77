"""What is known of an experiment: its record, its rows, the checks of the paper's claim, and the marks of a doubtful run."""

import dataclasses

import machine
import rows
import runs
from verdict import HOLDS, NOT, OPEN, PARTLY, goal_check, judge, verdict

FAILED = "failed"


@dataclasses.dataclass
class Finding:
    experiment: object
    record: dict
    # Rows by CSV file of this run, and `(label, rows by CSV file)` of figures that a README states.
    measured: dict
    known: list
    checks: list
    # Where the verdict's rows come from: "run", "stated" or "".
    origin: str
    marks: list
    # The results are those of a quick run.
    quick: bool

    def verdict(self, figure=None):
        """Of the experiment, or of one of the figures that it shows: of the checks that are for it, or for all."""
        if self.record.get("state") == "failed":
            return FAILED
        checks = [check for check in self.checks if not figure or check["for"] in (None, figure)]
        words = verdict(checks)
        if words == OPEN and (self.origin == "stated" or not self.checks and self.measured):
            return self.experiment.declared.get("judgement", OPEN)
        return words

    @property
    def reason(self):
        """Why there are no figures, or not all."""
        state = self.record.get("state")
        if state == "finished" and not self.record.get("reason"):
            return ""
        if not state:
            left_out = self.experiment.not_quick if self.quick else ""
            return "not in this run" + (f": {left_out}" if left_out else "")
        return f"{state}: {self.record.get('reason') or 'no reason is recorded'}"

    def points(self, part, csv=None):
        """The rows that a series in a plot of a part shows, of this run and of earlier ones."""
        name = csv or part.name
        return self.measured.get(f"{name}-points") or self.measured.get(name, []), self.known_rows(name)

    def known_rows(self, name):
        return [(label, found[name]) for label, found in self.known if found.get(name)]

    def goals(self, part):
        return [judge(goal_check(goal), self.measured.get(part.name, [])) for goal in part.goals]


def finding(experiment, results, quick=False):
    folder = experiment.folder(results)
    record = runs.record(folder)
    files = {path.stem: rows.read_csv(path) for path in sorted(folder.glob("*.csv"))}
    measured = {name: found for name, found in files.items() if found}
    known = [(one["label"], {one.get("csv", experiment.parts[0].name): one["rows"]}) for one in experiment.declared.get("known", [])]
    origin, decisive = "", {}
    if measured:
        origin, decisive = "run", measured
    elif known:
        # The last run that is stated.
        label = known[-1][0]
        origin, decisive = "stated", {name: found for at, one in known if at == label for name, found in one.items()}
    declared = experiment.declared.get("check", [])
    checks = [judge(check, decisive.get(check.get("csv", experiment.parts[0].name), [])) for check in declared]
    if not measured and "judgement" in experiment.declared and not any(check["met"] is not None for check in checks):
        origin = "stated"
    return Finding(experiment, record, measured, known, checks, origin, marks(record, origin, checks), quick)


def marks(record, origin, checks):
    """Reasons to doubt a verdict."""
    found = []
    if origin == "stated":
        found.append("figures as its README states them")
    if origin != "run":
        return found
    if disturbed := machine.disturbance(record.get("load", {})):
        found.append(f"loaded machine: {disturbed}")
    if record.get("quick"):
        found.append("quick run: small cases")
    if (record.get("build") or "dist") not in ("dist", "release"):
        found.append(f"{record['build']} build")
    if "+" in record.get("source", ""):
        found.append("files differed from the commit")
    if record.get("state") not in ("finished", None):
        found.append(record["state"])
    if any(check["met"] is None for check in checks):
        found.append(f"{sum(check['met'] is None for check in checks)} of {len(checks)} checks have no rows")
    return found


CLASSES = {HOLDS: "holds", PARTLY: "partly", NOT: "not", OPEN: "open", FAILED: "failed"}
