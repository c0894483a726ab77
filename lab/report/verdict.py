"""Whether a paper's claim holds for measured rows."""

import rows

HOLDS, PARTLY, NOT, OPEN = "holds", "holds partly", "does not hold here", "not measured"


def judge(check, found):
    """A check with its figure and whether it is met; `met` is None if no row decides."""
    figure = rows.figure(found, check)
    met = None
    if figure is not None:
        # NaN meets nothing.
        met = check.get("at-least", figure) <= figure <= check.get("at-most", figure)
    return {"what": check["what"], "for": check.get("for"), "demanded": demanded(check), "figure": figure, "met": met}


def demanded(check):
    parts = [f"{words} {check[key]:g}" for key, words in (("at-least", "at least"), ("at-most", "at most")) if key in check]
    return " and ".join(parts)


def verdict(checks):
    """One of the four, from checks that were judged."""
    met = [check["met"] for check in checks if check["met"] is not None]
    if not met:
        return OPEN
    if all(met):
        return HOLDS
    return PARTLY if any(met) else NOT


def goal_check(goal):
    """A goal of the lab's runner as a check."""
    check = {"what": goal["what"], "column": goal["column"]}
    check |= {key: goal[key] for key in ("at-least", "at-most") if key in goal}
    if of := goal.get("of"):
        check["where"] = {of["column"]: {"from": of["from"], "to": of["to"]}}
    return check
