//! Behaviour of hosts, links and sites. Prints the reason and skips where the process is not root.

use std::io::{Read, Write};
use std::net::{IpAddr, SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::time::Duration;

use equipoise_netns::{Host, Site, SiteShape, unavailable, veth};

const PATIENCE: Duration = Duration::from_secs(60);

/// Whether this test can run; prints the reason if not.
fn possible() -> bool {
    let reason = unavailable();
    if let Some(reason) = &reason {
        println!("skipped: {reason}");
    }
    reason.is_none()
}

/// Returns the bytes that a client receives from a server that sends `text` on each connection.
fn hear(client: &Host, server: &Host, address: SocketAddr, text: &'static str) -> String {
    let listener = server.enter(|| TcpListener::bind(address)).expect("the address is there");
    let serving = server.spawn_thread(move || {
        let (mut stream, _) = listener.accept()?;
        stream.write_all(text.as_bytes())
    });
    let heard = client.enter(|| {
        let mut stream = TcpStream::connect_timeout(&address, PATIENCE)?;
        let mut heard = String::new();
        stream.read_to_string(&mut heard).map(|_| heard)
    });
    let heard = heard.expect("the server answers");
    serving.join().expect("no panic").expect("it could send");
    heard
}

#[test]
fn two_hosts_on_a_veth_pair_talk_over_both_families() {
    if !possible() {
        return;
    }
    let (one, two) = (Host::new("one").unwrap(), Host::new("two").unwrap());
    veth((&one, "eth0"), (&two, "eth0")).unwrap();
    for (address, prefix) in [("192.0.2.", 24), ("2001:db8::", 64)] {
        let of = |n| -> IpAddr { format!("{address}{n}").parse().unwrap() };
        one.address("eth0", of(1), prefix).unwrap();
        two.address("eth0", of(2), prefix).unwrap();
        assert_eq!(hear(&one, &two, (of(2), 80).into(), "hello"), "hello");
    }
    let features = two.run("ip", &["-d", "link", "show", "eth0"]).unwrap();
    assert!(features.contains("veth"), "{features}");
}

#[test]
fn a_host_is_removed_when_it_is_dropped_also_by_a_panic() {
    if !possible() {
        return;
    }
    let outside = Host::new("outside").unwrap();
    let links = || outside.ip("-o link").unwrap().lines().count();
    for panics in [false, true] {
        let ended = std::thread::scope(|scope| {
            let of_a_test = scope.spawn(|| {
                let inside = Host::new("inside").unwrap();
                veth((&outside, "to-inside"), (&inside, "eth0")).unwrap();
                assert_eq!(links(), 2, "as long as the host exists");
                assert!(!panics, "a test that fails");
            });
            of_a_test.join()
        });
        assert_eq!(ended.is_err(), panics);
        // The kernel removes a namespace in the background; then both ends of the pair are gone.
        let end = std::time::Instant::now() + PATIENCE;
        while links() != 1 && std::time::Instant::now() < end {
            std::thread::yield_now();
        }
        assert_eq!(links(), 1, "{panics}");
    }
}

#[test]
fn a_guest_runs_in_its_hosts_namespace_and_ends_when_dropped() {
    if !possible() {
        return;
    }
    let host = Host::new("host").unwrap();
    let guest = host.start("sh", &["-c", "readlink /proc/self/ns/net; exec sleep 1000"]).unwrap();
    let link = guest
        .wait_for(PATIENCE, |text| text.strip_suffix('\n').map(str::to_owned))
        .expect("it prints a line");
    let own = host.enter(|| std::fs::read_link("/proc/thread-self/ns/net")).unwrap();
    assert_eq!(own.to_str(), Some(link.as_str()));
    assert_ne!(std::fs::read_link("/proc/self/ns/net").unwrap(), own);
    let pid = guest.pid();
    drop(guest);
    assert!(!std::path::Path::new(&format!("/proc/{pid}")).exists());
}

#[test]
fn the_error_of_a_command_names_the_failed_object_and_host() {
    if !possible() {
        return;
    }
    let host = Host::new("host").unwrap();
    let error = host.ip("link set nowhere up").unwrap_err().to_string();
    assert!(error.contains("nowhere") && error.contains("`host`"), "{error}");
    let error = host.sysctl("net/ipv4/no_such", "1").unwrap_err().to_string();
    assert!(error.contains("net/ipv4/no_such"), "{error}");
}

#[test]
fn in_a_site_clients_and_backends_reach_each_other_and_vips_reach_the_balancer() {
    if !possible() {
        return;
    }
    for two_arms in [false, true] {
        let site = Site::new(SiteShape { backends: 2, two_arms }).unwrap();
        for v6 in [false, true] {
            let backend = SocketAddr::new(site.backend_address(1, v6), 8080);
            assert_eq!(hear(&site.client, &site.backends[1], backend, "direct"), "direct");
            // No host has the VIP. The test gives its address to the balancer, to show that packets
            // reach it.
            let vip = Site::vip(7, v6);
            site.balancer.hidden_address(vip).unwrap();
            assert_eq!(hear(&site.client, &site.balancer, (vip, 80).into(), "vip"), "vip");
        }
    }
}

#[test]
fn frames_on_the_wire_have_complete_checksums() {
    if !possible() {
        return;
    }
    let (one, two) = (Host::new("one").unwrap(), Host::new("two").unwrap());
    veth((&one, "eth0"), (&two, "eth0")).unwrap();
    one.address("eth0", "192.0.2.1".parse().unwrap(), 24).unwrap();
    two.address("eth0", "192.0.2.2".parse().unwrap(), 24).unwrap();
    let raw = two.enter(packet_socket);
    one.enter(|| {
        let socket = UdpSocket::bind("192.0.2.1:1000").unwrap();
        socket.send_to(b"abcdef", "192.0.2.2:2000").unwrap();
    });
    let mut frame = [0_u8; 2048];
    loop {
        let bytes = std::io::Read::read(&mut &raw, &mut frame).expect("a frame comes");
        // Selects IPv4, UDP and our port; ignores neighbour discovery and ARP.
        if bytes >= 42 && frame[12..14] == [8, 0] && frame[23] == 17 && frame[36..38] == [7, 208] {
            let length = u32::from(frame[38]) << 8 | u32::from(frame[39]);
            // RFC 768: the sum over pseudo-header and datagram is all ones.
            let words = frame[26..34 + length as usize].chunks(2);
            let sum = words.map(|w| u32::from(w[0]) << 8 | u32::from(w[1])).sum::<u32>();
            let sum = sum + 17 + length;
            assert_eq!((sum & 0xffff) + (sum >> 16), 0xffff);
            return;
        }
    }
}

/// Opens a socket that receives every frame of the host.
fn packet_socket() -> std::fs::File {
    use std::os::fd::FromRawFd;
    let all = i32::from((libc::ETH_P_ALL as u16).to_be());
    // SAFETY: socket takes three numbers, and the new descriptor has no other owner.
    unsafe {
        let socket = libc::socket(libc::AF_PACKET, libc::SOCK_RAW | libc::SOCK_CLOEXEC, all);
        assert!(socket >= 0, "{}", std::io::Error::last_os_error());
        std::fs::File::from_raw_fd(socket)
    }
}
