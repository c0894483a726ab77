//! Commands on a pseudo terminal. `equipoise top`: keys change a running process, the page goes on
//! after a restart, and the terminal is restored however the command ends. `drain --wait`: a bar
//! until the work is done.

mod common;

use std::process::Command;
use std::thread;

use common::terminal::OnTerminal;
use common::{EQUIPOISE, Folder, Process, equipoise, get, kill, stderr, stdout, text};
use equipoise_testkit::{Answer, Gate, HttpBackend, ReservedPort, Step, free_port};
use serde_json::Value;

/// A file with a pool of two backends.
struct Rig {
    folder: Folder,
    front: ReservedPort,
    backends: Vec<HttpBackend>,
}

impl Rig {
    fn new(test: &str) -> Rig {
        Rig::of(test, vec![HttpBackend::named("b1"), HttpBackend::named("b2")])
    }

    fn of(test: &str, backends: Vec<HttpBackend>) -> Rig {
        let (folder, front) = (Folder::new(test), free_port());
        let listed = backends.iter().enumerate().map(|(at, backend)| {
            format!("{{ name = \"b{}\", address = \"{}\" }}", at + 1, backend.address())
        });
        let config = format!(
            "[api]\nsocket = \"{}\"\nlisten = \"off\"\n[instance]\nthreads = 1\n\
             [[pool]]\nname = \"web\"\nbackends = [{}]\n\
             [[session]]\nname = \"door\"\nlisten = \"{}\"\nprotocol = \"http\"\npool = \"web\"\n",
            text(&folder.path("api.sock")),
            listed.collect::<Vec<_>>().join(", "),
            front.address(),
        );
        folder.write("equipoise.toml", &config);
        Rig { folder, front, backends }
    }

    fn run(&self) -> Process {
        let process = Process::start(&["run", text(&self.folder.path("equipoise.toml"))]);
        process.wait_for_text(" ready ");
        process
    }

    fn top(&self, columns: u16, rows: u16) -> OnTerminal {
        let mut command = Command::new(EQUIPOISE);
        command.args(["top", "--api", text(&self.folder.path("api.sock"))]).env_remove("NO_COLOR");
        OnTerminal::start(columns, rows, command)
    }

    /// The status; `None` if no process runs.
    fn status(&self) -> Option<Value> {
        let socket = self.folder.path("api.sock");
        let output = equipoise(&["status", "--json", "--api", text(&socket)]);
        output.status.success().then(|| serde_json::from_str(&stdout(&output)).expect("JSON"))
    }

    fn backend(&self, name: &str) -> Value {
        let status = self.status().expect("it runs");
        let backends = status["pools"][0]["backends"].as_array().expect("a list");
        backends.iter().find(|it| it["name"] == name).expect("it is configured").clone()
    }
}

impl Drop for Rig {
    /// Ends the successor of an upgraded process, which is no child of the test.
    fn drop(&mut self) {
        if let Some(pid) = self.status().and_then(|status| status["pid"].as_u64()) {
            kill(pid.try_into().expect("process ids are small"), libc::SIGKILL);
        }
    }
}

#[test]
fn keys_change_backends_and_top_reconnects_after_a_restart() {
    let rig = Rig::new("top");
    let mut process = rig.run();
    let mut top = rig.top(80, 24);
    top.wait_for_text("All well");
    top.wait_for("a colour on the second screen", |it| it.is_alternate && it.has_colour);
    assert!(!top.is_cooked());
    top.wait_for("a folded column", |screen| !screen.text().contains("ADDRESS"));
    top.resize(160, 40);
    top.wait_for_text("ADDRESS");
    top.resize(80, 24);
    top.wait_for("a folded column", |screen| !screen.text().contains("ADDRESS"));

    top.press("/b2\r");
    top.wait_for_text("filter: b2");
    top.press("d");
    top.wait_for_text("The same as: equipoise drain web/b2");
    top.press("n");
    top.wait_for("the box to go", |screen| !screen.text().contains("The same as"));
    assert_eq!(rig.backend("b2")["admin"], "up", "nothing is changed without a confirmation");
    top.press("d");
    top.wait_for_text("Drain web/b2?");
    top.press("y");
    top.wait_for_text("0: safe to stop");
    assert_eq!(rig.backend("b2")["admin"], "drain");
    top.press("u");
    top.wait_for_text("equipoise undrain web/b2");
    top.press("y");
    top.wait_for("the drain to end", |screen| !screen.text().contains("0: safe to stop"));
    assert_eq!(rig.backend("b2")["admin"], "up");
    top.press("w");
    top.wait_for_text("Accepted: 0 to 1000");
    top.press("7\r");
    top.wait_for_text("Set the weight of web/b2 from 1 to 7?");
    top.press("y");
    top.wait_for_text("weight 7");
    assert_eq!(rig.backend("b2")["weight"], 7);
    top.press("e");
    top.wait_for_text("backend.weight");
    top.press("e");

    process.signal(libc::SIGTERM);
    assert!(process.ended().success());
    top.wait_for_text("No answer from equipoise for");
    let _process = rig.run();
    top.wait_for_text("All well");
    top.press("?");
    top.wait_for_text("A URL; tcp or udp");
    top.press("\r");
    top.wait_for_text("takes it");
    top.press("\x1b");
    top.wait_for("the box to go", |screen| !screen.text().contains("A URL; tcp"));
    top.press("q");
    assert!(top.ended().success());
}

