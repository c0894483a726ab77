use std::sync::Arc;

use super::*;

/// A message of ROS 2 with its includes in one text.
const SCAN: &str = r#"
// generated from rosidl_adapter/resource/msg.idl.em
#include "std_msgs/msg/Header.idl"
#pragma once
module builtin_interfaces { module msg {
  struct Time { int32 sec; uint32 nanosec; };
}; };
module std_msgs { module msg {
  @verbatim (language="comment", text="Standard \"metadata\"" "\n" "for (stamped) data.")
  struct Header { builtin_interfaces::msg::Time stamp; string frame_id; };
}; };
module sensor_msgs { module msg {
  module Scan_Constants { const double PI = 3.14; };
  typedef double double__3[3];
  enum Kind { FLAT, @value(7) ROUND };
  @final struct Scan {
    @unit (value="m") double__3 origin;
    sequence<string<20>, 4> notes;
    std_msgs::msg::Header header;
    float angle_min, angle_max; /* two
      at once */
    Kind kind;
    sequence<float> ranges;
    unsigned long long number;
    int16 level;
  };
}; };
"#;

fn scan() -> Arc<Struct> {
    parse(SCAN, "sensor_msgs::msg::dds_::Scan_").unwrap()
}

#[test]
fn a_ros_2_message_is_parsed_with_its_included_types() {
    let scan = scan();
    assert_eq!(scan, parse(SCAN, "sensor_msgs::msg::Scan").unwrap());
    let names: Vec<_> = scan.members.iter().map(|member| member.name.as_str()).collect();
    assert_eq!(
        names,
        [
            "origin",
            "notes",
            "header",
            "angle_min",
            "angle_max",
            "kind",
            "ranges",
            "number",
            "level"
        ]
    );
    let double = Arc::new(Type::Primitive(Primitive::F64));
    assert_eq!(scan.members[0].of, Type::Array(double, vec![3]));
    assert_eq!(scan.members[1].of, Type::Sequence(Arc::new(Type::Text(20)), 4));
    let Type::Enum(kind) = &scan.members[5].of else { panic!("{scan:?}") };
    assert_eq!(kind.literals, [("FLAT".to_string(), 0), ("ROUND".to_string(), 7)]);
    assert_eq!(scan.members[7].of, Type::Primitive(Primitive::U64));
}

#[test]
fn keys_and_extensibility_are_read() {
    let of = parse("@appendable struct A { @key long id; @key(FALSE) long x; string y; };", "A");
    let of = of.unwrap();
    assert!(of.appendable);
    assert_eq!(of.members.iter().map(|it| it.key).collect::<Vec<_>>(), [true, false, false]);
    let of = parse("@extensibility(FINAL) struct A { @unit(\"m\") octet b[2][3]; };", "A").unwrap();
    let octet = Arc::new(Type::Primitive(Primitive::Octet));
    assert_eq!((of.appendable, &of.members[0].of), (false, &Type::Array(octet, vec![2, 3])));
}

