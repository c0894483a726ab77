//! The PROXY protocol through the real binary: nginx and HAProxy as backends that require it, and
//! HAProxy in front.

mod common;

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::process::Command;

use common::certificates::Certificates;
use common::peer::{Peer, spawn};
use common::{Folder, Process, get_unix, stderr, stdout, text};
use equipoise_testkit::{ReservedPort, eventually, free_port};
use rcgen::{CertificateParams, DistinguishedName, DnType, KeyPair};

const NAME: &str = "www.example.com";

/// nginx that requires a PROXY header, and answers with the client's address in it, the number of
/// the connection and that of the request on it.
fn nginx(folder: &Folder, listens: SocketAddr, more: &str) -> Peer {
    let root = text(folder.root());
    let paths: String = ["client_body", "proxy", "fastcgi", "uwsgi", "scgi"]
        .iter()
        .map(|name| format!("{name}_temp_path {root}/{name};\n"))
        .collect();
    let config = format!(
        "daemon off; master_process off; worker_processes 1; pid {root}/nginx.pid;\n\
         error_log {root}/nginx.log;\nevents {{ }}\n\
         http {{\naccess_log off;\n{more}\n{paths}server {{\nlisten {listens} proxy_protocol;\n\
         location /healthz {{ return 200; }}\n\
         location / {{ return 200 \"$proxy_protocol_addr $connection $connection_requests $http_x_forwarded_for\"; }}\n}}\n}}\n"
    );
    let file = folder.write("nginx.conf", &config);
    spawn(Command::new("/usr/sbin/nginx").args(["-c", text(&file), "-e", "stderr"]), listens)
}

/// HAProxy with these sections.
fn haproxy(folder: &Folder, listens: SocketAddr, sections: &str) -> Peer {
    let config = format!(
        "defaults\nmode http\ntimeout client 10s\ntimeout server 10s\ntimeout connect 10s\n{sections}"
    );
    let file = folder.write("haproxy.cfg", &config);
    spawn(Command::new("/usr/sbin/haproxy").args(["-db", "-f", text(&file)]), listens)
}

/// Starts equipoise with an API socket in `folder` and these tables.
fn start(folder: &Folder, tables: &str) -> Process {
    let socket = folder.path("api.sock");
    let config =
        format!("[api]\nsocket = {socket:?}\nlisten = \"off\"\n[instance]\nthreads = 2\n{tables}");
    let file = folder.write("equipoise.toml", &config);
    let process = Process::start(&["run", text(&file)]);
    process.wait_for_text(" ready ");
    process
}

/// The answers of curl to `count` requests on one connection, from this address.
fn curl(args: &[&str], from: &str, count: usize, url: &str) -> Vec<String> {
    let mut command = Command::new("curl");
    command.args(["--silent", "--show-error", "--max-time", "60", "--interface", from]);
    command.args(["--write-out", "\n"]).args(args).args(vec![url; count]);
    let output = command.output().expect("curl runs; `make test-setup` installs it");
    assert!(output.status.success(), "{}", stderr(&output));
    stdout(&output).lines().map(str::to_string).collect()
}

#[test]
fn an_http_backend_learns_each_client_from_the_header_of_its_own_session() {
    for version in ["v1", "v2"] {
        let folder = Folder::new(&format!("proxy-http-{version}"));
        let (app, door, h2) = (free_port(), free_port(), free_port());
        let _nginx = nginx(&folder, app.address(), "");
        let _process = start(
            &folder,
            &format!(
                "[[session]]\nlisten = \"{}\"\nprotocol = \"http\"\npool = \"app\"\n\
                 [[session]]\nlisten = \"{}\"\nprotocol = \"http\"\npool = \"app\"\nhttp2 = true\n\
                 [[pool]]\nname = \"app\"\nbackends = [\"{}\"]\nsend-proxy = \"{version}\"\n\
                 health = {{ http = \"/healthz\", interval = \"200ms\", rise = 1 }}\n",
                door.address(),
                h2.address(),
                app.address()
            ),
        );
        // The checks begin with a header, too.
        let socket = folder.path("api.sock");
        let status = || get_unix(&socket, "/v1/status");
        assert!(eventually(|| status().contains("\"health\":\"healthy\"")), "{}", status());
        let url = format!("http://{}/", door.address());
        let answers = |from: &str| -> Vec<Vec<String>> {
            let words = |line: &String| line.split(' ').map(str::to_string).collect();
            curl(&[], from, 3, &url).iter().map(words).collect()
        };
        let mut connections = Vec::new();
        for client in ["127.0.0.1", "127.0.0.2", "127.0.0.1", "127.0.0.3"] {
            let all = answers(client);
            assert_eq!(all.len(), 3, "{all:?}");
            for (place, answer) in all.iter().enumerate() {
                assert_eq!(answer[0], client, "{all:?}");
                assert_eq!(answer[3], client, "{all:?}");
                // The session is used again by the same client connection, and by no other.
                assert_eq!(answer[1], all[0][1], "{all:?}");
                assert_eq!(answer[2], (place + 1).to_string(), "{all:?}");
            }
            assert!(!connections.contains(&all[0][1]), "{connections:?} {all:?}");
            connections.push(all[0][1].clone());
        }
        let url = format!("http://{}/", h2.address());
        for client in ["127.0.0.1", "127.0.0.2"] {
            // curl 7.88 does not use such a connection for a second request.
            for answer in curl(&["--http2-prior-knowledge"], client, 1, &url) {
                assert!(answer.starts_with(&format!("{client} ")), "{answer}");
            }
        }
    }
}

