//! Number and sizes of an elastic pool's backends: by command and by load, also after a restart.

use super::*;

#[test]
fn an_elastic_pool_is_pinned_paused_and_resumed_by_command_and_that_outlives_a_kill() {
    let backend = HttpBackend::named("a");
    let pool = format!("backends = [\"{}\"]\nelastic = {{ max = 4 }}", backend.address());
    let mut instance = Instance::new("pinned");
    instance.start(&pool);
    let scaling = |plan: &Value, what: &str| plan["pools"][0]["scaling"][what].clone();
    instance.until("a plan", |plan| scaling(plan, "action") == "hold");
    let (worked, said) = instance.command(&["plan", "pin", "web", "3"]);
    assert!(worked && said.contains("add 2: pinned at 3, there are 1"), "{said}");
    let (worked, said) = instance.command(&["plan", "pin", "web", "9"]);
    assert!(!worked && said.contains("accepted: 1 to 4, its `min` and `max`"), "{said}");
    let (worked, said) = instance.command(&["plan", "pin", "web", "0"]);
    assert!(!worked && said.contains("fewer than the `min`") && said.contains("--force"), "{said}");
    let (worked, said) = instance.command(&["plan", "pin", "web", "0", "--force"]);
    assert!(worked && said.contains("pinned at 0, fewer than its min of 1"), "{said}");
    let (worked, said) = instance.command(&["plan", "pin", "web", "3"]);
    assert!(worked, "{said}");
    let (worked, said) = instance.command(&["plan", "pause", "other"]);
    assert!(!worked && said.contains("elastic pools: web"), "{said}");
    instance.kill();

    instance.start(&pool);
    let plan = instance.until("it is pinned still", |plan| scaling(plan, "mode") == "pinned");
    assert_eq!(scaling(&plan, "pinned"), 3);
    // A pause keeps the pin, also after a restart.
    for _ in 0..2 {
        let (worked, said) = instance.command(&["plan", "pause", "web"]);
        assert!(worked && said.contains("plan resume web` pins it at 3 again"), "{said}");
    }
    instance.kill();
    instance.start(&pool);
    let plan = instance.until("it is paused still", |plan| scaling(plan, "mode") == "paused");
    assert_eq!(scaling(&plan, "pinned"), 3);
    let (_, page) = instance.command(&["plan"]);
    assert!(page.contains(", paused, then pinned at 3"), "{page}");
    let (worked, said) = instance.command(&["plan", "resume", "web"]);
    assert!(worked && said.contains("pinned at 3 again"), "{said}");
    instance.until("the pin holds again", |plan| scaling(plan, "mode") == "pinned");
    let (worked, said) = instance.command(&["plan", "resume", "web"]);
    assert!(worked && said.contains("the planner decides"), "{said}");
    instance.until("it decides", |plan| scaling(plan, "mode") == "auto");
    let (worked, page) = instance.command(&["plan", "--next"]);
    assert!(worked && page.contains("which is not applied"), "{page}");
}

#[test]
fn an_elastic_pool_creates_drains_and_ends_its_backend_processes() {
    let mut instance = Instance::new("processes");
    instance.start(&made_of_processes());
    assert!(eventually(|| serving(&instance).len() == 1), "{:#}", instance.plan());
    assert!(eventually(|| get(instance.door.address(), "/").status() == 200));
    let printed = instance.printed();
    assert!(printed.contains("INFO pool web: starting its first backends"), "{printed}");
    assert!(!printed.contains("no backend can take work"), "{printed}");

    // The pool is pinned, however busy its backends seem to be.
    let (worked, said) = instance.command(&["plan", "pin", "web", "1"]);
    assert!(worked, "{said}");
    let load = Load::start(instance.door.address(), 4);
    load.wait_for(50);
    let (worked, said) = instance.command(&["plan", "pin", "web", "3"]);
    assert!(worked, "{said}");
    assert!(eventually(|| serving(&instance).len() == 3), "{:#}", instance.plan());
    load.wait_for(200);
    // No backend more than requested exists, whatever was planned while they started.
    let plan = instance.plan();
    assert_eq!(plan["pools"][0]["scaling"]["backends"], 3, "{plan:#}");
    let printed = instance.printed();
    assert_eq!(printed.matches("added=[").count(), 2, "one at the start, two at once: {printed}");
    assert!(!printed.contains("removed=["), "{printed}");
    let (worked, said) = instance.command(&["plan", "pin", "web", "1"]);
    assert!(worked, "{said}");
    assert!(eventually(|| instance.json("/v1/status")["pools"][0]["backends"]
        .as_array()
        .is_some_and(|all| all.len() == 1)));
    load.wait_for(100);
    let (good, failed) = load.finish();
    assert!(failed.is_empty() && good > 300, "{good} were answered, and failed: {failed:?}");

    let left = serving(&instance);
    let answers = |at: &std::net::SocketAddr| std::net::TcpStream::connect(at).is_ok();
    assert!(left.iter().all(answers));
    instance.kill();
    assert!(eventually(|| !left.iter().any(answers)), "children die with their parent");
}

