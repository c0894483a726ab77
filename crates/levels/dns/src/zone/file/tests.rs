use std::collections::BTreeMap;
use std::io;

use proptest::prelude::*;

use super::*;
use crate::fixture::{name as named, wire};

/// Reads the first of these files, which may include the others.
fn read_files(files: &[(&str, &str)]) -> Result<Vec<StaticRecord>, String> {
    let texts: BTreeMap<_, _> = files.iter().map(|(path, text)| (Path::new(path), text)).collect();
    let open = |path: &Path| match texts.get(path) {
        Some(text) => Ok((**text).to_owned()),
        None => Err(io::Error::new(io::ErrorKind::NotFound, "No such file or directory")),
    };
    let origin = named("example.org.");
    read(Path::new(files[0].0), &origin, &open).map_err(|error| error.to_string())
}

fn read_text(text: &str) -> Result<Vec<StaticRecord>, String> {
    read_files(&[("/z/a.zone", text)])
}

/// The error of a text, without its file.
fn wrong(text: &str) -> String {
    let error = read_text(text).unwrap_err();
    error.strip_prefix("\"/z/a.zone\" ").unwrap().to_owned()
}

/// Owner, TTL and type of each record.
fn heads(text: &str) -> Vec<(String, u32, String)> {
    let records = read_text(text).unwrap().into_iter();
    records.map(|r| (r.owner.to_string(), r.ttl, r.rtype.to_string())).collect()
}

fn head_of(owner: &str, ttl: u32, rtype: &str) -> (String, u32, String) {
    (owner.into(), ttl, rtype.into())
}

fn body(line: &str) -> Vec<u8> {
    let records = read_text(&format!("a 60 IN {line}")).unwrap();
    assert_eq!(records.len(), 1, "{line}");
    records[0].body.clone()
}

#[test]
fn times_have_units_in_records_directives_and_soa() {
    let told = heads(
        "$TTL 1h30m\na A 192.0.2.1\nb 2W IN A 192.0.2.2\nc IN 0 A 192.0.2.3\n$TTL 5\nd A 192.0.2.4\n",
    );
    let ttls: Vec<_> = told.iter().map(|(_, ttl, _)| *ttl).collect();
    assert_eq!(ttls, [5400, 1_209_600, 0, 5]);
    let soa = body("SOA ns1 host.master 2024010101 ( 1h 10m ; a comment\n 2w\n 5M30S )");
    let numbers: Vec<u32> = soa[soa.len() - 20..]
        .chunks(4)
        .map(|number| u32::from_be_bytes(number.try_into().unwrap()))
        .collect();
    assert_eq!(numbers, [2_024_010_101, 3600, 600, 1_209_600, 330]);
    let times = "accepted: 0 to 2147483647 seconds (RFC 2181, 8), also with units (w, d, h, m, s), such as `1h30m`";
    for time in ["2147483648", "4294967296", "3551w", "1h30", "1x", "1hh", "99999999999999999999"] {
        let said = format!("line 2: `{time}` is not a time; {times}");
        assert_eq!(wrong(&format!("\na {time} IN A 192.0.2.1\n")), said);
        assert_eq!(wrong(&format!("\n$TTL {time}\n")), said);
        assert_eq!(wrong(&format!("\n@ SOA ns1 mail 1 {time} 2 3 4\n")), said);
    }
    assert_eq!(read_text("a 2147483647 A 192.0.2.1").unwrap()[0].ttl, TTL_MAX);
}

#[test]
fn a_record_without_a_ttl_has_that_of_the_directive_or_of_the_record_before() {
    let told = heads(
        "a A 192.0.2.1\nb 7 A 192.0.2.1\nc A 192.0.2.1\n$TTL 9\nd 8 A 192.0.2.1\ne A 192.0.2.1\n",
    );
    let ttls: Vec<_> = told.iter().map(|(_, ttl, _)| *ttl).collect();
    assert_eq!(ttls, [3600, 7, 7, 8, 9]);
}

