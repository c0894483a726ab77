//! The store's roster of a pool, compared with the backends that its driver created.

use super::*;

/// Whether the plan has `count` backends and all of them serve.
fn there_are(instance: &Instance, count: usize) -> bool {
    serving(instance).len() == count && instance.plan()["pools"][0]["scaling"]["backends"] == count
}

fn count(fleet: &Fleet, word: &str) -> usize {
    fleet.log().iter().filter(|line| line.starts_with(word)).count()
}

/// Pins the pool at one: two backends are removed, and none was created again.
fn shrinks_to_one(instance: &Instance, fleet: &Fleet) {
    let (worked, said) = instance.command(&["plan", "pin", "web", "1"]);
    assert!(worked, "{said}");
    assert!(eventually(|| count(fleet, "removed") == 2), "{:?}", fleet.log());
    assert!(eventually(|| there_are(instance, 1)), "{:#}", instance.plan());
    assert_eq!((count(fleet, "made"), count(fleet, "doubled")), (3, 0), "{:?}", fleet.log());
}

#[test]
fn a_record_of_an_earlier_version_without_a_roster_is_adopted() {
    let (mut instance, fleet, pool) = three_by_scripts("earlier");
    let before = (fleet.there(), serving(&instance));
    instance.kill();
    // Keeps only a record as versions without rosters wrote it: with times, and with replacements.
    let folder = instance.store().parent().unwrap().to_path_buf();
    let saved = std::fs::read(folder.join("elastic.json")).unwrap();
    let saved: Value = serde_json::from_slice(&saved).unwrap();
    let driver = saved["drivers"]["web"].as_object().unwrap().values().next().unwrap();
    let backend = |(name, entry): (&String, &Value)| {
        serde_json::json!({
            "name": name, "size": null, "key": entry["key"], "state": "ready", "address": entry["address"],
            "id": entry["id"], "ready_unix_ms": 1_700_000_000_000_u64, "replaces": null, "maker": 0
        })
    };
    let backends = saved["rosters"]["web"]["backends"].as_object().unwrap();
    let backends: Vec<Value> = backends.iter().map(backend).collect();
    let record = serde_json::json!({
        "version": 2, "pool": "web", "next_number": 9, "maker": 0, "drivers": {"0": driver}, "backends": backends
    });
    for entry in std::fs::read_dir(&folder).unwrap().flatten() {
        std::fs::remove_file(entry.path()).unwrap();
    }
    std::fs::write(folder.join("elastic-web.json"), record.to_string()).unwrap();

    instance.start(&pool);
    assert!(eventually(|| there_are(&instance, 3)), "{:#}", instance.plan());
    assert_eq!((fleet.there(), serving(&instance)), before);
    shrinks_to_one(&instance, &fleet);
    let (worked, said) = instance.command(&["plan", "pin", "web", "2"]);
    assert!(worked, "{said}");
    assert!(eventually(|| fleet.there().contains_key("web-e9")), "{:?}", fleet.there());
}

#[test]
fn a_restored_store_keeps_script_backends_created_after_the_copy() {
    let mut instance = Instance::new("put-back");
    let fleet = Fleet::new(&instance.folder);
    // Without a listing, so that only rosters show which backends exist.
    let pool = format!("{ELASTIC}{}", fleet.table_without_list());
    instance.start(&pool);
    assert!(eventually(|| there_are(&instance, 1)), "{:#}", instance.plan());
    instance.kill();
    let copy = instance.folder.path("copy");
    std::fs::copy(instance.store(), &copy).unwrap();
    instance.start(&pool);
    let (worked, said) = instance.command(&["plan", "pin", "web", "3"]);
    assert!(worked, "{said}");
    assert!(eventually(|| there_are(&instance, 3)), "{:#}", instance.plan());
    let before = (fleet.there(), serving(&instance));
    instance.kill();
    std::fs::copy(&copy, instance.store()).unwrap();

    instance.start(&pool);
    assert!(eventually(|| there_are(&instance, 3)), "{:#} {}", instance.plan(), instance.printed());
    assert_eq!((fleet.there(), serving(&instance)), before);
    shrinks_to_one(&instance, &fleet);
}

