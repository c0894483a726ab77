//! Requests of operators: status, pins, moves, the plan, reloads.

use equipoise_testkit::eventually;
use serde_json::Value;

use crate::bed::{Bed, Load, SLICES, each_done_once, python, slices_of, worker};
use crate::common::{equipoise, stderr, stdout, text};

/// Balancing is off, so that only operators move slices.
const STILL: &str = "[slice.balancing]\nevery = \"100ms\"\nshare-max = 0";

fn owner(status: &Value, slice: usize) -> &str {
    status["slices"][slice]["owner"].as_str().unwrap_or("nobody")
}

#[test]
fn slices_are_moved_and_pinned_and_invalid_requests_are_refused() {
    if !python() {
        return;
    }
    let mut bed = Bed::new("slice-moves", 78, STILL);
    bed.two_workers(0);
    let load = Load::start(&bed, 200.0);
    load.wait_for(20);
    let said = bed.said(&["move", "0-11", "two"]);
    assert!(said.contains("moving to two") && said.contains("already at two"), "{said}");
    bed.until("all are there", |status| slices_of(status, "two") == u64::from(SLICES));
    bed.until_owned_by(&["two"]);
    let moves: Value = serde_json::from_str(&bed.said(&["move", "3,5", "one", "--json"])).unwrap();
    assert_eq!(moves["moving"], serde_json::json!([3, 5]), "{moves}");
    bed.until("they are there", |status| owner(status, 3) == "one" && owner(status, 5) == "one");
    let is_told = || bed.events("slice.moved").contains("slices [3, 5] moved to one in ");
    assert!(eventually(is_told), "{}", bed.events("slice"));
    assert_eq!(bed.said(&["pin", "7", "one"]), "slice 7: pinned to one\n");
    let status = bed.until("the pinned one goes there", |status| owner(status, 7) == "one");
    assert_eq!(status["slices"][7]["pinned"], "one");
    bed.until("it says why it stays", |status| status["slices"][7]["blocked"] == "pinned to one");
    for (item, lines) in [
        ("7", ["stream items, slice 7: worker one\n", "slice: it is pinned to worker one\n"]),
        ("3", ["stream items, slice 3: worker one\n", "slice: slice 3: worker one owns it by"]),
        ("key=ann", ["stream items, key \"ann\": worker ", "of 12, by the hash of the key\n"]),
    ] {
        let output = equipoise(&["why", "item", "items", item, "--api", text(&bed.socket)]);
        let why = stdout(&output) + &stderr(&output);
        assert!(lines.iter().all(|line| why.contains(line)), "{lines:?} in {why}");
        assert!(why.contains("slice: a round now would not move it: "), "{why}");
    }
    let output = equipoise(&["why", "item", "items", "99", "--api", text(&bed.socket)]);
    assert!(stderr(&output).contains("has no slice 99; it has 12"), "{}", stderr(&output));
    let shown = bed.said(&["status"]);
    assert!(shown.contains("pinned to one") && shown.contains("stream items"), "{shown}");
    let refused = bed.command(&["move", "6-7", "two"]);
    assert!(
        !refused.0 && refused.1.contains("slice 7 is pinned to one: unpin it first"),
        "{refused:?}"
    );
    let status = bed.status();
    assert_eq!((owner(&status, 6), owner(&status, 7)), ("two", "one"), "nothing was moved");
    let said = bed.said(&["move", "7", "two", "--force"]);
    assert!(
        said.starts_with("slice 7: no longer pinned to one\nslices 7: moving to two"),
        "{said}"
    );
    bed.until("it is there, and free", |status| {
        owner(status, 7) == "two" && status["slices"][7]["pinned"].is_null()
    });
    bed.said(&["pin", "7", "one"]);
    assert_eq!(bed.said(&["unpin", "7"]), "slice 7: no longer pinned\n");
    let (worked, said) = bed.command(&["unpin", "7"]);
    assert!(!worked && said.contains("slice 7 is not pinned"), "{said}");
    assert_eq!(bed.status()["slices"][7]["pinned"], Value::Null);
    // The reason is `off` while the load is uneven, and `balanced` otherwise.
    let plan = bed.until_plan(&["off", "balanced"]);
    assert_eq!((&plan["stream"], &plan["moves"]), (&"items".into(), &serde_json::json!([])));
    let shown = bed.said(&["plan"]);
    assert!(shown.contains("nothing would be moved now: "), "{shown}");
    assert!(shown.contains("WORKER") && shown.contains("share"), "{shown}");
    what_cannot_be_is_refused(&bed);
    let outcome = load.finish();
    each_done_once(&bed, &outcome);
    let status = bed.status();
    assert!(status["handovers_moved_total"].as_u64().unwrap() >= 3, "{status:#}");
    assert!(status["handover_seconds_p50"].is_f64(), "{status:#}");
}

