//! Pools that are full from their first moment, pools without backends at first, and pools without
//! a controller.

use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

use super::*;

/// Clients that send the next request at once after an answer: far more than a backend with one
/// thread can serve.
const CLIENTS: usize = 24;

fn pool_of_one_thread(instance: &Instance, how: &str, concurrency: u32) -> String {
    let server = server_of_one_thread(&instance.folder);
    format!(
        "scheduler = \"least-connection\"\nconcurrency = {concurrency}\nqueue = {{ wait = \"1m\" }}\n\
         [pool.elastic]\nmin = 1\nmax = 3\nwarm-up = \"0s\"\n\
         out-cool-down = \"500ms\"\nin-cool-down = \"1m\"\n\
         [pool.elastic.process]\ncommand = [\"python3\", {:?}, \"{how}\", \"{{port}}\"]\n",
        text(&server)
    )
}

/// Waits until the pool grows from one backend to three, without a failed request.
fn grows_under_load(instance: &Instance) {
    assert!(eventually(|| serving(instance).len() == 1), "{}", instance.printed());
    let load = Load::start(instance.door.address(), CLIENTS);
    assert!(eventually(|| serving(instance).len() == 3), "{}", instance.printed());
    let (_, failed) = load.finish();
    assert!(failed.is_empty(), "{failed:?}");
}

#[test]
fn a_pool_with_a_standing_queue_grows_also_after_a_restart() {
    let mut instance = Instance::new("full-waits");
    let pool = pool_of_one_thread(&instance, "sleeps", 1);
    instance.start(&pool);
    grows_under_load(&instance);
    let printed = instance.printed();
    assert!(printed.contains("requests wait in a standing queue"), "{printed}");
    instance.kill();
    instance.start(&pool);
    grows_under_load(&instance);
}

/// Sets a flag when it is dropped, so that threads also end after a failed assertion.
struct SetAtEnd<'a>(&'a AtomicBool);

impl Drop for SetAtEnd<'_> {
    fn drop(&mut self) {
        self.0.store(true, Relaxed);
    }
}

#[test]
fn the_cpu_of_other_programs_adds_no_backend() {
    let mut instance = Instance::new("full-works");
    instance.start(&pool_of_one_thread(&instance, "works", 4));
    assert!(eventually(|| serving(&instance).len() == 1), "{}", instance.printed());
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let _ends = SetAtEnd(&stop);
        for _ in 0..2 {
            scope.spawn(|| {
                while !stop.load(Relaxed) {
                    std::hint::spin_loop();
                }
            });
        }
        // One request in flight of four, however long it takes.
        let load = Load::start(instance.door.address(), 1);
        let first = instance.plan();
        let mut uses = Vec::new();
        let plan = instance.until("many later plans", |plan| {
            uses.extend(plan["pools"][0]["scaling"]["in_use"].as_f64());
            edition(plan).1 > edition(&first).1 + 20
        });
        let (_, failed) = load.finish();
        assert!(failed.is_empty(), "{failed:?}");
        // The median: a response counts completely in the period in which it ends, so single
        // periods are above it.
        uses.sort_by(f64::total_cmp);
        let median = uses.get(uses.len() / 2);
        assert!(median.is_some_and(|it| *it < 0.5), "{uses:?} {plan:#}");
    });
    let printed = instance.printed();
    assert_eq!(printed.matches("scaling:").count(), 1, "the first one: {printed}");
}

#[test]
fn a_request_waits_for_the_first_backend_of_a_pool_that_has_none() {
    let mut instance = Instance::new("from-zero");
    let pool = made_of_processes().replace("min = 1", "min = 0").replace("\"1m\"", "\"500ms\"");
    instance.start(&pool);
    instance.until("it plans", |plan| edition(plan).1 > 1);
    for _ in 0..2 {
        let none = || instance.json("/v1/status")["pools"][0]["backends"] == Value::Array(vec![]);
        assert!(eventually(none), "{}", instance.printed());
        assert_eq!(get(instance.door.address(), "/").status(), 200, "{}", instance.printed());
    }
    let printed = instance.printed();
    assert!(printed.contains("scaling: requests wait for a first backend"), "{printed}");
    assert!(!printed.contains("no backend can take work"), "{printed}");
    instance.kill();

    instance.start(&pool.replace("min = 0", "min = 0\nstart-wait = \"0s\""));
    assert_eq!(get(instance.door.address(), "/").status(), 503);
}

#[test]
fn a_schedule_raises_the_least_number_of_backends_in_its_hours() {
    let mut instance = Instance::new("scheduled");
    // Both schedules include every moment; the larger number counts.
    let schedule = "\n[[pool.elastic.schedule]]\nfrom = \"00:00\"\nto = \"24:00\"\nmin = 2\n\
                    [[pool.elastic.schedule]]\nfrom = \"00:00\"\nto = \"00:00\"\nmin = 3\n";
    instance.start(&(made_of_processes() + schedule));
    assert!(eventually(|| serving(&instance).len() == 3), "{}", instance.printed());
    let plan = instance.json("/v1/plan");
    assert_eq!(plan["pools"][0]["scaling"]["min"], 3, "{plan:#}");
    assert!(instance.printed().contains("at least 3 are wanted"), "{}", instance.printed());
}

/// Processes of the pool's backends: the children of equipoise.
fn processes(instance: &Instance) -> Vec<u32> {
    let parent = instance.process.as_ref().expect("it runs").pid().to_string();
    let all = std::fs::read_dir("/proc").expect("it is mounted").flatten();
    let numbers = all.filter_map(|entry| entry.file_name().to_str()?.parse().ok());
    let is_child = |pid: &u32| {
        let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
        let after_name = stat.rsplit_once(')').map_or("", |(_, rest)| rest);
        after_name.split_whitespace().nth(1) == Some(&parent)
    };
    numbers.filter(is_child).collect()
}

#[test]
fn a_pool_with_a_damaged_store_keeps_its_number_of_backends_and_at_least_its_minimum() {
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
    assert!(printed.contains("the pool keeps its size, because no controller runs"), "{printed}");
    let (worked, said) = instance.command(&["plan"]);
    assert!(
        !worked && said.contains("pools keep their number of backends: pool web at 3"),
        "{said}"
    );
    assert!(eventually(|| get(instance.door.address(), "/").status() == 200));

    // A process that ends is restarted, and a reload doubles nothing.
    let before = processes(&instance);
    kill(before[0], libc::SIGKILL);
    let is_back = || instance.printed().contains("is up again");
    assert!(eventually(is_back), "{}", instance.printed());
    assert_eq!(reload(&instance.socket).0, 200);
    assert!(eventually(|| serving(&instance).len() == 3), "{}", instance.printed());
    let printed = instance.printed();
    assert_eq!(printed.matches(" adding ").count(), 3, "{printed}");

    // The store is repaired and the process restarted: no earlier process is left.
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

    // The minimum has become larger than the number of backends.
    instance.kill();
    damage(&instance);
    instance.start(&pool.replace("min = 2", "min = 5"));
    assert!(eventually(|| serving(&instance).len() == 5), "{}", instance.printed());
    let (worked, said) = instance.command(&["plan"]);
    assert!(!worked && said.contains("pool web at 5"), "{said}");
}
