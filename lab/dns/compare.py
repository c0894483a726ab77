#!/usr/bin/env python3
"""Compares equipoise's answers with Knot's, which serves the same zone and one below it: every name, type and flag, both transports.

    cargo build --profile dist -p equipoise && lab/dns/compare.py

Exits 1 if there is a difference that INTENDED does not explain.
"""

import argparse
import collections
import itertools
import pathlib
import sys
import tempfile

import dns.edns
import dns.flags
import dns.message
import dns.opcode
import dns.query
import dns.rcode
import dns.rdataclass
import dns.rdatatype

import servers

NAMES = [
    "cluster.example", "CLUSTER.Example", "ns1.cluster.example", "text.cluster.example", "TeXt.cluster.example",
    "mail.cluster.example", "mx.cluster.example", "alias.cluster.example", "chain.cluster.example",
    "far.cluster.example", "lost.cluster.example", "www.cluster.example", "_web._tcp.cluster.example",
    "_tcp.cluster.example", "app.cluster.example", "caa.cluster.example", "tlsa.cluster.example",
    "wild.cluster.example", "a.wild.cluster.example", "b.a.wild.cluster.example", "*.wild.cluster.example",
    "deep.er.est.cluster.example", "er.est.cluster.example", "est.cluster.example", "x.er.est.cluster.example",
    "sub.cluster.example", "ns.sub.cluster.example", "host.sub.cluster.example", "a.b.sub.cluster.example",
    "none.cluster.example", "a.none.cluster.example", "x.text.cluster.example", "large.cluster.example",
    "below.cluster.example", "ns.below.cluster.example", "www.below.cluster.example", "none.below.cluster.example",
    "old.below.cluster.example", "a.wild.below.cluster.example", "wild.below.cluster.example",
    "front.cluster.example", "SELF.cluster.example", "none-here.cluster.example", "service.cluster.example",
    "ports._tcp.cluster.example", "to-app.cluster.example", "glued.cluster.example", "a.mails.cluster.example",
    "other.example", "example", ".", "xcluster.example",
]
TYPES = [*range(1, 66), 99, 104, 105, 249, 250, 251, 252, 253, 254, 255, 256, 257, 258, 32769, 65280, 65535]

# What differs on purpose: the reason, and which questions it is about.
INTENDED = {
    "ANY is answered with one HINFO record (RFC 8482); Knot gives all records":
        lambda q, ours, peers: q.question[0].rdtype == dns.rdatatype.ANY,
    "a transfer is REFUSED whatever is asked; Knot says NOTAUTH, FORMERR or transfers":
        lambda q, ours, peers: q.question[0].rdtype in (dns.rdatatype.AXFR, dns.rdatatype.IXFR),
    "TKEY and TSIG as a question are REFUSED; Knot looks for records":
        lambda q, ours, peers: q.question[0].rdtype in (249, 250),
    "a question for OPT is malformed (FORMERR); Knot looks for records":
        lambda q, ours, peers: q.question[0].rdtype == dns.rdatatype.OPT,
    "an alias is an alias for RRSIG and NSEC too; Knot answers them from the name itself":
        lambda q, ours, peers: q.question[0].rdtype in (46, 47, 50) and bool(ours.answer) and not peers.answer,
    "what is no QUERY is NOTIMP with a header alone; Knot echoes the question, and knows NOTIFY and UPDATE":
        lambda q, ours, peers: q.opcode() != dns.opcode.QUERY and ours.rcode() == dns.rcode.NOTIMP,
    "class ANY is REFUSED; Knot answers as for IN":
        lambda q, ours, peers: q.question[0].rdclass == dns.rdataclass.ANY,
    "an answer to SVCB, and to HTTPS with target `.`, has the target's addresses (RFC 9460, 4.1); Knot 3.2's has none":
        lambda q, ours, peers: q.question[0].rdtype in (64, 65) and ours.answer == peers.answer and not peers.additional,
    "a truncated response has the records that fit; Knot's has none":
        lambda q, ours, peers: bool(ours.flags & peers.flags & dns.flags.TC),
}