#[test]
fn zone_files_with_any_line_ending_or_layout_are_read() {
    let expected = [head_of("a.example.org", 3600, "TXT"), head_of("a.example.org", 3600, "A")];
    for text in [
        "a TXT \"x;y (z\" ; comment (\n  A 192.0.2.1\n",
        "a TXT \"x;y (z\"\n  A 192.0.2.1",
        "\u{feff}a TXT \"x;y (z\"\r\n\tA 192.0.2.1\r\n",
        "a ( TXT ; one\n \"x;y (z\"\n)\n\n ; empty\n  A 192.0.2.1;",
        "$ORIGIN org.\na.example TXT \"x;y (z\"\n  A 192.0.2.1",
        "A.EXAMPLE.org. IN TXT \"x;y (z\"\n  CLASS1 A 192.0.2.1",
    ] {
        assert_eq!(heads(text), expected, "{text:?}");
        assert_eq!(read_text(text).unwrap()[0].body, b"\x06x;y (z");
    }
    assert_eq!(read_text("").unwrap(), []);
    assert_eq!(body("TXT caf\u{e9} \"a\nb\" \\\"\\065"), b"\x05caf\xc3\xa9\x03a\nb\x02\"A");
    assert_eq!(
        body("HTTPS 1 . alpn=\"h2,http/1.1\" port=8443"),
        body("HTTPS 1 . port=8443 alpn=h2,http/1.1")
    );
}

#[test]
fn an_error_names_its_line_and_the_accepted_form() {
    for (text, said) in [
        ("a IN A 192.0.2.1\na IN A 192.0.2\n", "line 2: data of the A record: "),
        (
            "a TXT (\n \"x\"\n",
            "line 1: `(` that is not closed; accepted: a `)` behind the record's last word",
        ),
        ("\na TXT x )\n", "line 2: `)` that closes nothing; accepted: a `(` before it"),
        (
            "\na TXT \"x\n\n",
            "line 2: a quotation mark that is not closed; accepted: a second `\"` behind the text",
        ),
        (
            "\n\n A 192.0.2.1",
            "line 3: a record without a name; accepted: a name at the start of the file's first record",
        ),
        (
            "a IN FOO x",
            "line 1: `FOO` is not a type; accepted: one such as A or TXT, or TYPE and its number (RFC 3597)",
        ),
        (
            "a 5",
            "line 1: a record without a type; accepted: `NAME [TTL] [IN] TYPE DATA`, such as `www 300 IN A 192.0.2.1`",
        ),
        ("a CH TXT x", "line 1: `a.example.org.` has class CH; accepted: IN"),
        ("a..b A 192.0.2.1", "line 1: `a..b` is not a name: "),
        (
            "$FOO x",
            "line 1: `$FOO` is not a directive; accepted: $ORIGIN, $TTL, $INCLUDE, $GENERATE",
        ),
        ("$TTL", "line 1: $TTL is incomplete or has a wrong word; accepted: `$TTL TIME`"),
        (
            "$GENERATE 3-1 a A 192.0.2.$",
            "line 1: $GENERATE is incomplete or has a wrong word; accepted: `$GENERATE START-STOP[/STEP] NAME [TTL] [IN] TYPE DATA`",
        ),
        (
            "$GENERATE 1-2 a${0,256} A 192.0.2.1",
            "line 1: $GENERATE makes no number of `${0,256}`; accepted: `$`, or `${OFFSET,WIDTH,BASE}` with a width up to 255 and base d, o, x, X, n or N",
        ),
        ("a A 192.0.2.1\n$GENERATE 250-260 b$ A 192.0.2.$", "line 2: data of the A record: "),
        (
            "$GENERATE 1-2147483647 b$ A 192.0.2.1",
            "line 1: the zone has more than 100000 records or 256 MiB of text; accepted: at most that many",
        ),
        (
            "@ SOA ns1 m 1 2 3 4 5\n@ SOA ns1 m 2 2 3 4 5",
            "line 2: a second SOA record, the first is in \"/z/a.zone\" line 1; accepted: one",
        ),
        (
            "a APL 1:192.0.2.0/24",
            "line 1: data of the APL record: unknown record type with concrete data; accepted: the form of its RFC, or `\\# LENGTH HEX` (RFC 3597)",
        ),
    ] {
        let found = wrong(text);
        assert!(found.starts_with(said), "{text:?}: {found}");
        assert!(found.contains("; accepted: "), "{found}");
    }
    let long = format!("a TXT ({}", "\"x\"\n".repeat(600_000));
    assert!(wrong(&long).starts_with("line 1: a record of more than 1048576 bytes; accepted: "));
}

