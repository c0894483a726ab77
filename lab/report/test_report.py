"""Tests of the registry, the runs and the page: `python3 -m unittest discover -s lab/report`."""

import json
import os
import pathlib
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import tomllib
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))

import findings
import machine
import page
import registry
import rows
import runs
import verdict

ROOT = registry.ROOT
LAB = ROOT / "lab"
PROGRAM = LAB / "equipoise-lab"
QUICK_S = 20 * 60


def listed(*patterns):
    """Files of the repository."""
    out = subprocess.run(["git", "ls-files", *patterns], cwd=ROOT, capture_output=True, text=True, check=True).stdout
    return [line for line in out.splitlines() if (ROOT / line).exists()]


class Complete(unittest.TestCase):
    """Every experiment of the lab and every figure of the papers is declared."""

    @classmethod
    def setUpClass(cls):
        cls.registry = registry.load()

    def test_every_description_belongs_to_one_experiment(self):
        declared = []
        for one in self.registry.experiments:
            folder = one.program.get("experiments")
            if folder and "command" not in one.declared:
                template = one.declared.get("template")
                declared += [f"{folder}/{template['file']}"] if template else [f"{folder}/{name}.toml" for name in one.only()]
        self.assertEqual(set(declared), set(listed("lab/*/experiments/*.toml", "lab/peers/*/experiments/*.toml")))
        twice = {name for name in declared if declared.count(name) > 1 and not name.endswith("curves.toml")}
        self.assertEqual(twice, set())

    def test_a_claim_that_does_not_hold_as_a_whole_has_words_about_it(self):
        silent = []
        for one in self.registry.experiments:
            has_words = one.declared.get("verdict") or any(part.conclusion for part in one.parts) or one.program.get("why")
            if not has_words and findings.finding(one, LAB / "results").verdict() in (verdict.PARTLY, verdict.NOT):
                silent.append(one.name)
        self.assertEqual(silent, [])

    def test_every_kind_of_backend_row_of_the_session_bench_and_case_of_lvs_is_declared(self):
        kinds = (LAB / "region/src/backends.rs").read_text().split("KINDS")[1].split("];")[0]
        self.assertEqual(set(re.findall(r"\(\s*\"(\w+)\",\s*\"", kinds)), {
            one.declared["template"]["KIND"] for one in self.registry.experiments if "template" in one.declared})
        session = [row for one in self.registry.experiments if one.program["name"] == "session-http" for row in one.only()]
        self.assertEqual(sorted(session), sorted(re.findall(r'^ +name: "([^"]+)"', (LAB / "peers/session-http/src/rows.rs").read_text(), re.M)))
        text = (LAB / "lvs/run.py").read_text()
        lvs = set(re.findall(r'"(\w+)": \(', text)) | set(re.findall(r'experiment == "(\w+)"', text))
        self.assertEqual({one.declared["name"] for one in self.registry.experiments if one.program["name"] == "lvs"}, lvs)

    def test_every_program_and_readme_of_the_lab_is_declared(self):
        words = {word for one in self.registry.experiments for word in one.command(False, ROOT / "x", ROOT / "target/dist")}
        texts = {name: (ROOT / name).read_text() for name in listed("lab/*.py", "lab/*.rs")}
        for name in (name for name, text in texts.items() if name.endswith(".py") and "__main__" in text):
            path = pathlib.PurePath(name)
            # One that another program of its folder starts is no experiment.
            others = [text for other, text in texts.items() if other != name and other.startswith(f"{path.parent}/")]
            if path.parent.name != "report" and not any(path.name in text for text in others):
                self.assertIn(name, words)
        readmes = {program["readme"] for program in self.registry.programs}
        self.assertEqual({name for name in listed("lab/*/README.md") if name.count("/") == 2 or "/peers/" in name} - readmes, set())
        built = {name for program in self.registry.programs for name in program["build"]}
        for manifest in listed("lab/*/Cargo.toml"):
            package = tomllib.loads((ROOT / manifest).read_text())["package"]["name"]
            if package != "equipoise-lab-runner":
                self.assertIn(package, built)

    def test_every_lab_target_of_make_runs_its_experiments(self):
        makefile = (ROOT / "Makefile").read_text()
        targets = re.findall(r"^((?:lab|bench|compare)-[\w-]+):.*\n((?:\t.*\n|@.*\n)*)", makefile, re.M)
        names = [name for name, recipe in targets if "$(LAB) " in recipe]
        missing = {name for name, recipe in targets if "$(LAB) " not in recipe}
        self.assertEqual(missing, {"lab-report"})
        for name, recipe in targets:
            if name in names:
                self.registry.chosen([re.search(r"\$\(LAB\) (\S+)", recipe)[1]])
        self.assertEqual({program["make"] for program in self.registry.programs} - set(names), set())

    def test_every_figure_of_the_papers_is_shown_or_says_why_not(self):
        for paper, figure in self.registry.figures():
            with self.subTest(paper=paper["key"], figure=figure["name"]):
                self.assertNotEqual(bool(self.registry.showing(paper, figure)), bool(figure.get("not-here")))

    def test_the_page_of_the_docs_has_the_table_of_figures(self):
        told = subprocess.run([PROGRAM, "list", "--table"], capture_output=True, text=True, check=True).stdout
        self.assertIn(told.strip(), (ROOT / "docs/lab.md").read_text(), "docs/lab.md lacks the table of `equipoise-lab list --table`")

    def test_every_table_has_a_chart_and_every_experiment_a_verdict(self):
        for one in self.registry.experiments:
            with self.subTest(experiment=one.name):
                self.assertTrue(any(part.plots for part in one.parts))
                self.assertTrue(one.declared.get("check") or one.declared.get("judgement"))
                self.assertTrue(one.claim)
                self.assertGreater(one.seconds, 0)

    def test_checks_are_about_columns_that_their_programs_write(self):
        for one in self.registry.experiments:
            known = {part.name: {*part.table, *part.columns} for part in one.parts if part.columns}
            for check in one.declared.get("check", []):
                name = check.get("csv", one.parts[0].name)
                columns = {check["column"], *check.get("where", {}), check.get("by"), check.get("over", {}).get("column")} - {None}
                if name in known:
                    with self.subTest(experiment=one.name, check=check["what"]):
                        self.assertEqual(columns - known[name], set())

    def test_sections_of_readmes_exist(self):
        import markdown
        for program in self.registry.programs:
            text = (ROOT / program["readme"]).read_text()
            for key in ("setup", "figures", "why", "biases"):
                for name in program.get(key, []):
                    with self.subTest(readme=program["readme"], section=name):
                        self.assertTrue(markdown.section(text, name))

    def test_all_quick_cases_take_less_than_twenty_minutes(self):
        self.assertLess(sum(one.quick_seconds for one in self.registry.experiments if not one.not_quick), QUICK_S)


