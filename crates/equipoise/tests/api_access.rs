//! Access to the API of a running equipoise, and its audit log, through the real binary.

mod common;

use std::path::{Path, PathBuf};
use std::process::Command;

use common::{EQUIPOISE, Folder, Process, equipoise, get, post, post_unix, stderr, stdout, text};
use equipoise_testkit::{ReservedPort, free_port};
use serde_json::Value;

struct Instance {
    process: Process,
    folder: Folder,
    file: PathBuf,
    api: ReservedPort,
    door: ReservedPort,
}

impl Instance {
    /// Starts an instance. `api` has options of the table `[api]`, except socket and port; the port
    /// is on `host`. `more` has other tables.
    fn start(test: &str, host: &str, api: impl Fn(&Folder) -> String, more: &str) -> Instance {
        let (folder, port, door) = (Folder::new(test), free_port(), free_port());
        let file = folder.write(
            "equipoise.toml",
            &format!(
                "[api]\nsocket = {:?}\nlisten = \"{host}:{}\"\n{}\n{more}\n\
                 [[session]]\nlisten = \"{}\"\nprotocol = \"http\"\npool = \"web\"\n\
                 [[pool]]\nname = \"web\"\nbackends = [{{ name = \"a\", address = \"127.0.0.1:9\" }}]\n",
                folder.path("api.sock"),
                port.address().port(),
                api(&folder),
                door.address(),
            ),
        );
        let process = Process::start(&["run", text(&file)]);
        process.wait_for_text(" ready ");
        Instance { process, folder, file, api: port, door }
    }

    /// Runs a command over TCP. Returns whether it succeeded, and its output.
    fn command(&self, args: &[&str], variables: &[(&str, &str)]) -> (bool, String) {
        let url = format!("http://{}", self.api.address());
        let mut command = Command::new(EQUIPOISE);
        command.args(args).args(["--api", &url]).envs(variables.iter().copied());
        let output = command.output().expect("the binary runs");
        (output.status.success(), stdout(&output) + &stderr(&output))
    }

    /// The audit log, once it has `count` lines: an answer waits for its line only for a bounded
    /// time.
    fn audited(&self, count: usize) -> Vec<Value> {
        let path = self.folder.path("audit");
        let read = || std::fs::read_to_string(&path).unwrap_or_default();
        equipoise_testkit::eventually(|| read().lines().count() >= count);
        let text = read();
        text.lines().map(|line| serde_json::from_str(line).expect("it is JSON")).collect()
    }
}

/// Creates a token file.
fn make_token(folder: &Folder, name: &str) -> String {
    let path = folder.path(name);
    let made = equipoise(&["api-token", text(&path)]);
    assert!(made.status.success(), "{}", stderr(&made));
    let token = std::fs::read_to_string(&path).expect("it was made");
    token.trim().to_owned()
}

fn two_tokens(folder: &Folder) -> String {
    make_token(folder, "viewer");
    make_token(folder, "root");
    format!(
        "audit-log = {:?}\n[[api.token]]\nname = \"viewer\"\nrole = \"read\"\nfile = {:?}\n\
         [[api.token]]\nname = \"root\"\nrole = \"admin\"\nfile = {:?}\n",
        folder.path("audit"),
        folder.path("viewer"),
        folder.path("root")
    )
}

