//! `[pool.discover.file]`.

use std::fs::File;
use std::process::Command;
use std::time::{Duration, Instant};

use equipoise_testkit::{Answer, Client, Gate, HttpBackend, Step, UdpPort, eventually};

use crate::bed::Instance;
use crate::common::dns::{A, addresses, ask};
use crate::common::{Folder, Load, Process, get_unix};

fn list(backends: &[&HttpBackend]) -> String {
    let all: Vec<_> = backends.iter().map(|it| format!("\"{}\"", it.address())).collect();
    format!("{{\"backends\": [{}]}}", all.join(", "))
}

fn start(test: &str, content: &str, more: &str) -> Instance {
    let folder = Folder::new(test);
    folder.write("web.json", content);
    let pool =
        format!("[pool.discover]\n{more}\n[pool.discover.file]\npath = '{{folder}}/web.json'");
    Instance::start(test, folder, &pool)
}

#[test]
fn a_changed_file_updates_backends_and_keeps_connections_and_state() {
    let (a, b) = (HttpBackend::named("a"), HttpBackend::named("b"));
    let (at_a, at_b) = (a.address().to_string(), b.address().to_string());
    let instance = start("files-follow", &list(&[&a]), "");
    assert_eq!(instance.ask(), (200, "a".into()), "it is there when the process is ready");
    instance.folder.write("web.json", &list(&[&a, &b]));
    instance.has(&[&at_a, &at_b]);
    for _ in 0..10 {
        assert_eq!(instance.ask().0, 200);
    }
    assert!(b.wait(|received| !received.is_empty()), "it gets requests");
    assert!(a.counts().accepted <= 2, "one pooled connection for each thread");
    instance.done(&["drain", &format!("web/{at_a}")]);
    let with_weight = format!(
        "{{\"backends\": [\"{at_a}\", {{\"address\": \"{at_b}\", \"name\": \"bee\", \"weight\": 7}}]}}"
    );
    instance.folder.write("web.json", &with_weight);
    let renamed =
        || instance.pool()["backends"].as_array().unwrap().iter().any(|it| it["name"] == "bee");
    assert!(eventually(renamed), "{:#}", instance.pool());
    let pool = instance.pool();
    let of = |address: &str| {
        let all = pool["backends"].as_array().unwrap().clone();
        all.into_iter().find(|it| it["address"] == address).unwrap()
    };
    assert_eq!(of(&at_a)["admin"], "drain", "the operator's state stays");
    assert_eq!(of(&at_b)["weight"], 7);
    assert!(of(&at_b)["requests_total"].as_u64() > Some(0), "and so do counters: {pool:#}");
    instance.folder.write("web.json", &list(&[&b]));
    instance.has(&[&at_b]);
    let shown = instance.done(&["status"]);
    assert!(shown.contains("pool web: 1 backend from file "), "{shown}");
}

#[test]
fn a_request_at_a_backend_that_leaves_the_file_is_finished_and_no_request_fails() {
    let (arrived, gate) = (Gate::new(), Gate::new());
    let slow = {
        let (arrived, gate) = (arrived.clone(), gate.clone());
        HttpBackend::start(move |_| {
            Answer::ok("slow").first(Step::Wait(gate.clone())).first(Step::Open(arrived.clone()))
        })
    };
    let fast = HttpBackend::named("fast");
    let instance = start("files-drain", &list(&[&slow]), "");
    let mut client = Client::connect(instance.door.address());
    client.send("GET / HTTP/1.1\r\nHost: localhost\r\n\r\n");
    arrived.wait();
    instance.folder.write("web.json", &list(&[&fast]));
    instance.has(&[&fast.address().to_string()]);
    let load = Load::start(instance.door.address(), 2);
    load.wait_for(100);
    gate.open();
    let response = client.response().unwrap();
    assert_eq!((response.status(), response.text()), (200, "slow".into()));
    let second = HttpBackend::named("second");
    for _ in 0..3 {
        instance.folder.write("web.json", &list(&[&fast, &second]));
        instance.has(&[&fast.address().to_string(), &second.address().to_string()]);
        instance.folder.write("web.json", &list(&[&second]));
        instance.has(&[&second.address().to_string()]);
        instance.folder.write("web.json", &list(&[&fast]));
        instance.has(&[&fast.address().to_string()]);
    }
    let (_, failed) = load.finish();
    assert_eq!(failed, [] as [String; 0]);
}

