//! What is no query, or not one that we answer.

use super::*;
use crate::{Reason, Transport};

/// Changes one byte.
fn set(mut query: Vec<u8>, at: usize, byte: u8) -> Vec<u8> {
    query[at] = byte;
    query
}

#[test]
fn what_cannot_be_answered_is_dropped_and_counted() {
    let mut server = Server::new();
    let good = query("www.cluster.example", A);
    let rows = [
        (&good[..0], Reason::TooShort),
        (&good[..11], Reason::TooShort),
        (&set(good.clone(), 2, 0x81)[..], Reason::NotAQuery),
        (&set(good.clone(), 2, 0xff)[..], Reason::NotAQuery),
    ];
    for (bytes, reason) in rows {
        for transport in [Transport::Udp, Transport::Tcp] {
            assert_eq!(server.over(transport, bytes), Err(reason), "{bytes:?}");
        }
    }
    assert_eq!(server.figure("too_short"), 4);
    assert_eq!(server.figure("not_a_query"), 4);
}

#[test]
fn malformed_queries_are_format_errors() {
    let mut server = Server::new();
    let good = query("www.cluster.example", A);
    let opt = |options: &[u8]| with_opt(good.clone(), 1232, 0, options);
    let two_opts = with_opt(opt(&[]), 1232, 0, &[]);
    let mut trailing = good.clone();
    trailing.push(0);
    let mut pointer = good[..12].to_vec();
    pointer.extend([0xc0, 0x0c, 0, 1, 0, 1]);
    let mut opt_name = opt(&[]);
    let at = good.len();
    opt_name.splice(at..=at, [1, b'x', 0]);
    let mut too_many = good.clone();
    too_many[11] = 200;
    let rows: &[(&str, Vec<u8>)] = &[
        ("no question", good[..12].to_vec()),
        ("a header alone without counts", set(good[..12].to_vec(), 5, 0)),
        ("two questions", set(good.clone(), 5, 2)),
        ("an answer in the query", set(good.clone(), 7, 1)),
        ("a cut name", good[..20].to_vec()),
        ("a cut question", good[..good.len() - 1].to_vec()),
        ("bytes behind the end", trailing),
        ("a pointer for a name", pointer),
        ("more records than there are", too_many),
        ("two OPT records", two_opts),
        ("an OPT record with a name", opt_name),
        ("a cut option", opt(&[0, 10, 0, 8, 1])),
        ("a cookie of nine bytes", opt(&[0, 10, 0, 9, 1, 2, 3, 4, 5, 6, 7, 8, 9])),
        ("a subnet of an unknown family", opt(&[0, 8, 0, 5, 0, 9, 8, 0, 1])),
        ("a question for OPT", query("www.cluster.example", OPT)),
    ];
    for (what, bytes) in rows {
        let answer = server.udp(bytes);
        assert_eq!(answer[3] & 0x0f, 1, "{what}");
        assert_eq!(answer[2] & 0x80, 0x80, "{what}");
        assert_eq!(answer[..2], [0x12, 0x34], "{what}");
        assert_eq!(answer[6..10], [0; 4], "{what}");
        told(&answer);
        assert!(answer.len() <= bytes.len() + 11, "{what}: no amplification");
    }
}

#[test]
fn what_is_not_done_is_said() {
    let mut server = Server::new();
    let good = query("www.cluster.example", A);
    let chaos = set(good.clone(), good.len() - 1, 3);
    let hesiod = set(good.clone(), good.len() - 1, 4);
    let any_class = set(good.clone(), good.len() - 1, 255);
    let mut signed = good.clone();
    signed[11] = 1;
    signed.extend([0, 0, 250, 0, 255, 0, 0, 0, 0, 0, 0]);
    let rows: &[(&str, Vec<u8>, u8)] = &[
        ("IQUERY", set(good.clone(), 2, 0x08), 4),
        ("STATUS", set(good.clone(), 2, 0x10), 4),
        ("NOTIFY", set(good.clone(), 2, 0x20), 4),
        ("UPDATE", set(good.clone(), 2, 0x28), 4),
        ("opcode 15", set(good.clone(), 2, 0x78), 4),
        ("CHAOS", chaos, 5),
        ("HESIOD", hesiod, 5),
        ("class ANY", any_class, 5),
        ("AXFR", query("cluster.example", 252), 5),
        ("IXFR", query("cluster.example", 251), 5),
        ("TKEY", query("cluster.example", 249), 5),
        ("TSIG", signed, 9),
    ];
    for (what, bytes, code) in rows {
        for transport in [Transport::Udp, Transport::Tcp] {
            let answer = server.over(transport, bytes).unwrap();
            assert_eq!(answer[3] & 0x0f, *code, "{what}");
            assert_eq!(answer[2] & 0x78, bytes[2] & 0x78, "{what}: the opcode comes back");
            assert_eq!(answer[2] & 0x80, 0x80, "{what}");
            assert!(answer.len() <= bytes.len(), "{what}");
        }
    }
}

#[test]
fn an_ixfr_with_its_soa_is_refused_not_malformed() {
    let mut server = Server::new();
    let mut ixfr = query("cluster.example", 251);
    ixfr[9] = 1;
    ixfr.extend([0xc0, 0x0c, 0, 6, 0, 1, 0, 0, 0, 0, 0, 22, 0, 0]);
    ixfr.extend([0; 20]);
    let answer = server.udp(&with_opt(ixfr, 1232, 0, &[]));
    assert_eq!(told(&answer).code, "REFUSED");
}

#[test]
fn flags_that_mean_nothing_to_us_are_ignored() {
    let mut server = Server::new();
    // AA, TC and RA of a query; AD, CD and Z.
    for (byte2, byte3) in [(0x01, 0x00), (0x07, 0x00), (0x00, 0xf0), (0x01, 0x0f)] {
        let asked = set(set(query("text.cluster.example", TXT), 2, byte2), 3, byte3);
        let answer = server.udp(&asked);
        assert_eq!(answer[2], 0x84 | byte2 & 1, "{byte2:x}");
        assert_eq!(answer[3], 0, "{byte3:x}");
    }
}

#[test]
fn the_question_comes_back_letter_by_letter() {
    let mut server = Server::new();
    for text in [
        "wWw.ClUsTeR.eXaMpLe",
        "NONE.cluster.EXAMPLE",
        "Text.Cluster.Example",
        "A.Sub.cluster.Example",
        "OTHER.example",
    ] {
        for rtype in [A, TXT, ANY] {
            let asked = query(text, rtype);
            let answer = server.udp(&asked);
            assert_eq!(answer[12..asked.len()], asked[12..], "{text}");
        }
    }
}
