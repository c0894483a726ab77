//! The driver of an elastic pool changes, or fails now and then.

use super::*;

#[test]
fn a_reload_to_another_driver_replaces_backends_without_failed_requests() {
    let mut instance = Instance::new("driver");
    let fleet = Fleet::new(&instance.folder);
    let elastic = "[pool.elastic]\nmin = 2\nmax = 3\nin-cool-down = \"1m\"\nwarm-up = \"200ms\"\n";
    instance.start(&format!("{elastic}{}", fleet.table()));
    assert!(eventually(|| serving(&instance).len() == 2), "{:#}", instance.plan());
    // The pool is pinned, however busy its backends seem to be.
    let (worked, said) = instance.command(&["plan", "pin", "web", "2"]);
    assert!(worked, "{said}");
    let by_scripts = serving(&instance);
    let load = Load::start(instance.door.address(), 2);
    load.wait_for(20);

    // A driver that cannot create backends removes none.
    let process = |command: &str| format!("{elastic}[pool.elastic.process]\ncommand = {command}\n");
    instance.write(&process("[\"/no/such/program\", \"{port}\"]"));
    assert_eq!(reload(&instance.socket).0, 200);
    let said = || instance.printed().contains("cannot add backend");
    assert!(eventually(said), "{}", instance.printed());
    load.wait_for(50);
    assert_eq!(serving(&instance), by_scripts);

    let sample = format!(
        "[\"{}\", \"sample-backend\", \"--name\", \"{{name}}\", \"--http\", \"{{port}}\"]",
        common::EQUIPOISE
    );
    instance.write(&process(&sample));
    assert_eq!(reload(&instance.socket).0, 200);
    let all_new = || {
        let now = serving(&instance);
        now.len() == 2 && now.iter().all(|address| !by_scripts.contains(address))
    };
    assert!(eventually(all_new), "{:?} {}", serving(&instance), instance.printed());
    assert!(eventually(|| fleet.there().is_empty()), "the scripts took away theirs");
    let of = |word: &str| fleet.log().iter().filter(|line| line.starts_with(word)).count();
    assert!(eventually(|| of("removed") == 2) && of("made") == 2, "{:?}", fleet.log());
    load.wait_for(50);
    let (good, failed) = load.finish();
    assert!(failed.is_empty(), "{} of {good} failed: {:?}", failed.len(), failed.first());
    let plan = instance.plan();
    assert_eq!(plan["pools"][0]["scaling"]["backends"], 2, "{plan:#}");
}

/// Kills equipoise when `has_come` returns true, during a change from one fleet's scripts to `new`.
/// Starts it again, and waits until the change is complete.
fn killed_in_a_change(
    test: &str,
    new: impl Fn(&Fleet) -> String,
    has_come: impl Fn(&Instance, &Fleet, &Fleet) -> bool,
) -> (Instance, Fleet, Fleet) {
    let mut instance = Instance::new(test);
    let (old, next) =
        (Fleet::named(&instance.folder, "old"), Fleet::named(&instance.folder, "new"));
    let elastic = "[pool.elastic]\nmin = 2\nmax = 3\nparallel = 1\nin-cool-down = \"1m\"\nwarm-up = \"300ms\"\n";
    instance.start(&format!("{elastic}{}", old.table()));
    assert!(eventually(|| serving(&instance).len() == 2), "{:#}", instance.plan());
    let changed = format!("{elastic}{}", new(&next));
    instance.write(&changed);
    assert_eq!(reload(&instance.socket).0, 200);
    assert!(eventually(|| has_come(&instance, &old, &next)), "{}", instance.printed());
    instance.kill();
    instance.start(&changed);
    let by_new = || {
        let serving = serving(&instance);
        serving.len() == 2 && old.there().is_empty()
    };
    assert!(eventually(by_new), "{test}: {:?} {}", old.there(), instance.printed());
    let count = |fleet: &Fleet, word: &str| {
        fleet.log().iter().filter(|line| line.starts_with(word)).count()
    };
    // A script logs an action after it is complete.
    assert!(eventually(|| count(&old, "removed") == 2), "{test}: {:?}", old.log());
    assert_eq!(count(&old, "made"), 2, "{test}: {:?}", old.log());
    assert_eq!(count(&next, "doubled") + count(&old, "doubled"), 0, "{test}");
    let plan = instance.plan();
    assert_eq!(plan["pools"][0]["scaling"]["backends"], 2, "{test}: {plan:#}");
    assert_eq!(get(instance.door.address(), "/").status(), 200);
    (instance, old, next)
}

