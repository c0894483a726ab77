"""The data of a chart: our series, those of earlier runs, and the paper's points, on the same axes."""

import rows


def chart(plot, rows_of):
    """None if no series has a point. `rows_of` gives, for the CSV file that a series names or for `None`, the rows of
    this run and `(label, rows)` of earlier ones.
    """
    x = plot["x"]
    series = []
    for declared in plot["series"]:
        for key, kind in (("paper", "paper"), ("stated", "known")):
            if points := declared.get(key):
                series.append({"label": declared["label"], "kind": kind, "points": points})
        if "column" not in declared:
            continue
        measured, known = rows_of(declared.get("csv"))
        for one in spread(declared, [*measured, *(row for _, some in known for row in some)]):
            if points := rows.curve(measured, x["column"], one):
                series.append({"label": one["label"], "kind": "here", "points": ordered(points)})
            for label, some in known:
                if points := rows.curve(some, x["column"], one):
                    series.append({"label": f"{one['label']}; {label}", "kind": "known", "points": ordered(points)})
    if not series:
        return None
    axis = lambda it: {"label": it["label"], "log": it.get("logarithmic", False)}
    made = {"title": plot["title"], "x": axis(x), "y": axis(plot["y"]), "series": series}
    words = [at for one in series for at, _ in one["points"] if isinstance(at, str)]
    if words:
        made["x"]["categories"] = list(dict.fromkeys(words))
        for one in series:
            one["points"] = [[str(at), y] for at, y in one["points"]]
    return made


def spread(declared, found):
    """A series, or with `each` one for every value of a column; `{}` in its label is the value."""
    column = declared.get("each")
    if not column:
        return [declared]
    values = list(dict.fromkeys(row[column] for row in found if column in row and rows.matches(row, declared.get("where", {}))))
    name = lambda value: f"{value:g}" if isinstance(value, float) else str(value)
    return [declared | {"label": declared["label"].replace("{}", name(value)), "where": declared.get("where", {}) | {column: value}}
            for value in values]


def ordered(points):
    """Words stay in the order of the rows."""
    pairs = [[at, y] for at, y in points.items()]
    return pairs if any(isinstance(at, str) for at, _ in pairs) else sorted(pairs)