#[test]
fn the_terminal_is_restored_by_control_c_and_by_signals() {
    let rig = Rig::new("top-ends");
    let _process = rig.run();
    let mut top = rig.top(120, 40);
    top.wait_for_text("All well");
    top.press("\x03");
    assert!(top.ended().success());
    for signal in [libc::SIGTERM, libc::SIGINT, libc::SIGHUP] {
        let mut top = rig.top(120, 40);
        top.wait_for_text("All well");
        kill(top.pid(), signal);
        assert!(top.ended().success(), "{signal}");
    }
}

#[test]
fn top_without_a_terminal_prints_the_status() {
    let rig = Rig::new("top-piped");
    let _process = rig.run();
    let socket = rig.folder.path("api.sock");
    let shown = |command: &str| {
        let output = equipoise(&[command, "--api", text(&socket)]);
        assert!(output.status.success(), "{}", stderr(&output));
        stdout(&output)
    };
    let (top, status) = (shown("top"), shown("status"));
    let rows = |text: &str| text.lines().filter(|line| line.starts_with("web/")).count();
    assert_eq!((rows(&top), rows(&status)), (2, 2), "{top}");
    assert!(!top.contains('\x1b'), "{top:?}");
}

#[test]
fn top_obeys_no_color_and_exits_if_no_process_answers() {
    let rig = Rig::new("top-plain");
    let mut top = rig.top(80, 24);
    top.wait_for_text("no equipoise answers at");
    assert_eq!(top.ended().code(), Some(1));
    let _process = rig.run();
    let mut command = Command::new(EQUIPOISE);
    let socket = rig.folder.path("api.sock");
    command.args(["top", "--api", text(&socket)]).env("NO_COLOR", "1");
    let mut top = OnTerminal::start(80, 24, command);
    top.wait_for_text("All well");
    top.press("q");
    assert!(top.ended().success());
    top.wait_for("no colour", |screen| !screen.has_colour);
}

#[test]
fn a_drain_that_is_waited_for_ends_with_the_work() {
    let gate = Gate::new();
    let answer = Answer::ok("late").first(Step::Wait(gate.clone()));
    let rig = Rig::of("top-drain", vec![HttpBackend::always(answer)]);
    let _process = rig.run();
    let front = rig.front.address();
    let client = thread::spawn(move || get(front, "/"));
    assert!(rig.backends[0].wait(|requests| !requests.is_empty()));
    let socket = rig.folder.path("api.sock");
    let mut command = Command::new(EQUIPOISE);
    command.args(["drain", "web/b1", "--wait", "--api", text(&socket)]);
    let mut drain = OnTerminal::start(100, 24, command);
    drain.wait_for_text("web/b1 drains [");
    assert_eq!(rig.backend("b1")["state"], "draining");
    gate.open();
    assert_eq!(client.join().expect("it does not panic").status(), 200);
    assert!(drain.ended().success());
    drain.wait_for_text("web/b1: drained, weight 1, 0 in flight");

    let waited = |target: &str| equipoise(&["drain", target, "--wait", "--api", text(&socket)]);
    let piped = waited("web/b1");
    assert!(piped.status.success() && stderr(&piped).is_empty(), "{}", stderr(&piped));
    assert!(stderr(&waited("node")).contains("--wait is of a backend"));
}

#[test]
fn an_upgrade_that_is_waited_for_ends_with_the_replaced_process() {
    let gate = Gate::new();
    let answer = Answer::ok("late").first(Step::Wait(gate.clone()));
    let rig = Rig::of("top-upgrade", vec![HttpBackend::always(answer)]);
    let mut process = rig.run();
    let front = rig.front.address();
    let client = thread::spawn(move || get(front, "/"));
    assert!(rig.backends[0].wait(|requests| !requests.is_empty()));
    let mut command = Command::new(EQUIPOISE);
    let socket = rig.folder.path("api.sock");
    command.args(["upgrade", "--wait", "--api", text(&socket)]);
    let mut upgrade = OnTerminal::start(100, 24, command);
    upgrade.wait_for_text(&format!("process {} finishes connections [", process.pid()));
    gate.open();
    assert_eq!(client.join().expect("it does not panic").status(), 200);
    assert!(process.ended().success());
    assert!(upgrade.ended().success());
    upgrade.wait_for_text(&format!("has replaced {}", process.pid()));
}