class Figures(unittest.TestCase):
    """What a check judges."""

    ROWS = [{"n": 1, "kind": "a", "t": 4}, {"n": 2, "kind": "a", "t": 6}, {"n": 2, "kind": "a", "t": 8}, {"n": 1, "kind": "b", "t": 2},
            {"n": 2, "kind": "b", "t": 2}, {"n": 3, "kind": "b"}]

    def test_points_are_medians_and_ratios_are_taken_at_the_same_x(self):
        a = {"column": "t", "where": {"kind": "a"}}
        self.assertEqual(rows.curve(self.ROWS, "n", a), {1: 4, 2: 7})
        self.assertEqual(rows.curve(self.ROWS, "n", a | {"over": {"kind": "b"}}), {1: 2, 2: 3.5})

    def test_the_worst_row_decides_unless_the_check_says_which(self):
        check = {"column": "t", "where": {"kind": "a"}}
        self.assertEqual(rows.figure(self.ROWS, check | {"at-most": 7}), 8)
        self.assertEqual(rows.figure(self.ROWS, check | {"at-least": 7}), 4)
        self.assertEqual(rows.figure(self.ROWS, check | {"by": "n", "take": "last/first", "at-most": 7}), 1.75)
        self.assertEqual(rows.figure(self.ROWS, check | {"where": {"n": {"from": 2}, "kind": ["a", "c"]}, "at-least": 1}), 6)
        self.assertIsNone(rows.figure(self.ROWS, check | {"where": {"kind": "c"}, "at-least": 1}))

    def test_a_line_fits_linearly_better_than_a_logarithm(self):
        line = [{"n": n, "t": 3 * n} for n in (1, 10, 100)]
        self.assertGreater(rows.figure(line, {"column": "t", "by": "n", "take": "R2 linear - logarithmic"}), 0.1)
        self.assertIsNone(rows.figure(line[:2], {"column": "t", "by": "n", "take": "R2 linear"}))

    def test_a_verdict_follows_from_the_checks_that_have_rows(self):
        judged = lambda *met: verdict.verdict([{"met": one} for one in met])
        self.assertEqual(judged(True, None), verdict.HOLDS)
        self.assertEqual(judged(True, False), verdict.PARTLY)
        self.assertEqual(judged(False, None), verdict.NOT)
        self.assertEqual(judged(None), verdict.OPEN)


