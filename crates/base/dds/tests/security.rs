//! DDS Security, with several processes and certificates by
//! `packaging/dds-security/make-certificates`. Only participants with certificates of the same
//! authority exchange samples. Needs the feature `security` (`make test-dds-security`).
#![cfg(feature = "security")]
#![allow(clippy::unwrap_used, reason = "a test may panic")]

use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::mpsc;
use std::time::{Duration, Instant};

use equipoise_dds::items::{DATA_ITEM, DataItem};
use equipoise_dds::{Domain, Error, Participant, Qos, Reader, Settings};
use equipoise_testkit::{Folder, spawn_bound};

const DOMAIN: u32 = 35;
const PATIENCE: Duration = Duration::from_secs(60);

fn settings(more: Option<String>) -> Settings {
    // Handshakes take long on a busy machine.
    let lease = Duration::from_secs(30);
    Settings { interfaces: vec!["lo".into()], lease, more, ..Settings::default() }
}

/// Not a test: the process of a talker or listener, which answers each line of input with one.
#[test]
#[ignore = "is a process of the other tests"]
fn role() {
    let domain = Domain::open(DOMAIN, &settings(std::env::var("ROLE_MORE").ok())).unwrap();
    let topic = Participant::new(domain, &[]).unwrap().topic("items", &DATA_ITEM).unwrap();
    let talks = std::env::var("ROLE_IS").unwrap() == "talker";
    let writer = talks.then(|| topic.writer(&Qos::default()).unwrap());
    let reader = (!talks).then(|| topic.reader(&Qos::default()).unwrap());
    let mut heard = 0;
    println!("\n> ready");
    for line in std::io::stdin().lock().lines() {
        let line = line.unwrap();
        let said = match (line.as_str(), &writer, &reader) {
            ("matched", Some(writer), _) => writer.matched().unwrap() as usize,
            ("matched", _, Some(reader)) => reader.writers().unwrap().len(),
            ("heard", _, Some(reader)) => {
                heard += listened(reader);
                heard
            }
            (count, Some(writer), _) => {
                let count: i64 = count.parse().unwrap();
                let mut cdr = Vec::new();
                for id in 0..count {
                    let item = DataItem {
                        slice_id: 1,
                        id,
                        sender_id: 1,
                        timestamp: 1,
                        message: b"secret",
                    };
                    item.encode(&mut cdr);
                    writer.write(&cdr).unwrap();
                }
                count as usize
            }
            _ => panic!("{line}"),
        };
        println!("> {said}");
    }
}

fn listened(reader: &Reader) -> usize {
    let mut samples = Vec::new();
    reader.take(&mut samples).unwrap();
    samples.len()
}

struct Role {
    child: Child,
    input: ChildStdin,
    lines: mpsc::Receiver<String>,
}

impl Role {
    fn start(is: &str, more: Option<&Path>) -> Role {
        let mut command = Command::new(std::env::current_exe().unwrap());
        command
            .args(["--exact", "role", "--ignored", "--nocapture"])
            .env("ROLE_IS", is)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped());
        if let Some(more) = more {
            command.env("ROLE_MORE", format!("file://{}", more.display()));
        }
        let mut child = spawn_bound(command).unwrap();
        let (input, output) = (child.stdin.take().unwrap(), child.stdout.take().unwrap());
        let (sender, lines) = mpsc::channel();
        std::thread::spawn(move || {
            for line in BufReader::new(output).lines().map_while(Result::ok) {
                if let Some(said) = line.strip_prefix("> ") {
                    let _ = sender.send(said.to_string());
                }
            }
        });
        let role = Role { child, input, lines };
        assert_eq!(role.lines.recv_timeout(PATIENCE).as_deref(), Ok("ready"), "{is}");
        role
    }

    fn ask(&mut self, line: &str) -> usize {
        writeln!(self.input, "{line}").unwrap();
        self.lines.recv_timeout(PATIENCE).unwrap().parse().unwrap()
    }

    fn until(&mut self, line: &str, expected: usize) {
        let end = Instant::now() + PATIENCE;
        while self.ask(line) != expected {
            assert!(Instant::now() < end, "{line}: {} and not {expected}", self.ask(line));
            std::thread::sleep(Duration::from_millis(10));
        }
    }
}

impl Drop for Role {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Creates an authority with certificates for `names`.
fn certificates(folder: &Folder, authority: &str, names: &[&str]) -> PathBuf {
    let script = Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("../../../packaging/dds-security/make-certificates");
    let path = folder.path(authority);
    let made = Command::new(script).arg(&path).args(names).output().unwrap();
    assert!(made.status.success(), "{}", String::from_utf8_lossy(&made.stderr));
    path
}

#[test]
fn participants_exchange_samples_only_within_their_own_authority() {
    let folder = Folder::new("dds-security");
    let ours = certificates(&folder, "ours", &["talker", "listener"]);
    let theirs = certificates(&folder, "theirs", &["talker", "listener"]);
    let pair = |authority: Option<&PathBuf>| {
        ["talker", "listener"].map(|is| {
            Role::start(is, authority.map(|path| path.join(format!("{is}.xml"))).as_deref())
        })
    };
    // Each participant matches its own kind, which shows that discovery is complete.
    let mut pairs = [pair(Some(&ours)), pair(Some(&theirs)), pair(None)];
    for [talker, listener] in &mut pairs {
        talker.until("matched", 1);
        listener.until("matched", 1);
    }
    for [talker, _] in &mut pairs {
        talker.ask("100");
    }
    for [_, listener] in &mut pairs {
        listener.until("heard", 100);
    }
    for [talker, listener] in &mut pairs {
        assert_eq!((talker.ask("matched"), listener.ask("matched")), (1, 1));
        assert_eq!(listener.ask("heard"), 100, "of its own kind, and nothing else");
    }
}

#[test]
fn a_participant_with_a_missing_key_or_altered_permissions_is_refused() {
    let folder = Folder::new("dds-security-gone");
    let ours = certificates(&folder, "ours", &["one", "two"]);
    let refused = |domain, file: &str| {
        let more = Some(format!("file://{}", ours.join(file).display()));
        let opened = Domain::open(domain, &settings(more)).unwrap();
        let refused = Participant::new(opened, &[]);
        assert!(matches!(refused, Err(Error::Refused { .. })), "{file}: {refused:?}");
    };
    std::fs::remove_file(ours.join("one.key")).unwrap();
    refused(36, "one.xml");
    // A permissions file that was modified.
    let path = ours.join("permissions.two.p7s");
    let permissions = std::fs::read_to_string(&path).unwrap();
    std::fs::write(&path, permissions.replace("DENY", "ALLOW")).unwrap();
    refused(37, "two.xml");
}