#[test]
fn an_identical_second_soa_as_in_a_zone_transfer_is_accepted() {
    let soa = "@ SOA ns1 m 1 2 3 4 5\n";
    assert_eq!(heads(&format!("{soa}a A 192.0.2.1\n{soa}")).len(), 2);
    let more = wrong(&format!("{soa}{soa}{soa}"));
    assert!(more.starts_with("line 3: "), "{more}");
}

#[test]
fn an_soa_without_a_ttl_gives_the_zone_its_minimum() {
    let told = heads("@ SOA ns1 m 1 2 3 4 5m\na A 192.0.2.1\nb 7 A 192.0.2.1\nc A 192.0.2.1");
    assert_eq!(told.iter().map(|(_, ttl, _)| *ttl).collect::<Vec<_>>(), [300, 300, 7, 300]);
    let told = heads("$TTL 9\n@ SOA ns1 m 1 2 3 4 5m\na A 192.0.2.1");
    assert_eq!(told.iter().map(|(_, ttl, _)| *ttl).collect::<Vec<_>>(), [9, 9]);
}

#[test]
fn the_zone_files_own_path_may_have_parent_folders() {
    let files = [("/etc/../z/a.zone", "$INCLUDE b.zone"), ("/etc/../z/b.zone", "b A 192.0.2.1")];
    assert_eq!(read_files(&files).unwrap().len(), 1);
}

#[test]
fn included_files_are_below_the_folder_of_the_zone_file() {
    let main = "a 60 A 192.0.2.1\n$INCLUDE sub/b.zone b.example.org. ; with an origin\n A 192.0.2.2\nc A 192.0.2.3\n$INCLUDE \"/z/sub/c.zone\"";
    let files = [
        ("/z/a.zone", main),
        ("/z/sub/b.zone", " TXT \"of a\"\nx TXT x\n$ORIGIN deep\n$INCLUDE c.zone\n$TTL 9"),
        ("/z/sub/c.zone", "\u{feff}y TXT y"),
    ];
    let told: Vec<_> = read_files(&files)
        .unwrap()
        .into_iter()
        .map(|r| (r.owner.to_string(), r.ttl, r.rtype.to_string()))
        .collect();
    let expected = [
        head_of("a.example.org", 60, "A"),
        head_of("a.example.org", 60, "TXT"),
        head_of("x.b.example.org", 60, "TXT"),
        head_of("y.deep.b.example.org", 60, "TXT"),
        head_of("a.example.org", 9, "A"),
        head_of("c.example.org", 9, "A"),
        head_of("y.example.org", 9, "TXT"),
    ];
    assert_eq!(told, expected);
}

#[test]
fn no_file_outside_of_the_folder_is_read() {
    for path in ["../b.zone", "sub/../../b.zone", "/etc/passwd", "sub/../b.zone", "/zz/b.zone"] {
        let text = format!("\n$INCLUDE {path}");
        let open = |file: &Path| {
            assert_eq!(file, Path::new("/z/a.zone"), "{path}");
            Ok(text.clone())
        };
        let error = read(Path::new("/z/a.zone"), &named("example.org."), &open).unwrap_err();
        let said = format!(
            "\"/z/a.zone\" line 2: $INCLUDE \"{path}\" is not below the zone file's folder; accepted: files below \"/z\", without `..`"
        );
        assert_eq!(error.to_string(), said);
    }
}

