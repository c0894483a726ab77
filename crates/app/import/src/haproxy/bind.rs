//! `bind` lines.

use super::words::Line;
use crate::model::{Door, Options};
use crate::report::Report;

/// A socket that accepts connections.
#[derive(Clone, Debug, Default)]
pub(super) struct Bind {
    pub(super) number: usize,
    /// As `listen` has it.
    pub(super) listen: String,
    pub(super) port: String,
    pub(super) is_tls: bool,
    words: Vec<String>,
}

/// The sockets of a line, which may list several.
pub(super) fn binds(line: &Line, report: &mut Report) -> Vec<Bind> {
    report.carried(line.number);
    let words = line.from(2).to_vec();
    let is_tls = words.iter().any(|it| it == "ssl");
    let is_dual = words.iter().any(|it| it == "v4v6");
    let mut all = Vec::new();
    for address in line.word(1).split(',') {
        let address = address
            .strip_prefix("ipv4@")
            .or_else(|| address.strip_prefix("ipv6@"))
            .unwrap_or(address);
        let Some((host, port)) =
            address.rsplit_once(':').filter(|(_, port)| port.parse::<u16>().is_ok())
        else {
            report.lost(
                line.number,
                format!("a front door has one TCP port, and {address:?} is none"),
            );
            continue;
        };
        let listen = match host {
            "" | "*" | "0.0.0.0" => format!("0.0.0.0:{port}"),
            "::" | "[::]" if is_dual => format!("*:{port}"),
            "::" | "[::]" => format!("[::]:{port}"),
            host if host.contains(':') && !host.starts_with('[') => format!("[{host}]:{port}"),
            host => format!("{host}:{port}"),
        };
        let (number, port) = (line.number, port.to_string());
        all.push(Bind { number, listen, port, is_tls, words: words.clone() });
    }
    all
}

impl Bind {
    fn value(&self, key: &str) -> Option<&str> {
        let at = self.words.iter().position(|it| it == key)?;
        self.words.get(at + 1).map(String::as_str)
    }

    /// Sets the options of the socket.
    pub(super) fn apply(&self, door: &mut Door, is_tcp: bool, report: &mut Report) {
        door.options.set("listen", self.listen.clone());
        if self.words.iter().any(|it| it == "accept-proxy") {
            door.options.set("accept-proxy", true);
        }
        let alpn = self.value("alpn").unwrap_or_default();
        // HAProxy offers HTTP/2 from 2.6 on only where `alpn` names it.
        if !is_tcp && (alpn.split(',').any(|it| it == "h2") || self.value("proto") == Some("h2")) {
            door.options.set("http2", true);
        }
        if let Some(number) = self.value("maxconn").and_then(|it| it.parse::<i64>().ok()) {
            door.options.set("connections-max", number.clamp(1, 10_000_000));
            report.changes(self.number, "connections-max counts for each data-plane thread");
        }
        if self.is_tls {
            self.tls(door, report);
        }
        for key in [
            "crt-list",
            "ecdhe",
            "ciphers",
            "ciphersuites",
            "curves",
            "crl-file",
            "interface",
            "transparent",
            "namespace",
            "accept-netscaler-cip",
            "generate-certificates",
            "crt-ignore-err",
            "ca-ignore-err",
            "ssl-max-ver",
            "no-tlsv12",
            "no-tlsv13",
            "mss",
            "tcp-ut",
        ] {
            if self.words.iter().any(|it| it == key) {
                match key {
                    "crt-list" => report.lost(
                        self.number,
                        "certificates = [...] lists the files; names come from the certificates",
                    ),
                    "ciphers" | "ciphersuites" | "curves" | "ecdhe" => {
                        report.changes(self.number, "suites are those of `profile`")
                    }
                    "ssl-max-ver" | "no-tlsv12" | "no-tlsv13" => report.changes(
                        self.number,
                        "versions are those of profile: TLS 1.2 and 1.3, or 1.3",
                    ),
                    "crt-ignore-err" | "ca-ignore-err" => {
                        report.changes(self.number, "certificates of clients have to be valid")
                    }
                    key => report.lost(self.number, format!("a front door has no {key}")),
                }
            }
        }
    }

    fn tls(&self, door: &mut Door, report: &mut Report) {
        let mut tls = Options::default();
        for pair in self.words.windows(2).filter(|it| it[0] == "crt") {
            let mut certificate = Options::default();
            certificate.set("chain", pair[1].clone());
            door.certificates.push(certificate);
            if !pair[1].ends_with(".pem") && !pair[1].ends_with(".crt") {
                report.changes(
                    self.number,
                    format!("if {} is a folder, list its files in certificates", pair[1]),
                );
            }
        }
        if self.words.iter().any(|it| it == "strict-sni") {
            tls.set("strict", true);
        }
        if self.value("ssl-min-ver") == Some("TLSv1.3")
            || self.words.iter().any(|it| it == "force-tlsv13")
        {
            tls.set("profile", "modern");
        }
        if matches!(self.value("ssl-min-ver"), Some("TLSv1.0" | "TLSv1.1" | "SSLv3")) {
            report.changes(self.number, "TLS 1.2 is the oldest version");
        }
        if let (Some(file), Some(verify)) = (self.value("ca-file"), self.value("verify")) {
            let mut clients = Options::default();
            clients.set("ca", file);
            if verify == "optional" {
                clients.set("required", false);
            }
            if verify != "none" {
                door.clients = Some(clients);
            }
        }
        door.tls = Some(tls);
    }
}
