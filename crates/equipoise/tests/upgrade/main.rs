//! `equipoise upgrade` under load, and with new processes that fail at every moment.

#![allow(unreachable_pub, reason = "modules of a test")]

mod bed;
#[path = "../common/mod.rs"]
mod common;
mod load;

use std::collections::BTreeSet;
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::process::{Command, Stdio};
use std::thread;

use bed::{Bed, await_end, is_running};
use common::s_client::s_client;
use common::successor::successor;
use common::{EQUIPOISE, get, stderr, text};
use equipoise_testkit::{Client, PATIENCE, eventually};
use load::{Load, UDP_CLIENTS};

fn upgrade_under_load(test: &str, times: usize) {
    let bed = Bed::start(test, "");
    let load = Load::start(&bed);
    load.wait_for(2);
    let mut processes = vec![bed.pid()];
    for _ in 0..times {
        bed.upgrade();
        processes.push(bed.pid());
        load.wait_for(2);
    }
    let (shown, failed) = load.finish();
    println!("{times} upgrades; {shown}");
    assert!(failed.is_empty(), "{failed:#?}\n{}", bed.process.printed());
    let distinct: BTreeSet<_> = processes.iter().collect();
    assert_eq!(distinct.len(), times + 1, "{processes:?}");
    // A client that was moved would have a second socket at the backend.
    let seen: BTreeSet<_> = bed.udp_backend.seen().into_iter().map(|(from, _)| from).collect();
    assert_eq!(seen.len(), UDP_CLIENTS, "clients moved");
    // The load's clients are gone, so the replaced processes end.
    let last = processes.pop();
    processes.into_iter().for_each(await_end);
    assert_eq!(last, Some(bed.pid()));
    assert!(eventually(|| bed.status()["replaced"].is_null()), "{}", bed.status());
}

#[test]
fn upgrades_under_load_close_refuse_and_move_nothing() {
    upgrade_under_load("upgrade-load", 5);
}

#[test]
#[ignore = "takes minutes: make upgrades"]
fn a_hundred_upgrades_under_load_close_refuse_and_move_nothing() {
    let times = std::env::var("UPGRADES").ok().and_then(|times| times.parse().ok());
    upgrade_under_load("upgrade-soak", times.unwrap_or(100));
}

#[test]
fn a_replaced_process_finishes_its_connections_and_is_shown_in_status() {
    let bed = Bed::start("upgrade-drains", "");
    let first = bed.pid();
    let mut tunnel = TcpStream::connect(bed.tcp.address()).expect("it listens");
    let mut echo = |byte: u8| {
        tunnel.set_read_timeout(Some(PATIENCE)).expect("it is not zero");
        tunnel.write_all(&[byte]).expect("the tunnel is open");
        let mut back = [0];
        tunnel.read_exact(&mut back).expect("the tunnel is open");
        assert_eq!(back, [byte]);
    };
    echo(1);
    let output = bed.upgrade();
    assert!(
        output.contains(&format!("has replaced {first}, which finishes 1 connection")),
        "{output}"
    );
    let second = bed.pid();
    let events = common::stdout(&bed.command(&["events", "--type", "upgrade"]));
    assert!(events.contains("upgrade.replaced") && !events.contains("upgrade.started"), "{events}");
    bed.upgrade();
    await_end(second);
    echo(2);
    let is_alone = || {
        let replaced = bed.status()["replaced"].clone();
        assert_eq!(replaced[0]["pid"], first, "{replaced}");
        assert_eq!(replaced[0]["connections"], 1, "{replaced}");
        replaced[1].is_null()
    };
    assert!(eventually(is_alone), "{}", bed.status());
    let shown = bed.command(&["status"]);
    let line = format!("replaced process {first}: finishes 1 connection, since ");
    assert!(common::stdout(&shown).contains(&line), "{}", common::stdout(&shown));
    drop(tunnel);
    await_end(first);
    assert!(eventually(|| bed.status()["replaced"].is_null()));
}

#[test]
fn an_upgrade_keeps_operator_state_and_applies_start_only_options() {
    let bed = Bed::start("upgrade-state", "");
    let session = bed.certificates.path("session");
    s_client(bed.tls.address(), bed::NAME, &["-tls1_3", "-sess_out", &session]);
    assert!(bed.command(&["drain", "web/a"]).status.success());
    let config = std::fs::read_to_string(&bed.file).expect("it is there");
    let changed = config.replace("threads = 2", "threads = 3");
    std::fs::write(&bed.file, &changed).expect("it is ours");
    let reload = bed.command(&["reload"]);
    let said = common::stdout(&reload);
    assert!(said.contains("`instance.threads` changed; `equipoise upgrade` applies it"), "{said}");
    bed.upgrade();
    let status = bed.status();
    assert_eq!(status["threads"], 3);
    // So do the tickets of clients.
    let printed = s_client(bed.tls.address(), bed::NAME, &["-tls1_3", "-sess_in", &session]);
    assert!(printed.contains("Reused, TLSv1.3"), "{printed}");
    assert_eq!(status["pools"][0]["backends"][0]["admin"], "drain", "{status}");
    assert!(bed.command(&["undrain", "web/a"]).status.success());
    std::fs::write(&bed.file, changed.replace("threads = 3", "threads = 1")).expect("it is ours");
    bed.upgrade();
    assert_eq!(bed.status()["threads"], 1);
    // Every socket of the group is served: also those of threads that are gone.
    (0..20).for_each(|_| assert_eq!(get(bed.http.address(), "/").status(), 200));
}

