//! The saved rosters of elastic pools, if the store or the saved file is damaged, lost or older.

use super::*;

fn saved(instance: &Instance) -> PathBuf {
    instance.store().with_file_name("elastic.json")
}

/// The saved roster of the pool; null if there is none.
fn roster(instance: &Instance) -> Value {
    let content = std::fs::read(saved(instance)).unwrap_or_default();
    let content: Value = serde_json::from_slice(&content).unwrap_or_default();
    content["rosters"]["web"].clone()
}

/// Whether the saved roster has the addresses of `count` backends: what is saved was stored before.
fn knows(instance: &Instance, count: usize) -> bool {
    let roster = roster(instance);
    let backends = roster["backends"].as_object();
    let known = backends.into_iter().flatten().filter(|(_, entry)| entry["address"].is_string());
    known.count() == count
}

/// Truncates a file to its first half.
fn halve(path: &std::path::Path) {
    let bytes = std::fs::read(path).expect("it is there");
    std::fs::write(path, &bytes[..bytes.len() / 2]).expect("the folder is ours");
}

#[test]
fn script_backends_survive_a_damaged_stale_or_lost_saved_roster() {
    let mut instance = Instance::new("saved");
    let fleet = Fleet::new(&instance.folder);
    // Without a listing, so that only rosters show which backends exist.
    let pool = format!("{ELASTIC}{}", fleet.table_without_list());
    instance.start(&pool);
    assert!(eventually(|| serving(&instance).len() == 1), "{:#}", instance.plan());
    assert!(eventually(|| knows(&instance, 1)), "{:#}", roster(&instance));
    let older = std::fs::read(saved(&instance)).expect("it is there");
    let (worked, said) = instance.command(&["plan", "pin", "web", "3"]);
    assert!(worked, "{said}");
    assert!(eventually(|| serving(&instance).len() == 3), "{:#}", instance.plan());
    assert!(eventually(|| knows(&instance, 3)), "{:#}", roster(&instance));
    let before = (fleet.there(), serving(&instance).into_iter().collect::<BTreeSet<_>>());

    for damage in ["damaged", "older", "lost"] {
        instance.kill();
        match damage {
            "damaged" => halve(&saved(&instance)),
            "older" => std::fs::write(saved(&instance), &older).expect("the folder is ours"),
            _ => std::fs::remove_file(saved(&instance)).expect("it is there"),
        }
        instance.start(&pool);
        let first = instance.until("it plans", |plan| edition(plan).1 > 0);
        let mut now = BTreeSet::new();
        let is_same = eventually(|| {
            now = serving(&instance).into_iter().collect();
            now == before.1
        });
        assert!(is_same, "{damage}: {now:?} {}", instance.printed());
        instance.until("some plans later", |plan| edition(plan).1 > edition(&first).1 + 5);
        assert_eq!(fleet.there(), before.0, "{damage}: the same ones, none made again");
    }
    let aside = saved(&instance).with_extension("json.bad");
    assert!(aside.exists(), "{}", instance.printed());
    let (worked, said) = instance.command(&["plan", "pin", "web", "1"]);
    assert!(worked, "{said}");
    let kinds = |word: &str| fleet.log().iter().filter(|line| line.starts_with(word)).count();
    assert!(eventually(|| kinds("removed") == 2), "{:?}", fleet.log());
    assert_eq!((kinds("made"), kinds("doubled")), (3, 0), "{:?}", fleet.log());
}

