//! `equipoise run` and the commands for it, through the real binary.

mod common;
#[path = "operate/reloads.rs"]
mod reloads;
#[path = "operate/start_and_stop.rs"]
mod start_and_stop;
#[path = "operate/status.rs"]
mod status;

use std::net::SocketAddr;
use std::path::PathBuf;

use common::{Folder, Load, Process, equipoise, get, kill, stderr, stdout, text};
use equipoise_testkit::{
    Answer, Client, Gate, HttpBackend, ReservedPort, Step, eventually, free_port,
};

/// A running equipoise with one HTTP front door.
struct Instance {
    process: Process,
    folder: Folder,
    file: PathBuf,
    socket: PathBuf,
    door: ReservedPort,
    api: ReservedPort,
}

impl Instance {
    /// Starts an instance. `pool` follows the pool's name in the file.
    fn start(test: &str, pool: &str) -> Instance {
        let (folder, door, api) = (Folder::new(test), free_port(), free_port());
        let socket = folder.path("api.sock");
        let head = head(&folder, &api);
        let file = folder.write("equipoise.toml", &config(&head, door.address(), pool));
        let process = Process::start(&["run", text(&file)]);
        process.wait_for_text(" ready ");
        Instance { process, folder, file, socket, door, api }
    }

    fn rewrite(&self, pool: &str) {
        let head = head(&self.folder, &self.api);
        self.folder.write("equipoise.toml", &config(&head, self.door.address(), pool));
    }

    /// Runs a command over the unix socket. Returns whether it succeeded, and its output.
    fn command(&self, args: &[&str]) -> (bool, String) {
        let args = [args, &["--api", text(&self.socket)]].concat();
        let output = equipoise(&args);
        (output.status.success(), stdout(&output) + &stderr(&output))
    }

    fn who(&self) -> String {
        get(self.door.address(), "/").text()
    }
}

fn head(folder: &Folder, api: &ReservedPort) -> String {
    format!(
        "[api]\nsocket = \"{}\"\nlisten = \"{}\"\n[instance]\nname = \"under-test\"\nthreads = 2\n",
        folder.path("api.sock").display(),
        api.address()
    )
}

fn config(head: &str, door: SocketAddr, pool: &str) -> String {
    format!(
        "{head}\n[[session]]\nlisten = \"{door}\"\nprotocol = \"http\"\npool = \"web\"\n\
         \n[[pool]]\nname = \"web\"\n{pool}\n"
    )
}

fn backends(all: &[(&str, &HttpBackend)]) -> String {
    let one = |(name, backend): &(&str, &HttpBackend)| {
        format!("{{ name = \"{name}\", address = \"{}\" }}", backend.address())
    };
    format!("backends = [{}]", all.iter().map(one).collect::<Vec<_>>().join(", "))
}

#[test]
fn a_backend_is_drained_weighted_disabled_and_enabled_by_command() {
    let (a, b) = (HttpBackend::named("a"), HttpBackend::named("b"));
    let instance = Instance::start("admin", &backends(&[("a", &a), ("b", &b)]));
    for (undo, action, state) in [
        ("undrain", "drain", "drained"),
        ("enable", "disable", "down"),
        ("weight", "weight", "drained"),
    ] {
        let arguments = |word: &'static str, number: &'static str| {
            let mut arguments = vec![word, "web/a"];
            if word == "weight" {
                arguments.push(number);
            }
            arguments
        };
        let (worked, said) = instance.command(&arguments(action, "0"));
        assert!(worked && said.contains(&format!("web/a: {state}")), "{said}");
        for _ in 0..10 {
            assert_eq!(instance.who(), "b");
        }
        let (worked, said) = instance.command(&arguments(undo, "1"));
        assert!(worked && said.contains("web/a: up, weight 1"), "{said}");
        assert!(eventually(|| instance.who() == "a"));
    }
    let (worked, said) = instance.command(&["drain", "web/c"]);
    assert!(!worked && said.contains("pool `web` has no backend `c`"), "{said}");
    let (worked, said) = instance.command(&["drain", "nothere"]);
    assert!(!worked && said.contains("a backend is named POOL/BACKEND"), "{said}");
    let (worked, said) = instance.command(&["weight", "nothere", "1"]);
    assert!(!worked && said.contains("a backend is named POOL/BACKEND"), "{said}");
    for command in [
        &["drain", "a"][..],
        &["drain", "a", "--wait"],
        &["undrain", "a"],
        &["disable", "a"],
        &["weight", "a", "1"],
        &["backend", "set", "a", "--weight", "1"],
        &["backend", "remove", "a"],
    ] {
        let (worked, said) = instance.command(command);
        assert!(!worked && said.contains("did you mean `web/a`?"), "{command:?}: {said}");
    }
}