# A program that counts its runs in a file, waits for another file if it is to hang, and writes its CSV.
FAKE = """
import pathlib, sys, time
name, out, here = sys.argv[1], pathlib.Path(sys.argv[2]), pathlib.Path(sys.argv[3])
out.mkdir(parents=True, exist_ok=True)
with open(here / f"{name}.runs", "a") as file:
    file.write("x")
while (here / f"{name}.hangs").exists():
    time.sleep(0.01)
if (here / f"{name}.fails").exists():
    sys.exit("the disk is full")
(out / f"{name}.csv").write_text("n,t\\n1,2\\n")
"""
PLOT = '{ name = "p", title = "p", x = { label = "n", column = "n" }, y = { label = "t" }, series = [{ label = "t", column = "t" }] }'


class Runs(unittest.TestCase):
    """Runs of fake experiments."""

    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.here = pathlib.Path(folder.name)
        self.results = self.here / "results"
        self.declarations = self.here / "registry"
        self.declarations.mkdir()
        (self.here / "fake.py").write_text(FAKE)
        (self.declarations / "papers.toml").write_text('paper = [{ key = "P", citation = "P", figure = [{ name = "1", claim = "t" }] }]')
        experiments = "".join(f"""
[[experiment]]
name = "{name}"
title = "{name}"
paper = "t is 2"
seconds = 1
shows = ["P 1"]
check = [{{ what = "t", column = "t", at-most = 2 }}]
plot = [{PLOT}]
""" for name in ("first", "second"))
        (self.declarations / "fake.toml").write_text(f"""
name = "fake"
title = "fake"
make = "lab-fake"
readme = "lab/sdlb/README.md"
build = []
command = ["{sys.executable}", "{self.here}/fake.py", "{{only}}", "{{out}}", "{self.here}"]
{experiments}""")

    def command(self, *words):
        return [PROGRAM, *words, "--registry", self.declarations, "--results", self.results]

    def lab(self, *words):
        return subprocess.run(self.command(*words), capture_output=True, text=True)

    def runs_of(self, name):
        path = self.here / f"{name}.runs"
        return len(path.read_text()) if path.exists() else 0

    def record(self, name):
        return runs.record(self.results / "fake" / name)

    def test_a_run_goes_on_from_the_experiments_that_are_finished(self):
        (self.here / "second.fails").touch()
        done = self.lab("run", "all")
        self.assertEqual(done.returncode, 1)
        self.assertRegex(done.stdout, r"failed after \d+ s: it ended with 1: the disk is full")
        self.assertEqual([self.record(name)["state"] for name in ("first", "second")], ["finished", "failed"])
        shown = page.page(registry.load(self.declarations), self.results)
        self.assertIn("No complete figures of a run: failed: it ended with 1: the disk is full.", shown)
        self.assertIn('<span class="verdict failed">failed</span>', shown)
        (self.here / "second.fails").unlink()
        self.assertEqual(self.lab("run", "all").returncode, 0)
        self.assertEqual([self.runs_of(name) for name in ("first", "second")], [1, 2])
        # Nothing is left; then everything again.
        self.lab("run", "all")
        self.assertEqual([self.runs_of(name) for name in ("first", "second")], [1, 2])
        self.lab("run", "all", "--again")
        self.assertEqual([self.runs_of(name) for name in ("first", "second")], [2, 3])

    def test_an_interrupted_run_ends_its_experiment_and_goes_on_from_it(self):
        (self.here / "second.hangs").touch()
        with subprocess.Popen(self.command("run", "all"), stdout=subprocess.DEVNULL) as process:
            while not self.runs_of("second"):
                self.assertIsNone(process.poll())
                time.sleep(0.01)
            process.send_signal(signal.SIGTERM)
            self.assertEqual(process.wait(60), 128 + signal.SIGTERM)
        told = self.record("second")
        self.assertEqual((told["state"], told["reason"]), ("interrupted", "the run was interrupted"))
        # Cases that were measured then may be kept, and so is the load of that time.
        runs.write(self.results / "fake/second", told | {"load": told["load"] | {"others_cores": 99.0}})
        (self.here / "second.hangs").unlink()
        self.assertEqual(self.lab("run", "all").returncode, 0)
        self.assertEqual([self.runs_of(name) for name in ("first", "second")], [1, 2])
        self.assertEqual(self.record("second")["load"]["others_cores"], 99.0)

    def test_a_second_run_of_the_same_results_is_refused(self):
        (self.here / "first.hangs").touch()
        with subprocess.Popen(self.command("run", "all"), stdout=subprocess.DEVNULL) as process:
            while not self.runs_of("first"):
                self.assertIsNone(process.poll())
                time.sleep(0.01)
            second = self.lab("run", "fake/second")
            self.assertEqual((second.returncode, second.stderr), (1, f"error: another run writes to {self.results}\n"))
            (self.here / "first.hangs").unlink()
            self.assertEqual(process.wait(60), 0)

    def test_cases_of_a_run_in_parts_are_kept_and_those_of_other_options_are_not(self):
        case = self.results / "fake/first/a-case.csv"
        self.lab("run", "fake/first", "--seconds", "5")
        case.touch()
        self.lab("run", "fake/first")
        self.assertTrue(case.exists())
        self.lab("run", "fake/first", "--repetitions", "9")
        self.assertFalse(case.exists())
        self.assertEqual(self.runs_of("first"), 3)
        self.assertEqual(self.record("first")["command"][-2:], ["--repetitions", "9"])

    def test_figures_of_another_commit_are_measured_again(self):
        self.lab("run", "all")
        path = self.results / "fake/first/run.json"
        path.write_text(json.dumps(json.loads(path.read_text()) | {"source": "another"}))
        self.lab("run", "all")
        self.assertEqual([self.runs_of(name) for name in ("first", "second")], [2, 1])

    def test_a_program_that_is_missing_is_the_reason_of_its_experiment(self):
        path = self.declarations / "fake.toml"
        path.write_text(path.read_text().replace("build = []", 'build = []\nneeds = ["no-such-program"]'))
        self.assertEqual(self.lab("run", "fake/first").returncode, 1)
        reason = "not installed: no-such-program (`make lab-fake` installs them)"
        self.assertEqual((self.record("first")["state"], self.record("first")["reason"]), ("not run", reason))
        self.assertIn(reason, page.page(registry.load(self.declarations), self.results))

    def test_the_record_has_the_circumstances_and_load_is_a_mark(self):
        self.lab("run", "all")
        told = self.record("first")
        self.assertEqual(told["source"], machine.source())
        self.assertGreaterEqual(set(told["machine"]), {"kernel", "cpu", "cpus_online", "memory_mib"})
        self.assertGreaterEqual(set(told["load"]), {"load_average_before", "load_average_most", "others_cores", "stolen_cores"})
        told["load"] |= {"others_cores": 1.5, "stolen_cores": 0.0}
        runs.write(self.results / "fake/first", told)
        shown = page.page(registry.load(self.declarations), self.results)
        self.assertIn("loaded machine: other programs used 1.5 cores meanwhile", shown)

    def test_an_unknown_experiment_is_refused(self):
        done = self.lab("run", "nothing")
        self.assertEqual(done.returncode, 1)
        self.assertIn("there is no experiment nothing", done.stderr)


