//! `equipoise capture`: the file, its comments, its limits; and `equipoise flows`.

use std::path::Path;
use std::process::{Child, Command, Stdio};

use equipoise_testkit::netns::SiteShape;

use crate::bed::{Bed, soon};
use crate::common::{EQUIPOISE, equipoise, stderr, stdout, text};
use crate::method::{DIRECT, NAT, Service};

const SITE: SiteShape = SiteShape { backends: 2, two_arms: true };
const SNAP_BYTES: usize = 96;
const TCPDUMP: &str = "/usr/bin/tcpdump";

/// A packet of a file.
struct Packet {
    bytes: Vec<u8>,
    frame_bytes: usize,
    comment: String,
}

impl Packet {
    /// Source, destination, and destination port of IPv4.
    fn ends(&self) -> ([u8; 4], [u8; 4], u16) {
        let ip = &self.bytes[14..];
        let address = |at: usize| [ip[at], ip[at + 1], ip[at + 2], ip[at + 3]];
        (address(12), address(16), u16::from_be_bytes([ip[22], ip[23]]))
    }
}

fn word(bytes: &[u8], at: usize) -> usize {
    u32::from_le_bytes(bytes[at..at + 4].try_into().unwrap()) as usize
}

/// The packets of a pcapng file, and the packets that its end says are lost; `None` without an end.
fn read(file: &Path) -> (Vec<Packet>, Option<u64>) {
    let bytes = std::fs::read(file).unwrap();
    let (mut rest, mut packets, mut lost) = (&bytes[..], Vec::new(), None);
    while !rest.is_empty() {
        let length = word(rest, 4);
        let (block, others) = rest.split_at(length);
        assert_eq!(word(block, length - 4), length);
        match word(block, 0) {
            0x0a0d_0d0a => assert_eq!(word(block, 8), 0x1a2b_3c4d),
            1 => assert_eq!(word(block, 8), 1, "Ethernet"),
            6 => {
                let captured = word(block, 20);
                let options = &block[28 + captured.next_multiple_of(4)..];
                assert_eq!(options[..2], [1, 0], "a comment");
                let comment = usize::from(options[2]);
                packets.push(Packet {
                    bytes: block[28..28 + captured].to_vec(),
                    frame_bytes: word(block, 24),
                    comment: String::from_utf8(options[4..4 + comment].to_vec()).unwrap(),
                });
            }
            5 => lost = Some(u64::from_le_bytes(block[36..44].try_into().unwrap())),
            other => panic!("a block of type {other}"),
        }
        rest = others;
    }
    (packets, lost)
}

fn capture(bed: &Bed, vip: &str, more: &[&str]) -> Child {
    let socket = bed.path("api.sock");
    let mut command = Command::new(EQUIPOISE);
    command.args(["capture", vip, "--api", text(&socket)]).args(more);
    command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap()
}

/// Asks until the capture's file has the head, so that the capture runs.
fn has_begun(file: &Path) -> bool {
    soon(|| std::fs::metadata(file).is_ok_and(|it| it.len() > 0))
}

#[test]
fn a_capture_has_packets_as_received_with_their_backends_and_ends_by_its_limits_and_with_its_client()
 {
    let Some(mut bed) = Bed::new("capture", SITE) else { return };
    bed.prepare(&[NAT]);
    bed.configure(&NAT.config(Service::Web, &bed.site, "reply-interface = \"eth1\"\n"));
    bed.balance();
    let address = NAT.vip(Service::Web);
    let (vip, url) = (format!("{address}/tcp"), format!("http://{address}/"));
    let file = bed.path("packets.pcapng");
    let snap = SNAP_BYTES.to_string();
    let limits = ["--count", "12", "--snap", &snap, "--write", text(&file)];
    let first = capture(&bed, &vip, &limits);
    assert!(has_begun(&file));
    // Two at once would share the ring.
    let second = capture(&bed, &vip, &[]).wait_with_output().unwrap();
    assert!(!second.status.success());
    assert!(stderr(&second).contains("another capture runs"), "{}", stderr(&second));
    while std::fs::metadata(&file).unwrap().len() < 12 * SNAP_BYTES as u64 {
        bed.curl(&[&url]).unwrap();
    }
    let ended = first.wait_with_output().unwrap();
    assert!(ended.status.success(), "{}", stderr(&ended));
    let (packets, lost) = read(&file);
    assert_eq!((packets.len(), lost), (12, Some(0)));
    let std::net::IpAddr::V4(ip) = address.ip() else { unreachable!() };
    for packet in &packets {
        // As received: nat has not rewritten the destination.
        let (_, destination, port) = packet.ends();
        assert_eq!((destination, port), (ip.octets(), address.port()));
        assert_eq!(packet.bytes.len(), packet.frame_bytes.min(SNAP_BYTES));
        assert!(packet.comment.starts_with("to ") && packet.comment.ends_with(" by ring"));
    }
    if Path::new(TCPDUMP).exists() {
        let read = Command::new(TCPDUMP).args(["-nr", text(&file)]).output().unwrap();
        let lines = String::from_utf8_lossy(&read.stdout).lines().count();
        assert_eq!(lines, 12, "{}", stderr(&read));
    } else {
        println!("not read by tcpdump: there is no {TCPDUMP}");
    }
    // A client that leaves ends its capture, so that another one can begin.
    let _ = std::fs::remove_file(&file);
    let mut leaving = capture(&bed, &vip, &["--seconds", "3000", "--write", text(&file)]);
    assert!(has_begun(&file));
    leaving.kill().unwrap();
    leaving.wait().unwrap();
    let again = || {
        let none = ["--client", "192.0.2.254", "--seconds", "0.1", "--write", text(&file)];
        capture(&bed, &vip, &none).wait_with_output().unwrap().status.success()
    };
    assert!(soon(again), "{}", bed.log());
    // Nothing matched the filter.
    assert_eq!(read(&file).0.len(), 0);
    // Both filters.
    let _ = std::fs::remove_file(&file);
    let client = format!("{}/24", bed.site.client_address(false));
    let filters = ["--backend", "backend-1", "--client", &client, "--count", "4"];
    let mut filtered = capture(&bed, &vip, &[&filters[..], &["--write", text(&file)]].concat());
    assert!(has_begun(&file));
    while filtered.try_wait().unwrap().is_none() {
        bed.curl(&[&url]).unwrap();
    }
    let (packets, _) = read(&file);
    let to = format!("to {}:80 ", bed.site.backend_address(0, false));
    assert_eq!(packets.len(), 4);
    assert!(packets.iter().all(|packet| packet.comment.starts_with(&to)), "{}", packets[0].comment);
    for (wrong, error) in [
        (["--snap", "9000"], "accepted: 64 to 2048"),
        (["--backend", "other"], "has no backend `other`"),
        (["--client", "2001:db8::/32"], "different IP families"),
    ] {
        let refused = capture(&bed, &vip, &wrong).wait_with_output().unwrap();
        assert!(!refused.status.success());
        assert!(stderr(&refused).contains(error), "{}", stderr(&refused));
    }
}