#[test]
fn an_unusable_file_keeps_the_last_backends_and_status_shows_why() {
    let a = HttpBackend::named("a");
    let instance = start("files-broken", &list(&[&a]), "");
    let path = instance.folder.path("web.json");
    let is_kept = |part: &str| {
        instance.has_problem(part);
        assert_eq!(instance.ask(), (200, "a".into()), "{part}");
    };
    instance.folder.write("web.json", "{\"backends\": [");
    is_kept("not JSON: EOF while parsing");
    instance.folder.write("web.json", "{\"backends\": [\"10.0.0.1\"]}");
    is_kept("backends[0]: \"10.0.0.1\" is not a backend's address");
    instance.folder.write("web.json", "{\"backends\": []}");
    is_kept("the source reports no backend");
    std::fs::remove_file(&path).unwrap();
    is_kept("cannot be read: No such file");
    assert!(Command::new("mkfifo").arg(&path).status().unwrap().success());
    is_kept("a FIFO; accepted: a regular file");
    std::fs::remove_file(&path).unwrap();
    File::create(&path).unwrap().set_len(1 << 40).unwrap();
    is_kept("larger than 4 MiB");
    std::fs::write(&path, b"\xff\xfe").unwrap();
    is_kept("not UTF-8");
    let many: Vec<_> =
        (0..1001).map(|at| format!("\"10.0.{}.{}:80\"", at / 250, at % 250)).collect();
    instance.folder.write("web.json", &format!("{{\"backends\": [{}]}}", many.join(",")));
    is_kept("1001 backends, and `backends-max` is 1000");
    let pool = instance.pool();
    assert!(pool["source"]["failures_total"].as_u64() > Some(5), "{pool:#}");
    let shown = instance.done(&["status"]);
    assert!(shown.contains("pool web: 1 backend from file "), "{shown}");
    assert!(shown.contains(" ago: 1001 backends"), "{shown}");
    instance.process.wait_for_text("is not used, and the last 1 backend stay");
    instance.folder.write("web.json", &list(&[&a]));
    instance.has_no_problem();
}

#[test]
fn a_file_is_not_read_while_it_is_being_written() {
    let (a, b) = (HttpBackend::named("a"), HttpBackend::named("b"));
    let folder = Folder::new("files-rest");
    let both = format!(
        "[[backends]]\naddress = '{}'\n[[backends]]\naddress = '{}'\n",
        a.address(),
        b.address()
    );
    folder.write("web.toml", &both);
    let pool = "discover = { file = { path = '{folder}/web.toml' } }";
    let instance = Instance::start("files-rest", folder, pool);
    instance.has(&[&a.address().to_string(), &b.address().to_string()]);
    // The first half is valid, and has fewer backends.
    let half = both.rfind("[[backends]]").unwrap();
    let path = instance.folder.path("web.toml");
    let begun = Instant::now();
    while begun.elapsed() < Duration::from_secs(3) {
        std::fs::write(&path, &both[..half]).unwrap();
        std::fs::write(&path, &both).unwrap();
    }
    let pool = instance.pool();
    assert_eq!(
        (&pool["source"]["changes_total"], pool["backends"].as_array().unwrap().len()),
        (&1.into(), 2)
    );
}

#[test]
fn an_empty_list_is_applied_if_empty_after_is_zero() {
    let a = HttpBackend::named("a");
    let instance = start("files-empty", &list(&[&a]), "empty-after = '0s'");
    assert_eq!(instance.ask(), (200, "a".into()));
    instance.folder.write("web.json", "{\"backends\": []}");
    instance.has(&[]);
    assert_eq!(instance.ask().0, 503);
    instance.folder.write("web.json", &list(&[&a]));
    instance.has(&[&a.address().to_string()]);
    assert_eq!(instance.ask(), (200, "a".into()));
}

