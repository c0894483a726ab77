//! `equipoise demo` as a person uses it.

mod common;

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream, UdpSocket};
use std::process::Command;

use common::{EQUIPOISE, Load, Process, get, kill};
use equipoise_testkit::{PATIENCE, eventually};

struct Demo {
    process: Process,
    http: SocketAddr,
    tcp: SocketAddr,
    udp: SocketAddr,
    banner: String,
}

impl Demo {
    fn start() -> Demo {
        let process = Process::start(&["demo", "--any-ports"]);
        let banner = process.wait_for("the banner", |printed| {
            printed.contains("Ctrl-C drains and ends.").then(|| printed.to_owned())
        });
        let address = |start: &str| {
            let line = banner.lines().find_map(|line| line.strip_prefix(start));
            let word = line.expect("the banner has it").trim().trim_start_matches("http://");
            word.parse().expect("an address")
        };
        let (http, tcp, udp) = (address("  http "), address("  tcp "), address("  udp "));
        Demo { process, http, tcp, udp, banner }
    }

    /// Process id of a sample backend.
    fn pid(&self, name: &str) -> u32 {
        let line = self.banner.lines().find(|line| line.trim_start().starts_with(name));
        let (_, behind) = line.and_then(|line| line.split_once("pid ")).expect("it has a pid");
        behind.split(' ').next().and_then(|pid| pid.parse().ok()).expect("a number")
    }

    /// The commands to try, in the order of the output.
    fn commands(&self) -> Vec<String> {
        let (_, behind) = self.banner.split_once("Try:\n\n").expect("there are commands");
        behind.lines().take_while(|line| !line.is_empty()).map(|line| line.trim().into()).collect()
    }
}

/// Runs a command in a shell, like a copied line.
fn copied(command: &str) -> (bool, String) {
    let output = Command::new("sh").args(["-c", command]).output().expect("there is a shell");
    let text = [output.stdout, output.stderr].concat();
    (output.status.success(), String::from_utf8_lossy(&text).into_owned())
}

#[test]
fn every_front_door_answers_and_ctrl_c_ends_with_zero() {
    let mut demo = Demo::start();
    let answer = get(demo.http, "/hello");
    assert_eq!(answer.status(), 200);
    assert!(answer.text().contains("\"backend\":"), "{}", answer.text());

    let mut line = TcpStream::connect(demo.tcp).unwrap();
    line.set_read_timeout(Some(PATIENCE)).unwrap();
    line.write_all(b"hello\n").unwrap();
    let mut echoed = [0; 64];
    let read = line.read(&mut echoed).unwrap();
    assert!(echoed[..read].ends_with(b": hello\n"), "{:?}", &echoed[..read]);

    let datagrams = UdpSocket::bind("127.0.0.1:0").unwrap();
    datagrams.set_read_timeout(Some(PATIENCE)).unwrap();
    datagrams.send_to(b"hello", demo.udp).unwrap();
    let (read, from) = datagrams.recv_from(&mut echoed).unwrap();
    assert!(echoed[..read].ends_with(b": hello"));
    assert_eq!(from, demo.udp);
    drop(line);

    demo.process.signal(libc::SIGINT);
    assert_eq!(demo.process.ended().code(), Some(0), "{}", demo.process.printed());
}

#[test]
fn the_printed_commands_work_when_they_are_copied() {
    let demo = Demo::start();
    let commands = demo.commands();
    assert_eq!(commands.len(), 3, "{commands:?}");
    assert!(commands[1].starts_with(EQUIPOISE) && commands[2].starts_with(EQUIPOISE));
    // The first command is curl, which a machine may not have.
    if copied("command -v curl").0 {
        let (worked, text) = copied(&format!("{} --silent --fail", commands[0]));
        assert!(worked && text.contains("\"path\":\"/hello\""), "{text}");
    }
    let (worked, text) = copied(&commands[1]);
    assert!(worked && text.contains("web/medium"), "{text}");
    let (worked, text) = copied(&commands[2]);
    assert!(worked && text.contains("web/fast: drain"), "{text}");
    let before = get(demo.http, "/hello").text();
    assert!(!before.contains("\"fast\""), "a drained backend was given a request: {before}");
}

#[test]
fn the_documented_mistake_can_be_made_in_its_file_and_commands_write_no_audit_lines() {
    let demo = Demo::start();
    let line = demo.banner.lines().find_map(|line| line.strip_prefix("settings   "));
    let file = line.and_then(|line| line.split(' ').next()).expect("the banner has it").to_string();
    let said = |command: &str| {
        let reload = demo.banner.split_once("then: ").and_then(|(_, rest)| rest.split_once(')'));
        let (reload, _) = reload.expect("the banner has it");
        copied(&format!("{command} && {reload}"))
    };
    let (worked, text) = said(&format!("sed -i s/least-connection/leastconn/ {file}"));
    let expected =
        "pool.web.scheduler: \"leastconn\" is none of them (did you mean \"least-connection\"?)";
    assert!(!worked && text.contains(expected), "{text}");
    let (worked, text) = said(&format!("sed -i s/leastconn/least-connection/ {file}"));
    assert!(worked, "{text}");
    assert!(!demo.process.printed().contains("audit"), "{}", demo.process.printed());
    let audit = std::fs::read_to_string(file.replace("demo.toml", "audit.log")).unwrap();
    assert!(audit.contains("reload"), "{audit}");
}

#[test]
fn a_killed_sample_backend_costs_no_more_than_it_had_and_comes_back() {
    const CLIENTS: usize = 8;
    let demo = Demo::start();
    let load = Load::start(demo.http, CLIENTS);
    load.wait_for(50);
    kill(demo.pid("fast"), libc::SIGKILL);
    demo.process.wait_for_text("sample backend restarted");
    load.wait_for(200);
    let back = || get(demo.http, "/hello").text().contains("\"fast\"");
    assert!(eventually(back), "it does not come back:\n{}", demo.process.printed());
    let (good, bad) = load.finish();
    assert!(good > 200);
    assert!(bad.len() <= CLIENTS, "{} requests failed: {bad:?}", bad.len());
}

#[test]
fn the_sample_backends_die_with_a_demo_that_is_killed() {
    let mut demo = Demo::start();
    let pid = demo.pid("slow");
    demo.process.signal(libc::SIGKILL);
    demo.process.ended();
    // A dead process that its new parent has not reaped yet is a zombie: it has no command line.
    let gone =
        || std::fs::read(format!("/proc/{pid}/cmdline")).map_or(true, |line| line.is_empty());
    assert!(eventually(gone));
}