#[test]
fn commands_over_tcp_need_a_token_with_a_sufficient_role() {
    let instance = Instance::start("tokens", "127.0.0.1", two_tokens, "");
    let (viewer, root) = (instance.folder.path("viewer"), instance.folder.path("root"));
    let (viewer, root) = (text(&viewer), text(&root));
    let (worked, said) = instance.command(&["status"], &[]);
    assert!(
        !worked && said.contains("--token-file") && said.contains("EQUIPOISE_API_TOKEN"),
        "{said}"
    );
    let (worked, said) = instance.command(&["status", "--token-file", viewer], &[]);
    assert!(worked && said.contains("web/a"), "{said}");
    let (worked, said) = instance.command(&["drain", "web/a", "--token-file", viewer], &[]);
    assert!(
        !worked && said.contains("`viewer` has the role `read`, but this request needs `operate`"),
        "{said}"
    );
    let (worked, said) = instance.command(&["drain", "web/a", "--token-file", root], &[]);
    assert!(worked && said.contains("web/a: drained"), "{said}");
    let token = std::fs::read_to_string(root).expect("it was made");
    let (worked, said) =
        instance.command(&["weight", "web/a", "7"], &[("EQUIPOISE_API_TOKEN", &token)]);
    assert!(worked && said.contains("weight 7"), "{said}");
    let (worked, said) = instance.command(&["status"], &[("EQUIPOISE_API_TOKEN", "short")]);
    assert!(!worked && said.contains("EQUIPOISE_API_TOKEN is not a token"), "{said}");

    let lines = instance.audited(4);
    let shown: Vec<_> = lines
        .iter()
        .map(|line| format!("{} {} {}", line["who"], line["outcome"], line["after"]["admin"]))
        .collect();
    assert_eq!(
        shown,
        [
            r#""anonymous" "denied" null"#,
            r#""token:viewer" "denied" null"#,
            r#""token:root" "done" "drain""#,
            r#""token:root" "done" "drain""#,
        ]
    );
    assert_eq!(
        (&lines[3]["before"]["weight"], &lines[3]["after"]["weight"]),
        (&1.into(), &7.into())
    );
    // The socket's permissions protect it, and over loopback no token is needed to see that the
    // process runs.
    let socket = instance.folder.path("api.sock");
    assert!(equipoise(&["status", "--api", text(&socket)]).status.success());
    assert_eq!(get(instance.api.address(), "/v1/health").status(), 200);
}

#[test]
fn a_reload_picks_up_changed_tokens_and_opens_the_audit_log_again() {
    let instance = Instance::start("rotated", "127.0.0.1", two_tokens, "");
    let root = instance.folder.path("root");
    let old = std::fs::read_to_string(&root).expect("it was made");
    std::fs::remove_file(&root).expect("it was made");
    let new = make_token(&instance.folder, "root");
    assert_ne!(old.trim(), new);
    let moved = instance.folder.path("audit.moved");
    std::fs::rename(instance.folder.path("audit"), &moved).expect("it was opened");
    let with = |token: &str| instance.command(&["reload"], &[("EQUIPOISE_API_TOKEN", token)]);
    assert!(!with(&new).0, "the new token is not known yet");
    assert!(with(&old).0, "the old one still is");
    assert!(!with(&old).0, "and no longer");
    let (worked, said) = with(&new);
    assert!(worked, "{said}");
    assert_eq!(instance.audited(3).len(), 3, "{:?}", instance.audited(3));
    let before = std::fs::read_to_string(moved).expect("it was moved");
    assert_eq!(before.lines().count(), 1, "{before}");
    instance.process.signal(libc::SIGHUP);
    assert!(equipoise_testkit::eventually(|| {
        instance
            .audited(4)
            .iter()
            .any(|line| line["who"] == "signal:SIGHUP" && line["outcome"] == "done")
    }));
}

#[test]
fn a_remote_api_without_tokens_serves_reads_and_refuses_changes() {
    let instance = Instance::start("remote", "0.0.0.0", |_| "allow-remote = true".into(), "");
    let address = instance.api.address();
    assert_eq!(get(address, "/v1/status").status(), 200);
    assert_eq!(get(address, "/metrics").status(), 200);
    let refused = post(address, "/v1/reload");
    assert_eq!(refused.status(), 403);
    assert!(refused.text().contains("[[api.token]]"), "{}", refused.text());
    let socket = instance.folder.path("api.sock");
    assert!(equipoise(&["reload", "--api", text(&socket)]).status.success());

    let file = std::fs::read_to_string(&instance.file).expect("it was written");
    let file = instance.folder.write("refused.toml", &file.replace("allow-remote = true", ""));
    let checked = equipoise(&["check", text(&file)]);
    let said = stdout(&checked);
    assert!(
        !checked.status.success() && said.contains("api.listen") && said.contains("api-token"),
        "{said}"
    );
}

#[test]
fn audit_lines_without_a_file_are_logged_at_any_log_level() {
    let instance =
        Instance::start("log", "127.0.0.1", |_| String::new(), "[log]\nlevel = \"info\"\n");
    let file = std::fs::read_to_string(&instance.file).expect("it was written");
    instance.folder.write("equipoise.toml", &file.replace("\"info\"", "\"error\""));
    let socket = instance.folder.path("api.sock");
    let command = |args: &[&str]| equipoise(&[args, &["--api", text(&socket)]].concat());
    assert!(command(&["reload"]).status.success());
    assert!(command(&["drain", "web/a"]).status.success());
    // SAFETY: geteuid reads a number of this process and cannot fail.
    let who = format!("who=\"uid:{}\"", unsafe { libc::geteuid() });
    instance.process.wait_for("the drain's line", |printed| {
        printed.lines().find(|line| line.contains("/drain") && line.contains(&who)).map(|_| ())
    });
    drop(instance.door);
}

