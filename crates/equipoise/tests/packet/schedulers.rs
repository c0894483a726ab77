//! Schedulers of LVS, with connections of a real client.

use std::io::{Read as _, Write as _};
use std::net::{IpAddr, SocketAddr, TcpStream};

use equipoise_testkit::netns::SiteShape;

use crate::bed::{Bed, PATIENCE};
use crate::method::{NAT, Service};

const SITE: SiteShape = SiteShape { backends: 2, two_arms: false };

/// A balancer with one VIP, whose first backend has weight 3.
fn bed(scheduler: &str) -> Option<Bed> {
    let mut bed = Bed::new(scheduler, SITE)?;
    let more = format!("scheduler = \"{scheduler}\"\n");
    let config = NAT.config(Service::Web, &bed.site, &more);
    let config = config.replacen("\" }", "\", weight = 3 }", 1);
    bed.configure(&config);
    bed.balance();
    Some(bed)
}

/// Opens a connection that stays open. Returns it and the number of its backend.
fn connect(bed: &Bed) -> (TcpStream, usize) {
    let vip: SocketAddr = NAT.vip(Service::Web);
    let mut stream = bed.site.client.enter(|| TcpStream::connect_timeout(&vip, PATIENCE)).unwrap();
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    stream.write_all(b"GET /who HTTP/1.1\r\nhost: vip\r\n\r\n").unwrap();
    let (mut answer, mut part) = (String::new(), [0; 512]);
    loop {
        let bytes = stream.read(&mut part).unwrap();
        answer += std::str::from_utf8(&part[..bytes]).unwrap();
        let number = answer.split("\"backend\":\"backend-").nth(1).and_then(|it| it.chars().next());
        if let Some(number) = number.and_then(|number| number.to_digit(10)) {
            return (stream, number as usize);
        }
        assert!(bytes > 0, "{answer}");
    }
}

fn backends_of(connections: &[(TcpStream, usize)]) -> Vec<usize> {
    connections.iter().map(|(_, backend)| *backend).collect()
}

#[test]
fn sed_gives_each_connection_to_the_shortest_expected_delay() {
    let Some(bed) = bed("sed") else { return };
    let open: Vec<_> = (0..8).map(|_| connect(&bed)).collect();
    // 1/3 and 1/1, 2/3 and 1/1, 3/3 and 1/1 (the first of equals), 4/3 and 1/1; and again.
    assert_eq!(backends_of(&open), [1, 1, 1, 2, 1, 1, 1, 2]);
}

#[test]
fn nq_leaves_no_backend_idle() {
    let Some(bed) = bed("nq") else { return };
    let open: Vec<_> = (0..5).map(|_| connect(&bed)).collect();
    assert_eq!(backends_of(&open), [1, 2, 1, 1, 1]);
}

#[test]
fn sh_keeps_a_client_at_the_backend_of_its_address() {
    let Some(bed) = bed("sh") else { return };
    let open: Vec<_> = (0..8).map(|_| connect(&bed)).collect();
    let Ok(SocketAddr::V4(client)) = open[0].0.local_addr() else { panic!("an IPv4 address") };
    let bucket = client.ip().to_bits().wrapping_mul(0x61c8_8647) >> 24;
    let expected = if bucket % 4 < 3 { 1 } else { 2 };
    assert_eq!(backends_of(&open), [expected; 8], "{:?}", IpAddr::from(*client.ip()));
}
