//! BIND with the zone `disc.test.`.

use std::net::{SocketAddr, UdpSocket};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};
use std::time::Duration;

use equipoise_testkit::{UdpPort, eventually, spawn_bound};

use crate::common::{Folder, kill, text};

const NAMED: &str = "/usr/sbin/named";

/// Whether BIND is installed; if not, that is printed.
pub(crate) fn is_installed() -> bool {
    let is = Path::new(NAMED).is_file();
    if !is {
        eprintln!("skipped: there is no {NAMED} (Debian: apt-get install bind9)");
    }
    is
}

pub(crate) struct Named {
    folder: Folder,
    pub(crate) address: SocketAddr,
    _port: UdpPort,
    child: Option<Child>,
    serial: AtomicU32,
}

impl Named {
    pub(crate) fn start(test: &str, records: &str) -> Named {
        let port = UdpPort::reserve();
        let (ip, number) = (port.address().ip(), port.address().port());
        let folder = Folder::new(&format!("{test}-named"));
        let root = folder.root().display();
        folder.write(
            "named.conf",
            &format!(
                "options {{ directory \"{root}\"; listen-on port {number} {{ {ip}; }}; listen-on-v6 {{ none; }};\n\
                 pid-file \"{root}/named.pid\"; session-keyfile \"{root}/session.key\"; recursion no;\n\
                 dnssec-validation no; allow-transfer {{ none; }}; notify no; }};\n\
                 controls {{ }};\nzone \"disc.test\" {{ type primary; file \"{root}/disc.zone\"; }};\n"
            ),
        );
        let address = port.address();
        let mut named =
            Named { folder, address, _port: port, child: None, serial: AtomicU32::new(1) };
        named.write(records);
        named.run();
        named
    }

    fn write(&self, records: &str) {
        let serial = self.serial.fetch_add(1, Relaxed);
        let zone = format!(
            "$TTL 1\n@ IN SOA ns hostmaster {serial} 3600 600 86400 1\n@ IN NS ns\nns IN A 127.0.0.1\n{records}\n"
        );
        self.folder.write("disc.zone", &zone);
    }

    /// Starts it with the zone that is there.
    pub(crate) fn run(&mut self) {
        let mut command = Command::new(NAMED);
        let config = self.folder.path("named.conf");
        command.args(["-g", "-n", "1", "-c", text(&config)]);
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        self.child = Some(spawn_bound(command).unwrap());
        assert!(eventually(|| self.answers()), "named does not answer at {}", self.address);
    }

    /// Whether it answers anything at all.
    fn answers(&self) -> bool {
        let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
        socket.set_read_timeout(Some(Duration::from_millis(200))).unwrap();
        // A query for the SOA record of disc.test.
        let query = b"\0\x01\x01\0\0\x01\0\0\0\0\0\0\x04disc\x04test\0\0\x06\0\x01";
        let mut answer = [0; 512];
        socket.send_to(query, self.address).is_ok() && socket.recv(&mut answer).is_ok()
    }

    pub(crate) fn change(&self, records: &str) {
        self.write(records);
        kill(self.child.as_ref().unwrap().id(), libc::SIGHUP);
    }

    pub(crate) fn stop(&mut self) {
        let mut child = self.child.take().unwrap();
        child.kill().unwrap();
        child.wait().unwrap();
    }

    /// Starts it again with a zone that it cannot load: it answers SERVFAIL.
    pub(crate) fn run_broken(&mut self) {
        self.folder.write("disc.zone", "this is no zone");
        self.run();
    }
}

impl Drop for Named {
    fn drop(&mut self) {
        if self.child.is_some() {
            self.stop();
        }
    }
}
