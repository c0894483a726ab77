"""One HTML page of all findings, which needs no network."""

import collections
import html
import json
import pathlib

import charts
import machine
import markdown
from findings import CLASSES, finding
from registry import key_of
from verdict import OPEN

HERE = pathlib.Path(__file__).resolve().parent
ROOT = machine.ROOT


def page(registry, results):
    told = manifest(results)
    found = {one.name: finding(one, results, told.get("quick", False)) for one in registry.experiments}
    body = [head(told, found.values()), contents(registry, found)]
    for program in registry.programs:
        body.append(section(registry, program, [one for one in found.values() if one.experiment.program is program]))
    return ("<!doctype html>\n<html lang=\"en\"><head><meta charset=\"utf-8\"><title>equipoise: the report of its lab</title>\n"
            "<meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n"
            f"<style>\n{(HERE / 'page.css').read_text()}</style></head>\n<body>\n" + "\n".join(body)
            + f"\n<script>\n{(HERE / 'chart.js').read_text()}</script>\n</body></html>\n")


def text(words):
    return html.escape(str(words))


def head(told, found):
    counts = {}
    for one in found:
        counts[one.verdict()] = counts.get(one.verdict(), 0) + 1
    summary = ", ".join(f"<span class=\"{CLASSES[words]}\">{counts[words]} {text(words)}</span>" for words in CLASSES if words in counts)
    return (f"<h1>The five papers and the peers, measured</h1>\n<p>{summary}.</p>\n{circumstances(told, list(found))}"
            "<p>Each chart has the paper's numbers on the same axes (◆, dashed), this run's (●), and those that a README of the lab "
            "states of an earlier run (○, dotted). A verdict follows from the checks below it; "
            "<span class=\"mark\">marks</span> say why it may not be final. "
            "Click a key to hide a series, move over a chart to read it, drag to zoom, double-click to see all.</p>")


def manifest(results):
    path = results / "manifest.json"
    return json.loads(path.read_text()) if path.exists() else {}


def circumstances(told, found):
    """When, at which commits and on which machines the results were measured."""
    records = [one.record for one in found if one.record.get("state")]
    if not records:
        return "<p>No run is recorded here.</p>"
    finished = sum(record["state"] == "finished" for record in records)
    lines = [f"{finished} of {len(found)} experiments have a finished run: {' to '.join(ends(sorted(day(record) for record in records)))}."]
    for what, of in (("Commits", commit), ("Machines", machine_of), ("Builds", lambda record: record.get("build") or "not recorded")):
        counts = collections.Counter(map(of, records))
        lines.append(f"{what}: {', '.join(f'{words} ({count})' for words, count in counts.most_common())}.")
    quick = " A quick run: small cases only." if told.get("quick") else ""
    return f"<p class=\"soft\">{text(' '.join(lines))} Each experiment names its load, seed and versions.{quick}</p>"


def ends(values):
    return [values[0], values[-1]] if values[0] != values[-1] else values[:1]


def day(record):
    return record.get("date", "unknown").split("T")[0].split()[0]


def commit(record):
    """The commit of a record, in short."""
    source = record.get("source")
    return f"{source[:12]}{' with changes' if '+' in source else ''}" if source else "not recorded"


def machine_of(record):
    it = record.get("machine")
    if not it:
        return "not recorded"
    return f"Linux {it['kernel']}, {it['cpu']}, {it['cpus_online']} CPUs" + (f", {it['memory_mib']} MiB" if it.get("memory_mib") else "")


def where(record):
    """Commit and machine of a record."""
    parts = [f"Commit {commit(record)}", *([machine_of(record)] if record.get("machine") else [])]
    if record.get("build"):
        parts.append(f"{record['build']} build")
    return text("; ".join(parts)) + "."


def verdict(one, figure=None):
    words = one.verdict(figure)
    if words == OPEN:
        return f"<span class=\"verdict open\">{OPEN}</span>"
    marks = "".join(f" <span class=\"mark\">{text(mark)}</span>" for mark in one.marks)
    return f"<span class=\"verdict {CLASSES[words]}\">{text(words)}</span>{marks}"


def anchor(experiment):
    return experiment.name.replace("/", "-")


def contents(registry, found):
    lines = ["<h2>The papers' figures</h2>", "<div class=\"wide\"><table><thead><tr><th>paper</th><th>figure</th><th>claim</th><th>here</th></tr></thead><tbody>"]
    for paper, figure in registry.figures():
        here = "<br>".join(f"<a href=\"#{anchor(one)}\">{text(one.name)}</a>: {verdict(found[one.name], key_of(paper, figure))}"
                           for one in registry.showing(paper, figure))
        lines.append(f"<tr><td>{text(paper['key'])}</td><td>{text(figure['name'])}</td><td>{text(figure['claim'])}</td>"
                     f"<td>{here or text(figure['not-here'])}</td></tr>")
    lines += ["</tbody></table></div>", "<h2>Beyond the papers' figures, and beside peers</h2>",
              "<div class=\"wide\"><table><thead><tr><th>experiment</th><th>what</th><th>here</th></tr></thead><tbody>"]
    for one in registry.experiments:
        if not one.declared.get("shows"):
            lines.append(f"<tr><td><a href=\"#{anchor(one)}\">{text(one.name)}</a></td><td>{text(one.title)}</td>"
                         f"<td>{verdict(found[one.name])}</td></tr>")
    return "\n".join([*lines, "</tbody></table></div>"])


