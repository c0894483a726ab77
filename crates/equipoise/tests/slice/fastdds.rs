//! A client in C++ that uses Fast DDS, the default implementation of ROS 2, next to one in Python
//! that uses Cyclone DDS.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;

use crate::bed::{Bed, SLICES, cyclonedds, python};
use crate::common::{Process, stderr, text};

const COUNT: i64 = 300;
const HEADER: &str = "/usr/include/fastdds/dds/domain/DomainParticipant.hpp";

/// The client, compiled once; `None` without Fast DDS.
fn client() -> Option<&'static Path> {
    static CLIENT: OnceLock<Option<PathBuf>> = OnceLock::new();
    CLIENT.get_or_init(compiled).as_deref()
}

fn compiled() -> Option<PathBuf> {
    if !Path::new(HEADER).exists() {
        println!(
            "skipped: there is no Fast DDS (Debian: libfastrtps-dev, which `make test` installs)"
        );
        return None;
    }
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/slice/fastdds.cpp");
    let folder = PathBuf::from(env!("CARGO_TARGET_TMPDIR"));
    let (client, fresh) = (folder.join("fastdds-client"), folder.join("fastdds-client.new"));
    let changed = |path: &Path| path.metadata().and_then(|it| it.modified()).ok();
    if changed(&client).is_some_and(|built| changed(&source).is_some_and(|at| at < built)) {
        return Some(client);
    }
    let mut compiler = Command::new("g++");
    compiler.args(["-std=c++17", "-O0", "-w", "-o", text(&fresh), text(&source)]);
    let output = compiler.args(["-lfastrtps", "-lfastcdr"]).output().expect("g++ is there");
    assert!(output.status.success(), "{}", stderr(&output));
    std::fs::rename(&fresh, &client).unwrap();
    Some(client)
}

/// The names of a stream's topics and types.
struct Names {
    topics: [&'static str; 2],
    types: [&'static str; 2],
    keyed: bool,
}

/// Starts a stream, two workers, and a client for each transport. If the stream is keyed, a client
/// in Python runs at the same time.
fn every_item_is_answered(test: &str, domain: u32, names: &Names) {
    if !python() {
        return;
    }
    let Some(client) = client() else { return };
    let mut bed = Bed::unstarted(test, domain);
    let ([items, replies], [item_type, reply_type]) = (names.topics, names.types);
    let named = format!(
        "items = \"{items}\"\nreplies = \"{replies}\"\nitem-type = \"{item_type}\"\nreply-type = \"{reply_type}\""
    );
    let table = bed.table("items", "").replace("items = \"items\"", &named);
    // A client that never repeats items loses them if a worker is wrongly treated as dead.
    bed.write_tables(&table.replace("lease = \"1s\"", "lease = \"20s\""));
    bed.start();
    bed.two_workers(0);
    let expected: Vec<_> = (0..COUNT).map(|id| format!("{id} item {id}")).collect();
    for transport in ["shm", "udp"] {
        let peer =
            cyclonedds().filter(|_| names.keyed).map(|python| python_client(&python, domain));
        let mut command = Command::new(client);
        command.args([&domain.to_string(), &SLICES.to_string(), &COUNT.to_string(), "2"]);
        command.args([items, replies, item_type, reply_type]);
        command.args([if names.keyed { "keyed" } else { "keyless" }, transport]);
        let mut fast = Process::of(command);
        assert!(fast.ended().success(), "{transport}: {}", fast.printed());
        assert_eq!(fast.printed().lines().collect::<Vec<_>>(), expected, "{transport}");
        if let Some(mut peer) = peer {
            assert!(peer.ended().success(), "{}", peer.printed());
            let mut said: Vec<_> = peer.printed().lines().map(str::to_string).collect();
            said.sort_by_key(|line| line.split(' ').next().and_then(|id| id.parse::<i64>().ok()));
            assert_eq!(said, expected, "beside {transport}");
        }
    }
}

fn python_client(python: &Path, domain: u32) -> Process {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let mut command = Command::new(python);
    command.arg(root.join("crates/levels/slice-dds/examples/client.py"));
    command.args([&domain.to_string(), &SLICES.to_string(), &COUNT.to_string(), "lo"]);
    command.env("PYTHONDONTWRITEBYTECODE", "1");
    Process::of(command)
}

#[test]
fn a_client_that_uses_fast_dds_beside_one_in_python_has_every_item_answered() {
    every_item_is_answered(
        "slice-fastdds",
        91,
        &Names {
            topics: ["items", "replies"],
            types: ["dpslb::DataItem", "dpslb::Reply"],
            keyed: true,
        },
    );
}

#[test]
fn a_client_that_uses_fast_dds_and_the_names_of_ros_2_has_every_item_answered() {
    every_item_is_answered(
        "slice-fastdds-ros2",
        92,
        &Names {
            topics: ["rt/items", "rt/replies"],
            types: ["equipoise_msgs::msg::dds_::DataItem_", "equipoise_msgs::msg::dds_::Reply_"],
            keyed: false,
        },
    );
}
