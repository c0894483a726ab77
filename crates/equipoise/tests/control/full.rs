//! Pools that are full from their first moment, and pools without a controller.

use super::*;

/// Clients that ask again as soon as they are answered; far more than a backend of one thread does at once.
const CLIENTS: usize = 24;

fn pool_of_one_thread(instance: &Instance, how: &str, headroom: f64) -> String {
    let server = server_of_one_thread(&instance.folder);
    format!(
        "scheduler = \"least-connection\"\n[pool.elastic]\nmin = 1\nmax = 3\nwarm-up = \"0s\"\n\
         out-cool-down = \"500ms\"\nin-cool-down = \"1m\"\nheadroom = {headroom:?}\n\
         [pool.elastic.process]\ncommand = [\"python3\", {:?}, \"{how}\", \"{{port}}\"]\n",
        text(&server)
    )
}

/// From one backend to three, with no request failed.
fn grows_under_load(instance: &Instance) {
    assert!(eventually(|| serving(instance).len() == 1), "{}", instance.printed());
    let load = Load::start(instance.door.address(), CLIENTS);
    assert!(eventually(|| serving(instance).len() == 3), "{}", instance.printed());
    let (_, failed) = load.finish();
    assert!(failed.is_empty(), "{failed:?}");
}

#[test]
fn a_pool_of_processes_that_wait_is_found_full_by_a_probe_and_that_is_known_after_a_restart() {
    let mut instance = Instance::new("full-waits");
    let pool = pool_of_one_thread(&instance, "sleeps", 0.3);
    instance.start(&pool);
    grows_under_load(&instance);
    let printed = instance.printed();
    assert!(printed.contains("scaling: probing: it isn't known yet whether"), "{printed}");
    // Every tenth plan is in the store.
    let last = instance.plan();
    instance.until("some later plan", |plan| edition(plan).1 > edition(&last).1 + 12);
    instance.kill();

    instance.start(&pool);
    grows_under_load(&instance);
    assert!(!instance.printed().contains("probing"), "{}", instance.printed());
}

#[test]
fn a_pool_of_processes_that_work_is_full_by_its_processors_and_is_not_probed() {
    let mut instance = Instance::new("full-works");
    // Much headroom: other programs want the processors, too, and leave it a small part of one.
    let pool = pool_of_one_thread(&instance, "works", 0.9);
    instance.start(&pool);
    grows_under_load(&instance);
    let printed = instance.printed();
    assert!(printed.contains("in use, at most 0.10 is wanted"), "{printed}");
    assert!(!printed.contains("probing"), "{printed}");
}

/// Processes of the pool's backends.
fn processes(instance: &Instance) -> Vec<u32> {
    let record = instance.store().with_file_name("elastic-web.json");
    let record: Value = std::fs::read(record)
        .ok()
        .and_then(|bytes| serde_json::from_slice(&bytes).ok())
        .unwrap_or_default();
    let backends = record["backends"].as_array().cloned().unwrap_or_default();
    backends.iter().filter_map(|it| it["id"].as_str()?.parse().ok()).collect()
}

#[test]
fn a_pool_whose_store_is_damaged_has_the_backends_that_it_had_and_at_least_its_least() {
    let mut instance = Instance::new("held");
    let pool = made_of_processes().replace("min = 1", "min = 2");
    instance.start(&pool);
    assert!(eventually(|| serving(&instance).len() == 2), "{}", instance.printed());
    let (worked, said) = instance.command(&["plan", "pin", "web", "3"]);
    assert!(worked, "{said}");
    assert!(eventually(|| serving(&instance).len() == 3), "{}", instance.printed());
    instance.kill();
    damage(&instance);

    instance.start(&pool).wait_for_text("the controller does not run");
    assert!(eventually(|| serving(&instance).len() == 3), "{}", instance.printed());
    let printed = instance.printed();
    assert!(
        printed.contains("without a controller the pool neither grows nor shrinks"),
        "{printed}"
    );
    let (worked, said) = instance.command(&["plan"]);
    assert!(!worked && said.contains("numbers of backends are held: pool web at 3"), "{said}");
    assert!(eventually(|| get(instance.door.address(), "/").status() == 200));

    // One that ends comes again, and a reload doubles nothing.
    let before = processes(&instance);
    kill(before[0], libc::SIGKILL);
    let is_back = || instance.printed().contains("is up again");
    assert!(eventually(is_back), "{}", instance.printed());
    assert_eq!(reload(&instance.socket).0, 200);
    assert!(eventually(|| serving(&instance).len() == 3), "{}", instance.printed());
    let printed = instance.printed();
    assert_eq!(printed.matches(" adding ").count(), 3, "{printed}");

    // Mended, and started again: nothing is left of those before.
    let old = serving(&instance);
    instance.kill();
    std::fs::remove_file(instance.store()).expect("the folder is ours");
    let answers = |at: &std::net::SocketAddr| std::net::TcpStream::connect(at).is_ok();
    assert!(eventually(|| !old.iter().any(answers)), "children die with their parent");
    instance.start(&pool);
    instance.until("it plans", |plan| edition(plan).1 > 0);
    assert!(eventually(|| serving(&instance).len() == 2), "{}", instance.printed());
    let (worked, said) = instance.command(&["plan", "pin", "web", "4"]);
    assert!(worked, "{said}");
    assert!(eventually(|| serving(&instance).len() == 4), "{}", instance.printed());
    assert!(!instance.printed().contains("nothing changed"), "{}", instance.printed());
}