# Uses a chart as a reader does, and leaves what that showed in the page.
USE = """
const data = (box) => JSON.parse(box.querySelector('script').textContent), dots = (box) => data(box).series.flatMap((one) => one.points).length;
const box = [...document.querySelectorAll('figure.chart')].filter((one) => data(one).x.log).sort((a, b) => dots(b) - dots(a))[0];
const svg = box.querySelector('svg'), count = (what) => svg.querySelectorAll(what).length, used = {};
const key = box.querySelector('.keys button'), y = [...box.querySelectorAll('.tools button')].pop();
const rect = svg.getBoundingClientRect();
const move = (kind, part, target = svg) => target.dispatchEvent(new PointerEvent(kind, {
  clientX: rect.left + rect.width * part, clientY: rect.top + rect.height / 2, bubbles: true }));
used.series = count('.series'); used.dots = count('circle, path');
key.click(); used.hidden = count('.series'); key.click(); used.again = count('.series');
used.linear = svg.textContent; y.click(); used.logarithmic = svg.textContent; y.click();
move('pointermove', 0.5); used.read = box.querySelector('.at').textContent;
move('pointerdown', 0.4); move('pointermove', 0.8); move('pointerup', 0.8, window); used.zoomed = count('circle, path');
svg.dispatchEvent(new MouseEvent('dblclick')); used.whole = count('circle, path');
const told = document.createElement('p'); told.id = 'used'; told.textContent = JSON.stringify(used); document.body.append(told);
"""