#[test]
fn a_replacement_of_the_file_beside_an_upgrade_leaves_it_as_the_running_configuration() {
    let bed = Bed::start("upgrade-replace", "");
    let config = std::fs::read_to_string(&bed.file).expect("it is there");
    let config = config.replace("[api]\n", "[api]\nwrite-config = true\n");
    std::fs::write(&bed.file, &config).expect("it is ours");
    assert!(bed.command(&["reload"]).status.success());
    // A source that does not answer: a reload waits for it for a while.
    let silent = TcpListener::bind("127.0.0.1:0").expect("a free port");
    let source = silent.local_addr().expect("it listens");
    silent.set_nonblocking(true).expect("it is open");
    let (new, mut held) = (bed.certificates.folder.path("new.toml"), Vec::new());
    for round in 0..6 {
        let before = std::fs::read_to_string(&bed.file).expect("it is there");
        let toml = format!(
            "{config}[[pool]]\nname = \"round-{round}\"\n[pool.discover.http]\nurl = \"http://{source}/\"\n"
        );
        std::fs::write(&new, &toml).expect("it is ours");
        let replaced = std::thread::scope(|scope| {
            let replacing = scope.spawn(|| bed.command(&["reload", "--with", text(&new)]));
            // The other rounds upgrade at once.
            if round % 2 == 0 {
                let is_asked = || silent.accept().map(|(asked, _)| held.push(asked)).is_ok();
                assert!(eventually(is_asked), "{}", bed.process.printed());
            }
            bed.upgrade();
            replacing.join().expect("the command ends")
        });
        let said = stderr(&replaced);
        let now = std::fs::read_to_string(&bed.file).expect("it is there");
        match replaced.status.success() {
            true => assert_eq!(now, toml),
            false => assert_eq!(now, before, "{said}"),
        }
        let preview = common::stdout(&bed.command(&["reload", "--dry-run"]));
        assert!(preview.contains("would change nothing"), "{round}: {said}\n{preview}");
    }
}

#[test]
fn a_new_process_that_fails_at_any_moment_leaves_the_running_one_as_it_was() {
    let bed = Bed::start("upgrade-fails", "");
    let pid = bed.pid();
    let load = Load::start(&bed);
    load.wait_for(1);
    let continues = format!("process {pid} continues");
    let config = std::fs::read_to_string(&bed.file).expect("it is there");
    std::fs::write(&bed.file, format!("{config}[nonsense]\n")).expect("it is ours");
    let error = bed.failed_upgrade(&[]);
    assert!(error.contains("nonsense: unknown table") && error.contains(&continues), "{error}");
    // An address that is taken by another program.
    let taken = std::net::TcpListener::bind("127.0.0.1:0").expect("a port is free");
    let address = taken.local_addr().expect("it is bound");
    let door =
        format!("[[session]]\nlisten = \"{address}\"\nprotocol = \"tcp\"\npool = \"echo\"\n");
    std::fs::write(&bed.file, format!("{config}{door}")).expect("it is ours");
    let error = bed.failed_upgrade(&[]);
    assert!(error.contains(&format!("cannot listen on {address}")), "{error}");
    std::fs::write(&bed.file, &config).expect("it is ours");
    for (script, expected) in [
        ("#!/bin/sh\nexit 3\n", "exit status: 3"),
        ("#!/bin/sh\nkill -KILL $$\n", "signal: 9"),
        ("#!/bin/sh\nkill -STOP $$\n", "was not ready within 2s"),
    ] {
        bed.replace_program(script);
        let error = bed.failed_upgrade(&["--within", "2"]);
        assert!(error.contains(expected) && error.contains(&continues), "{script}: {error}");
    }
    std::fs::remove_file(&bed.program).expect("it is there");
    let error = bed.failed_upgrade(&[]);
    assert!(error.contains("cannot start") && error.contains(&continues), "{error}");
    std::fs::write(&bed.program, "").expect("the folder is ours");
    for (step, expected) in [
        ("taken", "signal: 9"),
        ("released", "signal: 9"),
        ("released stop", "was not ready within 5s"),
    ] {
        bed.replace_program(&successor(step, 10));
        let within = if step.ends_with("stop") { "5" } else { "25" };
        let error = bed.failed_upgrade(&["--within", within]);
        assert!(error.contains(expected) && error.contains(&continues), "{step}: {error}");
    }
    bed.process.wait_for_text("this process continues");
    assert_eq!(bed.pid(), pid);
    load.wait_for(1);
    bed.restore_program();
    bed.upgrade();
    assert_ne!(bed.pid(), pid);
    load.wait_for(1);
    let (_, failed) = load.finish();
    assert!(failed.is_empty(), "{failed:#?}\n{}", bed.process.printed());
    await_end(pid);
}

