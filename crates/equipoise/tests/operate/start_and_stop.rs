//! How a process begins and ends.

use std::net::TcpListener;

use equipoise_testkit::{Answer, Client, Gate, HttpBackend, Step, free_port};

use crate::common::{Folder, Process, equipoise, get, stderr, text};
use crate::{Instance, backends, config, head};

#[test]
fn a_failed_start_reports_the_cause_and_exits_with_1() {
    let folder = Folder::new("start");
    let api = free_port();
    let broken = folder.write("broken.toml", "[[pool]]\nnam = \"web\"\n[api]\nlisten = 7\n");
    let output = equipoise(&["run", text(&broken)]);
    assert_eq!(output.status.code(), Some(1));
    let said = stderr(&output);
    assert!(said.contains("broken.toml:2:") && said.contains("broken.toml:4:"), "{said}");

    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = taken.local_addr().unwrap();
    let head = head(&folder, &api);
    let file = folder.write("taken.toml", &config(&head, address, "backends = [\"127.0.0.1:1\"]"));
    let output = equipoise(&["run", text(&file)]);
    assert_eq!(output.status.code(), Some(1));
    let said = stderr(&output);
    assert!(said.contains(&address.to_string()) && said.contains("`listen`"), "{said}");
    let holder = format!("process {} (", std::process::id());
    assert!(said.contains(&holder) && said.contains(") listens there"), "{said}");
    assert!(!folder.path("api.sock").exists(), "it leaves no socket behind");
}

#[test]
fn a_second_process_does_not_take_over_the_api_socket() {
    let a = HttpBackend::named("a");
    let instance = Instance::start("second", &backends(&[("a", &a)]));
    let output = equipoise(&["run", text(&instance.file)]);
    assert_eq!(output.status.code(), Some(1));
    assert!(stderr(&output).contains("`api.socket`"), "{}", stderr(&output));
    assert_eq!(instance.who(), "a");
    assert!(instance.command(&["status"]).0);
}

#[test]
fn a_process_starts_despite_the_socket_of_a_killed_process() {
    let a = HttpBackend::named("a");
    let mut instance = Instance::start("stale", &backends(&[("a", &a)]));
    instance.process.signal(libc::SIGKILL);
    instance.process.ended();
    assert!(instance.socket.exists());
    let next = Process::start(&["run", text(&instance.file)]);
    next.wait_for_text(" ready ");
    assert_eq!(instance.who(), "a");
}

#[test]
fn a_stop_lets_a_request_finish_and_a_second_signal_does_not_wait() {
    let gate = Gate::new();
    let slow = HttpBackend::start({
        let gate = gate.clone();
        move |_| Answer::ok("late").first(Step::Wait(gate.clone()))
    });
    let mut instance = Instance::start("stop", &backends(&[("slow", &slow)]));
    let mut client = Client::connect(instance.door.address());
    client.send("GET / HTTP/1.1\r\nHost: localhost\r\n\r\n");
    assert!(slow.wait(|requests| requests.len() == 1));
    instance.process.signal(libc::SIGTERM);
    instance.process.wait_for_text("finishing the work in flight");
    let (worked, status) = instance.command(&["status"]);
    assert!(worked && status.contains("STOPPING"), "{status}");
    assert_eq!(get(instance.api.address(), "/v1/health").status(), 503);
    let (worked, said) = instance.command(&["drain", "web/slow"]);
    assert!(!worked && said.contains("is stopping"), "{said}");
    gate.open();
    assert_eq!(client.response().expect("it is answered").text(), "late");
    assert_eq!(instance.process.ended().code(), Some(0), "{}", instance.process.printed());

    let stuck = HttpBackend::always(Answer::hang());
    let mut instance = Instance::start("stop-twice", &backends(&[("stuck", &stuck)]));
    let mut client = Client::connect(instance.door.address());
    client.send("GET / HTTP/1.1\r\nHost: localhost\r\n\r\n");
    assert!(stuck.wait(|requests| requests.len() == 1));
    instance.process.signal(libc::SIGTERM);
    instance.process.wait_for_text("finishing the work in flight");
    instance.process.signal(libc::SIGTERM);
    assert_eq!(instance.process.ended().code(), Some(1));
}
