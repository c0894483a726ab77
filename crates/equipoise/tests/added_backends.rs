//! Backends that are added, changed and removed while the process runs.

mod common;

use std::path::PathBuf;

use common::{Folder, Process, equipoise, get, kill, post_unix, stderr, stdout, text};
use equipoise_testkit::{
    Answer, Client, Gate, HttpBackend, ReservedPort, Step, eventually, free_port,
};
use serde_json::Value;

struct Instance {
    process: Process,
    folder: Folder,
    socket: PathBuf,
    api: ReservedPort,
    door: ReservedPort,
}

impl Instance {
    /// Starts an instance. `pool` follows the name of pool `web` in the file.
    fn start(test: &str, pool: &str) -> Instance {
        let (folder, door, api) = (Folder::new(test), free_port(), free_port());
        let socket = folder.path("api.sock");
        let file = write(&folder, &door, &api, pool);
        let process = Process::start(&["run", text(&file)]);
        process.wait_for_text(" ready ");
        Instance { process, folder, socket, api, door }
    }

    fn reload(&self, pool: &str) {
        write(&self.folder, &self.door, &self.api, pool);
        let (status, answer) = common::reload(&self.socket);
        assert_eq!(status, 200, "{answer}");
    }

    fn restart(&mut self) {
        self.process.signal(libc::SIGTERM);
        assert!(self.process.ended().success(), "{}", self.process.printed());
        self.process = Process::start(&["run", text(&self.folder.path("equipoise.toml"))]);
        self.process.wait_for_text(" ready ");
    }

    /// Runs a command over the unix socket. Returns whether it succeeded, and its output.
    fn command(&self, args: &[&str]) -> (bool, String) {
        let args = [args, &["--api", text(&self.socket)]].concat();
        let output = equipoise(&args);
        (output.status.success(), stdout(&output) + &stderr(&output))
    }

    fn status(&self) -> Value {
        let answer = get(self.api.address(), "/v1/status");
        serde_json::from_str(&answer.text()).expect("it is JSON")
    }

    /// A backend of pool `web`; null without it.
    fn backend(&self, name: &str) -> Value {
        let status = self.status();
        let backends = status["pools"][0]["backends"].as_array();
        let found = backends.into_iter().flatten().find(|it| it["name"] == name);
        found.cloned().unwrap_or_default()
    }

    /// The names of the backends that answer.
    fn answering(&self) -> Vec<String> {
        let asked = (0..8).map(|_| get(self.door.address(), "/").text());
        let mut names: Vec<_> = asked.collect();
        names.sort();
        names.dedup();
        names
    }
}

impl Drop for Instance {
    fn drop(&mut self) {
        // An upgrade may have replaced the process.
        let output = equipoise(&["status", "--json", "--api", text(&self.socket)]);
        let status: Option<Value> = serde_json::from_str(&stdout(&output)).ok();
        let pid = status.and_then(|status| status["pid"].as_u64()).map(|pid| pid as u32);
        if let Some(pid) = pid.filter(|pid| *pid != self.process.pid()) {
            kill(pid, libc::SIGKILL);
        }
    }
}

fn write(folder: &Folder, door: &ReservedPort, api: &ReservedPort, pool: &str) -> PathBuf {
    let config = format!(
        "[api]\nsocket = \"{}\"\nlisten = \"{}\"\n[controller]\nstate = \"{}\"\n\
         [instance]\nname = \"under-test\"\nthreads = 1\n\
         [[session]]\nlisten = \"{}\"\nprotocol = \"http\"\npool = \"web\"\n\
         [[pool]]\nname = \"web\"\nscheduler = \"round-robin\"\n{pool}\n",
        folder.path("api.sock").display(),
        api.address(),
        folder.path("state").display(),
        door.address(),
    );
    folder.write("equipoise.toml", &config)
}

fn listed(all: &[(&str, &HttpBackend)]) -> String {
    let one = |(name, backend): &(&str, &HttpBackend)| {
        format!("{{ name = \"{name}\", address = \"{}\" }}", backend.address())
    };
    format!("backends = [{}]", all.iter().map(one).collect::<Vec<_>>().join(", "))
}