#[test]
fn a_second_upgrade_and_changes_are_refused_during_an_upgrade() {
    let bed = Bed::start("upgrade-twice", "");
    let folder = &bed.certificates.folder;
    let (started, go) = (folder.path("started"), folder.path("go"));
    bed.replace_program(&format!(
        "#!/bin/sh\ntouch {}\nwhile [ ! -e {} ]; do sleep 0.01; done\nexec {EQUIPOISE} \"$@\"\n",
        text(&started),
        text(&go)
    ));
    let first = bed.pid();
    thread::scope(|scope| {
        let winner = scope.spawn(|| bed.upgrade());
        assert!(eventually(|| started.exists()));
        let error = bed.failed_upgrade(&[]);
        assert!(error.contains("an upgrade is in progress"), "{error}");
        for change in [&["drain", "web/a"][..], &["reload"]] {
            let output = bed.command(change);
            assert!(stderr(&output).contains("an upgrade is in progress"), "{}", stderr(&output));
        }
        std::fs::write(&go, "").expect("the folder is ours");
        let output = winner.join().expect("it succeeds");
        assert!(output.contains(&format!("has replaced {first}")), "{output}");
    });
    await_end(first);
    assert!(bed.command(&["drain", "web/a"]).status.success());
}

#[test]
fn a_stop_during_an_upgrade_ends_the_new_process_too() {
    let mut bed = Bed::start("upgrade-stopped", "");
    let pid_file = bed.certificates.folder.path("pid");
    bed.replace_program(&format!("#!/bin/sh\necho $$ > {}\nkill -STOP $$\n", text(&pid_file)));
    bed.process.signal(libc::SIGUSR2);
    let new_pid = || std::fs::read_to_string(&pid_file).ok()?.trim().parse().ok();
    assert!(eventually(|| new_pid().is_some()));
    let new: u32 = new_pid().expect("it is there");
    assert!(is_running(new));
    bed.process.signal(libc::SIGTERM);
    assert!(bed.process.ended().success());
    await_end(new);
}

#[test]
fn another_program_or_user_cannot_take_over_the_sockets() {
    let bed = Bed::start("upgrade-stranger", "");
    let pid = bed.pid();
    // The channel is an unnamed pair of sockets: without it there is nothing to take over from.
    let output = Command::new(EQUIPOISE)
        .args(["run", text(&bed.file)])
        .env("EQUIPOISE_UPGRADES", std::process::id().to_string())
        .stdin(Stdio::null())
        .output()
        .expect("it runs");
    assert!(!output.status.success());
    assert!(stderr(&output).contains("cannot take over"), "{}", stderr(&output));
    // Another user cannot ask for an upgrade.
    std::fs::set_permissions(
        bed.certificates.folder.root(),
        std::os::unix::fs::PermissionsExt::from_mode(0o755),
    )
    .expect("it is ours");
    let output = Command::new("setpriv")
        .args(["--reuid", "65534", "--clear-groups", EQUIPOISE, "upgrade"])
        .args(["--api", text(&bed.socket)])
        .output()
        .expect("it runs");
    let expected = format!("no permission to use {}", text(&bed.socket));
    let error = stderr(&output);
    assert!(!output.status.success() && error.contains(&expected), "{error}");
    assert_eq!(get(bed.http.address(), "/").status(), 200);
    assert_eq!(bed.pid(), pid);
}

#[test]
fn a_stop_answers_a_last_request_of_an_idle_connection() {
    let mut bed = Bed::start("upgrade-stop", "");
    let mut client = Client::connect(bed.http.address());
    let request = "GET / HTTP/1.1\r\nHost: localhost\r\n\r\n";
    let answer = client.ask(request).expect("it answers");
    assert_eq!(answer.header("connection"), None);
    bed.process.signal(libc::SIGTERM);
    let is_last = || {
        let answer = client.ask(request).expect("it answers a last request");
        assert_eq!(answer.status(), 200);
        answer.header("connection") == Some("close")
    };
    assert!(eventually(is_last));
    assert!(bed.process.ended().success());
}