fn what_cannot_be_is_refused(bed: &Bed) {
    let rows: [(&[&str], &str); 8] = [
        (&["status", "--stream", "none"], "there is no stream `none`; the streams are `items`"),
        (&["move", "99", "one"], "there is no slice 99"),
        (
            &["move", "0", "nobody"],
            "no worker of the stream items is called `nobody`; the workers are `one`, `two`",
        ),
        (
            &["pin", "0", "nobody"],
            "no worker of the stream items is called `nobody`; the workers are `one`, `two`",
        ),
        (&["pin", "99", "one"], "there is no slice 99"),
        (&["drain", "nobody"], "is called `nobody`"),
        (
            &["drain", "one", "--stream", "none"],
            "there is no stream `none`; the streams are `items`",
        ),
        (&["move", "x", "one"], "names no slices"),
    ];
    for (args, expected) in rows {
        let (worked, said) = bed.command(args);
        assert!(!worked && said.contains(expected), "{args:?}: {said}\nlacks: {expected}");
    }
}

#[test]
fn a_plan_lists_the_next_moves_without_executing_them() {
    if !python() {
        return;
    }
    // Rounds are rare, so that a planned move is seen before it starts.
    let mut bed = Bed::new("slice-plan", 79, "[slice.balancing]\nevery = \"1h\"");
    bed.worker("one", 3);
    bed.until_owned_by(&["one"]);
    bed.worker("two", 3);
    let load = Load::start(&bed, 150.0);
    let plan = bed.until_plan(&["moves"]);
    load.finish();
    let step = &plan["moves"][0];
    assert_eq!((&step["giver"], &step["taker"]), (&"one".into(), &"two".into()), "{plan:#}");
    assert!(!step["slices"].as_array().unwrap().is_empty(), "{plan:#}");
    let of = |name: &str| {
        let workers = plan["workers"].as_array().unwrap();
        workers.iter().find(|worker| worker["name"] == name).unwrap()["reason"].clone()
    };
    assert_eq!((of("one"), of("two")), ("gives".into(), "takes".into()), "{plan:#}");
    assert_eq!(slices_of(&bed.status(), "two"), 0, "nothing follows from a plan");
}

#[test]
fn a_plan_reports_the_reason_for_no_move() {
    if !python() {
        return;
    }
    let mut bed = Bed::new("slice-why", 87, "[slice.balancing]\nevery = \"100ms\"\nshare-max = 0");
    bed.until("it leads", |status| status["leading"] == true);
    bed.until_plan(&["nobody_takes"]);
    bed.worker("one", 2);
    bed.until_owned_by(&["one"]);
    bed.until_plan(&["one_worker"]);
    bed.worker("two", 2);
    bed.until("the second is there", |status| worker(status, "two")["state"] == "active");
    bed.until_plan(&["nothing_measured"]);
    assert!(bed.said(&["plan"]).contains("no items arrive"));
    let load = Load::start(&bed, 100.0);
    bed.until_plan(&["off"]);
    assert!(bed.said(&["plan"]).contains("`share-max = 0`"));
    bed.said(&["drain", "two"]);
    bed.until_plan(&["one_worker"]);
    assert!(bed.said(&["plan"]).contains("gives up its slices: drained by an operator"));
    load.finish();
}