#[test]
fn a_backend_is_added_changed_and_removed_by_command() {
    let (a, b) = (HttpBackend::named("a"), HttpBackend::named("b"));
    let instance = Instance::start("added", &listed(&[("a", &a)]));
    let at_b = b.address().to_string();
    let add = ["backend", "add", "web/b", "--address", &at_b];
    let (worked, said) = instance.command(&[&add[..], &["--weight", "3"]].concat());
    assert!(worked && said.contains("web/b: up, weight 3"), "{said}");
    assert_eq!(instance.answering(), ["a", "b"]);
    assert_eq!(instance.backend("b")["added"], "added");
    assert!(instance.backend("a")["added"].is_null());
    let (_, table) = instance.command(&["status"]);
    let row = |name: &str| table.lines().find(|line| line.starts_with(name)).unwrap_or_default();
    assert!(row("web/b").contains(" up (added) ") && row("web/a").contains(" up  "), "{table}");

    let set = |args: &[&str]| instance.command(&[&["backend", "set"], args].concat());
    let (worked, said) = set(&["web/b", "--weight", "5", "--concurrency", "7"]);
    assert!(worked && said.contains("web/b: up, weight 5"), "{said}");
    let of_b = instance.backend("b");
    assert_eq!((&of_b["limit"], &of_b["concurrency"]), (&7.into(), &7.into()), "{of_b}");
    assert!(set(&["web/a", "--concurrency", "9"]).0);
    assert_eq!(instance.backend("a")["limit"], 9, "a backend of the file has an override");
    assert!(set(&["web/a", "--concurrency", "0"]).0);
    assert!(instance.backend("a")["concurrency"].is_null());
    assert!(!set(&["web/a"]).0, "nothing to set");

    // The same again replaces the settings.
    let (worked, said) = instance.command(&add);
    assert!(worked && said.contains("web/b: up, weight 1"), "{said}");
    assert!(instance.backend("b")["concurrency"].is_null());

    let (worked, said) = instance.command(&["backend", "remove", "web/b"]);
    assert!(worked && said.contains("web/b: drained"), "{said}");
    assert!(eventually(|| instance.backend("b").is_null()), "{}", instance.status());
    assert_eq!(instance.answering(), ["a"]);

    // The name may be the address.
    let (worked, said) = instance.command(&["backend", "add", &format!("web/{at_b}")]);
    assert!(worked && said.contains(&at_b), "{said}");
    assert_eq!(instance.answering(), ["a", "b"]);
    let (_, events) = instance.command(&["events", "--type", "backend,change"]);
    for kind in ["backend.added", "backend.concurrency", "backend.removed", "change.done"] {
        assert!(events.contains(kind), "{kind}: {events}");
    }
}

#[test]
fn a_removed_backend_finishes_its_work_or_is_cut_at_once() {
    let gate = Gate::new();
    let slow = HttpBackend::start({
        let gate = gate.clone();
        move |_| Answer::ok("late").first(Step::Wait(gate.clone()))
    });
    let instance = Instance::start("added-removed", "backends = []");
    let address = slow.address().to_string();
    let add = || {
        let (worked, said) = instance.command(&["backend", "add", "web/s", "--address", &address]);
        assert!(worked && said.contains("web/s: up"), "{said}");
    };
    let ask = |round: usize| {
        let mut client = Client::connect(instance.door.address());
        client.send("GET / HTTP/1.1\r\nHost: localhost\r\n\r\n");
        assert!(slow.wait(|requests| requests.len() == round));
        client
    };
    add();
    let mut client = ask(1);
    assert!(instance.command(&["backend", "remove", "web/s", "--now"]).0);
    assert_eq!(client.response().expect("it gets a response").status(), 502);
    assert!(instance.backend("s").is_null());

    add();
    let mut client = ask(2);
    let (worked, said) = instance.command(&["backend", "remove", "web/s"]);
    assert!(worked && said.contains("web/s: draining"), "{said}");
    assert_eq!(instance.backend("s")["added"], "removing");
    assert_eq!(get(instance.door.address(), "/").status(), 503, "no new work");
    // Adding it again keeps it.
    add();
    assert_eq!(instance.backend("s")["added"], "added");
    assert!(instance.command(&["backend", "remove", "web/s"]).0);
    gate.open();
    assert_eq!(client.response().expect("it gets a response").text(), "late");
    assert!(eventually(|| instance.backend("s").is_null()), "{}", instance.status());
}

#[test]
fn an_added_backend_stays_over_reloads_and_upgrades_until_the_file_names_it() {
    let backends: Vec<_> = ["a", "b", "c"].map(HttpBackend::named).into();
    let [a, b, c] = &backends[..] else { panic!("there are three") };
    let instance = Instance::start("added-stays", &listed(&[("a", a)]));
    for (name, backend) in [("b", b), ("c", c)] {
        let address = backend.address().to_string();
        let add = format!("web/{name}");
        let (worked, said) = instance.command(&["backend", "add", &add, "--address", &address]);
        assert!(worked, "{said}");
    }
    assert!(instance.command(&["drain", "web/c"]).0);
    assert!(instance.command(&["backend", "set", "web/b", "--concurrency", "7"]).0);
    instance.reload(&(listed(&[("a", a)]) + "\nretries = 2"));
    assert_eq!(instance.answering(), ["a", "b"]);

    let (worked, said) = instance.command(&["upgrade"]);
    assert!(worked, "{said}");
    assert_eq!(instance.answering(), ["a", "b"]);
    assert_eq!(instance.backend("b")["concurrency"], 7);
    let of_c = instance.backend("c");
    assert_eq!((&of_c["admin"], &of_c["added"]), (&"drain".into(), &"added".into()), "{of_c}");

    // The file names it, and a later one does not: it is gone.
    instance.reload(&listed(&[("a", a), ("bee", b)]));
    assert!(instance.backend("b").is_null() && instance.backend("bee")["added"].is_null());
    assert_eq!(instance.backend("bee")["concurrency"], 7, "it is the same backend");
    assert_eq!(instance.answering(), ["a", "b"]);
    instance.reload(&listed(&[("a", a)]));
    assert_eq!(instance.answering(), ["a"]);
    assert_eq!(instance.backend("c")["added"], "added", "the file never named it");
}