#[test]
fn invalid_or_unsupported_idl_is_an_error_with_its_line() {
    for (text, line, what) in [
        ("struct A {\n  wstring s;\n};", 2, "`wstring` is not supported"),
        ("struct A {\n\n  Other s;\n};", 3, "there is no type `Other`"),
        ("@mutable struct A { long x; };", 1, "`@mutable` is not supported"),
        ("struct A { @optional long x; };", 1, "`@optional` is not supported"),
        ("struct A : B { long x; };", 1, "may inherit from nothing"),
        ("struct A { };", 1, "has no member"),
        ("struct A { long x; long x; };", 1, "`A` has `x` twice"),
        ("struct A { long x[0]; };", 1, "no element"),
        ("struct A { long x[100000][100000]; };", 1, "no element, or more than"),
        ("struct A { long double x; };", 1, "`long double` is not supported"),
        ("union U switch (long) { };", 1, "`union` is not read here"),
        ("struct A { long x; }", 1, ""),
        ("module m { struct A { long x; };", 1, "ends too early"),
        ("struct A { long x; }; }", 1, "closes nothing"),
        ("/* no end", 1, "a comment has no end"),
        ("\n@a(\"no end) struct", 2, "a string has no end"),
        ("struct A { sequence<long x; };", 1, "in the place of"),
    ] {
        match parse(text, "A") {
            Err(IdlError::Text { line: at, what: said }) => {
                assert_eq!(at, line, "{text}: {said}");
                assert!(said.contains(what), "{text}: {said}");
            }
            // A missing `;` at the end is accepted.
            found => assert!(what.is_empty() && found.is_ok(), "{text}: {found:?}"),
        }
    }
    let nested = (1..40).map(|n| format!("struct A{n} {{ A{} x; }};\n", n - 1)).collect::<String>();
    let error = parse(&format!("struct A0 {{ long x; }};\n{nested}"), "A39").unwrap_err();
    assert!(error.to_string().contains("types within types"), "{error}");
    let sequences =
        format!("struct A {{ {} long {} x; }};", "sequence<".repeat(40), ">".repeat(40));
    assert!(parse(&sequences, "A").unwrap_err().to_string().contains("types within types"));
    let error = parse("struct A { long x; };", "B").unwrap_err();
    assert_eq!(error.to_string(), "the IDL declares no struct `B`; it has A");
}

#[test]
fn mutated_idl_never_makes_the_parser_panic() {
    let mut state: u32 = 1;
    let mut random = || {
        state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        (state >> 8) as usize
    };
    for _ in 0..5_000 {
        let mut text = SCAN.as_bytes().to_vec();
        for _ in 0..1 + random() % 4 {
            let at = random() % text.len().max(1);
            match random() % 3 {
                0 if at < text.len() => text[at] = b"{}<>[]();:,@\"/*\n"[random() % 16],
                1 => drop(text.drain(at.min(text.len())..(at + random() % 30).min(text.len()))),
                _ => text.truncate(at.max(1)),
            }
        }
        let _ = parse(&String::from_utf8_lossy(&text), "sensor_msgs::msg::Scan");
    }
}

#[test]
fn a_key_field_is_a_scalar_or_string_possibly_nested() {
    let scan = scan();
    for path in ["header.frame_id", "header.stamp.sec", "kind", "number", "angle_max", "level"] {
        assert!(KeyField::new(&scan, path).is_ok(), "{path}");
    }
    for path in ["header", "ranges", "origin", "header.frame_id.x", "notes"] {
        let error = KeyField::new(&scan, path).unwrap_err();
        assert_eq!(error, IdlError::NotAKey(path.into()), "{path}");
    }
    let error = KeyField::new(&scan, "header.frame").unwrap_err().to_string();
    assert_eq!(error, "`std_msgs::msg::Header` has no field `frame`; it has stamp, frame_id");
}

/// Writes values with the alignment of an XCDR version, in a byte order.
struct Put {
    bytes: Vec<u8>,
    version_2: bool,
    big_endian: bool,
}

impl Put {
    fn new(version_2: bool, big_endian: bool, delimited: bool) -> Self {
        let encoding = match (version_2, delimited) {
            (false, _) => 0,
            (true, false) => 6,
            (true, true) => 8,
        };
        Self { bytes: vec![0, encoding + u8::from(!big_endian), 0, 0], version_2, big_endian }
    }

    fn raw<const N: usize>(&mut self, mut bytes: [u8; N]) -> &mut Self {
        let align = if self.version_2 { N.min(4) } else { N };
        let body = (self.bytes.len() - 4).next_multiple_of(align);
        self.bytes.resize(4 + body, 0xaa);
        if self.big_endian {
            bytes.reverse();
        }
        self.bytes.extend_from_slice(&bytes);
        self
    }

