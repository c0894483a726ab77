//! TLS sessions that are resumed at another machine of the cluster, by tickets of shared keys.

use std::fs::File;
use std::os::unix::fs::PermissionsExt;

use equipoise_testkit::{HttpBackend, ReservedPort, free_port};
use rcgen::{CertificateParams, KeyPair};

use crate::bed::{Machine, Site, command, soon};
use crate::clock::{clock_of, library, set};
use crate::common::s_client::s_client;
use crate::common::text;

const NAME: &str = "www.example.com";
const VERSIONS: [&str; 2] = ["-tls1_2", "-tls1_3"];

/// Longer than a key decrypts, and shorter than the validity of members' certificates.
const HOURS: i64 = 13 * 3600;

/// A controller with an https front door.
struct Edge {
    machine: Machine,
    https: ReservedPort,
    clock: File,
}

impl Edge {
    /// Asks for a new session, writes it into a file, and returns the path.
    fn session(&self, site: &Site, version: &str) -> String {
        let number = std::fs::read_dir(site.folder.path("")).unwrap().count();
        let file = text(&site.folder.path(&format!("session{number}"))).to_string();
        let printed = self.connect(version, &["-sess_out", &file]);
        assert!(printed.contains("New, TLSv1."), "{printed}\n{}", self.machine.process().printed());
        file
    }

    /// Whether it resumes a session. The handshake succeeds in any case.
    fn resumes(&self, version: &str, session: &str) -> bool {
        let printed = self.connect(version, &["-sess_in", session]);
        let is_resumed = printed.contains("Reused, TLSv1.");
        assert!(is_resumed || printed.contains("New, TLSv1."), "{printed}");
        is_resumed
    }

    fn connect(&self, version: &str, args: &[&str]) -> String {
        let printed = s_client(self.https.address(), NAME, &[&[version], args].concat());
        assert!(printed.contains("HTTP/1.1 200 OK"), "{printed}");
        printed
    }
}

/// The tables of an https front door, with a certificate that is new and for the same name.
fn door(site: &Site, name: &str, https: &ReservedPort) -> String {
    let key = KeyPair::generate().unwrap();
    let params = CertificateParams::new([NAME.to_string()]).unwrap();
    let chain = site.folder.write(&format!("{name}.pem"), &params.self_signed(&key).unwrap().pem());
    let key = site.folder.write(&format!("{name}.key"), &key.serialize_pem());
    std::fs::set_permissions(&key, PermissionsExt::from_mode(0o600)).unwrap();
    format!(
        "[[session]]\nlisten = \"{}\"\nprotocol = \"http\"\npool = \"web\"\n\
         tls = {{ certificates = [{{ chain = \"{}\", key = \"{}\" }}] }}\n",
        https.address(),
        text(&chain),
        text(&key)
    )
}

#[test]
fn sessions_are_resumed_at_other_members_and_after_restarts_until_their_keys_end() {
    let backend = HttpBackend::named("b");
    let Some(mut site) = Site::new("cluster-tickets") else { return };
    let Some(library) = library(&site) else { return };
    let mut edges = ["c1", "c2"].map(|name| {
        let https = free_port();
        site.rest = door(&site, name, &https);
        let mut machine = site.controller(name, backend.address());
        let clock = clock_of(&site, &mut machine, &library);
        Edge { machine, https, clock }
    });
    command(&["cluster", "init", "--config", text(&edges[0].machine.file)]);
    std::fs::create_dir_all(site.folder.path("c2")).unwrap();
    for file in ["ca.pem", "ca.key"] {
        let [from, to] = ["c1", "c2"].map(|it| site.folder.path(it).join(file));
        std::fs::copy(from, to).unwrap();
    }
    edges.iter_mut().for_each(|it| it.machine.start());
    soon("both have the keys", || {
        let session = edges[0].session(&site, "-tls1_3");
        edges[1].resumes("-tls1_3", &session)
    });
    for version in VERSIONS {
        for (from, to) in [(0, 1), (1, 0)] {
            let session = edges[from].session(&site, version);
            assert!(edges[to].resumes(version, &session), "{version} {from}");
        }
    }

    // A new process has the keys from the store.
    let session = edges[0].session(&site, "-tls1_3");
    edges[0].machine.kill();
    edges[0].machine.start();
    soon("a session of the former process", || edges[0].resumes("-tls1_3", &session));

    // Without the store the keys serve for their time, and handshakes succeed after that.
    site.etcd.freeze(0, true);
    let sessions = VERSIONS.map(|version| {
        let session = edges[1].session(&site, version);
        assert!(edges[0].resumes(version, &session), "{version}");
        session
    });
    edges.iter().for_each(|it| set(&it.clock, HOURS));
    for (version, session) in VERSIONS.iter().zip(&sessions) {
        assert!(edges.iter().all(|it| !it.resumes(version, session)), "{version}");
        let later = edges[1].session(&site, version);
        assert!(edges[1].resumes(version, &later) && !edges[0].resumes(version, &later));
    }

    // At that time, the keys of the store are replaced.
    for edge in &mut edges {
        edge.machine.kill();
    }
    site.etcd.freeze(0, false);
    edges.iter_mut().for_each(|it| it.machine.start());
    soon("they have new keys", || {
        let session = edges[0].session(&site, "-tls1_3");
        edges[1].resumes("-tls1_3", &session)
    });
    assert!(edges.iter().all(|it| !it.resumes("-tls1_3", &sessions[1])));
    let printed = edges.iter().map(|it| it.machine.process().printed()).collect::<String>();
    let rotated = printed.matches("session tickets were rotated").count();
    // None if the answer to the write was lost, which a later look finds.
    assert!(rotated <= 1, "{printed}");
}
