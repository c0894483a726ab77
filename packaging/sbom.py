#!/usr/bin/env python3
"""Prints the libraries of the binary as a CycloneDX document: sbom.py VERSION."""

import json
import re
import sys
import tomllib
import uuid

import shipped


def reference(name, version):
    return f"pkg:cargo/{name}@{version}"


def component(package, checksums):
    name, version = package["name"], package["version"]
    made = {
        "type": "library",
        "bom-ref": reference(name, version),
        "name": name,
        "version": version,
        # Older crates write "MIT/Apache-2.0".
        "licenses": [{"expression": re.sub(r"\s*/\s*", " OR ", package["license"])}],
        "purl": reference(name, version),
        "externalReferences": [],
    }
    if package["description"]:
        made["description"] = " ".join(package["description"].split())
    if package["repository"]:
        made["externalReferences"].append({"type": "vcs", "url": package["repository"]})
    if checksum := checksums.get((name, version)):
        made["hashes"] = [{"alg": "SHA-256", "content": checksum}]
    inside = [
        {"type": "library", "bom-ref": f"{reference(name, version)}#{c_name}", "name": c_name,
         "licenses": [{"expression": licence}]}
        for c_name, crate, licence, _ in shipped.C_LIBRARIES if crate == name
    ]
    if inside:
        made["components"] = inside
    return made


def npm_reference(library):
    return f"pkg:npm/{library['name'].replace('@', '%40')}@{library['version']}"


def npm_component(library):
    """A library of the dashboard."""
    reference = npm_reference(library)
    return {
        "type": "library",
        "bom-ref": reference,
        "name": library["name"],
        "version": library["version"],
        "licenses": [{"expression": library["license"]}],
        "purl": reference,
        "hashes": [{"alg": "SHA-512", "content": library["sha512"]}],
    }


def dependencies(crates, metadata, root):
    """Edges between the crates; the root has those of every crate of the workspace."""
    references = {package["id"]: reference(*key) for key, package in crates.items()}
    edges = {of: set() for of in (root, *references.values())}
    edges[root].update(map(npm_reference, shipped.dashboard()))
    for node in metadata["resolve"]["nodes"]:
        of = references.get(node["id"], root if "path+file" in node["id"] else None)
        normal = (it["pkg"] for it in node["deps"] if any(kind["kind"] is None for kind in it["dep_kinds"]))
        if of is not None:
            edges[of].update(references[it] for it in normal if it in references)
    return [{"ref": of, "dependsOn": sorted(on)} for of, on in sorted(edges.items())]


def main():
    version = sys.argv[1]
    crates, metadata = shipped.crates()
    lock = tomllib.loads((shipped.WORKSPACE / "Cargo.lock").read_text())
    checksums = {(it["name"], it["version"]): it.get("checksum") for it in lock["package"]}
    root = f"pkg:generic/equipoise@{version}"
    document = {
        "$schema": "http://cyclonedx.org/schema/bom-1.5.schema.json",
        "bomFormat": "CycloneDX",
        "specVersion": "1.5",
        "version": 1,
        "metadata": {
            "component": {
                "type": "application", "bom-ref": root, "name": "equipoise", "version": version,
                "licenses": [{"expression": "Apache-2.0"}], "purl": root,
            },
        },
        "components": [
            *(component(package, checksums) for package in crates.values()),
            *map(npm_component, shipped.dashboard()),
        ],
        "dependencies": dependencies(crates, metadata, root),
    }
    content = json.dumps(document, indent=1)
    # The same content has the same number.
    document["serialNumber"] = f"urn:uuid:{uuid.uuid5(uuid.NAMESPACE_URL, content)}"
    json.dump(document, sys.stdout, indent=1)
    print()


main()
