//! Workers join, leave and die, and the controller dies, while items flow.

use std::time::{Duration, Instant};

use equipoise_slice::SliceId;
use equipoise_slice_dds::client::{self, Client};
use equipoise_slice_dds::worker::SET_ASIDE_REPLY;

use crate::bed::{Bed, Load, PATIENCE, SLICES, each_done_once, python, slices_of, worker};
use crate::common::{EQUIPOISE, equipoise, stderr, text};

#[test]
fn a_worker_joins_and_one_leaves_by_sigterm_and_every_item_is_done_once() {
    if !python() {
        return;
    }
    let mut bed = Bed::without_deaths(
        "slice-join",
        68,
        "[slice.balancing]\nevery = \"200ms\"\ncool-down = \"1s\"",
    );
    bed.worker("one", 2);
    bed.until_owned_by(&["one"]);
    let load = Load::start(&bed, 300.0);
    load.wait_for(50);
    bed.worker("two", 2);
    bed.until("the new worker gets slices", |status| slices_of(status, "two") >= 3);
    load.wait_for(50);
    let mut one = bed.workers.remove("one").unwrap();
    one.signal(libc::SIGTERM);
    assert_eq!(one.ended().code(), Some(0), "{}", one.printed());
    one.wait_for_text("other workers have its slices");
    load.wait_for(50);
    bed.until_owned_by(&["two"]);
    let outcome = load.finish();
    each_done_once(&bed, &outcome);
}

#[test]
fn a_drained_worker_keeps_nothing_and_an_undrained_one_gets_slices_again() {
    if !python() {
        return;
    }
    let mut bed =
        Bed::new("slice-drain", 69, "[slice.balancing]\nevery = \"200ms\"\ncool-down = \"0s\"");
    bed.two_workers(2);
    let load = Load::start(&bed, 300.0);
    load.wait_for(50);
    assert!(bed.said(&["drain", "one"]).starts_with("one: dra"));
    let status = bed.until_owned_by(&["two"]);
    assert_eq!(worker(&status, "one")["drained"], true, "{status:#}");
    assert!(bed.said(&["status"]).contains("drained"));
    load.wait_for(50);
    let said = bed.said(&["undrain", "one"]);
    // Its first slices may be moving before the command answers.
    assert!(["one: active", "one: joining"].iter().any(|it| said.starts_with(it)), "{said}");
    bed.until("it gets slices again", |status| slices_of(status, "one") > 0);
    let outcome = load.finish();
    each_done_once(&bed, &outcome);
}

#[test]
fn the_items_of_a_killed_worker_are_processed_by_another() {
    if !python() {
        return;
    }
    let mut bed = Bed::with_losses("slice-kill", 70, "[slice.balancing]\nevery = \"200ms\"");
    bed.two_workers(1);
    let load = Load::start(&bed, 300.0);
    load.wait_for(100);
    bed.kill_worker("one");
    bed.until_owned_by(&["two"]);
    load.wait_for(100);
    let status = bed.until("it is lost", |status| worker(status, "one")["state"] == "lost");
    assert!(worker(&status, "one")["state_seconds"].as_f64().unwrap() > 0.0, "{status:#}");
    assert!(bed.said(&["status"]).contains("one is lost: its connection closed"));
    // Items whose completion the other processes did not learn may be done twice. Still, each item
    // has one reply.
    let outcome = load.finish();
    let done = bed.done();
    assert!((0..outcome.published).all(|id| done.contains_key(&id)));
}

#[test]
fn a_controller_that_is_killed_and_started_again_loses_and_doubles_nothing() {
    if !python() {
        return;
    }
    let mut bed = Bed::new("slice-controller", 71, "[slice.balancing]\nevery = \"200ms\"");
    bed.two_workers(1);
    let before = bed.status();
    let load = Load::start(&bed, 300.0);
    for _ in 0..2 {
        load.wait_for(100);
        bed.kill_controller();
        bed.start();
        bed.until("the workers are back", |status| {
            status["leading"] == true
                && ["one", "two"].iter().all(|name| worker(status, name)["state"] == "active")
        });
    }
    load.wait_for(100);
    let after = bed.until_owned_by(&["one", "two"]);
    let count = |status| slices_of(status, "one") + slices_of(status, "two");
    assert_eq!((count(&before), count(&after)), (u64::from(SLICES), u64::from(SLICES)));
    let outcome = load.finish();
    each_done_once(&bed, &outcome);
}

