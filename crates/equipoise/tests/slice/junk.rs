//! Invalid datagrams from the network to the ports of DDS.

use std::net::UdpSocket;

use crate::bed::Bed;

/// A datagram with the header of RTPS, whose only submessage (DATA) is too short for its own
/// fields.
pub(crate) const JUNK: &[u8] =
    b"RTPS\x02\x01\x01\x10\x01\x02\x03\x04\x05\x06\x07\x08\x09\x0a\x0b\x0c\x15\x05\x08\x00\0\0\x10\0\0\0\0\0";

/// The log has a handful of lines for these; without a throttle it would have a line for each.
const DATAGRAMS: usize = 20_000;

#[test]
fn junk_from_the_network_writes_few_lines_and_the_others_are_counted() {
    let domain = 24;
    let bed = Bed::new("slice-junk", domain, "");
    let controller = bed.controller.as_ref().unwrap();
    // DDSI-RTPS 2.5, section 9.6.2.3: the port on which participants of the domain listen for
    // discovery.
    let port = u16::try_from(7400 + 250 * domain).unwrap();
    let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
    let send = |count: usize| {
        for _ in 0..count {
            socket.send_to(JUNK, ("127.0.0.1", port)).unwrap();
        }
    };
    send(DATAGRAMS);
    controller.wait_for_text("further ones are left out and counted");
    send(DATAGRAMS);
    let left_out = controller.wait_for("the count", |printed| {
        let (_, count) = printed.split_once("lines were left out left_out=")?;
        count.split_whitespace().next()?.parse::<usize>().ok()
    });
    assert!(left_out > 1000, "{left_out}");
    let lines = controller.printed().lines().filter(|line| line.contains("DDS: ")).count();
    assert!(lines < 50, "{lines} lines");
}
