//! The demo's folder with its configuration file and its API socket.

use std::fmt::Write as _;
use std::fs;
use std::io;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};

use equipoise_basics::files::create_private_folder;

use crate::ports::Port;
use crate::supervise::{Ports, Sample};

/// Listen addresses of the demo.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Listening {
    pub(crate) http: SocketAddr,
    pub(crate) tcp: SocketAddr,
    pub(crate) udp: SocketAddr,
    pub(crate) api: SocketAddr,
}

impl Listening {
    /// Chooses 8080 to 8082 and 9909 if they are free, otherwise other ports.
    pub(crate) fn choose(any: bool) -> io::Result<Listening> {
        let wanted = |port| if any { 0 } else { port };
        // Bound until all are chosen.
        let (http, tcp) = (Port::tcp(wanted(8080))?, Port::tcp(wanted(8081))?);
        let (udp, api) = (Port::udp(wanted(8082))?, Port::tcp(wanted(9909))?);
        Ok(Listening {
            http: http.address()?,
            tcp: tcp.address()?,
            udp: udp.address()?,
            api: api.address()?,
        })
    }
}

/// A folder for this user only. Dropping it removes the folder with its content.
#[derive(Debug)]
pub(crate) struct Folder(PathBuf);

impl Folder {
    /// Creates the folder, in the user's runtime folder if there is one.
    pub(crate) fn create() -> io::Result<Folder> {
        create_private_folder("equipoise-demo").map(Folder)
    }

    pub(crate) fn socket(&self) -> PathBuf {
        self.0.join("api.sock")
    }

    pub(crate) fn config(&self) -> PathBuf {
        self.0.join("demo.toml")
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.0.join(name)
    }

    pub(crate) fn write(&self, name: &str, text: &str) -> io::Result<PathBuf> {
        let path = self.path(name);
        fs::write(&path, text)?;
        Ok(path)
    }

    pub(crate) fn write_config(&self, text: &str) -> io::Result<()> {
        fs::write(self.config(), text)
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        if let Err(error) = fs::remove_dir_all(&self.0) {
            tracing::debug!(folder = %self.0.display(), %error, "demo folder not removed");
        }
    }
}

/// The configuration: a pool and a front door for each protocol.
pub(crate) fn config(samples: &[Sample], listening: &Listening, socket: &Path) -> String {
    let mut text = format!(
        "# The configuration of `equipoise demo`. Edit it and reload.\n\n\
         [instance]\nname = \"demo\"\n\n\
         [api]\nsocket = {:?}\nlisten = \"{}\"\naudit-log = {:?}\n\n\
         [shutdown]\ngrace = \"5s\"\n",
        socket.display().to_string(),
        listening.api,
        // The audit log goes to a file: each command changes something, and the terminal is for the
        // log.
        socket.with_file_name("audit.log").display().to_string()
    );
    for Door { name, protocol, listen, health, port } in doors(listening) {
        // Here and below: writing to a string cannot fail.
        let _ = write!(text, "\n[[pool]]\nname = \"{name}\"\nbackends = [\n");
        for sample in samples {
            let (sample_name, port) = (sample.spec.name, port(&sample.ports));
            let _ = writeln!(
                text,
                "    {{ name = \"{sample_name}\", address = \"127.0.0.1:{port}\" }},"
            );
        }
        text.push_str("]\n");
        if protocol == "http" {
            text.push_str("scheduler = \"least-connection\"\n");
        }
        // The default of ten seconds would be too long for a demo, in which a killed backend
        // returns.
        text.push_str("passive = { ejection = \"1s\" }\n");
        if let Some(health) = health {
            let _ = writeln!(text, "health = {health}");
        }
        let _ = write!(
            text,
            "\n[[session]]\nname = \"{name}\"\nlisten = \"{listen}\"\nprotocol = \"{protocol}\"\npool = \"{name}\"\n"
        );
        // A UDP client is in flight until it is silent for this long, and Ctrl-C waits for work in
        // flight.
        if protocol == "udp" {
            text.push_str("idle-timeout = \"1s\"\n");
        }
    }
    text
}

/// A front door of the demo, and the pool with the same name.
struct Door {
    name: &'static str,
    protocol: &'static str,
    listen: SocketAddr,
    health: Option<&'static str>,
    port: fn(&Ports) -> u16,
}

fn doors(listening: &Listening) -> [Door; 3] {
    [
        Door {
            name: "web",
            protocol: "http",
            listen: listening.http,
            health: Some(
                "{ http = \"/healthz\", interval = \"500ms\", timeout = \"400ms\", rise = 1, fall = 2 }",
            ),
            port: |ports| ports.http,
        },
        Door {
            name: "lines",
            protocol: "tcp",
            listen: listening.tcp,
            health: Some(
                "{ tcp = true, interval = \"500ms\", timeout = \"400ms\", rise = 1, fall = 2 }",
            ),
            port: |ports| ports.tcp,
        },
        Door {
            name: "datagrams",
            protocol: "udp",
            listen: listening.udp,
            health: None,
            port: |ports| ports.udp,
        },
    ]
}