#[test]
fn a_worker_with_mismatched_options_is_refused_and_owns_no_slices() {
    if !python() {
        return;
    }
    let mut bed = Bed::new("slice-mismatch", 72, "[slice.balancing]\nevery = \"200ms\"");
    bed.worker("one", 0);
    bed.until_owned_by(&["one"]);
    let sleeper = ["python3", "-c", "import sys; sys.stdin.read()"];
    for (name, options, expected) in [
        ("odd", ["--slices", "7"], "slices 7, the controller has 12"),
        ("astray", ["--items", "elsewhere"], "other topics of items and replies, or other types"),
    ] {
        bed.worker_with(name, &options, &sleeper);
        let status = bed.until("the odd one is named", |status| {
            worker(status, name)["problem"].is_string() && slices_of(status, name) == 0
        });
        assert_eq!(worker(&status, name)["state"], "refused");
        let problem = worker(&status, name)["problem"].as_str().unwrap().to_string();
        assert!(problem.contains(expected), "{problem}");
        assert!(bed.said(&["status"]).contains(&problem));
    }
}

#[test]
fn a_program_over_a_unix_socket_is_a_worker_too() {
    if !python() {
        return;
    }
    let mut bed = Bed::new("slice-socket", 73, "");
    let (socket, file) = (bed.folder.path("items.sock"), bed.folder.path("equipoise.toml"));
    let args =
        ["slice", "worker", "--config", text(&file), "--name", "one", "--socket", text(&socket)];
    let worker = crate::common::Process::start(&args);
    worker.wait_for_text("worker started");
    bed.workers.insert("one".into(), worker);
    bed.until_owned_by(&["one"]);
    // The socket is the program's standard input and output. After some items the program ends, and
    // another one connects.
    let log = bed.folder.path("one.done");
    let bridge = "import os, socket, sys\n\
                  s = socket.socket(socket.AF_UNIX); s.connect(sys.argv[1])\n\
                  os.dup2(s.fileno(), 0); os.dup2(s.fileno(), 1)\n\
                  os.execvp('python3', ['python3', *sys.argv[2:]])";
    let program = crate::bed::worker_program();
    let connect = || {
        let mut command = std::process::Command::new("python3");
        command.args(["-c", bridge, text(&socket), text(&program), text(&log)]);
        crate::common::Process::of(command)
    };
    let first = connect();
    let load = Load::start(&bed, 200.0);
    load.wait_for(50);
    drop(first);
    let _second = connect();
    load.wait_for(50);
    let outcome = load.finish();
    let done = bed.done();
    assert!((0..outcome.published).all(|id| done.contains_key(&id)));
}

#[test]
fn a_leaving_worker_without_others_logs_that_and_ends_at_a_second_signal_or_drain_timeout() {
    let mut bed = Bed::with_losses("slice-alone", 74, "");
    let mute = ["sh", "-c", "cat > /dev/null"];
    bed.worker_of("one", &mute);
    bed.until_owned_by(&["one"]);
    let mut client = Client::join(&bed.stream(), client::Options::new(7)).unwrap();
    client.publish(SliceId(0), 0, b"never done").unwrap();
    bed.until("it has something to do", |status| {
        worker(status, "one")["in_hand"].as_u64() == Some(1)
    });
    let mut one = bed.workers.remove("one").unwrap();
    one.signal(libc::SIGTERM);
    one.wait_for_text("leaving: slices move to other workers");
    let status = bed.until("it is leaving", |status| worker(status, "one")["state"] == "draining");
    assert_eq!(worker(&status, "one")["reason"], "it is about to end");
    one.wait_for_text("no other worker can take its slices: the worker keeps processing them");
    one.signal(libc::SIGTERM);
    assert_eq!(one.ended().code(), Some(1));
    one.wait_for_text("stopped at once by a second signal, with 12 slices");

    let file = bed.folder.path("equipoise.toml");
    let args = ["slice", "worker", "--config", text(&file), "--name", "two"];
    let timeout = ["--drain-timeout", "200ms", "--"];
    let mut two = crate::common::Process::start(&[&args[..], &timeout, &mute].concat());
    two.wait_for_text("worker started");
    bed.until_owned_by(&["two"]);
    two.signal(libc::SIGTERM);
    assert_eq!(two.ended().code(), Some(1));
    two.wait_for_text("stopped after 200ms with 12 slices");
}

