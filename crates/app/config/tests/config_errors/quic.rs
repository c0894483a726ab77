//! Messages about `[[packet.quic]]`.

use crate::bed::said;

/// A VIP with one configuration of connection ids; `more` begins on line 10.
fn with(more: &str) -> String {
    file("192.0.2.1:443/udp", "", &format!("server-id-length = 2\nnonce-length = 6\n{more}\n"))
}

/// `own` is line 7, and the configuration of connection ids begins on line 9.
fn file(vip: &str, own: &str, quic: &str) -> String {
    format!(
        "pool = [{{ name = 'p', backends = [{{ name = 'a', address = '10.0.0.1:443' }}, {{ name = 'b', address = '10.0.0.2:443' }}] }}]\n\
         [[packet]]\nvip = '{vip}'\nforward = 'tunnel'\npool = 'p'\ninterface = 'eth0'\n{own}\n[[packet.quic]]\n{quic}"
    )
}

#[test]
fn connection_ids_of_quic_are_read() {
    for more in [
        "",
        "key-file = '/token'",
        "config-rotation = 6\nserver-ids = ['a=0001', 'b=0002']",
        "[[packet.quic]]\nconfig-rotation = 1\nserver-id-length = 15\nnonce-length = 4",
    ] {
        assert_eq!(said(&with(more)), "", "{more}");
    }
}

#[test]
fn a_configuration_of_connection_ids_fits_servers_and_vip() {
    const AT: &str = "packet[192.0.2.1:443/udp].quic[#1]";
    let cases = [
        (
            "key-file = '/seed'",
            format!("f:11:12: {AT}.key-file: \"/seed\" has no key; accepted: 32 hexadecimal digits (try: openssl rand -hex 16)"),
        ),
        (
            "key-file = '/missing'",
            format!("f:11:12: {AT}.key-file: \"/missing\" cannot be read: No such file or directory; accepted: a file with the key"),
        ),
        (
            "server-ids = ['a=01']",
            format!("f:11:14: {AT}.server-ids: \"a=01\" has 1 bytes; accepted: `server-id-length`, which is 2"),
        ),
        (
            "server-ids = ['a=0102', 'b=0102']",
            format!("f:11:14: {AT}.server-ids: \"b\" has the server id of \"a\"; accepted: ids that differ"),
        ),
        (
            "server-ids = ['a=0102', 'a=0103']",
            format!("f:11:14: {AT}.server-ids: \"a\" is listed twice; accepted: one server id for each backend"),
        ),
        (
            "server-ids = ['c=0102']",
            format!("f:11:14: warning: {AT}.server-ids: pool \"p\" lists no backend `c`"),
        ),
        (
            "server-ids = ['c']",
            format!("f:11:15: {AT}.server-ids: 'c' is not a backend's server id; accepted: NAME=ID, the ID with two hexadecimal digits for each byte, such as \"10.0.0.21:443=a1b2c3d4\"; or a list of such"),
        ),
        (
            "[[packet.quic]]\nserver-id-length = 1\nnonce-length = 18",
            "f:11:1: packet[192.0.2.1:443/udp].quic[#2].config-rotation: 0 is given twice; accepted: each value once".to_owned(),
        ),
        (
            "[[packet.quic]]\nconfig-rotation = 1\nserver-id-length = 2\nnonce-length = 18",
            "f:14:16: packet[192.0.2.1:443/udp].quic[#2].nonce-length: 20 together with `server-id-length`; accepted: at most 19, as a connection id has 20 bytes".to_owned(),
        ),
    ];
    for (more, expected) in cases {
        assert_eq!(said(&with(more)), expected, "{more}");
    }
}

#[test]
fn connection_ids_are_of_udp_and_beside_the_five_tuple() {
    let quic = "server-id-length = 2\nnonce-length = 6\n";
    assert_eq!(
        said(&file("192.0.2.1:443/tcp", "", quic)),
        "f:8:1: packet[192.0.2.1:443/tcp].quic: given for a VIP of TCP; accepted for VIPs of UDP"
    );
    assert_eq!(
        said(&file("192.0.2.1:443/udp", "key = 'source-address'", quic)),
        "f:7:7: packet[192.0.2.1:443/udp].key: given with `quic`, whose other packets go by their five-tuple; accepted: \"five-tuple\""
    );
}

#[test]
fn derived_server_ids_of_a_pool_differ() {
    let mut backends = String::new();
    for last in 1..=200 {
        backends += &format!("'10.0.0.{last}:443', ");
    }
    let text = file("192.0.2.1:443/udp", "", "server-id-length = 1\nnonce-length = 6\n");
    let start = text.find("[{ name = 'a'").unwrap();
    let end = text.find("] }]").unwrap();
    let text = format!("{}[{backends}{}", &text[..start], &text[end..]);
    let said = said(&text);
    assert!(
        said.contains(
            "have the same server id; accepted: another one for one of them, or a larger"
        ),
        "{said}"
    );
}