#[test]
fn application_errors_do_not_eject_a_backend_with_passing_checks() {
    let failing_if_asked = || {
        HttpBackend::start(|request| match request.head.target() {
            "/?c=503" => Answer::sized(503, ""),
            _ => Answer::ok("well"),
        })
    };
    let (a, b) = (failing_if_asked(), failing_if_asked());
    let pool = backends(&[("a", &a), ("b", &b)])
        + "\nscheduler = \"round-robin\"\nhealth = { http = \"/\", interval = \"100ms\", timeout = \"1m\" }";
    let instance = Instance::start("errors", &pool);
    let status_of = |path| get(instance.door.address(), path).status();
    for _ in 0..40 {
        assert_eq!(status_of("/?c=503"), 503);
    }
    let states = || {
        let (_, json) = instance.command(&["status", "--json"]);
        let json: serde_json::Value = serde_json::from_str(&json).expect("it is JSON");
        [0, 1].map(|at| json["pools"][0]["backends"][at]["state"].as_str() == Some("up"))
    };
    assert_eq!(states(), [true; 2]);
    assert!(!instance.process.printed().contains("is ejected"), "{}", instance.process.printed());

    // If listed, these statuses eject; passing checks end the ejection long before its own time.
    instance.rewrite(&(pool + "\npassive = { statuses = \"500-503\", ejection = \"5m\" }"));
    assert!(instance.command(&["reload"]).0);
    let printed = |text| instance.process.printed().contains(text);
    assert!(eventually(|| {
        status_of("/?c=503");
        printed("is ejected for 300s: it failed 5 times in a row, the last time with backend_error")
    }));
    instance.process.wait_for_text("is back before its ejection is over: its active check passed");
    assert!(eventually(|| states() == [true; 2]));
}

#[test]
fn a_backend_that_answers_head_with_a_body_loses_multiplexing_until_it_is_undrained() {
    let other = "HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\nEVIL";
    let with_body = format!("HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n{other}", other.len());
    let backend = HttpBackend::start(move |request| match request.head.method() {
        "HEAD" => Answer::raw(&with_body),
        _ => Answer::ok("mine"),
    });
    let pool = backends(&[("a", &backend)]) + "\nupstream = \"multiplexed\"";
    let instance = Instance::start("surplus", &pool);
    let status = || instance.command(&["status"]).1;
    let lost = "web/a: not multiplexed after 1 responses with ambiguous framing";
    assert!(instance.who() == "mine" && !status().contains("not multiplexed"), "{}", status());
    let head = Client::exchange(instance.door.address(), "HEAD / HTTP/1.1\r\nHost: a\r\n\r\n");
    assert_eq!(head.map(|response| response.status()), Ok(200));
    assert!(eventually(|| status().contains(lost)), "{}", status());
    for _ in 0..20 {
        assert_eq!(instance.who(), "mine");
    }
    assert!(instance.command(&["undrain", "web/a"]).0);
    assert!(!status().contains("not multiplexed"), "{}", status());
    let metrics = get(instance.api.address(), "/metrics").text();
    let counted = "equipoise_backend_multiplex_faults_total{pool=\"web\",backend=\"a\"} 1\n";
    assert!(metrics.contains(counted), "{metrics}");
}