#[test]
fn a_process_pool_with_a_damaged_record_starts_with_unused_names() {
    let mut instance = Instance::new("saved-anew");
    let pool = made_of_processes().replace("min = 1", "min = 2");
    instance.start(&pool);
    assert!(eventually(|| serving(&instance).len() == 2), "{}", instance.printed());
    assert!(eventually(|| knows(&instance, 2)), "{:#}", roster(&instance));
    let old = serving(&instance);
    instance.kill();
    halve(&saved(&instance));
    let answers = |at: &std::net::SocketAddr| std::net::TcpStream::connect(at).is_ok();
    assert!(eventually(|| !old.iter().any(answers)), "children die with their parent");

    instance.start(&pool).wait_for_text("set aside as");
    assert!(eventually(|| serving(&instance).len() == 2), "{}", instance.printed());
    let status = instance.json("/v1/status").to_string();
    for (name, is_there) in
        [("web-e1", false), ("web-e2", false), ("web-e3", true), ("web-e4", true)]
    {
        assert_eq!(status.contains(&format!("\"{name}\"")), is_there, "{name} {status}");
    }
}

#[test]
fn script_backends_are_removed_once_their_pool_is_no_longer_elastic() {
    for is_killed in [false, true] {
        let (mut instance, fleet, pool) = three_by_scripts(&format!("no-more-{is_killed}"));
        assert!(eventually(|| knows(&instance, 3)), "{:#}", roster(&instance));
        let plain = "backends = [{ name = \"own\", address = \"127.0.0.1:1\" }]";
        if is_killed {
            instance.kill();
            instance.start(plain);
        } else {
            instance.write(plain);
            assert_eq!(reload(&instance.socket).0, 200);
        }
        assert!(
            eventually(|| fleet.there().is_empty()),
            "{:?} {}",
            fleet.log(),
            instance.printed()
        );
        let stopped = || {
            let (worked, said) = instance.command(&["plan"]);
            !worked && said.contains("nothing is planned")
        };
        assert!(eventually(stopped), "{}", instance.printed());
        assert!(eventually(|| roster(&instance).is_null()), "{:#}", roster(&instance));

        // When the pool is elastic again, its backends are created again.
        instance.write(&pool);
        assert_eq!(reload(&instance.socket).0, 200);
        assert!(eventually(|| knows(&instance, 3)), "{:?} {}", fleet.log(), instance.printed());
        assert_eq!(fleet.there().len(), 3, "{:?}", fleet.log());
    }
}

#[test]
fn a_pool_elastic_again_after_a_quick_reload_duplicates_no_backend() {
    let (instance, fleet, pool) = three_by_scripts("no-more-a-moment");
    instance.write("backends = [{ name = \"own\", address = \"127.0.0.1:1\" }]");
    assert_eq!(reload(&instance.socket).0, 200);
    instance.write(&pool);
    assert_eq!(reload(&instance.socket).0, 200);
    let seen = instance.until("it plans", |plan| edition(plan).1 > 0);
    instance.until("some plans later", |plan| edition(plan).1 > edition(&seen).1 + 10);
    assert!(eventually(|| serving(&instance).len() == 3), "{}", instance.printed());
    assert_eq!(fleet.there().len(), 3, "{:?}", fleet.log());
    let log = fleet.log();
    assert_eq!(log.iter().filter(|line| line.starts_with("doubled")).count(), 0, "{log:?}");
}

#[test]
fn a_disk_that_hangs_does_not_keep_a_pool_from_growing() {
    let mut instance = Instance::new("saved-hangs");
    let fleet = Fleet::new(&instance.folder);
    let pool = format!("{ELASTIC}{}", fleet.table_without_list());
    instance.start(&pool);
    assert!(eventually(|| knows(&instance, 1)), "{:#}", roster(&instance));
    // Opening a FIFO for writing blocks until a reader opens it.
    let fifo = saved(&instance).with_extension("json.new");
    assert!(std::process::Command::new("mkfifo").arg(&fifo).status().expect("it runs").success());
    let (worked, said) = instance.command(&["plan", "pin", "web", "3"]);
    assert!(worked, "{said}");
    assert!(eventually(|| serving(&instance).len() == 3), "{}", instance.printed());
    let (worked, said) = instance.command(&["plan", "pin", "web", "1"]);
    assert!(worked, "{said}");
    assert!(eventually(|| fleet.there().len() == 1), "{:?} {}", fleet.log(), instance.printed());
    assert!(instance.printed().contains("the disk does not answer"), "{}", instance.printed());
}
