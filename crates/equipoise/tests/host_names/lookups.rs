//! Names with difficult answers.

use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::time::{Duration, Instant};

use equipoise_testkit::eventually;

use crate::bed::{Instance, listen_at, may_mount, serve_at};
use crate::common::{stderr, stdout};
use crate::resolver::{A, Answer, Resolver};

/// Less than 30 s, the wait of names behind 50 dead ones when each lookup kept its place for 10 s.
const BEHIND_DEAD_WITHIN: Duration = Duration::from_secs(20);

#[test]
fn names_without_an_answer_do_not_hold_up_the_others() {
    if !may_mount() {
        return;
    }
    let port = serve_at(&[("127.0.0.1", "a")]);
    let resolver = Resolver::start(|question| match question.name.starts_with("dead") {
        true => Answer::Silence,
        false => Answer::of(&["127.0.0.1"], 60),
    });
    let dead = (0..50).map(|number| format!("'dead{number}.names.test:{port}'"));
    let live = (0..50).map(|number| format!("'live{number}.names.test:{port}'"));
    let backends = dead.chain(live).collect::<Vec<_>>().join(", ");
    let begun = Instant::now();
    let instance =
        Instance::start("names-half", resolver.address, &format!("backends = [{backends}]"));
    let resolved = || {
        let status = instance.status();
        let backends = status["pools"][0]["backends"].as_array().unwrap();
        backends.iter().filter(|backend| backend["resolved"] != serde_json::json!([])).count()
    };
    assert!(eventually(|| resolved() == 50), "{} names are resolved", resolved());
    assert!(begun.elapsed() < BEHIND_DEAD_WITHIN, "after {:?}", begun.elapsed());
    assert_eq!(instance.ask(), (200, "a".to_owned()));
    let checked = instance.check();
    let warnings = stdout(&checked) + &stderr(&checked);
    assert!(warnings.contains("\"dead49.names.test\" cannot be resolved"), "{warnings}");
}

#[test]
fn a_silent_backend_is_found_though_each_lookup_has_another_answer() {
    if !may_mount() {
        return;
    }
    // The kernel accepts connections, and no process answers.
    let (_silent, port) = listen_at(&["127.0.0.1", "127.0.0.2", "127.0.0.3", "127.0.0.4"]);
    let asked = AtomicUsize::new(0);
    let resolver = Resolver::start(move |question| {
        let subsets = [["127.0.0.1", "127.0.0.2"], ["127.0.0.4", "127.0.0.3"]];
        let turn = match question.kind {
            A => asked.fetch_add(1, Relaxed),
            _ => 0,
        };
        Answer::of(&subsets[turn % 2], 0)
    });
    // A check lasts longer than a second, after which the name has other addresses.
    let pool = format!(
        "backends = ['app.names.test:{port}']\n[pool.health]\nhttp = '/'\ninterval = '2s'\ntimeout = '1500ms'\nfall = 1"
    );
    let instance = Instance::start("names-turn", resolver.address, &pool);
    let (worked, said) = instance.command(&["drain", &format!("web/app.names.test:{port}")]);
    assert!(worked, "{said}");
    let found = eventually(|| instance.backend()["health"] == "unhealthy");
    assert!(found, "{:#}\n{}", instance.backend(), instance.process.printed());
    assert_eq!(instance.backend()["admin"], "drain", "{:#}", instance.backend());
}