#[test]
fn the_last_worker_ends_with_0_when_it_has_nothing_to_do() {
    let mut bed = Bed::new("slice-last", 25, "");
    bed.worker_with("one", &["--drain-timeout", "1h"], &["cat"]);
    bed.until_owned_by(&["one"]);
    let mut one = bed.workers.remove("one").unwrap();
    one.signal(libc::SIGTERM);
    assert_eq!(one.ended().code(), Some(0), "{}", one.printed());
    one.wait_for_text("it is the only worker, and it was idle");
}

#[test]
fn a_drained_worker_is_draining_until_it_has_no_item_any_more() {
    if !python() {
        return;
    }
    let mut bed = Bed::new("slice-drained", 26, "[slice.balancing]\nevery = \"100ms\"");
    // Its program blocks until the FIFO has a reader.
    let done = bed.folder.path("one.done");
    assert!(std::process::Command::new("mkfifo").arg(&done).status().unwrap().success());
    bed.worker("one", 0);
    bed.until_owned_by(&["one"]);
    let mut client = Client::join(&bed.stream(), client::Options::new(7)).unwrap();
    for slice in 0..SLICES {
        client.open(SliceId(slice), PATIENCE).unwrap();
    }
    for id in 0..40 {
        client.publish(SliceId(id as u32 % SLICES), id, b"slow").unwrap();
    }
    bed.until("they wait", |status| worker(status, "one")["queued"].as_u64() > Some(20));
    bed.worker("two", 0);
    bed.said(&["drain", "one"]);
    let has_items_without_slices = |status: &serde_json::Value| {
        let one = worker(status, "one");
        one["slices"] == 0 && one["queued"].as_u64() > Some(0)
    };
    let status = bed.until("it has no slices", has_items_without_slices);
    assert_eq!(worker(&status, "one")["state"], "draining", "{status:#}");
    let _reader = std::fs::File::open(&done).unwrap();
    let status = bed.until("it is drained", |status| worker(status, "one")["state"] == "drained");
    assert_eq!(worker(&status, "one")["queued"], 0, "{status:#}");
}

#[test]
fn a_client_in_python_has_a_reply_to_each_item_and_a_joining_worker_doubles_none() {
    let Some(python) = crate::bed::cyclonedds() else { return };
    let mut bed = Bed::new("slice-python", 75, "[slice.balancing]\nevery = \"200ms\"");
    bed.worker("one", 1);
    bed.until_owned_by(&["one"]);
    let client = std::path::Path::new(env!("CARGO_MANIFEST_DIR"));
    let client = client.join("../levels/slice-dds/examples/client.py");
    let mut command = std::process::Command::new(python);
    command.args([text(&client), "75", &SLICES.to_string(), "1000", "lo"]);
    let mut client = crate::common::Process::of(command);
    client.wait_for_text("item ");
    bed.worker("two", 1);
    assert!(client.ended().success(), "{}", client.printed());
    let printed = client.printed();
    let mut replies: Vec<_> = printed.lines().collect();
    replies.sort_by_key(|line| line.split(' ').next().and_then(|id| id.parse::<i64>().ok()));
    let expected: Vec<_> = (0..1000).map(|id| format!("{id} item {id}")).collect();
    assert_eq!(replies, expected);
    each_done_once(&bed, &crate::bed::Outcome { published: 1000, resent: 0 });
}

#[test]
fn the_demo_accounts_for_every_image() {
    let few = ["--workers", "2", "--join-seconds", "2", "--rate", "50", "--image-ms", "5"];
    let output = equipoise(&[&["demo", "slice", "--domain", "82"], &few[..]].concat());
    let said = crate::common::stdout(&output);
    assert!(output.status.success(), "{said}{}", stderr(&output));
    assert!(said.contains("never processed: 0; processed twice: 0"), "{said}");
}