#[test]
fn an_error_in_an_included_file_names_that_file() {
    let files = [("/z/a.zone", "$INCLUDE b.zone"), ("/z/b.zone", "\na A 192.0.2\n")];
    let error = read_files(&files).unwrap_err();
    assert!(error.starts_with("\"/z/b.zone\" line 2: data of the A record: "), "{error}");
    let error = read_files(&files[..1]).unwrap_err();
    let said = "\"/z/a.zone\" line 1: $INCLUDE \"/z/b.zone\" cannot be read: No such file or directory; accepted: a zone file";
    assert_eq!(error, said);
    let error = read_files(&[("/z/a.zone", "$INCLUDE a.zone")]).unwrap_err();
    assert!(error.contains("deeper than 8 files"), "{error}");
    let wide = "$INCLUDE b.zone\n".repeat(FILES_MAX);
    let error = read_files(&[("/z/a.zone", &wide), ("/z/b.zone", "")]).unwrap_err();
    assert!(error.starts_with("\"/z/a.zone\" line 1000: "), "{error}");
}

#[test]
fn generate_makes_a_record_for_each_number() {
    let owners =
        |text: &str| -> Vec<String> { heads(text).into_iter().map(|(owner, ..)| owner).collect() };
    assert_eq!(
        owners("$GENERATE 1-3 h$ A 192.0.2.$"),
        ["h1.example.org", "h2.example.org", "h3.example.org"]
    );
    assert_eq!(
        owners("$GENERATE 8-16/8 a-${0,3}-${-8,2,x}-${1,0,o}-$$-\\$ 60 IN A 192.0.2.$"),
        ["a-008-00-11-\\$-\\$.example.org", "a-016-08-21-\\$-\\$.example.org"]
            .map(|name| name.replace("\\$", "$"))
    );
    assert_eq!(owners("$GENERATE 27-27 ${0,0,n}.x PTR h$"), ["b.1.x.example.org"]);
    assert_eq!(owners("$GENERATE 27-27 ${0,5,N}.x PTR h$"), ["b.1.0.x.example.org"]);
    let records = read_text("$GENERATE 1-2 h MX \"$ m$\"\n$GENERATE 3-4 h MX $ m$").unwrap();
    let bodies: Vec<_> = records.into_iter().map(|record| record.body).collect();
    let expected: Vec<_> =
        (1..=4u8).map(|n| [vec![0, n], wire(&format!("m{n}.example.org."))].concat()).collect();
    assert_eq!(bodies, expected);
}

#[test]
fn record_types_unsupported_by_the_domain_crate_are_parsed() {
    let loc = body("LOC 42 21 54 N 71 06 18 W -24m 30m");
    // RFC 1876, section 3, counts from 2^31.
    let [latitude, longitude] = [(1u32 << 31) + 152_514_000, (1 << 31) - 255_978_000];
    let expected = [
        &[0, 0x33, 0x16, 0x13][..],
        &latitude.to_be_bytes(),
        &longitude.to_be_bytes(),
        &(10_000_000u32 - 2400).to_be_bytes(),
    ];
    assert_eq!(loc, expected.concat());
    assert_eq!(body("LOC 1 n 2 e 0"), body("LOC 1 0 0.000 N 2 0 E 0.00m 1m 10000m 10m"));
    assert_eq!(body("URI 10 1 \"https://a.example/;\""), b"\0\x0a\0\x01https://a.example/;");
    assert_eq!(body("SPF \"v=spf1 -all\""), body("TXT \"v=spf1 -all\""));
    assert_eq!(body("SMIMEA 3 1 1 0a0b"), [3, 1, 1, 10, 11]);
    assert_eq!(body("CERT PKIX 7 RSASHA256 AQ ID"), [0, 1, 0, 7, 8, 1, 2, 3]);
    assert_eq!(body("CERT 65535 7 8 AQID"), [255, 255, 0, 7, 8, 1, 2, 3]);
    assert_eq!(body("EUI48 00-00-5e-00-53-2A"), [0, 0, 0x5e, 0, 0x53, 0x2a]);
    assert_eq!(body("EUI64 00-00-5e-ef-10-00-00-2a").len(), 8);
    assert_eq!(body("AFSDB 1 db"), [&[0, 1][..], &wire("db.example.org.")].concat());
    for line in [
        "LOC 91 N 0 E 0m",
        "LOC 90 0 0.001 N 0 E 0m",
        "LOC 1 60 N 0 E 0m",
        "LOC 1 N 0 E",
        "LOC 1 N 0 E 0m 1m 1m 1m 1m",
        "LOC 1 N 0 E -100000.01m",
        "URI 10 1 \"\"",
        "URI 10 65536 \"x\"",
        "CERT PKIX 7 8",
        "CERT PKIX 7 NOALGORITHM AQID",
        "EUI48 00-00-5e-00-53",
        "EUI48 0-00-5e-00-53-2a",
        "EUI64 00-00-5e-00-53-2a",
    ] {
        let said = wrong(&format!("a {line}"));
        let rtype = line.split_once(' ').unwrap().0;
        assert!(said.starts_with(&format!("line 1: data of the {rtype} record: ")), "{said}");
    }
}