#[test]
fn a_session_that_its_backend_closes_or_that_is_to_another_backend_is_replaced() {
    let (one, two) = (Folder::new("proxy-moves-1"), Folder::new("proxy-moves-2"));
    let (a, b, door, both) = (free_port(), free_port(), free_port(), free_port());
    let _nginx = [
        nginx(&one, a.address(), "keepalive_requests 2;"),
        nginx(&two, b.address(), "keepalive_requests 2;"),
    ];
    let pool = |name: &str, backends: String| {
        format!(
            "[[pool]]\nname = \"{name}\"\nscheduler = \"weighted-round-robin\"\nbackends = [{backends}]\n\
             send-proxy = \"v2\"\n"
        )
    };
    let session = |port: &ReservedPort, pool: &str| {
        let listen = port.address();
        format!("[[session]]\nlisten = \"{listen}\"\nprotocol = \"http\"\npool = \"{pool}\"\n")
    };
    let _process = start(
        &one,
        &[
            session(&door, "one"),
            session(&both, "both"),
            pool("one", format!("\"{}\"", a.address())),
            pool("both", format!("\"{}\", \"{}\"", a.address(), b.address())),
        ]
        .concat(),
    );
    let url = format!("http://{}/", door.address());
    let answers = curl(&[], "127.0.0.2", 5, &url);
    let requests: Vec<_> = answers.iter().map(|answer| answer.split(' ').nth(2)).collect();
    assert_eq!(requests, ["1", "2", "1", "2", "1"].map(Some), "{answers:?}");
    let url = format!("http://{}/", both.address());
    for client in ["127.0.0.2", "127.0.0.3"] {
        let answers = curl(&[], client, 8, &url);
        assert_eq!(answers.len(), 8, "{answers:?}");
        for answer in answers {
            assert!(answer.starts_with(&format!("{client} ")), "{answer}");
        }
    }
}

/// Writes `FILE.pem` with a certificate and its key.
fn issue(by: &Certificates, file: &str, common_name: &str, name: &str) -> String {
    let key = KeyPair::generate().expect("a key");
    let mut params = CertificateParams::new(vec![name.to_string()]).expect("a name");
    params.distinguished_name = DistinguishedName::new();
    params.distinguished_name.push(DnType::CommonName, common_name);
    let certificate = params.signed_by(&key, &by.authority).expect("a certificate");
    let both = format!("{}{}", certificate.pem(), key.serialize_pem());
    let path = by.folder.write(&format!("{file}.pem"), &both);
    let mode = std::os::unix::fs::PermissionsExt::from_mode(0o600);
    std::fs::set_permissions(&path, mode).expect("it was written");
    text(&path).to_string()
}

/// Asks a front door with TLS by curl.
fn curl_tls(certificates: &Certificates, door: &ReservedPort, args: &[&str]) -> String {
    let port = door.address().port();
    let resolve = format!("{NAME}:{port}:127.0.0.1");
    let ca = certificates.path("ca.pem");
    let args = [&["--cacert", &ca, "--resolve", &resolve], args].concat();
    curl(&args, "127.0.0.1", 1, &format!("https://{NAME}:{port}/")).join("\n")
}

#[test]
fn haproxy_behind_a_tcp_front_door_receives_source_and_server_name() {
    let certificates = Certificates::new("proxy-tcp");
    let site = issue(&certificates, "site", "site", NAME);
    let (app, door) = (free_port(), free_port());
    let _haproxy = haproxy(
        &certificates.folder,
        app.address(),
        &format!(
            "frontend app\nbind {} accept-proxy\n\
             http-request return status 200 content-type text/plain lf-string \"%[src] %[fc_pp_authority]\"\n",
            app.address()
        ),
    );
    let _process = start(
        &certificates.folder,
        &format!(
            "[[session]]\nlisten = \"{}\"\nprotocol = \"tcp\"\npool = \"app\"\n\
             tls = {{ certificates = [\"{site}\"] }}\n\
             [[pool]]\nname = \"app\"\nbackends = [\"{}\"]\nsend-proxy = \"v2\"\n",
            door.address(),
            app.address()
        ),
    );
    assert_eq!(curl_tls(&certificates, &door, &[]), format!("127.0.0.1 {NAME}"));
}