def section(registry, program, found):
    paper = next((paper for paper in registry.papers if paper["key"] == program.get("paper")), None)
    lines = [f"<section><h2 id=\"{program['name']}\">{text(program['title'])}</h2>"]
    if paper:
        lines.append(f"<p class=\"soft\">{text(paper['citation'])}</p>")
    lines += readme(program, "setup", "Our set-up against the paper's" if paper else "Set-up", is_open=True)
    lines += readme(program, "biases", "Biases")
    lines += [experiment(one) for one in found]
    lines += readme(program, "figures", f"Figures of earlier runs, as {program['readme']} states them")
    lines += readme(program, "why", "Why they differ")
    return "\n".join([*lines, "</section>"])


def readme(program, key, title, is_open=False):
    """Sections of the program's README."""
    page = (ROOT / program["readme"]).read_text()
    bodies = [markdown.render(markdown.section(page, name) or "") for name in program.get(key, [])]
    if not bodies:
        return []
    return [f"<details{' open' if is_open else ''}><summary>{text(title)}</summary>", *bodies, "</details>"]


def experiment(one):
    it = one.experiment
    lines = [f"<div class=\"experiment\" id=\"{anchor(it)}\"><h3>{text(it.title)}</h3>",
             f"<p class=\"soft\"><code>{text(it.name)}</code>{shows(it)}</p>",
             f"<p><strong>Claim.</strong> {markdown.inline(it.claim)}</p>"]
    for key, words in (("beside", "Set-up of the paper"), ("here", "Set-up here")):
        if it.declared.get(key):
            lines.append(f"<p><strong>{words}.</strong> {markdown.inline(it.declared[key].strip())}</p>")
    lines.append(f"<p><strong>Verdict.</strong> {verdict(one)} {markdown.inline(it.declared.get('verdict', '').strip())}</p>")
    if one.reason:
        words = "The program complained" if one.record.get("state") == "finished" else "No complete figures of a run"
        lines.append(f"<p class=\"failed\">{words}: {text(one.reason)}.</p>")
    if one.checks:
        lines.append(judged("check of the claim", one.checks))
    for part in it.parts:
        lines += shown(one, part, len(it.parts) > 1)
    return "\n".join([*lines, circumstances_of(one), "</div>"])


def shows(it):
    return f": {text(', '.join(it.declared['shows']))}" if it.declared.get("shows") else ""


def shown(one, part, is_titled):
    lines = [f"<h4>{text(part.title)}</h4>"] if is_titled else []
    for plot in part.plots:
        if drawn := charts.chart(plot, lambda csv: one.points(part, csv)):
            # "<" would end the script.
            data = json.dumps(drawn, separators=(",", ":")).replace("<", "\\u003c")
            lines.append(f"<figure class=\"chart\"><figcaption>{text(plot['title'])}</figcaption>"
                         f"<script type=\"application/json\">{data}</script></figure>")
    goals = [goal for goal in one.goals(part) if goal["met"] is not None]
    if goals:
        lines.append(details("Our own goals", judged("goal", goals)))
    for label, found in [("Rows of this run", one.measured.get(part.name)), *((f"Rows of {label}", some) for label, some in one.known_rows(part.name))]:
        if found:
            lines.append(details(f"{label} ({len(found)})", table(part, found)))
    if part.notes or part.conclusion:
        lines.append(details("How to read them", markdown.render(part.notes) + markdown.render(part.conclusion)))
    return lines


def details(title, body):
    return f"<details><summary>{text(title)}</summary>{body}</details>"


def judged(what, checks):
    words = {True: "met", False: "**missed**", None: "no rows"}
    return markdown.table([what, "demanded", "here", ""], [
        [check["what"], check["demanded"], "" if check["figure"] is None else number(check["figure"]), words[check["met"]]] for check in checks])


def number(value):
    if not isinstance(value, float):
        return str(value)
    return f"{value:.0f}" if value.is_integer() or abs(value) >= 1e4 else f"{value:.4g}"


def table(part, found):
    """The columns that the description chooses, or all."""
    every = list(dict.fromkeys(column for row in found for column in row))
    columns = [column for column in part.table if column in every] or every
    return markdown.table([column.replace("_", " ") for column in columns],
                          [[number(row[column]) if column in row else "" for column in columns] for row in found])


def circumstances_of(one):
    record = one.record
    if not record or not one.measured:
        return ""
    load = record.get("load", {})
    parts = [where(record), text(f"Measured {record.get('date', 'at an unknown time')}"
                                 + (f", {record['seconds']:g} s." if record.get("seconds") else "."))]
    if "others_cores" in load:
        parts.append(text(f"Load average {load['load_average_before']:g} before, {load['load_average_most']:g} at most; other programs used "
                          f"{load['others_cores']:g} cores, the host took {load['stolen_cores']:g}."))
    elif load:
        parts.append(text(f"Load average {load['load_average_before']:g} before."))
    if record.get("seed") is not None:
        parts.append(f"Seed {record['seed']}.")
    peers = ", ".join(f"{name}: {version}" for name, version in record.get("peers", {}).items())
    command = " ".join(record.get("command", []))
    return (f"<p class=\"soft\">{' '.join(parts)}{text(f' {peers}.') if peers else ''}"
            + (f" <code>{text(command)}</code>" if command else "") + "</p>")