#[test]
fn a_loopback_api_without_tokens_serves_reads_and_refuses_changes() {
    let instance = Instance::start("loopback", "127.0.0.1", |_| String::new(), "");
    let address = instance.api.address();
    assert_eq!(get(address, "/v1/status").status(), 200);
    assert_eq!(get(address, "/metrics").status(), 200);
    for path in ["/v1/reload", "/v1/config/check", "/v1/pools/web/backends/a/drain"] {
        let refused = post(address, path);
        assert_eq!(refused.status(), 403, "{path}");
        assert!(refused.text().contains("use the unix socket"), "{}", refused.text());
    }
    let (worked, said) = instance.command(&["drain", "web/a"], &[]);
    assert!(!worked && said.contains("[[api.token]]"), "{said}");
    let socket = instance.folder.path("api.sock");
    assert!(equipoise(&["drain", "web/a", "--api", text(&socket)]).status.success());
}

/// Creates a FIFO without a writer.
fn make_fifo(path: &Path) {
    let made = Command::new("mkfifo").arg(path).status().expect("coreutils are there");
    assert!(made.success());
}

#[test]
fn a_config_check_rejects_special_files_and_delays_no_stop() {
    let mut instance = Instance::start("files", "127.0.0.1", |_| String::new(), "");
    let socket = instance.folder.path("api.sock");
    let fifo = instance.folder.path("fifo");
    make_fifo(&fifo);
    let zone = |path: &str| {
        format!(
            "[[dns]]\nzone = 'z.test'\nlisten = '127.0.0.1:5300'\nzone-file = {path:?}\n\
             ns = [{{ name = 'ns1', addresses = '192.0.2.53' }}]\n"
        )
    };
    let token = |path: &str| format!("[[api.token]]\nname = 't'\nrole = 'read'\nfile = {path:?}\n");
    for (toml, said) in [
        (zone("/dev/zero"), "a device; accepted: a regular file"),
        (zone(text(&fifo)), "a FIFO; accepted: a regular file"),
        (token("/dev/tty"), "a device; accepted: a regular file"),
        (token(text(&fifo)), "a FIFO; accepted: a regular file"),
        (token(text(instance.folder.root())), "a directory; accepted: a regular file"),
    ] {
        let body = serde_json::json!({ "toml": toml }).to_string();
        let (status, answer) = post_unix(&socket, "/v1/config/check", &body);
        assert!(status == 200 && answer.contains(said), "{toml}\n{answer}");
    }
    instance.process.signal(libc::SIGTERM);
    assert!(instance.process.ended().success());
}

#[test]
fn a_reload_of_a_fifo_fails_and_blocks_no_command() {
    let mut instance = Instance::start("fifo", "127.0.0.1", |_| String::new(), "");
    let socket = instance.folder.path("api.sock");
    std::fs::remove_file(&instance.file).expect("it was written");
    make_fifo(&instance.file);
    let command = |args: &[&str]| {
        let output = equipoise(&[args, &["--api", text(&socket)]].concat());
        (output.status.success(), stdout(&output) + &stderr(&output))
    };
    let (worked, said) = command(&["reload"]);
    assert!(!worked && said.contains("a FIFO; accepted: a regular file"), "{said}");
    instance.process.signal(libc::SIGHUP);
    instance.process.wait_for("the reload of the signal", |printed| {
        (printed.matches("reload failed").count() == 2).then_some(())
    });
    for change in ["drain", "undrain"] {
        let (worked, said) = command(&[change, "web/a"]);
        assert!(worked, "{said}");
    }
    let health = get(instance.api.address(), "/v1/health").text();
    assert_eq!(health, "{\"phase\":\"running\",\"degraded\":[]}", "nothing hangs");
    let status = get(instance.api.address(), "/v1/status").text();
    assert!(status.contains("\"succeeded\":false") && status.contains("a FIFO"), "{status}");
    instance.process.signal(libc::SIGTERM);
    assert!(instance.process.ended().success());
}
