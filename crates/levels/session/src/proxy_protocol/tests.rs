use std::rc::Rc;

use proptest::prelude::*;

use super::extensions::{TlsFacts, with_checksum};
use super::*;
use crate::buffer::Buffers;

fn ends(source: &str, destination: &str) -> Announced {
    Announced { source: source.parse().unwrap(), destination: destination.parse().unwrap() }
}

fn written(version: ProxyProtocol, ends: Announced) -> Vec<u8> {
    let mut buffer = Rc::<Buffers>::default().take();
    write(version, ends, &Extensions::default(), &mut buffer);
    buffer.to_vec()
}

fn binary(command: u8, family: u8, body: &[u8]) -> Vec<u8> {
    let mut header = SIGNATURE.to_vec();
    header.extend([command, family]);
    header.extend((body.len() as u16).to_be_bytes());
    header.extend(body);
    header
}

#[test]
fn a_written_proxy_header_parses_to_the_same_addresses() {
    let v4 = ends("192.0.2.1:65535", "198.51.100.7:443");
    let v6 = ends(
        "[2001:db8:aaaa:bbbb:cccc:dddd:eeee:ffff]:65535",
        "[ffff:ffff:ffff:ffff:ffff:ffff:ffff:ffff]:65535",
    );
    for version in [ProxyProtocol::V1, ProxyProtocol::V2] {
        for ends in [v4, v6] {
            let mut bytes = written(version, ends);
            let header = Header { bytes: bytes.len(), announced: Some(ends), extensions: None };
            bytes.extend(b"payload");
            assert_eq!(parse(&bytes), Ok(Some(header)));
        }
        let mixed = Announced { source: v4.source, destination: v6.destination };
        assert_eq!(parse(&written(version, mixed)).unwrap().unwrap().announced, None);
    }
    assert_eq!(written(ProxyProtocol::V1, v4), b"PROXY TCP4 192.0.2.1 198.51.100.7 65535 443\r\n");
}

fn facts() -> Extensions {
    Extensions {
        authority: Some("www.example.com".into()),
        alpn: Some((*b"h2").into()),
        unique_id: Some((*b"id\xff").into()),
        tls: Some(TlsFacts {
            client: 7,
            verify: 0,
            version: Some("TLSv1.3".into()),
            common_name: Some("alice".into()),
            cipher: Some("TLS_AES_128_GCM_SHA256".into()),
        }),
    }
}

fn with_extensions(extensions: &Extensions) -> Vec<u8> {
    let mut buffer = Rc::<Buffers>::default().take();
    write(ProxyProtocol::V2, ends("192.0.2.1:1", "192.0.2.2:2"), extensions, &mut buffer);
    buffer.to_vec()
}

/// The extensions of a header with these after its addresses.
fn extended(tlvs: &[u8]) -> Result<Option<Box<Extensions>>, Malformed> {
    let header = binary(0x21, 0x11, &[&[0; 12], tlvs].concat());
    parse(&header).map(|header| header.unwrap().extensions)
}

#[test]
fn written_extensions_read_back_equal_and_unknown_types_are_ignored() {
    let written = with_extensions(&facts());
    for header in [written.clone(), with_checksum(written.clone())] {
        let parsed = parse(&header).unwrap().unwrap();
        assert_eq!(parsed.extensions.as_deref(), Some(&facts()));
        assert_eq!(parsed.bytes, header.len());
    }
    let v6 = {
        let mut buffer = Rc::<Buffers>::default().take();
        write(ProxyProtocol::V2, ends("[::1]:1", "[::2]:2"), &facts(), &mut buffer);
        buffer.to_vec()
    };
    assert_eq!(parse(&v6).unwrap().unwrap().extensions.as_deref(), Some(&facts()));
    // Unknown ones are ignored, at both levels, and may repeat.
    assert_eq!(extended(&[0xe0, 0, 1, 9, 0xe0, 0, 0]), Ok(None));
    let tls = extended(&[0x20, 0, 12, 1, 0, 0, 0, 1, 0x2f, 0, 0, 0x2f, 0, 1, 0]).unwrap().unwrap();
    assert_eq!(tls.tls, Some(TlsFacts { client: 1, verify: 1, ..TlsFacts::default() }));
}

#[test]
fn invalid_or_repeated_extensions_are_refused() {
    let long = |kind: u8, length: u16| {
        [&[kind][..], &length.to_be_bytes(), &vec![b'a'; length.into()]].concat()
    };
    assert!(extended(&long(2, 255)).is_ok() && extended(&long(5, 128)).is_ok());
    for wrong in [
        long(2, 256),
        long(1, 256),
        long(5, 129),
        // Empty, twice, not UTF-8, with a line break.
        vec![2, 0, 0],
        vec![2, 0, 1, b'a', 2, 0, 1, b'b'],
        vec![2, 0, 1, 0xff],
        vec![2, 0, 2, b'a', b'\n'],
        // TLS: too short, a sub-extension beyond its end, one twice.
        vec![0x20, 0, 4, 1, 0, 0, 0],
        vec![0x20, 0, 9, 1, 0, 0, 0, 0, 0x21, 0, 2, b'T'],
        vec![0x20, 0, 13, 1, 0, 0, 0, 0, 0x21, 0, 1, b'T', 0x21, 0, 1, b'T'],
        // A checksum of the wrong length, and a wrong one.
        vec![3, 0, 3, 0, 0, 0],
        vec![3, 0, 4, 1, 2, 3, 4],
    ] {
        assert_eq!(extended(&wrong), Err(Malformed), "{wrong:?}");
    }
    let good = with_checksum(with_extensions(&facts()));
    for place in 16..good.len() {
        let mut changed = good.clone();
        changed[place] ^= 1;
        let parsed = parse(&changed);
        assert_eq!(parsed, Err(Malformed), "byte {place}");
    }
}

