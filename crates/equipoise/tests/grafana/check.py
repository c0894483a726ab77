"""Prints the fields of a dashboard that Grafana's own models do not have, or change."""

import json
import sys

from grafana_foundation_sdk.cog import plugins
from grafana_foundation_sdk.cog.encoder import JSONEncoder
from grafana_foundation_sdk.models.dashboard import Dashboard

# Grafana writes this field of a variable, and its schema has it since Grafana 11.
LATER = ("definition",)


def differences(ours, theirs, path):
    """The places where `theirs` lacks a part of `ours`."""
    if isinstance(ours, dict) and isinstance(theirs, dict):
        for key, value in ours.items():
            if key in theirs:
                yield from differences(value, theirs[key], f"{path}.{key}")
            elif key not in LATER:
                yield f"{path}.{key}: not in Grafana's schema"
    elif isinstance(ours, list) and isinstance(theirs, list) and len(ours) == len(theirs):
        for place, (one, other) in enumerate(zip(ours, theirs)):
            yield from differences(one, other, f"{path}[{place}]")
    elif ours != theirs:
        yield f"{path}: {ours!r} is {theirs!r} for Grafana"


plugins.register_default_plugins()
with open(sys.argv[1], encoding="utf-8") as file:
    dashboard = json.load(file)
read = json.loads(json.dumps(Dashboard.from_json(dashboard), cls=JSONEncoder))
found = list(differences(dashboard, read, "dashboard"))
print("\n".join(found))
sys.exit(1 if found else 0)