    fn text(&mut self, text: &str) -> &mut Self {
        self.raw((text.len() as u32 + 1).to_le_bytes());
        self.bytes.extend_from_slice(text.as_bytes());
        self.bytes.push(0);
        self
    }
}

fn sample(version_2: bool, big_endian: bool) -> Vec<u8> {
    let mut put = Put::new(version_2, big_endian, false);
    for number in [1.5_f64, 2.5, 3.5] {
        put.raw(number.to_le_bytes());
    }
    // Two notes. In version 2 their length precedes them: a count, `ab`, padding, `c`.
    if version_2 {
        put.raw((4_u32 + 7 + 1 + 6).to_le_bytes());
    }
    put.raw(2_u32.to_le_bytes()).text("ab").text("c");
    put.raw(11_i32.to_le_bytes()).raw(12_u32.to_le_bytes()).text("base_link");
    put.raw(0.5_f32.to_le_bytes()).raw(0.25_f32.to_le_bytes());
    put.raw(7_i32.to_le_bytes());
    put.raw(3_u32.to_le_bytes());
    for range in [1_f32, 2., 3.] {
        put.raw(range.to_le_bytes());
    }
    put.raw(u64::MAX.to_le_bytes()).raw((-2_i16).to_le_bytes());
    put.bytes
}

#[test]
fn fields_are_found_in_both_versions_and_byte_orders() {
    let scan = scan();
    for (version_2, big_endian) in [(false, false), (false, true), (true, false), (true, true)] {
        let sample = sample(version_2, big_endian);
        let of = |path: &str| KeyField::new(&scan, path).unwrap().peek(&sample);
        assert_eq!(
            of("header.frame_id"),
            Ok(KeyValue::Text(b"base_link")),
            "{version_2} {big_endian}"
        );
        assert_eq!(of("header.stamp.nanosec"), Ok(KeyValue::Number(12)));
        assert_eq!(of("angle_max"), Ok(KeyValue::Number(0.25_f32.to_bits().into())));
        assert_eq!(of("kind"), Ok(KeyValue::Number(7)));
        assert_eq!(of("number"), Ok(KeyValue::Number(u64::MAX)));
        assert_eq!(of("level"), Ok(KeyValue::Number(-2_i64 as u64)));
        for length in 0..sample.len() {
            let cut = KeyField::new(&scan, "level").unwrap().peek(&sample[..length]);
            assert!(cut.is_err(), "{length}");
        }
    }
}

#[test]
fn the_xcdr2_delimiter_header_of_appendable_types_is_skipped() {
    let text = "@appendable struct In { long a; string b; };\n\
                @appendable struct Out { In first; In second; short last; };";
    let of = parse(text, "Out").unwrap();
    let mut put = Put::new(true, false, true);
    put.raw(100_u32.to_le_bytes());
    put.raw(10_u32.to_le_bytes()).raw(1_i32.to_le_bytes()).text("x");
    put.raw(14_u32.to_le_bytes()).raw(2_i32.to_le_bytes()).text("hello");
    put.raw(9_i16.to_le_bytes());
    let peek = |path: &str| KeyField::new(&of, path).unwrap().peek(&put.bytes).unwrap();
    assert_eq!(peek("second.b"), KeyValue::Text(b"hello"));
    assert_eq!(peek("second.a"), KeyValue::Number(2));
    assert_eq!(peek("last"), KeyValue::Number(9));
}

#[test]
fn mutated_samples_never_make_peeking_panic() {
    let scan = scan();
    let keys =
        ["level", "number", "header.frame_id"].map(|path| KeyField::new(&scan, path).unwrap());
    let mut state: u32 = 7;
    let mut sample = sample(false, false);
    for _ in 0..20_000 {
        state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        let at = 4 + (state >> 8) as usize % (sample.len() - 4);
        sample[at] = (state >> 24) as u8;
        sample[1] = (state >> 16) as u8 % 10;
        for key in &keys {
            let _ = key.peek(&sample[..sample.len() - (state as usize >> 4) % 8]);
        }
    }
}
