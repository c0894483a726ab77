//! Malformed messages, and queries that the server refuses.

use super::*;
use crate::{Reason, Transport};

/// Changes one byte.
fn set(mut query: Vec<u8>, at: usize, byte: u8) -> Vec<u8> {
    query[at] = byte;
    query
}

#[test]
fn short_messages_and_responses_are_dropped_and_counted() {
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
fn unsupported_queries_are_answered_with_an_error_code() {
    let mut server = Server::new();
    let good = query("www.cluster.example", A);
    let chaos = set(good.clone(), good.len() - 1, 3);
    let hesiod = set(good.clone(), good.len() - 1, 4);
    let any_class = set(good.clone(), good.len() - 1, 255);
    let signed = with_tsig(good.clone(), &wire("key.example."));
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
fn flags_without_meaning_in_a_query_are_ignored() {
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
fn the_question_is_echoed_with_its_letter_case() {
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

/// Adds a TSIG record with a key of this name.
fn with_tsig(mut query: Vec<u8>, key: &[u8]) -> Vec<u8> {
    let mut body = wire("hmac-sha256.");
    // Time, fudge, a MAC of 32 bytes, the original identifier, no error, no other data.
    body.extend([0, 0, 0x65, 0x53, 0xf1, 0, 1, 44, 0, 32]);
    body.extend([7; 32]);
    body.extend([0x12, 0x34, 0, 0, 0, 0]);
    query[11] += 1;
    query.extend(key);
    query.extend([0, 250, 0, 255, 0, 0, 0, 0]);
    query.extend((body.len() as u16).to_be_bytes());
    query.extend(body);
    query
}

#[test]
fn an_unknown_key_is_refused_with_an_unsigned_tsig_record() {
    use domain::base::iana::TsigRcode;
    use domain::base::name::ToName;
    let mut server = Server::new();
    let good = query("www.cluster.example", A);
    for (query, key, additional) in [
        (with_tsig(good.clone(), &wire("key.example.")), "key.example.", 1),
        // The key's name may point into the question.
        (with_tsig(good.clone(), &[0xc0, 16]), "cluster.example.", 1),
        (with_tsig(good.clone(), &[1, 0xc5, 0]), "\\197.", 1),
        (with_tsig(with_opt(good.clone(), 1232, 0, &[]), &wire("k.")), "k.", 2),
    ] {
        for transport in [Transport::Udp, Transport::Tcp] {
            let answer = server.over(transport, &query).unwrap();
            assert!(answer.len() <= query.len(), "{key}");
            let message = Message::from_octets(&answer[..]).unwrap();
            assert_eq!(message.opt_rcode().to_int(), NOTAUTH, "{key}");
            let records = message.additional().unwrap();
            let records: Vec<_> = records.map(|record| record.unwrap()).collect();
            assert_eq!(records.len(), additional, "{key}");
            let last = records.last().unwrap();
            assert_eq!(last.owner().to_vec(), name(key));
            let tsig = last.to_record::<domain::rdata::Tsig<_, _>>().unwrap().unwrap();
            let tsig = tsig.data();
            assert_eq!((tsig.error(), tsig.mac().len()), (TsigRcode::BADKEY, 0));
            assert_eq!((tsig.original_id(), tsig.fudge(), tsig.other().len()), (0x1234, 300, 0));
            assert_eq!(tsig.algorithm().to_vec(), name("hmac-sha256."));
        }
    }
}

const NOTAUTH: u16 = 9;

#[test]
fn a_malformed_tsig_record_is_a_format_error() {
    let mut server = Server::new();
    let good = query("www.cluster.example", A);
    let signed = with_tsig(good.clone(), &wire("k."));
    let class_at = good.len() + 5;
    let mut short = with_tsig(good.clone(), &wire("k."));
    let end = short.len() - 1;
    short.truncate(end);
    short[good.len() + 12] -= 1;
    let rows: &[(&str, Vec<u8>)] = &[
        ("class IN", set(set(signed.clone(), class_at, 0), class_at + 1, 1)),
        ("a TTL", set(signed.clone(), class_at + 5, 1)),
        ("a record behind it", with_opt(signed.clone(), 1232, 0, &[])),
        ("two of them", with_tsig(signed, &wire("k."))),
        ("a byte too few", short),
        ("a name that points to itself", with_tsig(good.clone(), &[0xc0, good.len() as u8])),
    ];
    for (what, bytes) in rows {
        assert_eq!(server.udp(bytes)[3] & 0x0f, 1, "{what}");
    }
}
