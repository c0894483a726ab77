use std::rc::Rc;

use proptest::prelude::*;

use super::*;
use crate::buffer::Buffers;

fn ends(source: &str, destination: &str) -> Announced {
    Announced { source: source.parse().unwrap(), destination: destination.parse().unwrap() }
}

fn written(version: ProxyProtocol, ends: Announced) -> Vec<u8> {
    let mut buffer = Rc::<Buffers>::default().take();
    write(version, ends, &mut buffer);
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
fn what_is_written_is_what_is_read() {
    let v4 = ends("192.0.2.1:65535", "198.51.100.7:443");
    let v6 = ends(
        "[2001:db8:aaaa:bbbb:cccc:dddd:eeee:ffff]:65535",
        "[ffff:ffff:ffff:ffff:ffff:ffff:ffff:ffff]:65535",
    );
    for version in [ProxyProtocol::V1, ProxyProtocol::V2] {
        for ends in [v4, v6] {
            let mut bytes = written(version, ends);
            let header = Header { bytes: bytes.len(), announced: Some(ends) };
            bytes.extend(b"payload");
            assert_eq!(parse(&bytes), Ok(Some(header)));
        }
        let mixed = Announced { source: v4.source, destination: v6.destination };
        assert_eq!(parse(&written(version, mixed)).unwrap().unwrap().announced, None);
    }
    assert_eq!(written(ProxyProtocol::V1, v4), b"PROXY TCP4 192.0.2.1 198.51.100.7 65535 443\r\n");
}

#[test]
fn no_prefix_of_a_header_is_a_header_or_refused() {
    let mut extended = [0u8; 12 + 3 + 5];
    extended[12..15].copy_from_slice(&[0x04, 0, 5]);
    let headers = [
        written(ProxyProtocol::V1, ends("[::1]:1", "[::2]:2")),
        written(ProxyProtocol::V2, ends("[::1]:1", "[::2]:2")),
        b"PROXY UNKNOWN whatever this is\r\n".to_vec(),
        binary(0x21, 0x11, &extended),
    ];
    for header in headers {
        for length in 0..header.len() {
            assert_eq!(parse(&header[..length]), Ok(None), "{length} bytes of {header:?}");
        }
        assert_eq!(parse(&header).unwrap().unwrap().bytes, header.len());
    }
}

#[test]
fn headers_without_a_client_address_leave_the_connections_own() {
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
        assert_eq!(parsed, Header { bytes: header.len(), announced: None }, "{header:?}");
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
    fn no_bytes_make_it_panic_or_want_more_than_the_bound(
        start in 0..3usize,
        noise in proptest::collection::vec(any::<u8>(), 0..300),
    ) {
        let start: &[u8] = [&b""[..], b"PROXY TCP4 ", &SIGNATURE][start];
        let mut bytes = [start, &noise].concat();
        let _ = parse(&bytes);
        bytes.resize(HEADER_BYTES_MAX, 0);
        prop_assert_ne!(parse(&bytes), Ok(None));
    }
}
