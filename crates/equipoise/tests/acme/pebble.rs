//! Let's Encrypt's pebble, with its DNS server for tests.

use std::net::{IpAddr, SocketAddr};
use std::process::{Command, Stdio};

use equipoise_testkit::{ReservedPort, free_port};
use rcgen::{CertificateParams, KeyPair};

use crate::common::certificates::Certificates;
use crate::common::{Folder, Process, stderr, stdout, text};

/// An ACME server, and the folder of its files.
pub(crate) struct Pebble {
    pub(crate) folder: Folder,
    process: Option<Process>,
    _dns: Process,
    _ports: [ReservedPort; 2],
    pub(crate) listen: ReservedPort,
    management: ReservedPort,
    /// The name server that pebble asks.
    pub(crate) resolver: SocketAddr,
    control: SocketAddr,
    /// The share of requests that it rejects for their nonce, in percent.
    pub(crate) nonces_rejected: u32,
    /// Whether each verification waits for up to five seconds.
    pub(crate) is_slow: bool,
}

impl Pebble {
    /// Starts the server. It verifies names at these ports, and its certificates are valid for so
    /// many seconds.
    pub(crate) fn start(
        test: &str,
        http: SocketAddr,
        tls: SocketAddr,
        valid_seconds: u64,
    ) -> Pebble {
        let mut pebble = Pebble::stopped(test, http, tls, valid_seconds);
        pebble.start_again();
        pebble
    }

    pub(crate) fn stopped(
        test: &str,
        http: SocketAddr,
        tls: SocketAddr,
        valid_seconds: u64,
    ) -> Pebble {
        let Certificates { authority, folder } = Certificates::new(test);
        let (listen, management) = (free_port(), free_port());
        let key = KeyPair::generate().expect("a key");
        let own = CertificateParams::new(vec!["127.0.0.1".to_string()]).expect("an address");
        let own = own.signed_by(&key, &authority).expect("a certificate");
        let chain = folder.write("pebble.pem", &own.pem());
        let key = folder.write("pebble.key", &key.serialize_pem());
        // Versions before 2.7 have no profiles.
        let config = format!(
            r#"{{ "pebble": {{ "listenAddress": "{}", "managementListenAddress": "{}", "certificate": "{}",
                "privateKey": "{}", "httpPort": {}, "tlsPort": {}, "ocspResponderURL": "",
                "externalAccountBindingRequired": false, "certificateValidityPeriod": {valid_seconds},
                "profiles": {{ "default": {{ "description": "", "validityPeriod": {valid_seconds} }} }} }} }}"#,
            listen.address(),
            management.address(),
            text(&chain),
            text(&key),
            http.port(),
            tls.port(),
        );
        folder.write("pebble.json", &config);
        let (resolver, control) = (free_port(), free_port());
        let mut dns = tool("pebble-challtestsrv");
        dns.args(["-http01", "", "-https01", "", "-tlsalpn01", "", "-defaultIPv6", ""]);
        dns.args(["-management", &control.address().to_string()]);
        dns.args(["-dns01", &resolver.address().to_string()]);
        let dns = Process::of(dns);
        dns.wait_for_text("Starting challenge servers");
        let nonces_rejected = 5;
        Pebble {
            folder,
            process: None,
            _dns: dns,
            listen,
            management,
            resolver: resolver.address(),
            control: control.address(),
            _ports: [resolver, control],
            nonces_rejected,
            is_slow: false,
        }
    }

    /// Starts the server, which knows no account or certificate of an earlier one.
    pub(crate) fn start_again(&mut self) {
        let mut command = tool("pebble");
        command
            .args(["-config", text(&self.folder.path("pebble.json"))])
            .args(["-dnsserver", &self.resolver.to_string()])
            .env(if self.is_slow { "PEBBLE_VA_SLEEPTIME" } else { "PEBBLE_VA_NOSLEEP" }, "5")
            .env("PEBBLE_AUTHZREUSE", "0")
            .env("PEBBLE_WFE_NONCEREJECT", self.nonces_rejected.to_string());
        let process = Process::of(command);
        process.wait_for_text("ACME directory available");
        self.process = Some(process);
        let root = Command::new("curl")
            .args(["--silent", "--show-error", "--cacert", text(&self.folder.path("ca.pem"))])
            // This listener may open after the directory's.
            .args(["--retry", "60", "--retry-connrefused", "--retry-delay", "1"])
            .arg(format!("https://{}/roots/0", self.management.address()))
            .output()
            .expect("curl runs; `make test-setup` installs it");
        assert!(root.status.success(), "{}", stderr(&root));
        self.folder.write("root.pem", &stdout(&root));
    }

    /// Makes a name lead to this address.
    pub(crate) fn point(&self, name: &str, address: IpAddr) {
        for (path, body) in [
            ("clear-a", format!(r#"{{ "host": "{name}." }}"#)),
            ("add-a", format!(r#"{{ "host": "{name}.", "addresses": ["{address}"] }}"#)),
        ] {
            let output = Command::new("curl")
                .args(["--silent", "--show-error", "--fail", "--data", &body])
                .arg(format!("http://{}/{path}", self.control))
                .output()
                .expect("curl runs; `make test-setup` installs it");
            assert!(output.status.success(), "{}", stderr(&output));
        }
    }

    pub(crate) fn stop(&mut self) {
        self.process = None;
    }
}

fn tool(name: &str) -> Command {
    let found = Command::new(name)
        .arg("-help")
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .status();
    let missing = "is missing: `make test-setup` installs it (Debian's package pebble)";
    assert!(found.is_ok(), "{name} {missing}");
    Command::new(name)
}