#[test]
fn invalid_worker_arguments_are_refused_with_the_reason() {
    let folder = crate::common::Folder::new("slice-command-line");
    let (none, two) = (folder.write("none.toml", ""), "[[slice]]\nname = \"a\"\nslices = 3\n");
    let two = format!("{two}[[slice]]\nname = \"b\"\nslices = 3\ndomain = 1\n");
    let two = folder.write("two.toml", &two);
    let rows: [(&[&str], i32, &str); 8] = [
        (&["--", "cat"], 2, "--slices <N>"),
        (&["--slices", "5"], 2, "COMMAND"),
        (&["--slices", "0", "--", "cat"], 2, "1..=10000"),
        (&["--slices", "5", "--items", "a b", "--", "cat"], 2, "not a topic's name"),
        (&["--slices", "5", "--lease", "300", "--", "cat"], 2, "a number and a unit"),
        (
            &["--slices", "5", "--domain", "67", "--", "/no/such/program"],
            1,
            "cannot start `/no/such/program`",
        ),
        (&["--config", text(&none), "--", "cat"], 1, "has no [[slice]] table"),
        (
            &["--config", text(&two), "--", "cat"],
            1,
            "several streams (a, b): choose one with --stream",
        ),
    ];
    for (args, code, expected) in rows {
        let output = equipoise(&[&["slice", "worker"], args].concat());
        let said = stderr(&output);
        assert_eq!(output.status.code(), Some(code), "{args:?} {said}");
        assert!(said.contains(expected), "{args:?}\n{said}\nlacks: {expected}");
    }
    let used = std::os::unix::net::UnixListener::bind(folder.path("used")).unwrap();
    let used_path = folder.path("used");
    for (path, expected) in
        [(&none, "exists and is not a unix socket"), (&used_path, "another process listens")]
    {
        let args = ["slice", "worker", "--slices", "5", "--domain", "67", "--socket", text(path)];
        let output = equipoise(&args);
        assert_eq!(output.status.code(), Some(1));
        assert!(stderr(&output).contains(expected), "{}", stderr(&output));
    }
    drop(used);
    let help = std::process::Command::new(EQUIPOISE).args(["slice", "worker", "--help"]).output();
    let help = crate::common::stdout(&help.unwrap());
    for word in ["--parallel", "--socket", "--drain-timeout", "SIGTERM", "acknowledges"] {
        assert!(help.contains(word), "{word}: {help}");
    }
}

/// Answers each item with its message, and ends at item 3.
const POISONED: &str = "while read -r kind job slice id sender time message; do
    [ $id = 3 ] && exit 1
    echo $job $message
done";

#[test]
fn an_item_that_repeatedly_ends_its_program_is_quarantined_and_counted() {
    let one = ["slice", "worker", "--slices", "12", "--set-aside-after", "1", "--", "true"];
    let refused = equipoise(&one);
    assert!(!refused.status.success() && stderr(&refused).contains("a single end may be chance"));
    let mut bed = Bed::new("slice-poison", 196, "");
    let kept = bed.folder.path("kept");
    let options =
        ["--format", "lines", "--set-aside-after", "2", "--set-aside-folder", text(&kept)];
    bed.worker_with("one", &options, &["sh", "-c", POISONED]);
    bed.until_owned_by(&["one"]);
    let mut client = Client::join(&bed.stream(), client::Options::new(7)).unwrap();
    for id in 0..6 {
        client.publish(SliceId(id as u32), id, &id.to_le_bytes()).unwrap();
    }
    let (mut answers, end) = (Vec::new(), Instant::now() + PATIENCE);
    while client.pending() > 0 {
        assert!(Instant::now() < end, "{answers:?}; {}", bed.workers["one"].printed());
        client.replies(Duration::from_millis(20), &mut answers).unwrap();
    }
    for answer in &answers {
        let aside = answer.message.starts_with(SET_ASIDE_REPLY.as_bytes());
        assert_eq!(aside, answer.id == 3, "{answer:?}");
    }
    let files: Vec<_> =
        std::fs::read_dir(&kept).unwrap().map(|file| file.unwrap().path()).collect();
    assert_eq!(files.len(), 1, "{files:?}");
    assert_eq!(std::fs::read(&files[0]).unwrap(), 3_i64.to_le_bytes());
    bed.until("it is counted", |status| worker(status, "one")["drops"]["set_aside"] == 1);
    let shown = bed.said(&["status"]);
    assert!(shown.contains("set_aside") && shown.contains("the client was informed"), "{shown}");
    bed.workers["one"].wait_for_text("set aside: the slice worker's program has ended repeatedly");
}
