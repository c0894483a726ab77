//! Programs that end, hang, or never start, over DDS.

use std::collections::{BTreeMap, BTreeSet};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use equipoise_slice::{Order, SliceId};
use equipoise_slice_dds::DropReason;
use equipoise_slice_dds::worker::{
    Dealings, Format, Options, Program, SET_ASIDE_REPLY, SetAside, Worker,
};
use rustix::process::{Pid, Signal, kill_process};

use crate::cluster::{Cluster, Load, SLICES, protocol};

/// The folder with the files that a program writes.
struct Traces(PathBuf);

impl Traces {
    fn new(test: &str) -> Self {
        let path = std::env::temp_dir().join(format!("equipoise-{test}-{}", std::process::id()));
        std::fs::create_dir_all(&path).unwrap();
        Self(path)
    }

    fn path(&self, name: &str) -> PathBuf {
        self.0.join(name)
    }

    fn text(&self, name: &str) -> String {
        std::fs::read_to_string(self.path(name)).unwrap_or_default()
    }
}

impl Drop for Traces {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// A worker with a shell program for lines, which runs in the folder of `traces`; up to four jobs
/// at a time.
fn shell(cluster: &Cluster, name: &str, script: &str, traces: &Traces, aside: SetAside) -> Worker {
    let (script, folder) = (script.to_string(), traces.0.clone());
    let command = move || {
        let mut command = Command::new("sh");
        command.args(["-c", &script]).current_dir(&folder).process_group(0);
        command
    };
    let dealings = Dealings { format: Format::Lines, set_aside: aside, ..Dealings::default() };
    let program = Program::start_with(dealings, command).unwrap();
    let settle = Duration::from_millis(300);
    let usual = Options::new(name, SLICES);
    let options = Options { jobs_max: 4, protocol: protocol_of(cluster), settle, ..usual };
    Worker::start(&cluster.stream, options, program).unwrap()
}

fn protocol_of(cluster: &Cluster) -> equipoise_slice::Config {
    let order = cluster.order();
    equipoise_slice::Config { order, ..protocol() }
}

fn files(folder: &Path) -> BTreeSet<String> {
    let entries = std::fs::read_dir(folder).unwrap();
    entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect()
}

/// Answers each item with its message. It reads ahead, and two items end it.
const POISONED: &str = "exec python3 -c '
import os
rest = b\"\"
while read := os.read(0, 65536):
    *lines, rest = (rest + read).split(b\"\\n\")
    for line in lines:
        kind, job, slice, id, sender, time, message = line.split()
        if id in (b\"7\", b\"8\"): os._exit(1)
        os.write(1, job + b\" \" + message + b\"\\n\")
'";

#[test]
fn only_items_that_repeatedly_end_their_program_are_quarantined() {
    let python = Command::new("python3").arg("--version").output();
    if !python.is_ok_and(|output| output.status.success()) {
        println!("skipped: there is no python3");
        return;
    }
    let cluster = Cluster::new(98, Duration::ZERO);
    let traces = Traces::new("slice-poison");
    let kept = traces.path("kept");
    let aside = SetAside { after: 2, folder: Some(kept.clone()) };
    let worker = shell(&cluster, "one", POISONED, &traces, aside);
    cluster.eventually("all slices have owners", || cluster.all_owned());
    let mut load = Load::new(&cluster);
    load.open_all();
    load.publish(40);
    load.read_all();
    let (aside, done): (Vec<_>, Vec<_>) =
        load.answers.drain(..).partition(|answer| [7, 8].contains(&answer.id));
    assert_eq!(aside.len(), 2);
    for answer in &aside {
        let reply = String::from_utf8_lossy(&answer.message).into_owned();
        assert!(reply.starts_with(SET_ASIDE_REPLY) && reply.contains("2 times"), "{reply}");
    }
    let mut ids: Vec<_> = done.iter().map(|answer| answer.id).collect();
    ids.sort_unstable();
    assert_eq!(ids, (0..40).filter(|id| ![7, 8].contains(id)).collect::<Vec<_>>());
    assert!(done.iter().all(|answer| answer.message == answer.id.to_le_bytes()));
    assert_eq!(worker.drops(DropReason::SetAside), 2);
    let names = files(&kept);
    assert_eq!(names.len(), 2, "{names:?}");
    for name in &names {
        let id: i64 = name.split('-').nth(1).unwrap().parse().unwrap();
        assert_eq!(std::fs::read(kept.join(name)).unwrap(), id.to_le_bytes(), "{name}");
    }
    cluster.eventually("status counts them", || {
        let drops = cluster.seen("one").map(|worker| worker.drops).unwrap_or_default();
        drops.contains(&("set_aside".to_string(), 2))
    });
    worker.stop().unwrap();
}

/// A program that needs a file, and exits before it reads anything if that is missing.
const NOT_YET: &str = "echo >> starts; [ -e database ] || exit 1; \
                       while read -r kind job slice id sender time message; do echo $job $message; done";

#[test]
fn a_program_that_ends_before_reading_quarantines_no_item() {
    let cluster = Cluster::new(99, Duration::ZERO);
    let traces = Traces::new("slice-startless");
    let aside = SetAside { after: 2, folder: None };
    let worker = shell(&cluster, "one", NOT_YET, &traces, aside);
    cluster.eventually("all slices have owners", || cluster.all_owned());
    let mut load = Load::new(&cluster);
    load.open_all();
    load.publish(20);
    let begun = traces.text("starts").len();
    cluster.eventually("it is started again and again", || {
        load.read(Duration::from_millis(5));
        traces.text("starts").len() >= begun + 4
    });
    assert!(load.answers.is_empty());
    std::fs::write(traces.path("database"), "").unwrap();
    load.read_all();
    load.check();
    assert_eq!(worker.drops(DropReason::SetAside), 0);
    worker.stop().unwrap();
}

/// Records each item before it acknowledges it. At one item it hangs, once, with a child that
/// outlives it and has its output.
const HANGS: &str = "
    while read -r kind job slice id sender time message; do
        if [ $id = 45 ] && ! [ -e hung ]; then echo $$ > hung.new; mv hung.new hung; sleep 60 & wait; fi
        echo $id >> done
        echo $job $message
    done";

#[test]
fn items_of_a_killed_program_are_processed_once_and_in_order() {
    let cluster = Cluster::with_order(100, Duration::ZERO, Order::Strict);
    let traces = Traces::new("slice-hangs");
    let one = shell(&cluster, "one", HANGS, &traces, SetAside::default());
    cluster.eventually("all slices have owners", || cluster.all_owned());
    let mut load = Load::new(&cluster);
    load.open_all();
    load.publish(100);
    cluster.eventually("it hangs", || {
        load.read(Duration::from_millis(5));
        !traces.text("hung").is_empty()
    });
    // The items of its slice; the order of other items is arbitrary.
    assert!(load.client.pending() >= 3, "what comes behind waits");
    // Its slices are about to move, and wait for its item in hand.
    let _two = cluster.worker("two", Duration::ZERO);
    cluster.eventually("another may have them", || {
        let all = (0..SLICES).map(SliceId).collect();
        cluster.runtime.block_on(cluster.controller.move_slices(all, "two")).is_ok()
    });
    load.publish(100);
    let pid: i32 = traces.text("hung").trim().parse().unwrap();
    kill_process(Pid::from_raw(pid).unwrap(), Signal::KILL).unwrap();
    cluster.gather("two", &mut load);
    load.read_all();
    load.check();
    let by_one: Vec<i64> = traces.text("done").lines().map(|id| id.parse().unwrap()).collect();
    let by_two = cluster.log.lock().unwrap().clone();
    let all = by_one.iter().copied().chain(by_two.iter().map(|(id, _, _)| *id));
    let mut last: BTreeMap<i64, i64> = BTreeMap::new();
    let mut done = BTreeSet::new();
    for id in all {
        assert!(done.insert(id), "{id} was done twice");
        let before = last.insert(id % i64::from(SLICES), id);
        assert!(before.is_none_or(|before| before < id), "{id} after {before:?}");
    }
    assert_eq!(done, (0..load.next).collect());
    assert!(done.contains(&45) && by_one.contains(&45), "what it had in hand was its own");
    one.stop().unwrap();
}

/// Answers each item with its fencing token.
const TOKENS: &str = r#"while read -r kind job slice id sender time epoch writer position message; do
    token=$(printf '%s %s %s' "$epoch" "$writer" "$position" | base64 | tr -d '\n')
    printf '%s %s\n' "$job" "$token"
done"#;

#[test]
fn a_program_gets_the_fencing_token_of_each_item() {
    let cluster = Cluster::new(97, Duration::ZERO);
    let command = || {
        let mut command = Command::new("sh");
        command.args(["-c", TOKENS]).process_group(0);
        command
    };
    let dealings = Dealings { format: Format::Lines, tokens: true, ..Dealings::default() };
    let worker = cluster.worker_of("one", Program::start_with(dealings, command).unwrap());
    cluster.eventually("all slices have owners", || cluster.all_owned());
    let mut load = Load::new(&cluster);
    load.open_all();
    load.publish(40);
    load.read_all();
    let epochs: BTreeMap<_, _> =
        cluster.controller.status().slices.iter().map(|it| (it.slice.0, it.epoch.0)).collect();
    let mut positions = BTreeSet::new();
    for answer in &load.answers {
        let text = String::from_utf8(answer.message.clone()).unwrap();
        let words: Vec<u64> = text.split(' ').map(|word| word.parse().unwrap()).collect();
        let [epoch, writer, position] = words[..] else { panic!("{text}") };
        assert_eq!(epoch, epochs[&(answer.id as u32 % SLICES)], "{text}");
        assert!(positions.insert((writer, position)), "{text}");
    }
    assert_eq!(positions.len(), 40);
    worker.stop().unwrap();
}