#[test]
fn script_backends_survive_a_kill_and_are_adopted() {
    let (mut instance, fleet, pool) = three_by_scripts("scripts");
    let before = (fleet.there(), serving(&instance));
    instance.kill();
    instance.start(&pool);
    assert!(eventually(|| serving(&instance) == before.1), "{:?}", serving(&instance));
    assert_eq!(fleet.there(), before.0, "the same ones, none made again");
    assert!(eventually(|| get(instance.door.address(), "/").status() == 200));
    let (worked, said) = instance.command(&["plan", "pin", "web", "1"]);
    assert!(worked, "{said}");
    assert!(eventually(|| fleet.there().len() == 1 && serving(&instance).len() == 1));
    // A script logs an action after it is complete.
    let kinds = |word: &str| fleet.log().iter().filter(|line| line.starts_with(word)).count();
    assert!(eventually(|| kinds("removed") == 2), "{:?}", fleet.log());
    assert_eq!((kinds("made"), kinds("removed"), kinds("doubled")), (3, 2, 0), "{:?}", fleet.log());
}

/// Vertical and diagonal scaling: sizes are chosen by speed and price, when the load rises and
/// falls.
#[test]
fn backend_sizes_follow_the_load_by_speed_and_price() {
    let mut instance = Instance::new("sizes");
    let fleet = Fleet::sized(&instance.folder);
    // A small backend processes one request at a time, a large one four.
    let elastic = "scheduler = \"least-connection\"\nconcurrency = 1\nqueue = { wait = \"1m\" }\n\
                   [pool.elastic]\nmin = 1\nmax = 3\nwarm-up = \"0s\"\n\
                   out-cool-down = \"500ms\"\nin-cool-down = \"700ms\"\ngrowth-max = 10.0\n\
                   sizes = [{ name = \"small\", speed = 1.0, price = 1.0 }, { name = \"large\", speed = 4.0, price = 2.0 }]\n";
    instance.start(&format!("{elastic}{}", fleet.table()));
    assert!(eventually(|| serving(&instance).len() == 1), "{:#}", instance.plan());
    assert_eq!(fleet.sizes(), ["small"], "the cheapest is enough before anything is measured");
    // Sixteen at a time are far more than it can process.
    let load = Load::start(instance.door.address(), 16);
    let has_large = || fleet.sizes().iter().any(|size| size == "large");
    assert!(eventually(has_large), "{:?} {:#}", fleet.log(), instance.plan());
    let limits = || {
        let backends = instance.json("/v1/status")["pools"][0]["backends"].clone();
        let all = backends.as_array().cloned().unwrap_or_default();
        all.iter().filter_map(|it| it["limit"].as_u64()).collect::<Vec<_>>()
    };
    assert!(eventually(|| limits().contains(&4)), "{:#}", instance.json("/v1/status"));
    load.wait_for(100);
    let (good, failed) = load.finish();
    assert!(failed.is_empty() && good > 100, "{good} were answered, and failed: {failed:?}");
    assert!(eventually(|| fleet.sizes() == ["small"]), "{:?} {:#}", fleet.log(), instance.plan());
    assert!(eventually(|| serving(&instance).len() == 1), "{:#}", instance.plan());
    assert_eq!(get(instance.door.address(), "/").status(), 200);
}