#[test]
fn every_prefix_of_a_header_parses_as_incomplete() {
    let mut extended = [0u8; 12 + 3 + 5];
    extended[12..15].copy_from_slice(&[0x04, 0, 5]);
    let extensions = facts();
    let headers = [
        written(ProxyProtocol::V1, ends("[::1]:1", "[::2]:2")),
        written(ProxyProtocol::V2, ends("[::1]:1", "[::2]:2")),
        b"PROXY UNKNOWN whatever this is\r\n".to_vec(),
        binary(0x21, 0x11, &extended),
        with_extensions(&extensions),
        with_checksum(with_extensions(&extensions)),
    ];
    for header in headers {
        for length in 0..header.len() {
            assert_eq!(parse(&header[..length]), Ok(None), "{length} bytes of {header:?}");
        }
        assert_eq!(parse(&header).unwrap().unwrap().bytes, header.len());
    }
}

#[test]
fn headers_without_a_client_address_announce_no_address() {
    let headers = [
        b"PROXY UNKNOWN\r\n".to_vec(),
        b"PROXY UNKNOWN ffff:f...f:ffff 65535\r\n".to_vec(),
        binary(0x20, 0x00, b""),
        binary(0x20, 0x11, b"anything at all"),
        binary(0x21, 0x00, b"anything at all"),
        binary(0x21, 0x31, &[0; 216]),
        binary(0x21, 0x12, &[0; 12]),
    ];
    for header in headers {
        let parsed = parse(&header).unwrap().unwrap();
        assert_eq!(
            parsed,
            Header { bytes: header.len(), announced: None, extensions: None },
            "{header:?}"
        );
    }
}

#[test]
fn malformed_headers_are_refused() {
    let long = [b"PROXY UNKNOWN ".to_vec(), vec![b'x'; 100]].concat();
    let lines = [
        "GET / HTTP/1.1\r\n",
        "PROXY TCP4 1.2.3.4 5.6.7.8 1 2\n",
        "PROXY  TCP4 1.2.3.4 5.6.7.8 1 2\r\n",
        "PROXY TCP4 1.2.3.4 5.6.7.8 1\r\n",
        "PROXY TCP4 1.2.3.4 5.6.7.8 1 2 3\r\n",
        "PROXY TCP4 1.2.3.4 5.6.7.8 1 2 \r\n",
        "PROXY TCP4 1.2.3.4 5.6.7.8 +1 2\r\n",
        "PROXY TCP4 1.2.3.4 5.6.7.8 01 2\r\n",
        "PROXY TCP4 1.2.3.4 5.6.7.8 65536 2\r\n",
        "PROXY TCP4 1.2.3.04 5.6.7.8 1 2\r\n",
        "PROXY TCP4 ::1 ::2 1 2\r\n",
        "PROXY TCP6 1.2.3.4 5.6.7.8 1 2\r\n",
        "PROXY TCP5 1.2.3.4 5.6.7.8 1 2\r\n",
        "PROXY\rTCP4 1.2.3.4 5.6.7.8 1 2\r\n",
        "PROXY \r\n",
    ];
    let mut cases: Vec<Vec<u8>> = lines.iter().map(|line| line.as_bytes().to_vec()).collect();
    cases[1].resize(LINE_BYTES_MAX, b'x');
    cases.extend([
        long,
        binary(0x11, 0x11, &[0; 12]),
        binary(0x22, 0x11, &[0; 12]),
        binary(0x21, 0x41, &[0; 12]),
        binary(0x21, 0x13, &[0; 12]),
        binary(0x21, 0x11, &[0; 11]),
        binary(0x21, 0x21, &[0; 35]),
        // Extensions: a head cut short, and a length beyond the end.
        binary(0x21, 0x11, &[0; 14]),
        binary(0x21, 0x11, &[0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 4, 0, 1]),
        binary(0x21, 0x11, &vec![0; HEADER_BYTES_MAX]),
    ]);
    for case in cases {
        assert_eq!(parse(&case), Err(Malformed), "{:?}", String::from_utf8_lossy(&case));
    }
}

proptest! {
    #[test]
    fn arbitrary_bytes_never_panic_or_need_more_than_the_bound(
        start in 0..5usize,
        noise in proptest::collection::vec(any::<u8>(), 0..300),
    ) {
        let tlvs = binary(0x21, 0x11, &[&[0; 12][..], &noise].concat());
        let tls = [&[0x20, 0, noise.len() as u8][..], &noise[..noise.len() & 0xff]].concat();
        let tls = binary(0x21, 0x11, &[&[0; 12][..], &tls].concat());
        let start: &[u8] = [&b""[..], b"PROXY TCP4 ", &SIGNATURE, &tlvs, &tls][start];
        let mut bytes = [start, &noise].concat();
        let _ = parse(&bytes);
        bytes.resize(HEADER_BYTES_MAX, 0);
        prop_assert_ne!(parse(&bytes), Ok(None));
    }
}