#[test]
fn a_capture_ends_when_a_reload_removes_its_vip() {
    let Some(mut bed) = Bed::new("capture-removed", SITE) else { return };
    bed.prepare(&[NAT]);
    let config = |service| NAT.config(service, &bed.site, "reply-interface = \"eth1\"\n");
    let [web, lines] = [Service::Web, Service::Lines].map(config);
    bed.configure(&web);
    bed.balance();
    let file = bed.path("packets.pcapng");
    let vip = format!("{}/tcp", NAT.vip(Service::Web));
    let running = capture(&bed, &vip, &["--seconds", "3000", "--write", text(&file)]);
    assert!(has_begun(&file));
    // A reload that leaves the VIP changes nothing.
    bed.configure(&format!("{web}\n{lines}"));
    bed.command(&["reload"]);
    let second = capture(&bed, &vip, &[]).wait_with_output().unwrap();
    assert!(stderr(&second).contains("another capture runs"), "{}", stderr(&second));
    // The next VIP may get the number of this one.
    bed.configure(&lines);
    bed.command(&["reload"]);
    let ended = running.wait_with_output().unwrap();
    assert!(ended.status.success(), "{}", stderr(&ended));
    assert_eq!(read(&file).1, Some(0));
    let other = format!("{}/tcp", NAT.vip(Service::Lines));
    let next = ["--seconds", "0.1", "--write", text(&file)];
    let next = capture(&bed, &other, &next).wait_with_output().unwrap();
    assert!(next.status.success(), "{}", stderr(&next));
}

#[test]
fn the_largest_flow_is_listed_with_its_backend_and_its_share() {
    let Some(mut bed) = Bed::new("flows", SITE) else { return };
    bed.prepare(&[DIRECT]);
    bed.configure(&DIRECT.config(Service::Web, &bed.site, ""));
    bed.balance();
    let (client, url) = (
        bed.site.client_address(false).to_string(),
        format!("http://{}/echo", DIRECT.vip(Service::Web)),
    );
    let upload = format!("@{}", text(&bed.large_file(4 << 20)));
    let socket = bed.path("api.sock");
    let mut last = String::new();
    let is_listed = || {
        bed.curl(&["--data-binary", &upload, "-H", "Expect:", "-o", "/dev/null", &url]).unwrap();
        let output = equipoise(&["flows", "--json", "--api", text(&socket)]);
        last = stdout(&output) + &stderr(&output);
        let Ok(heavy) = serde_json::from_slice::<serde_json::Value>(&output.stdout) else {
            return false;
        };
        let flow = &heavy["flows"][0];
        let is_ours = flow["flow"].as_str().is_some_and(|flow| flow.starts_with(&client));
        let loads = heavy["backends"].as_array().unwrap();
        let backend = loads.iter().find(|load| load["backend"] == flow["backend"]);
        is_ours && backend.is_some_and(|load| load["heavy_bytes_per_second"].as_f64() > Some(1e4))
    };
    assert!(soon(is_listed), "{last}");
    print!("{}", bed.command(&["flows"]));
}