#[test]
fn extensions_of_haproxy_are_logged_and_passed_on() {
    let certificates = Certificates::new("proxy-front");
    let site = issue(&certificates, "site", "site", NAME);
    let client = issue(&certificates, "client", "alice", "alice.example.com");
    let (front, tcp, http, app) = (free_port(), free_port(), free_port(), free_port());
    let ca = certificates.path("ca.pem");
    let options =
        "send-proxy-v2 proxy-v2-options ssl,cert-cn,ssl-cipher,authority,crc32c,unique-id";
    let front_http = free_port();
    let _haproxy = haproxy(
        &certificates.folder,
        front.address(),
        &format!(
            "frontend tcp\nmode tcp\nbind {} ssl crt {site} ca-file {ca} verify required\nunique-id-format id-%pid\ndefault_backend tcp\n\
             backend tcp\nmode tcp\nserver s {} {options}\n\
             frontend http\nbind {} ssl crt {site} ca-file {ca} verify required\nunique-id-format id-%pid\ndefault_backend http\n\
             backend http\nserver s {} {options}\n\
             frontend app\nbind {} accept-proxy\n\
             http-request return status 200 content-type text/plain lf-string \"%[src] %[fc_pp_authority] %[fc_pp_unique_id]\"\n",
            front.address(),
            tcp.address(),
            front_http.address(),
            http.address(),
            app.address(),
        ),
    );
    let session = |port: &ReservedPort, protocol: &str| {
        format!(
            "[[session]]\nlisten = \"{}\"\nprotocol = \"{protocol}\"\npool = \"app\"\naccept-proxy = true\n\
             trusted = \"127.0.0.1\"\naccess-log = 1.0\n",
            port.address()
        )
    };
    let process = start(
        &certificates.folder,
        &format!(
            "{}{}[[pool]]\nname = \"app\"\nbackends = [\"{}\"]\nsend-proxy = \"v2\"\n",
            session(&tcp, "tcp"),
            session(&http, "http"),
            app.address()
        ),
    );
    for (door, kind) in [(&front, "kind=connection "), (&front_http, "kind=request ")] {
        let answer = curl_tls(&certificates, door, &["--cert", &client]);
        assert!(answer.starts_with(&format!("127.0.0.1 {NAME} id-")), "{kind}{answer}");
        process.wait_for("the line of the access log", |printed| {
            let line =
                printed.lines().find(|line| line.contains(kind) && line.contains("proxy_"))?;
            for field in [
                format!("proxy_authority=\"{NAME}\""),
                "proxy_tls_version=\"TLSv1.3\"".into(),
                "proxy_tls_cipher=\"TLS_A".into(),
                "proxy_tls_client=\"alice\"".into(),
                "proxy_unique_id=\"id-".into(),
            ] {
                assert!(line.contains(&field), "{line}\nlacks {field}");
            }
            Some(())
        });
    }
}

#[test]
fn a_wrong_checksum_is_refused_and_counted() {
    let folder = Folder::new("proxy-checksum");
    let door = free_port();
    let _process = start(
        &folder,
        &format!(
            "[[session]]\nname = \"door\"\nlisten = \"{}\"\nprotocol = \"http\"\npool = \"app\"\naccept-proxy = true\n\
             trusted = \"127.0.0.1\"\n[[pool]]\nname = \"app\"\nbackends = [\"127.0.0.1:9\"]\n",
            door.address()
        ),
    );
    let mut client = TcpStream::connect(door.address()).expect("it listens");
    let mut header = b"\r\n\r\n\0\r\nQUIT\n\x21\x11\0\x13".to_vec();
    header.extend([192, 0, 2, 1, 192, 0, 2, 2, 0, 1, 0, 2, 3, 0, 4, 1, 2, 3, 4]);
    client.write_all(&header).expect("it reads");
    let mut answer = Vec::new();
    let read = client.read_to_end(&mut answer);
    assert!(read.is_err() && answer.is_empty(), "it is reset: {read:?} {answer:?}");
    let socket = folder.path("api.sock");
    let status = || get_unix(&socket, "/v1/status");
    assert!(eventually(|| status().contains("\"proxy_header\":1")), "{}", status());
}
