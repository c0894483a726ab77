//! `equipoise import --try` beside HAProxy and nginx, and beside a server that plays the old proxy.

mod common;

use std::fs::Permissions;
use std::net::SocketAddr;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::{Command, Output};

use common::certificates::Certificates;
use common::peer::{Peer, spawn};
use common::{EQUIPOISE, Folder, Process, get_unix, stderr, stdout, text};
use equipoise_testkit::{Answer, Gate, HttpBackend, Step, eventually, free_port};
use rcgen::{CertificateParams, KeyPair};
use serde_json::Value;

/// HAProxy with these sections; `None` where it is not installed.
fn haproxy(folder: &Folder, sections: &str, listens: SocketAddr) -> Option<Peer> {
    let program = installed("/usr/sbin/haproxy")?;
    let file = folder.write("old.cfg", &configured(sections));
    Some(spawn(Command::new(program).args(["-db", "-f", text(&file)]), listens))
}

fn configured(sections: &str) -> String {
    format!(
        "defaults\n  mode http\n  timeout client 10s\n  timeout server 10s\n  timeout connect 5s\n{sections}"
    )
}

fn installed(program: &str) -> Option<&str> {
    let is_there = Path::new(program).exists();
    if !is_there {
        println!("skipped: there is no {program}");
    }
    is_there.then_some(program)
}

/// The command, with its temporary folders in that of the test.
fn command(folder: &Folder, file: &Path) -> Command {
    let mut command = Command::new(EQUIPOISE);
    command.args(["import", text(file), "--try"]).env("XDG_RUNTIME_DIR", folder.root());
    command
}

fn trial(folder: &Folder, file: &Path, more: &[&str]) -> Output {
    let output = command(folder, file).args(more).output().expect("the binary runs");
    assert!(folders(folder).is_empty(), "nothing is left: {}", stderr(&output));
    output
}

/// The folders of trials.
fn folders(folder: &Folder) -> Vec<String> {
    let all = std::fs::read_dir(folder.root()).expect("it is there").flatten();
    let names = all.map(|it| it.file_name().to_string_lossy().into_owned());
    names.filter(|it| it.starts_with("equipoise-try-")).collect()
}

fn json(output: &Output) -> Value {
    serde_json::from_str(&stdout(output))
        .unwrap_or_else(|_| panic!("{}{}", stdout(output), stderr(output)))
}

/// Request and result of each answer.
fn results(trial: &Value) -> Vec<(&str, &str)> {
    let all = trial["answers"].as_array().expect("a list").iter();
    let part = |it: &'_ Value, key: &str| -> &'static str {
        it[key].as_str().expect("a text").to_string().leak()
    };
    all.map(|it| (part(it, "request"), part(it, "result"))).collect()
}

/// The lines that are not carried or change behaviour.
fn changed(found: &Value) -> Vec<&str> {
    let lines = found["lines"].as_array().expect("a list").iter();
    let mut all: Vec<_> = lines
        .filter(|it| !it["why"].is_null())
        .map(|it| it["text"].as_str().expect("a text"))
        .collect();
    all.sort_unstable();
    all
}

/// A backend that answers with its name and the target of the request.
fn path_backend(name: &'static str) -> HttpBackend {
    HttpBackend::start(move |request| Answer::ok(format!("{name} {}", request.head.target())))
}

#[test]
fn answers_of_haproxy_and_of_its_translation_are_the_same() {
    let folder = Folder::new("try-haproxy");
    let certificates = Certificates::new("try-haproxy-certificates");
    let (key, params) = (KeyPair::generate().expect("a key"), ["www.example.org".to_string()]);
    let params = CertificateParams::new(params).expect("a name");
    let signed = params.signed_by(&key, &certificates.authority).expect("a certificate");
    let pem = folder.write("site.pem", &format!("{}{}", signed.pem(), key.serialize_pem()));
    std::fs::set_permissions(&pem, Permissions::from_mode(0o600)).expect("the file is ours");
    let (web, canary) = (path_backend("web"), path_backend("canary"));
    let (clear, tls, tcp) = (free_port(), free_port(), free_port());
    let sections = format!(
        "frontend site\n  bind {}\n  bind {} ssl crt {}\n\
         \x20 acl is_canary hdr(X-Canary) -m found\n  acl is_api path_beg /api/ /v1.0\n  acl is_old path_beg /old/\n\
         \x20 acl is_help path /help\n  acl is_help path_beg /help/\n\
         \x20 http-request redirect location https://www.example.org/new code 301 if is_old\n\
         \x20 http-request deny deny_status 403 if {{ path_beg -i /secret }}\n\
         \x20 http-response set-header X-Frame-Options DENY\n  http-after-response set-header X-Site 1\n\
         \x20 use_backend canary if is_canary\n  use_backend canary if is_api or is_help\n  default_backend web\n\
         backend web\n  option httpchk GET /healthz\n  server a {} check\n\
         backend canary\n  http-request deny if {{ path_beg /api/private/ }}\n  http-request replace-path /api/(.*) /\\1\n\
         \x20 http-response set-header X-Canary 1\n  server b {}\n\
         listen raw\n  mode tcp\n  bind {}\n  server a {}\n",
        clear.address(),
        tls.address(),
        text(&pem),
        web.address(),
        canary.address(),
        tcp.address(),
        web.address(),
    );
    let Some(_old) = haproxy(&folder, &sections, clear.address()) else { return };
    let file = folder.write("haproxy.cfg", &configured(&sections));
    let output = trial(&folder, &file, &["--json"]);
    let found = json(&output);
    let all = results(&found["trial"]);
    assert!(all.iter().all(|it| it.1 == "same"), "{found:#}");
    for request in [
        "GET localhost/",
        "GET localhost/ X-Canary: 1",
        "GET localhost/old/",
        "GET localhost/old/try",
        "GET localhost/old",
        "GET localhost/api/",
        "GET localhost/api/try",
        "GET localhost/api",
        "GET localhost/api/private/try",
        "GET localhost/v1.0try",
        "GET localhost/help",
        "GET localhost/help/try",
        "GET localhost/secret",
        "GET www.example.org/",
        "connection",
    ] {
        assert!(all.iter().any(|it| it.0 == request), "{request}: {all:?}");
    }
    let summary = format!("{0} of {0} requests have the same answer", all.len());
    assert_eq!(found["trial"]["summary"], summary.as_str());
    assert_eq!(
        changed(&found),
        ["http-response set-header X-Canary 1", "http-response set-header X-Frame-Options DENY"]
    );
    assert_eq!(output.status.code(), Some(2), "{found:#}");
    assert!(web.requests().iter().all(|it| ["GET", "HEAD"].contains(&it.head.method())));
}