#[test]
fn a_backend_added_with_keep_survives_restarts_until_it_is_removed() {
    let (a, b, c) = (HttpBackend::named("a"), HttpBackend::named("b"), HttpBackend::named("c"));
    let mut instance = Instance::start("added-kept", &listed(&[("a", &a)]));
    let (at_b, at_c) = (b.address().to_string(), c.address().to_string());
    let add = |instance: &Instance, name: &str, address: &str, more: &[&str]| {
        let args = [&["backend", "add", name, "--address", address], more].concat();
        let (worked, said) = instance.command(&args);
        assert!(worked, "{said}");
    };
    add(&instance, "web/b", &at_b, &["--keep"]);
    add(&instance, "web/c", &at_c, &[]);
    assert_eq!(instance.answering(), ["a", "b", "c"]);
    instance.restart();
    assert_eq!(instance.answering(), ["a", "b"]);
    assert_eq!(instance.backend("b")["added"], "added");
    assert!(instance.command(&["backend", "remove", "web/b", "--now"]).0);
    instance.restart();
    assert_eq!(instance.answering(), ["a"]);

    // A file that cannot be used is reported, and prevents nothing.
    add(&instance, "web/b", &at_b, &["--keep"]);
    std::fs::write(instance.folder.path("state/under-test/added.json"), "[{").unwrap();
    instance.restart();
    instance.process.wait_for_text("added.json with the added backends cannot be used");
    assert_eq!(instance.answering(), ["a"]);
    // A folder that cannot be written refuses what is to be kept, and nothing else.
    let state = instance.folder.path("state/under-test");
    std::fs::remove_dir_all(&state).unwrap();
    std::fs::write(&state, "").unwrap();
    let (worked, said) =
        instance.command(&["backend", "add", "web/b", "--address", &at_b, "--keep"]);
    assert!(!worked && said.contains("cannot keep it over a restart"), "{said}");
    assert_eq!(instance.answering(), ["a"]);
    add(&instance, "web/c", &at_c, &[]);
    assert_eq!(instance.answering(), ["a", "c"]);
}

#[test]
fn an_invalid_backend_add_or_remove_is_refused_with_the_reason() {
    let (a, b) = (HttpBackend::named("a"), HttpBackend::named("b"));
    let found = Folder::new("added-found");
    let set = found.write("set.json", &format!("{{\"backends\": [\"{}\"]}}", b.address()));
    let more = format!(
        "[[pool]]\nname = \"found\"\n[pool.discover]\nfile = {{ path = {set:?} }}\n\
         [[session]]\nlisten = \"127.0.0.1:{}\"\nprotocol = \"http\"\npool = \"found\"\n",
        free_port().address().port()
    );
    let instance = Instance::start("added-refused", &(listed(&[("a", &a)]) + "\n" + &more));
    let (at_a, at_b) = (a.address().to_string(), b.address().to_string());
    let add = |name: &str, address: &str| {
        instance.command(&["backend", "add", name, "--address", address])
    };
    for (name, address, reason) in [
        ("found/x", &at_a, "come from its source (option `discover`)"),
        ("web/x", &at_a, "backend `a` of pool `web` has the address"),
        ("web/a", &at_b, "the configuration file has backend `a`"),
        ("web/x", &"nonsense".to_owned(), "accepted: IP:PORT or HOST:PORT"),
        ("web/x y", &at_b, "letters, digits"),
        ("nowhere/x", &at_b, "there is no pool `nowhere`; the pools are `web`, `found`"),
    ] {
        let (worked, said) = add(name, address);
        assert!(!worked && said.contains(reason), "{name} {address}: {said}");
    }
    let (worked, said) = instance.command(&["backend", "remove", "web/a"]);
    assert!(!worked && said.contains("was not added through the API"), "{said}");
    let (worked, said) = instance.command(&["backend", "remove", "web/x"]);
    assert!(!worked && said.contains("pool `web` has no backend `x`"), "{said}");
    assert_eq!(instance.answering(), ["a"], "nothing has changed");
    // A POST is not how a backend is added.
    assert_eq!(post_unix(&instance.socket, "/v1/pools/web/backends/x", "{}").0, 405);
}
