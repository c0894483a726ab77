//! Certificates that the directory verifies by our own DNS level.

use equipoise_testkit::{HttpBackend, UdpPort, eventually, free_port};

use crate::common::{Process, equipoise, stderr, stdout, text};
use crate::pebble::Pebble;
use crate::{DAY, ask, serial};

/// A `[[dns]]` table for example.org.
pub(crate) fn zone(listen: std::net::SocketAddr) -> String {
    format!(
        "[[dns]]\nzone = \"example.org.\"\nlisten = \"{listen}\"\npool = \"web\"\n\
         ns = [{{ name = \"ns1\", addresses = \"{}\" }}]\n",
        listen.ip()
    )
}

#[test]
fn wildcards_and_names_of_our_zones_are_verified_by_dns_01() {
    let backend = HttpBackend::echo();
    let (https, nowhere, dns) = (free_port(), free_port(), UdpPort::reserve());
    // The directory reaches no front door.
    let mut pebble = Pebble::stopped("acme-dns", nowhere.address(), nowhere.address(), 90 * DAY);
    pebble.resolver = dns.address();
    pebble.start_again();
    let folder = &pebble.folder;
    let socket = folder.path("api.sock");
    let config = format!(
        "[api]\nsocket = \"{}\"\nlisten = \"off\"\n[instance]\nname = \"edge\"\nthreads = 1\n\
         [controller]\nstate = \"{}\"\n[acme]\nterms-agreed = true\ndirectory = \"https://{}/dir\"\nca = \"{}\"\n\
         [[session]]\nlisten = \"{}\"\nprotocol = \"http\"\npool = \"web\"\n\
         tls = {{ auto = [\"*.example.org\", \"www.example.org\"] }}\n{}\
         [[pool]]\nname = \"web\"\nbackends = [\"{}\"]\n",
        text(&socket),
        text(&folder.path("state")),
        pebble.listen.address(),
        text(&folder.path("ca.pem")),
        https.address(),
        zone(dns.address()),
        backend.address(),
    );
    let file = folder.write("equipoise.toml", &config);
    let checked = equipoise(&["check", text(&file)]);
    assert!(checked.status.success(), "{}", stderr(&checked));
    assert_eq!(stdout(&checked).matches("warning").count(), 0, "{}", stdout(&checked));
    let process = Process::start(&["run", text(&file)]);
    process.wait_for_text(" ready ");
    for name in ["a.example.org", "www.example.org"] {
        let is_served = || ask(&pebble, name, https.address()).is_ok();
        assert!(eventually(is_served), "{name}\n{}", process.printed());
    }
    let issued = || process.printed().matches("certificate issued").count() == 2;
    assert!(eventually(issued), "{}", process.printed());
    let serials = || ["a.example.org", "www.example.org"].map(|it| serial(it, https.address()));
    // Each name has a certificate of its own.
    assert!(eventually(|| serials()[0] != serials()[1]), "{:?}", serials());
    // The answers are withdrawn.
    let dig = std::process::Command::new("dig")
        .args(["+short", "@127.0.0.1", "-p", &dns.address().port().to_string()])
        .args(["_acme-challenge.example.org", "TXT"])
        .output()
        .expect("dig runs; `make test-setup` installs it");
    assert!(dig.status.success() && dig.stdout.is_empty(), "{}", stdout(&dig));
}