#[test]
fn a_rule_that_is_not_carried_shows_as_another_answer() {
    let folder = Folder::new("try-difference");
    let (web, door) = (HttpBackend::named("web"), free_port());
    let sections = format!(
        "userlist staff\n  user ann insecure-password secret\n\
         frontend site\n  bind {}\n  http-request auth realm Staff if !{{ http_auth(staff) }}\n\
         \x20 http-request redirect location /new if {{ path /old }}\n  default_backend web\n\
         backend web\n  server a {}\n",
        door.address(),
        web.address()
    );
    let Some(_old) = haproxy(&folder, &sections, door.address()) else { return };
    let file = folder.write("haproxy.cfg", &configured(&sections));
    let output = trial(&folder, &file, &[]);
    let (page, lines) = (stdout(&output), stderr(&output));
    assert_eq!(output.status.code(), Some(2), "{page}{lines}");
    let first = page.lines().nth(1).expect("a row");
    assert!(first.starts_with("GET localhost/ ") && first.contains("differs: "), "{page}");
    assert!(page.contains("result: old 401, new 200"), "{page}");
    assert!(page.ends_with("0 of 2 requests have the same answer, 2 have another\n"), "{page}");
    assert!(lines.contains("http-request auth"), "the line is named: {lines}");
}

#[test]
fn answers_of_nginx_and_of_its_translation_are_the_same() {
    let folder = Folder::new("try-nginx");
    let (a, b, door) = (path_backend("a"), path_backend("b"), free_port());
    let root = text(folder.root()).to_string();
    let paths: String = ["client_body", "proxy", "fastcgi", "uwsgi", "scgi"]
        .iter()
        .map(|name| format!("{name}_temp_path {root}/{name};\n"))
        .collect();
    let http = format!(
        "upstream web {{ server {}; server {}; }}\n\
         server {{\n  listen {door};\n  server_name www.example.org;\n\
         \x20 add_header X-All 1 always;\n\
         \x20 location /old/ {{ return 301 https://www.example.org/new/; }}\n\
         \x20 location /start/ {{ return 302 /home$is_args$args; add_header X-B 1; }}\n\
         \x20 location /ab {{ proxy_pass http://web; }}\n\
         \x20 location /api/ {{ proxy_pass http://web/v1/; proxy_set_header Host $host; }}\n\
         \x20 location /my-app/ {{ proxy_pass http://web; location /my-app/v1.0/ {{ proxy_pass http://web/one/; }} }}\n\
         \x20 location /gone/ {{ return 410; add_header X-C 1; }}\n\
         \x20 location ^~ /shut/ {{ deny all; proxy_pass http://web; add_header X-D 1; }}\n\
         \x20 location /shut/open/ {{ proxy_pass http://web; allow all; }}\n\
         \x20 location ~ \\.php$ {{ return 403; }}\n\
         \x20 location / {{ proxy_pass http://web; proxy_set_header Host $host; add_header X-A 1; }}\n}}\n\
         server {{\n  listen {door} default_server;\n  server_name _;\n  location / {{ return 404; }}\n}}\n",
        a.address(),
        b.address(),
        door = door.address(),
    );
    let Some(program) = installed("/usr/sbin/nginx") else { return };
    let old = format!(
        "daemon off; master_process off; pid {root}/nginx.pid; error_log {root}/nginx.log;\n\
         events {{ }}\nhttp {{\naccess_log off;\n{paths}{http}}}\n"
    );
    let old = folder.write("old.conf", &old);
    let _old =
        spawn(Command::new(program).args(["-c", text(&old), "-e", "stderr"]), door.address());
    let file = folder.write("nginx.conf", &format!("events {{ }}\nhttp {{\n{http}}}\n"));
    let output = trial(&folder, &file, &["--json"]);
    let found = json(&output);
    let all = results(&found["trial"]);
    // Two backends answer in turn.
    assert!(all.iter().all(|it| it.1 == "same"), "{found:#}");
    for request in [
        "GET www.example.org/old",
        "GET www.example.org/old/try",
        "GET www.example.org/start/",
        "GET www.example.org/abtry",
        "GET www.example.org/api",
        "GET www.example.org/api/try",
        "GET www.example.org/my-app",
        "GET www.example.org/my-app/v1.0",
        "GET www.example.org/my-app/v1.0/try",
        "GET www.example.org/gone/",
        "GET www.example.org/shut",
        "GET www.example.org/shut/open/try",
        "GET www.example.org/",
        "GET other-host.invalid/",
    ] {
        assert!(all.iter().any(|it| it.0 == request), "{request}: {all:?}");
    }
}