#[test]
fn a_kill_during_a_driver_change_loses_and_duplicates_no_backend() {
    type Moment = fn(&Instance, &Fleet, &Fleet) -> bool;
    let moments: [(&str, Moment); 3] = [
        ("change-asked", |_, _, _| true),
        ("change-made", |_, _, next| !next.there().is_empty()),
        ("change-removed", |_, old, _| old.there().len() < 2),
    ];
    for (test, has_come) in moments {
        let (instance, _old, next) = killed_in_a_change(test, Fleet::table, has_come);
        let there = next.there();
        assert_eq!(there.len(), 2, "{test}: {:?} {}", next.log(), instance.printed());
        let runs = |pid: &u32| std::path::Path::new(&format!("/proc/{pid}")).exists();
        assert!(there.values().all(runs), "{test}: {there:?}");
    }
    // The next backends die with the process; the scripts' backends are removed by their own
    // scripts nevertheless.
    let process = |_: &Fleet| {
        format!(
            "[pool.elastic.process]\ncommand = [\"{}\", \"sample-backend\", \"--name\", \"{{name}}\", \
             \"--http\", \"{{port}}\"]\n",
            common::EQUIPOISE
        )
    };
    let one_is_made: Moment = |instance, _, _| serving(instance).len() > 2;
    let (_instance, _old, _next) = killed_in_a_change("change-to-processes", process, one_is_made);
}

#[test]
fn a_flaky_webhook_service_creates_each_backend_once() {
    // By idempotency key; every other request fails before it is answered.
    let made: Arc<Mutex<BTreeMap<String, HttpBackend>>> = Arc::default();
    let known = Arc::clone(&made);
    let service = HttpBackend::start(move |request| {
        let answer = if request.head.target() == "/add" {
            let key = request.head.header("idempotency-key").unwrap_or_default().to_string();
            let mut made = known.lock().expect("no test panics here");
            let name = format!("b{}", made.len());
            let backend = made.entry(key).or_insert_with(|| HttpBackend::named(&name));
            Answer::ok(format!("{{\"address\": \"{}\"}}", backend.address()))
        } else {
            Answer::ok("{}")
        };
        if request.number % 2 == 0 { Answer::sized(503, "") } else { answer }
    });
    let url = |path: &str| format!("http://{}/{path}", service.address());
    let mut instance = Instance::new("webhook");
    let token = instance.folder.write("token", "secret-of-the-service\n");
    instance.start(&format!(
        "{ELASTIC}[pool.elastic.webhook]\nadd = {:?}\nremove = {:?}\ntoken-file = {:?}\n",
        url("add"),
        url("remove"),
        text(&token)
    ));
    assert!(eventually(|| serving(&instance).len() == 1), "{}", instance.printed());
    let (worked, said) = instance.command(&["plan", "pin", "web", "3"]);
    assert!(worked, "{said}");
    assert!(eventually(|| serving(&instance).len() == 3), "{}", instance.printed());
    let mut addresses: Vec<_> =
        made.lock().expect("no test panics here").values().map(HttpBackend::address).collect();
    let mut served = serving(&instance);
    addresses.sort();
    served.sort();
    assert_eq!(served, addresses, "each was made once, despite the failures");
    assert_eq!(get(instance.door.address(), "/").status(), 200);
    let (worked, said) = instance.command(&["plan", "pin", "web", "1"]);
    assert!(worked, "{said}");
    assert!(eventually(|| serving(&instance).len() == 1));
    let removed = || {
        let asked = service.requests();
        let asked = asked.iter().filter(|it| it.head.target() == "/remove");
        let names = asked.filter_map(|it| serde_json::from_slice::<Value>(&it.body).ok());
        names.filter_map(|it| it["name"].as_str().map(str::to_string)).collect::<BTreeSet<_>>()
    };
    assert!(eventually(|| removed().len() == 2), "{:?}", removed());
    let authorized = |it: &equipoise_testkit::Received| {
        it.head.header("authorization") == Some("Bearer secret-of-the-service")
    };
    assert!(service.requests().iter().all(authorized));
}