def queries():
    """Every name and type plainly; and some of them with every combination of flags."""
    for name, rdtype in itertools.product(NAMES, TYPES):
        yield "plain", dns.message.make_query(name, rdtype)
    some = ["A", "TXT", "NS", "SOA", "MX", "DS"]
    edns = [None, (0, 512), (0, 1232), (0, 4096), (0, 0), (1, 1232)]
    flags = [0, dns.flags.RD, dns.flags.CD, dns.flags.AD, dns.flags.RD | dns.flags.CD | dns.flags.AD]
    for name, rdtype, extra, bits, do in itertools.product(NAMES, some, edns, flags, [False, True]):
        if extra is None and do:
            continue
        query = dns.message.make_query(name, rdtype)
        if extra is not None:
            query.use_edns(extra[0], dns.flags.DO if do else 0, extra[1])
        query.flags = bits
        yield "flags", query
    for name, opcode in itertools.product(NAMES[:4], [1, 2, 4, 5, 6, 15]):
        query = dns.message.make_query(name, "SOA")
        query.set_opcode(opcode)
        yield "opcode", query
    for name, rdclass in itertools.product(NAMES[:4], [3, 4, 254, 255, 2]):
        yield "class", dns.message.make_query(name, "A", rdclass)


def parts(message):
    """What is compared of a response."""
    sections = {}
    for label, section in (("answer", message.answer), ("authority", message.authority), ("additional", message.additional)):
        sections[label] = sorted(
            f"{rrset.name} {rrset.ttl} {dns.rdatatype.to_text(rrset.rdtype)} {rdata}".lower()
            for rrset in section for rdata in rrset)
    return {
        "rcode": dns.rcode.to_text(message.rcode()),
        "flags": dns.flags.to_text(message.flags & ~dns.flags.CD & ~dns.flags.AD),
        "question": str(message.question),
        "edns": (message.edns, message.ednsflags & dns.flags.DO) if message.edns >= 0 else None,
        **sections,
    }


def ask(server, query, transport):
    function = dns.query.udp if transport == "udp" else dns.query.tcp
    extra = {"ignore_trailing": False} if transport == "udp" else {}
    try:
        return function(query, "127.0.0.1", port=server.port, timeout=3, **extra)
    except Exception as error:  # no answer is an answer to compare, too
        return type(error).__name__


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--csv", type=pathlib.Path)
    path = parser.parse_args().csv
    servers.have("knotd")
    with tempfile.TemporaryDirectory() as folder:
        running = []
        try:
            ours = servers.equipoise(folder)
            running.append(ours)
            peer = servers.knot(folder)
            running.append(peer)
            return compare(ours, peer, path)
        finally:
            servers.stop_all(running)


def compare(ours, peer, path):
    """Prints what differs, and writes the numbers to `path` if there is one. 1 for a difference without a reason."""
    asked, same = 0, 0
    intended, others = collections.Counter(), collections.defaultdict(list)
    for kind, query in queries():
        for transport in ("udp",) if kind == "flags" else ("udp", "tcp"):
            asked += 1
            one, other = ask(ours, query, transport), ask(peer, query, transport)
            if isinstance(one, str) or isinstance(other, str):
                if isinstance(one, str) and isinstance(other, str):
                    same += 1
                else:
                    what = f"ours {one if isinstance(one, str) else parts(one)['rcode']}, Knot's {other if isinstance(other, str) else parts(other)['rcode']}"
                    others[f"{kind}: no answer"].append((transport, query, what))
                continue
            found, wanted = parts(one), parts(other)
            if found == wanted:
                same += 1
                continue
            reason = next((reason for reason, holds in INTENDED.items() if query.question and holds(query, one, other)), None)
            if reason:
                intended[reason] += 1
                continue
            differing = [key for key in found if found[key] != wanted[key]]
            text = "; ".join(f"{key}: ours {found[key]} Knot's {wanted[key]}" for key in differing)
            others[f"{kind}: {', '.join(differing)}"].append((transport, query, text))
    print(f"{asked} questions, {same} answers alike")
    for reason, count in intended.items():
        print(f"{count:6} differ on purpose: {reason}")
    for what, all_of in others.items():
        print(f"{len(all_of):6} DIFFER: {what}")
        for transport, query, text in all_of[:4]:
            question = query.question[0] if query.question else "-"
            print(f"         {transport} {question} opcode {dns.opcode.to_text(query.opcode())} edns {query.edns}: {text}"[:600])
    if path:
        rows = [{"outcome": "asked", "answers": asked, "what": ""}, {"outcome": "alike", "answers": same, "what": ""}]
        rows += [{"outcome": "on purpose", "answers": count, "what": reason} for reason, count in intended.items()]
        rows += [{"outcome": "differs", "answers": len(all_of), "what": what} for what, all_of in others.items()]
        servers.write_csv(path, rows + [{"outcome": "unexplained", "answers": sum(map(len, others.values())), "what": ""}])
    return 1 if others else 0


if __name__ == "__main__":
    sys.exit(main())