class Page(unittest.TestCase):
    """The page of the committed results."""

    @classmethod
    def setUpClass(cls):
        cls.registry = registry.load()
        cls.html = page.page(cls.registry, LAB / "results")

    def test_every_experiment_is_on_the_page_with_its_charts(self):
        for one in self.registry.experiments:
            self.assertIn(f'id="{page.anchor(one)}"', self.html)
        self.assertGreater(self.html.count('<figure class="chart">'), len(self.registry.experiments))

    def test_the_page_needs_no_network(self):
        for pattern in (r"(?:src|srcset|action|data)\s*=\s*[\"']?\w+:", r"href=\"(?!#)", r"url\(", r"@import", r"<link\b", r"<iframe",
                        r"\bfetch\(", r"XMLHttpRequest", r"WebSocket\(", r"\bimport\("):
            self.assertIsNone(re.search(pattern, self.html), pattern)
        # The one address is the name of SVG's elements.
        self.assertEqual(set(re.findall(r"https?://[^\s\"'<>)]+", self.html)), {"http://www.w3.org/2000/svg"})

    def test_an_experiment_without_figures_says_so(self):
        with tempfile.TemporaryDirectory() as folder:
            shown = page.page(self.registry, pathlib.Path(folder))
        self.assertEqual(shown.count("No complete figures of a run: not in this run."), len(self.registry.experiments))

    @unittest.skipUnless(shutil.which("chromium"), "chromium is not installed")
    def test_a_browser_draws_every_chart(self):
        with tempfile.TemporaryDirectory() as folder:
            path = pathlib.Path(folder) / "report.html"
            path.write_text(self.html.replace("</body>", f"<script>{USE}</script></body>"))
            command = ["chromium", "--headless", "--no-sandbox", "--disable-gpu", f"--user-data-dir={folder}/profile",
                       "--virtual-time-budget=10000", "--dump-dom", path.as_uri()]
            shown = subprocess.run(command, capture_output=True, text=True, timeout=300, env=os.environ | {"HOME": folder}).stdout
        charts = shown.count('<figure class="chart">')
        self.assertEqual(charts, self.html.count('<figure class="chart">'))
        self.assertEqual(shown.count('<svg viewBox='), charts)
        self.assertNotIn("cannot be drawn", shown.split("<script>")[0])
        declared = [json.loads(data) for data in re.findall(r'<script type="application/json">(.*?)</script>', self.html, re.S)]
        self.assertEqual(len(re.findall(r'<g class="series (?:here|known|paper)"', shown)), sum(len(one["series"]) for one in declared))
        used = json.loads(re.search(r'<p id="used">(.*?)</p>', shown)[1])
        self.assertEqual(used["hidden"], used["series"] - 1)
        self.assertEqual(used["again"], used["series"])
        self.assertNotEqual(used["logarithmic"], used["linear"])
        self.assertGreater(len(used["read"]), 10)
        self.assertLess(used["zoomed"], used["dots"])
        self.assertEqual(used["whole"], used["dots"])


if __name__ == "__main__":
    unittest.main()