#[test]
fn a_reload_changes_the_source_and_keeps_the_set_while_the_new_one_fails() {
    let (a, b) = (HttpBackend::named("a"), HttpBackend::named("b"));
    let instance = start("files-reload", &list(&[&a]), "");
    let config = std::fs::read_to_string(&instance.file).unwrap();
    instance.folder.write("equipoise.toml", &config.replace("web.json", "other.json"));
    instance.done(&["reload"]);
    assert_eq!(instance.ask(), (200, "a".into()));
    instance.has_problem("No such file");
    let groups = format!(
        "[{{\"targets\": [\"{}\"], \"labels\": {{\"zone\": \"a\"}}}}, {{\"targets\": [\"{}\"]}}]",
        a.address(),
        b.address()
    );
    instance.folder.write("other.json", &groups);
    instance.has(&[&a.address().to_string(), &b.address().to_string()]);
    let selected = config.replace("web.json", "other.json");
    let selected = selected.replace("[pool.discover]", "[pool.discover]\nlabels = 'zone=a'");
    instance.folder.write("equipoise.toml", &selected);
    instance.done(&["reload"]);
    instance.has(&[&a.address().to_string()]);
    // Without a source, the pool has the listed backends.
    let end = config.find("[pool.discover]").unwrap();
    let listed = format!("{}backends = ['{}']", &config[..end], b.address());
    instance.folder.write("equipoise.toml", &listed);
    instance.done(&["reload"]);
    instance.has(&[&b.address().to_string()]);
    assert_eq!(instance.pool()["source"], serde_json::Value::Null);
    // An error in the file changes nothing.
    instance.folder.write("equipoise.toml", &config.replace("web.json", "web.json'\nwrong = '"));
    assert!(!instance.command(&["reload"]).0);
    assert_eq!(instance.ask(), (200, "b".into()));
}

#[test]
fn the_next_process_begins_with_the_last_set_if_its_source_is_down() {
    let a = HttpBackend::named("a");
    let Instance { mut process, folder, file, door } = start("files-restart", &list(&[&a]), "");
    let saved = folder.path("state/files-restart/discovered.json");
    let is_saved = || std::fs::read_to_string(&saved).is_ok_and(|it| it.contains("127.0.0.1"));
    assert!(eventually(is_saved), "{}", saved.display());
    process.signal(libc::SIGTERM);
    assert!(process.ended().success());
    std::fs::remove_file(folder.path("web.json")).unwrap();
    let process = Process::start(&["run", file.to_str().unwrap()]);
    process.wait_for_text(" ready ");
    let instance = Instance { process, folder, file, door };
    assert_eq!(instance.ask(), (200, "a".into()));
    instance.has_problem("No such file");
    assert!(instance.pool()["source"]["age_seconds"].as_f64() >= Some(0.0));
    let b = HttpBackend::named("b");
    instance.folder.write("web.json", &list(&[&b]));
    instance.has(&[&b.address().to_string()]);
}

#[test]
fn a_name_of_the_dns_level_has_the_backends_of_the_source() {
    let server = UdpPort::reserve();
    let listen = server.address();
    let folder = Folder::new("files-dns");
    folder.write("web.json", r#"{"backends": ["192.0.2.1:80"]}"#);
    let pool = format!(
        "[pool.discover]\nbackends-max = 50\n[pool.discover.file]\npath = '{{folder}}/web.json'\n\
         [[dns]]\nzone = 'disc.test.'\nlisten = '{listen}'\nns = ['ns.other.example.']\nnames = [{{ name = 'www', pool = 'web', mode = 'ordered' }}]"
    );
    let instance = Instance::start("files-dns", folder, &pool);
    let has = |wanted: &[u8]| {
        let answer = ask(listen, "www.disc.test", A);
        let mut found: Vec<_> = addresses(&answer).0.iter().map(|it| it[3]).collect();
        found.sort_unstable();
        found == wanted
    };
    assert!(eventually(|| has(&[1])), "{}", instance.process.printed());
    instance.folder.write("web.json", r#"{"backends": ["192.0.2.1:80", "192.0.2.7:80"]}"#);
    assert!(eventually(|| has(&[1, 7])), "{}", instance.process.printed());
    instance.folder.write("web.json", r#"{"backends": ["192.0.2.7:80"]}"#);
    assert!(eventually(|| has(&[7])), "{}", instance.process.printed());
}

#[test]
fn a_host_name_in_a_list_is_resolved() {
    let a = HttpBackend::named("a");
    let port = a.address().port();
    let content = format!("{{\"backends\": [\"localhost:{port}\"]}}");
    let instance = start("files-host", "{\"backends\": []}", "");
    assert_eq!(instance.ask().0, 503, "a source that begins empty gives nothing");
    instance.folder.write("web.json", &content);
    instance.has(&[&format!("localhost:{port}")]);
    assert!(eventually(|| instance.ask() == (200, "a".into())), "{:#}", instance.pool());
    let metrics = get_unix(&instance.folder.path("api.sock"), "/metrics");
    for line in [
        "equipoise_source_backends{pool=\"web\"} 1",
        "equipoise_source_good{pool=\"web\"} 1",
        "equipoise_source_changes_total{pool=\"web\"} 1",
        "equipoise_source_age_seconds{pool=\"web\"} ",
    ] {
        assert!(metrics.contains(line), "{line}\n{metrics}");
    }
}