#[test]
fn an_old_proxy_that_does_not_listen_is_no_difference() {
    let folder = Folder::new("try-absent");
    let (web, absent, present) =
        (HttpBackend::named("web"), free_port(), HttpBackend::named("web"));
    let sections = format!(
        "frontend gone\n  bind {}\n  default_backend web\n\
         frontend there\n  bind {}\n  default_backend web\nbackend web\n  server a {}\n",
        absent.address(),
        present.address(),
        web.address()
    );
    let file = folder.write("haproxy.cfg", &configured(&sections));
    let output = trial(&folder, &file, &[]);
    let page = stdout(&output);
    assert_eq!(output.status.code(), Some(2), "{page}{}", stderr(&output));
    let advice = format!("nothing listens at {}: start the old proxy", absent.address());
    assert!(page.contains(&advice), "{page}");
    let summary = "1 of 1 requests have the same answer, 1 were not asked\n";
    assert!(page.ends_with(summary), "{page}");
}

#[test]
fn parts_of_the_packet_level_are_named_as_not_tried() {
    let folder = Folder::new("try-packet");
    let rules = "-A -t 192.0.2.10:443 -s wlc\n-a -t 192.0.2.10:443 -r 10.0.0.11:443 -g -w 1\n";
    let file = folder.write("services.ipvs", rules);
    let output = trial(&folder, &file, &[]);
    let page = stdout(&output);
    assert_eq!(
        page,
        "not tried: VIP 192.0.2.10:443/tcp: the packets of clients reach one balancer\n\
         nothing of it can be tried\n"
    );
    assert_eq!(output.status.code(), Some(2));
}

#[test]
fn a_translation_that_cannot_be_used_is_not_started() {
    let folder = Folder::new("try-unusable");
    let old = HttpBackend::named("old");
    let sections = format!(
        "frontend site\n  bind {} ssl crt /nowhere/site.pem\n  default_backend web\n\
         backend web\n  server a 127.0.0.1:9\n",
        old.address()
    );
    let file = folder.write("haproxy.cfg", &configured(&sections));
    let output = trial(&folder, &file, &[]);
    assert_eq!(output.status.code(), Some(1), "{}", stdout(&output));
    assert!(stderr(&output).ends_with("not tried: the translation cannot be used as it is\n"));
    assert_eq!((stdout(&output).as_str(), old.counts().accepted), ("", 0));
}

/// However the command ends, its process does; the folder stays after SIGKILL alone.
#[test]
fn a_signal_ends_the_process_of_the_trial_and_removes_its_folder() {
    for signal in [libc::SIGINT, libc::SIGTERM, libc::SIGHUP, libc::SIGKILL] {
        let folder = Folder::new("try-signal");
        let gate = Gate::new();
        let held = gate.clone();
        // The old proxy, which answers no request while the gate is closed.
        let old = HttpBackend::start(move |_| Answer::ok("").first(Step::Wait(held.clone())));
        let sections = format!(
            "frontend site\n  bind {}\n  default_backend web\nbackend web\n  server a 127.0.0.1:9\n",
            old.address()
        );
        let file = folder.write("haproxy.cfg", &configured(&sections));
        let mut process = Process::of(command(&folder, &file));
        assert!(old.wait(|received| !received.is_empty()), "{}", process.printed());
        let [trial] = &folders(&folder)[..] else { panic!("one folder") };
        let socket = folder.path(trial).join("api.sock");
        let status = get_unix(&socket, "/v1/status");
        let (_, body) = status.split_once("\r\n\r\n").expect("a body");
        let status: Value = serde_json::from_str(body).expect("JSON");
        let pid = status["pid"].as_u64().expect("a number");
        process.signal(signal);
        process.ended();
        let is_gone = || !Path::new(&format!("/proc/{pid}")).exists();
        assert!(eventually(is_gone), "{signal}: process {pid} runs");
        assert_eq!(folders(&folder).is_empty(), signal != libc::SIGKILL, "{signal}");
        gate.open();
    }
}
