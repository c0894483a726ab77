//! Publishers with ROS 2's names of topics and types, and publishers that no worker can read.

use std::path::{Path, PathBuf};
use std::process::Command;

use equipoise_dds::items::DATA_ITEM;
use equipoise_dds::{Domain, Kind, Participant, Qos};

use crate::bed::{Bed, SLICES, cyclonedds, python, worker};
use crate::common::{Process, text};

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

#[test]
fn ros_2_items_are_processed_and_foreign_samples_are_counted() {
    let Some(python) = cyclonedds() else { return };
    let mut bed = Bed::unstarted("slice-ros2", 83);
    let table = bed.table("items", "");
    let names = "items = \"rt/items\"\nreplies = \"rt/replies\"\n\
                 item-type = \"equipoise_msgs::msg::dds_::DataItem_\"\n\
                 reply-type = \"equipoise_msgs::msg::dds_::Reply_\"";
    bed.write_tables(&table.replace("items = \"items\"", names));
    bed.start();
    bed.worker("one", 0);
    bed.until_owned_by(&["one"]);
    let mut command = Command::new(python);
    command
        .arg(Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/slice/ros2.py"))
        .args(["83", &SLICES.to_string(), "200"])
        .env("PYTHONPATH", root().join("crates/levels/slice-dds/examples"))
        .env("PYTHONDONTWRITEBYTECODE", "1");
    let mut publisher = Process::of(command);
    assert!(publisher.ended().success(), "{}", publisher.printed());
    let expected: Vec<_> = (0..200).map(|id| format!("{id} item {id}")).collect();
    assert_eq!(publisher.printed().lines().collect::<Vec<_>>(), expected);
    bed.until("what was no item is counted", |status| {
        worker(status, "one")["drops"]["malformed"] == 3
    });
    let shown = bed.said(&["status"]);
    assert!(shown.contains("malformed") && shown.contains("another type under the same name"));
}

#[test]
fn ros_2_messages_are_spread_by_a_field_and_answered() {
    let Some(python) = cyclonedds() else { return };
    let mut bed = Bed::unstarted("slice-ros2-key", 94);
    let examples = root().join("crates/levels/slice-dds/examples/ros2");
    let table = std::fs::read_to_string(examples.join("slice.toml")).unwrap();
    let (idl, path) = ("crates/levels/slice-dds/examples/ros2/scan.idl", examples.join("scan.idl"));
    assert!(table.contains(idl) && table.contains("domain = 0") && table.contains("slices = 20"));
    let table = table.replace(idl, text(&path)).replace("domain = 0", "domain = 94");
    // With a long lease, no worker is wrongly treated as dead on a busy machine: a node never
    // repeats items.
    bed.write_tables(&table.replace("interfaces", "lease = \"20s\"\ninterfaces"));
    bed.start();
    let program = examples.join("worker.py");
    let program = [text(&python), "-B", text(&program)];
    for name in ["one", "two"] {
        bed.worker_of(name, &program);
    }
    bed.until_owned_by(&["one", "two"]);
    let mut node = Command::new(&python);
    node.args(["-B", text(&examples.join("node.py")), "94", "300", "2", "lo"]);
    let mut node = Process::of(node);
    assert!(node.ended().success(), "{}", node.printed());
    let nearest = |n: i32| f64::from((1 + n).min(9));
    let line = |n: i32| format!("{n} robot_{}/base_scan {:?}", n % 10, nearest(n));
    let expected: Vec<_> = (0..300).map(line).collect();
    assert_eq!(node.printed().lines().collect::<Vec<_>>(), expected);
    let status = bed.until("all are counted", |status| {
        let done = |name| worker(status, name)["items_total"].as_u64().unwrap_or(0);
        done("one") + done("two") == 300
    });
    let busy = status["slices"].as_array().unwrap().len();
    assert_eq!(busy, 20, "{status:#}");
}

#[test]
fn an_unreadable_publisher_is_reported_with_its_problem() {
    if !python() {
        return;
    }
    let mut bed = Bed::new("slice-unread", 84, "");
    bed.worker("one", 0);
    bed.until_owned_by(&["one"]);
    let domain = Domain::open(84, &bed.stream().dds).unwrap();
    let stranger = Participant::new(domain, &[]).unwrap();
    let ros = stranger.topic_named("items", &DATA_ITEM, "my_msgs::msg::dds_::Item_").unwrap();
    let ros = ros.writer(&Qos::default()).unwrap();
    let domain = Domain::open(84, &bed.stream().dds).unwrap();
    let other = Participant::new(domain, &[]).unwrap();
    let usual = other.topic("items", &DATA_ITEM).unwrap();
    let hasty = usual.writer(&Qos { reliable: false, ..Qos::default() }).unwrap();
    let good = usual.writer(&Qos::default()).unwrap();
    let status = bed.until("both are reported", |status| {
        status["unread"].as_array().is_some_and(|unread| unread.len() == 2)
    });
    let problem = |guid| {
        let unread = status["unread"].as_array().unwrap();
        let found = unread.iter().find(|it| it["writer"] == format!("{guid:?}"));
        found.map(|it| it["problem"].as_str().unwrap().to_string()).unwrap_or_default()
    };
    let said = problem(ros.guid());
    assert!(said.contains("my_msgs::msg::dds_::Item_") && said.contains("`item-type`"), "{said}");
    assert!(problem(hasty.guid()).contains("best-effort"), "{status:#}");
    assert_eq!(problem(good.guid()), "");
    assert!(bed.said(&["status"]).contains("reach no worker: it is best-effort"));
    drop((ros, hasty));
    bed.until("they have gone", |status| status["unread"].as_array().unwrap().is_empty());
}

/// The fields of a ROS 2 message, in order: `int32`, `int64` and `uint8[]`.
fn fields(message: &str) -> Vec<(Kind, String)> {
    let path = root().join("packaging/ros2/equipoise_msgs/msg").join(message);
    let message = std::fs::read_to_string(path).unwrap();
    let lines = message.lines().map(|line| line.split('#').next().unwrap().trim());
    let field = |line: &str| {
        let (kind, name) = line.split_once(' ').unwrap();
        let kind = match kind {
            "int32" => Kind::I32,
            "int64" => Kind::I64,
            "uint8[]" => Kind::Octets,
            other => panic!("{other}"),
        };
        (kind, name.trim().replace('_', "").to_lowercase())
    };
    lines.filter(|line| !line.is_empty()).map(field).collect()
}

#[test]
fn the_messages_for_ros_2_have_the_members_of_the_types() {
    for (message, members) in
        [("DataItem.msg", DATA_ITEM.members), ("Reply.msg", equipoise_dds::items::REPLY.members)]
    {
        let members: Vec<_> =
            members.iter().map(|member| (member.kind, member.name.to_lowercase())).collect();
        assert_eq!(fields(message), members, "{message}");
    }
}