#[test]
fn a_plan_names_the_pin_that_prevents_balancing() {
    if !python() {
        return;
    }
    let mut bed = Bed::new("slice-why-pinned", 89, "[slice.balancing]\nevery = \"100ms\"");
    bed.worker("one", 2);
    bed.until_owned_by(&["one"]);
    for slice in 0..SLICES {
        bed.said(&["pin", &slice.to_string(), "one"]);
    }
    bed.worker("two", 2);
    bed.until("the second is there", |status| worker(status, "two")["state"] == "active");
    let load = Load::start(&bed, 150.0);
    let status =
        bed.until("all is with one", |status| slices_of(status, "one") == u64::from(SLICES));
    assert_eq!(worker(&status, "two")["state"], "active");
    // Slices are spread by number before there are measurements, so the test waits for the plan
    // that uses them.
    let plan = bed.until_planned("the pin stands against what was measured", |plan| {
        plan["reason"] == "pinned" && plan["workers"][0]["reason"] == "over"
    });
    let said = plan["explanation"].as_str().unwrap();
    assert!(said.contains("from one to two, but it is pinned to one"), "{said}");
    let workers = plan["workers"].as_array().unwrap();
    assert_eq!(workers[1]["reason"], "under", "{plan:#}");
    // All columns have the same measure: the load of arriving and waiting items.
    let number = |worker: &Value, of: &str| worker[of].as_f64().unwrap();
    let over = number(&workers[0], "over_mean") - plan["imbalance"].as_f64().unwrap();
    assert!(over.abs() < 1e-6, "{plan:#}");
    let whole = |worker: &Value| number(worker, "load") + number(worker, "queue_load");
    let mean = (whole(&workers[0]) + whole(&workers[1])) / 2.0;
    assert!((number(&workers[1], "room") - (mean - whole(&workers[1]))).abs() < 1e-6, "{plan:#}");
    assert_eq!(workers[0]["pinned"], SLICES, "{plan:#}");
    load.finish();
}

#[test]
fn a_reload_changes_the_streams_that_changed_and_no_other() {
    if !python() {
        return;
    }
    let mut bed = Bed::unstarted("slice-reload", 80);
    let first = bed.table("items", STILL);
    bed.write_tables(&first);
    bed.start();
    bed.worker("one", 0);
    let before = bed.until_owned_by(&["one"]);
    let load = Load::start(&bed, 200.0);
    let reload = || {
        let socket = bed.folder.path("api.sock");
        let output = equipoise(&["reload", "--api", text(&socket)]);
        (output.status.success(), stdout(&output) + &stderr(&output))
    };
    // A second stream is added, and the first one continues.
    bed.write_tables(&format!("{first}{}", bed.table("more", STILL)));
    assert!(reload().0, "{}", reload().1);
    let streams: Value = serde_json::from_str(&bed.said(&["status", "--json"])).unwrap();
    assert_eq!(streams["streams"][1]["name"], "more");
    assert_eq!(streams["streams"][0]["slices"][0]["epoch"], before["slices"][0]["epoch"]);
    let (worked, said) = bed.command(&["plan"]);
    assert!(!worked && said.contains("several streams (items, more)"), "{said}");
    // The interface does not exist, so nothing changes.
    let bad = first.replace("interfaces = \"lo\"", "interfaces = \"nosuch0\"");
    bed.write_tables(&bad);
    let (worked, said) = reload();
    assert!(!worked && said.contains("cannot join DDS domain 80"), "{said}");
    let status = bed.until("the first goes on", |status| status["leading"] == true);
    assert_eq!(status["name"], "items");
    load.wait_for(50);
    // The settings of DDS change, and the second stream is removed.
    bed.write_tables(&first.replace("lease = \"1s\"", "lease = \"900ms\""));
    assert!(reload().0, "{}", reload().1);
    let status = bed.until_owned_by(&["one"]);
    assert_eq!(status["name"], "items");
    let outcome = load.finish();
    each_done_once(&bed, &outcome);
    // All streams are removed.
    bed.write_tables("");
    assert!(reload().0);
    let (worked, said) = bed.command(&["status"]);
    assert!(!worked && said.contains("no [[slice]] table is configured"), "{said}");
    assert!(bed.controller.as_ref().unwrap().printed().contains("slice level: candidate"));
}