#[test]
fn a_backup_serves_only_while_the_other_backend_does_not() {
    let (a, b) = (HttpBackend::named("a"), HttpBackend::named("b"));
    let backup = format!("{{ name = \"b\", address = \"{}\", backup = true }}", b.address());
    let pool = backends(&[("a", &a)]).replace(']', &format!(", {backup}]"));
    let instance = Instance::start("backup", &pool);
    let state_of_b = || {
        let (_, json) = instance.command(&["status", "--json"]);
        let json: serde_json::Value = serde_json::from_str(&json).expect("it is JSON");
        json["pools"][0]["backends"][1]["state"].as_str().map(str::to_owned)
    };
    for (wish, serves, state) in [
        ("enable", "a", "standby"),
        ("drain", "b", "up"),
        ("undrain", "a", "standby"),
        ("disable", "b", "up"),
    ] {
        assert!(instance.command(&[wish, "web/a"]).0, "{wish}");
        for _ in 0..10 {
            assert_eq!(instance.who(), serves, "{wish}");
        }
        assert_eq!(state_of_b().as_deref(), Some(state), "{wish}");
    }
}

#[test]
fn disabling_a_backend_cuts_its_requests_and_draining_does_not() {
    let gate = Gate::new();
    let slow = HttpBackend::start({
        let gate = gate.clone();
        move |_| Answer::ok("late").first(Step::Wait(gate.clone()))
    });
    let instance = Instance::start("disable", &backends(&[("slow", &slow)]));
    for round in 1..=5 {
        let mut client = Client::connect(instance.door.address());
        client.send("GET / HTTP/1.1\r\nHost: localhost\r\n\r\n");
        assert!(slow.wait(|requests| requests.len() == round));
        assert!(instance.command(&["disable", "web/slow"]).0);
        assert_eq!(client.response().expect("it gets a response").status(), 502);
        assert!(instance.command(&["enable", "web/slow"]).0);
    }
    let mut client = Client::connect(instance.door.address());
    client.send("GET / HTTP/1.1\r\nHost: localhost\r\n\r\n");
    assert!(slow.wait(|requests| requests.len() == 6));
    assert!(instance.command(&["drain", "web/slow"]).0);
    gate.open();
    assert_eq!(client.response().expect("it is answered").text(), "late");
}

/// A sample backend as a separate process, on any port.
fn sample(name: &str) -> (Process, u16) {
    let process = Process::start(&["sample-backend", "--name", name]);
    let port = process.wait_for("its ports", |printed| {
        let (_, behind) = printed.split_once("ready http=")?;
        behind.split_once(' ')?.0.parse().ok()
    });
    (process, port)
}

#[test]
fn a_killed_backend_fails_at_most_its_requests_in_flight() {
    const CLIENTS: usize = 8;
    let ((stays, port_a), (dies, port_b)) = (sample("stays"), sample("dies"));
    let pool = format!("backends = [\"127.0.0.1:{port_a}\", \"127.0.0.1:{port_b}\"]");
    let instance = Instance::start("killed", &pool);
    let load = Load::start(instance.door.address(), CLIENTS);
    load.wait_for(200);
    kill(dies.pid(), libc::SIGKILL);
    load.wait_for(500);
    let (_, bad) = load.finish();
    assert!(bad.len() <= CLIENTS, "{} requests failed: {bad:?}", bad.len());
    // A client may receive its answer just before the request counts as done.
    let none_in_flight = || {
        let status = get(instance.api.address(), "/v1/status").text();
        let status: serde_json::Value = serde_json::from_str(&status).expect("it is JSON");
        status["front_doors"][0]["requests_in_flight"] == 0
    };
    assert!(eventually(none_in_flight));
    drop(stays);
}
