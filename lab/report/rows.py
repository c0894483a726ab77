"""Rows of CSV files: selection, grouping, and the single figures that checks judge."""

import csv
import math
import statistics


def read_csv(path):
    """The rows of a file, numbers as numbers; empty cells are left out. No file, no rows."""
    if not path.exists():
        return []
    with open(path, newline="") as file:
        return [{column: value(cell) for column, cell in row.items() if cell not in ("", None) and column}
                for row in csv.DictReader(file)]


def value(cell):
    for kind in (int, float):
        try:
            return kind(cell)
        except ValueError:
            continue
    return cell


def matches(row, where):
    """Whether a row has these values: equal, one of a list, or a number `from` .. `to`."""
    for column, wanted in where.items():
        there = row.get(column)
        if isinstance(wanted, dict):
            if not isinstance(there, (int, float)):
                return False
            if not wanted.get("from", -math.inf) <= there <= wanted.get("to", math.inf):
                return False
        elif isinstance(wanted, list):
            if there not in wanted:
                return False
        elif there != wanted and str(there) != str(wanted):
            return False
    return True


def curve(rows, x, series):
    """The points of a series, x to y: medians where several rows have one x.

    `column` is the figure, `where` selects rows; with `over` (another selection, or another `column`) it is the
    ratio to those at the same x.
    """
    where = series.get("where", {})
    points = grouped(rows, x, series["column"], where)
    if over := series.get("over"):
        over = dict(over)
        column = over.pop("column", series["column"])
        below = grouped(rows, x, column, where | over)
        return {at: y / below[at] for at, y in points.items() if below.get(at)}
    return points


def grouped(rows, x, column, where):
    found = {}
    for row in rows:
        figure = row.get(column)
        if isinstance(figure, (int, float)) and math.isfinite(figure) and matches(row, where):
            found.setdefault(row.get(x, 0) if x else 0, []).append(figure)
    return {at: statistics.median(figures) for at, figures in found.items()}


def r_squared(xs, ys):
    """Of the least-squares line."""
    x_mean, y_mean = statistics.fmean(xs), statistics.fmean(ys)
    spread, whole = sum((x - x_mean) ** 2 for x in xs), sum((y - y_mean) ** 2 for y in ys)
    if not spread or not whole:
        return math.nan
    slope = sum((x - x_mean) * (y - y_mean) for x, y in zip(xs, ys)) / spread
    left = sum((y - y_mean - slope * (x - x_mean)) ** 2 for x, y in zip(xs, ys))
    return 1 - left / whole


def linear(points):
    return r_squared(list(points), list(points.values()))


def logarithmic(points):
    return r_squared([math.log(x) for x in points], list(points.values()))


# The single figure of a curve that a check judges, by its name in the registry.
TAKES = {
    "min": lambda points: min(points.values()),
    "max": lambda points: max(points.values()),
    "median": lambda points: statistics.median(points.values()),
    "max/min": lambda points: max(points.values()) / min(points.values()) if min(points.values()) else math.inf,
    "last/first": lambda points: points[max(points)] / points[min(points)],
    "last/max": lambda points: points[max(points)] / max(points.values()),
    "R2 linear": linear,
    "R2 linear - logarithmic": lambda points: linear(points) - logarithmic(points),
    "R2 logarithmic - linear": lambda points: logarithmic(points) - linear(points),
}
# The take that adds all points before it divides them.
SUMS = "sums"
# Takes that say nothing of fewer points.
FEWEST = {"max/min": 2, "last/first": 2, "last/max": 2, "R2 linear": 3, "R2 linear - logarithmic": 3,
          "R2 logarithmic - linear": 3}


def ratio_of_sums(found, check):
    """The sum of a column of the rows `where` over that of another column of theirs; None without rows."""
    chosen = [row for row in found if matches(row, check.get("where", {}))]
    above, below = (sum(row.get(column, 0) for row in chosen) for column in (check["column"], check["over"]["column"]))
    return above / below if below else None


def figure(rows, check):
    """The figure that a check judges, or None if no row has it. The worst one, unless the check says which."""
    if check.get("take") == SUMS:
        return ratio_of_sums(rows, check)
    if "by" in check or "over" in check:
        points = curve(rows, check.get("by"), check)
    else:
        # Each row counts by itself.
        points = curve([row | {"_row": at} for at, row in enumerate(rows)], "_row", check)
    take = check.get("take") or ("min" if "at-least" in check else "max")
    if len(points) < FEWEST.get(take, 1):
        return None
    return TAKES[take](points)