#[test]
fn record_data_of_any_type_may_use_the_generic_form() {
    assert_eq!(body("TYPE65280 \\# 3 01 0203"), [1, 2, 3]);
    assert!(body("TYPE65280 \\# 0").is_empty());
    assert_eq!(body("A \\# 4 c0000201"), [192, 0, 2, 1]);
    assert_eq!(heads("a TYPE1 192.0.2.1")[0].2, "A");
    assert_eq!(
        body("MX \\# 11 000a 046d61696c 026578 00"),
        [&[0, 10][..], &wire("mail.ex.")].concat()
    );
    for line in [
        "TYPE65280 \\# 2 010203",
        "TYPE65280 \\# 2 01020",
        "TYPE65280 \\#",
        "TYPE65280 abc",
        "A \\# 3 c00002",
        "MX \\# 4 000a c000",
        "MX \\# 3 000a 00 00",
        "EUI48 \\# 5 0102030405",
        "LOC \\# 1 00",
        "TXT \\# 0",
    ] {
        let said = wrong(&format!("a {line}"));
        assert!(said.starts_with("line 1: data of the "), "{line}: {said}");
    }
}

/// Pieces of zone files for mutated files.
const PIECES: &[&str] = &[
    "$ORIGIN ",
    "$TTL ",
    "$INCLUDE ",
    "$GENERATE ",
    "1-3",
    "1h30m",
    "2147483648",
    "a",
    "@",
    ".",
    "a.",
    "*",
    "\\065",
    "\\#",
    "\\",
    "\"",
    "(",
    ")",
    ";",
    "\n",
    "\r\n",
    " ",
    "\t",
    "IN ",
    "CH ",
    "A ",
    "AAAA ",
    "TXT ",
    "MX ",
    "SOA ",
    "LOC ",
    "URI ",
    "CERT PKIX 0 0 ",
    "HTTPS 1 . ",
    "alpn=",
    "SRV 0 0 0 ",
    "NAPTR ",
    "CAA ",
    "TYPE999 ",
    "EUI48 ",
    "DS ",
    "IPSECKEY ",
    "192.0.2.1",
    "::1",
    "$",
    "${0,3,n}",
    "${",
    "\u{feff}",
    "\u{e9}",
    "x.zone",
    "3 1 1 00ff",
    "N",
    "E",
    "-1.5m",
    "AQID",
    "\\300",
];

proptest! {
    #![proptest_config(ProptestConfig::with_cases(4000))]

    #[test]
    fn arbitrary_zone_files_are_parsed_within_limits_or_refused(
        places in proptest::collection::vec(0..PIECES.len(), 0..40),
    ) {
        let text: String = places.into_iter().map(|place| PIECES[place]).collect();
        let outcome = read(Path::new("/z/a.zone"), &named("example.org."), &|_| Ok(text.clone()));
        if let Ok(records) = outcome {
            prop_assert!(records.iter().all(|r| r.ttl <= TTL_MAX && r.body.len() <= 65_535));
        }
    }
}