#[test]
fn a_restored_store_does_not_revive_backends_removed_after_the_copy() {
    let mut instance = Instance::new("put-back-ghost");
    let fleet = Fleet::new(&instance.folder);
    let pool = format!("{ELASTIC}{}", fleet.table_without_list());
    instance.start(&pool);
    let (worked, said) = instance.command(&["plan", "pin", "web", "3"]);
    assert!(worked, "{said}");
    assert!(eventually(|| there_are(&instance, 3)), "{:#}", instance.plan());
    let before = fleet.there();
    instance.kill();
    let copy = instance.folder.path("copy");
    std::fs::copy(instance.store(), &copy).unwrap();
    instance.start(&pool);
    shrinks_to_one(&instance, &fleet);
    let saved = instance.store().with_file_name("elastic.json");
    let is_saved = || {
        let saved: Value =
            serde_json::from_slice(&std::fs::read(&saved).unwrap_or_default()).unwrap_or_default();
        saved["rosters"]["web"]["backends"].as_object().is_some_and(|it| it.len() == 1)
    };
    assert!(eventually(is_saved), "{}", instance.printed());
    let left = fleet.there();
    instance.kill();
    std::fs::copy(&copy, instance.store()).unwrap();

    // The pool is pinned at three again, as it was then, and two new backends are created.
    instance.start(&pool);
    let gone: Vec<&String> = before.keys().filter(|name| !left.contains_key(*name)).collect();
    assert_eq!(gone.len(), 2);
    let is_back = || {
        let status = instance.json("/v1/status").to_string();
        gone.iter().any(|name| status.contains(&format!("\"{name}\"")))
    };
    let grows = eventually(|| {
        assert!(!is_back(), "{gone:?} {}", instance.printed());
        there_are(&instance, 3)
    });
    assert!(grows, "{:#} {}", instance.plan(), instance.printed());
    let now = fleet.there();
    assert!(left.keys().all(|name| now.contains_key(name)), "{left:?} {now:?}");
    assert!(gone.iter().all(|name| !now.contains_key(*name)), "{gone:?} {now:?}");
    assert_eq!((count(&fleet, "made"), count(&fleet, "doubled")), (5, 0), "{:?}", fleet.log());
}

/// With the restored store, which has a roster with processes that died since, and with an empty
/// store.
#[test]
fn backends_created_without_a_controller_survive_a_store_repair() {
    for is_kept in [true, false] {
        let mut instance = Instance::new(&format!("mended-{is_kept}"));
        let pool = made_of_processes().replace("min = 1", "min = 2");
        instance.start(&pool);
        assert!(eventually(|| there_are(&instance, 2)), "{:#}", instance.plan());
        let (worked, said) = instance.command(&["plan", "pin", "web", "3"]);
        assert!(worked, "{said}");
        assert!(eventually(|| there_are(&instance, 3)), "{:#}", instance.plan());
        instance.kill();
        let whole = std::fs::read(instance.store()).unwrap();
        damage(&instance);
        instance.start(&pool).wait_for_text("the controller does not run");
        assert!(eventually(|| serving(&instance).len() == 3), "{}", instance.printed());
        let before = serving(&instance);

        match is_kept {
            true => std::fs::write(instance.store(), whole).unwrap(),
            false => std::fs::remove_file(instance.store()).unwrap(),
        }
        assert_eq!(reload(&instance.socket).0, 200);
        instance.until("it plans", |plan| edition(plan).1 > 0);
        let (worked, said) = instance.command(&["plan", "pin", "web", "3"]);
        assert!(worked, "{said}");
        assert!(eventually(|| there_are(&instance, 3)), "{:#}", instance.plan());
        let seen = edition(&instance.plan());
        instance.until("some plans later", |plan| edition(plan).1 > seen.1 + 10);
        assert_eq!(serving(&instance), before, "{}", instance.printed());
        let printed = instance.printed();
        assert_eq!(printed.matches(" adding ").count(), 3, "{printed}");
        assert_eq!(printed.matches(" removing ").count(), 0, "{printed}");
    }
}
