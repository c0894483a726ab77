//! Commands ask exactly the process that was named, for every way of naming it.

mod common;

use std::fs::File;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use common::{EQUIPOISE, Folder, Process, stderr, stdout, text};
use equipoise_testkit::{ReservedPort, free_port};
use serde_json::Value;

/// Variables that name a process, or that decide the default one.
const VARIABLES: [&str; 5] = [
    "EQUIPOISE_API",
    "EQUIPOISE_CONFIG",
    "EQUIPOISE_API_TOKEN",
    "EQUIPOISE_API_TOKEN_FILE",
    "RUNTIME_DIRECTORY",
];

/// The binary with these arguments and only these of the variables.
fn command(args: &[&str], variables: &[(&str, &str)]) -> Command {
    let mut command = Command::new(EQUIPOISE);
    command.args(args);
    for variable in VARIABLES {
        command.env_remove(variable);
    }
    command.envs(variables.iter().copied());
    command
}

fn run(args: &[&str], variables: &[(&str, &str)]) -> Output {
    command(args, variables).output().expect("the binary runs")
}

/// Name of the process that answers `status`.
fn answering(args: &[&str], variables: &[(&str, &str)]) -> String {
    let output = run(&[&["status", "--json"], args].concat(), variables);
    let status: Value = serde_json::from_slice(&output.stdout)
        .unwrap_or_else(|_| panic!("{args:?} {variables:?}: {}", stderr(&output)));
    status["instance"].as_str().expect("it has a name").to_string()
}

/// The exit code and the error of a command that must fail.
fn refused(args: &[&str], variables: &[(&str, &str)]) -> (i32, String) {
    let output = run(args, variables);
    assert!(!output.status.success(), "{args:?} worked: {}", stdout(&output));
    (output.status.code().expect("no signal ended it"), stderr(&output))
}

/// Writes a configuration with its `[api]` and a pool with the backend `b`.
fn write(folder: &Folder, name: &str, api: &str) -> PathBuf {
    let file = format!(
        "[instance]\nname = {name:?}\nthreads = 1\n[api]\n{api}\n\
         [[pool]]\nname = \"web\"\nbackends = [{{ name = \"b\", address = \"127.0.0.1:9\" }}]\n"
    );
    folder.write(&format!("{name}.toml"), &file)
}

fn start(file: &Path, variables: &[(&str, &str)]) -> Process {
    let process = Process::of(command(&["run", text(file)], variables));
    process.wait_for_text(" ready ");
    process
}

/// A running equipoise with its own socket.
struct Instance {
    socket: PathBuf,
    file: PathBuf,
    listen: ReservedPort,
    _process: Process,
}

fn instance(folder: &Folder, name: &str) -> Instance {
    let (socket, listen) = (folder.path(&format!("{name}.sock")), free_port());
    let api = format!("socket = {socket:?}\nlisten = \"{}\"", listen.address());
    let file = write(folder, name, &api);
    let process = start(&file, &[]);
    Instance { socket, file, listen, _process: process }
}

#[test]
fn every_way_to_name_a_process_reaches_that_process() {
    let folder = Folder::new("named");
    let (a, b) = (instance(&folder, "a"), instance(&folder, "b"));
    for (own, other, name) in [(&a, &b, "a"), (&b, &a, "b")] {
        let (socket, file, address) =
            (text(&own.socket), text(&own.file), own.listen.address().to_string());
        let (api, config) = ("EQUIPOISE_API", "EQUIPOISE_CONFIG");
        let others = [(api, text(&other.socket)), (config, text(&other.file))];
        for endpoint in [socket, &format!("unix:{socket}"), &format!("http://{address}"), &address]
        {
            assert_eq!(answering(&["--api", endpoint], &others), name, "{endpoint}");
            assert_eq!(answering(&[], &[(api, endpoint), others[1]]), name, "{endpoint}");
        }
        assert_eq!(answering(&["--config", file], &others), name);
        assert_eq!(answering(&[], &[(config, file)]), name);
        assert_eq!(answering(&[], &[(config, file), (api, "")]), name, "an empty one is none");
    }

    // A change of one process does not affect the other.
    let weight = |it: &Instance| {
        let output = run(&["status", "--json", "--api", text(&it.socket)], &[]);
        let status: Value = serde_json::from_slice(&output.stdout).expect("it answers");
        let backend = &status["pools"][0]["backends"][0];
        (backend["weight"].as_u64(), backend["state"].as_str().map(str::to_string))
    };
    let before = weight(&a);
    for args in [&["weight", "web/b", "7"][..], &["drain", "web/b"]] {
        let output = run(&[args, &["--config", text(&b.file)]].concat(), &[]);
        assert!(output.status.success(), "{}", stderr(&output));
    }
    assert_eq!(weight(&a), before);
    assert_eq!(weight(&b).0, Some(7));
    let reloaded = run(&["reload", "--config", text(&b.file)], &[]);
    assert!(stdout(&reloaded).starts_with(text(&b.file)), "{}", stdout(&reloaded));
}

/// Every command that asks a running process.
const ASKING: [&[&str]; 31] = [
    &["status"],
    &["status", "--cluster"],
    &["top"],
    &["drain", "web/b"],
    &["drain", "node"],
    &["undrain", "web/b"],
    &["enable", "web/b"],
    &["disable", "web/b"],
    &["weight", "web/b", "1"],
    &["reload"],
    &["flow", "198.51.100.7:1", "192.0.2.1:2/tcp"],
    &["flows"],
    &["capture", "192.0.2.1:2/tcp"],
    &["why", "http://a.example/"],
    &["why", "name", "a.example"],
    &["pin", "list"],
    &["pin", "add", "192.0.2.1:2/tcp", "198.51.100.7:1", "b"],
    &["pin", "move", "192.0.2.1:2/tcp", "198.51.100.7:1", "b"],
    &["pin", "remove", "192.0.2.1:2/tcp", "198.51.100.7:1"],
    &["plan"],
    &["plan", "pause", "web"],
    &["plan", "pin", "web", "1"],
    &["slice", "status"],
    &["slice", "plan"],
    &["slice", "drain", "w"],
    &["slice", "pin", "1", "w"],
    &["slice", "move", "1", "w"],
    &["cluster", "members"],
    &["cluster", "token", "list"],
    &["cluster", "node", "list"],
    &["cluster", "evict", "node"],
];

#[test]
fn every_command_reports_the_unanswered_address_and_its_origin() {
    let folder = Folder::new("unnamed");
    let socket = folder.path("gone.sock");
    let api = format!("socket = {socket:?}\nlisten = \"off\"");
    let file = write(&folder, "gone", &api);
    let (socket, file) = (text(&socket), text(&file));
    for args in ASKING {
        let there = format!("no equipoise answers at {socket} (");
        let (_, said) =
            refused(&[args, &["--api", socket]].concat(), &[("EQUIPOISE_CONFIG", file)]);
        assert!(said.contains(&format!("{there}from --api): start one with")), "{said}");
        let (_, said) = refused(args, &[("EQUIPOISE_API", socket), ("EQUIPOISE_CONFIG", file)]);
        assert!(said.contains(&format!("{there}from the variable EQUIPOISE_API)")), "{said}");
        let (code, said) = refused(&[args, &["--api", socket, "--config", file]].concat(), &[]);
        assert!(code == 2 && said.contains("'--api <SOCKET|URL>' cannot be used with"), "{said}");
        let (_, said) = refused(&[args, &["--config", "/nonexistent.toml"]].concat(), &[]);
        assert!(said.contains("/nonexistent.toml"), "{said}");
        if args.contains(&"cluster") || args.contains(&"--cluster") {
            // Such a file must name controllers, and this one does not.
            let (_, said) = refused(&[args, &["--config", file]].concat(), &[]);
            assert!(said.contains("gone.toml has no [cluster] table"), "{said}");
            continue;
        }
        for (way, named, variables) in [
            ("from --config", &["--config", file][..], [].as_slice()),
            ("from the variable EQUIPOISE_CONFIG", &[], &[("EQUIPOISE_CONFIG", file)]),
        ] {
            let (_, said) = refused(&[args, named].concat(), variables);
            let expected = format!("{there}`api.socket` of {file}, {way}): start it with");
            assert!(said.contains(&expected), "{said}");
        }
    }
}

#[test]
fn a_file_without_an_api_never_reaches_another_files_process() {
    let folder = Folder::new("usual");
    let directory = folder.path("run");
    std::fs::create_dir_all(&directory).expect("the folder can be written");
    let usual = [("RUNTIME_DIRECTORY", text(&directory))];
    let listen = free_port();
    let api = format!("listen = \"{}\"", listen.address());
    let (first, second) = (write(&folder, "first", &api), write(&folder, "second", &api));
    let (first, second) = (text(&first), text(&second));

    let (_, said) = refused(&["status"], &usual);
    let place = directory.join("api.sock");
    assert!(said.contains(&format!("at {} (the default): start", text(&place))), "{said}");
    let (_, said) = refused(&["drain", "web/b", "--config", first], &usual);
    assert!(
        said.contains("no equipoise that runs with") && said.contains("`api.socket`"),
        "{said}"
    );

    let process = start(Path::new(first), &usual);
    assert_eq!(answering(&["--config", first], &usual), "first");
    assert_eq!(answering(&[], &usual), "first", "the usual place is the default");
    let relative = command(&["status", "--json", "--config", "first.toml"], &usual)
        .current_dir(folder.path("."))
        .output()
        .expect("it runs");
    assert!(stdout(&relative).contains("\"first\""), "{}", stderr(&relative));
    // By its address, if its socket is the default of another process.
    assert_eq!(answering(&["--config", first], &[]), "first");
    for variables in [&usual[..], &[]] {
        let (_, said) = refused(&["drain", "web/b", "--config", second], variables);
        let other = format!("this equipoise runs with {first}");
        assert!(said.contains("from --config") && said.contains(&other), "{said}");
    }
    drop(process);
    let _process = start(Path::new(second), &usual);
    assert_eq!(answering(&["--config", second], &usual), "second");
}

#[test]
fn a_command_reports_api_errors_of_its_file_and_ignores_others() {
    let folder = Folder::new("wrong-file");
    for (text_of_file, expected) in [
        ("[api\n", ":1:"),
        ("[api]\nsocket = \"relative.sock\"\n", "api.socket"),
        ("[api]\nsokcet = \"/run/x.sock\"\n", "did you mean `socket`?"),
    ] {
        let file = folder.write("wrong.toml", text_of_file);
        let (_, said) = refused(&["status", "--config", text(&file)], &[]);
        assert!(said.starts_with(text(&file)) && said.contains(expected), "{said}");
    }
    let (_, said) = refused(&["status", "--config", text(&folder.path("none.toml"))], &[]);
    assert!(said.contains("none.toml (from --config): No such file"), "{said}");
    // Errors elsewhere in a file, for example while it is edited, do not stop a command that only
    // looks for the process.
    let own = instance(&folder, "a");
    let mut edited = std::fs::read_to_string(&own.file).expect("it was written");
    edited.push_str("[[pool]]\nnme = \"half\"\n");
    std::fs::write(&own.file, edited).expect("the folder can be written");
    assert_eq!(answering(&["--config", text(&own.file)], &[]), "a");
    // A file is not a socket.
    let (_, said) = refused(&["status", "--api", text(&own.file)], &[]);
    assert!(said.contains("name a configuration file with --config"), "{said}");
}

#[test]
fn a_closed_output_pipe_is_ignored_but_a_full_device_reported() {
    let folder = Folder::new("no-reader");
    let own = instance(&folder, "a");
    let run = |args: &[&str], output: File| {
        let args = [args, &["--api", text(&own.socket)]].concat();
        let mut command = command(&args, &[]);
        let ended = command.stdin(Stdio::null()).stdout(output).output().expect("it runs");
        (ended.status.code(), stderr(&ended))
    };
    for args in [&["reload"][..], &["weight", "web/b", "3"], &["status"], &["status", "--json"]] {
        let (reader, writer) = std::io::pipe().expect("there are pipes");
        drop(reader);
        let ended = run(args, File::from(OwnedFd::from(writer)));
        assert_eq!(ended, (Some(0), String::new()), "{args:?}");
        let full = File::options().write(true).open("/dev/full").expect("Linux has it");
        let (code, said) = run(args, full);
        assert!(code == Some(1) && said.contains("No space left on device"), "{args:?}: {said}");
        assert!(!said.contains("panicked"), "{args:?}: {said}");
    }
    let shown = stdout(&asked_again(&own));
    assert!(shown.contains("\"weight\": 3"), "it was done: {shown}");
}

fn asked_again(own: &Instance) -> Output {
    run(&["status", "--json", "--api", text(&own.socket)], &[])
}

#[test]
fn a_process_without_a_cluster_refuses_to_list_members() {
    let folder = Folder::new("no-cluster");
    let own = instance(&folder, "a");
    let output = run(&["cluster", "members", "--api", text(&own.socket)], &[]);
    assert!(!output.status.success() && stdout(&output).is_empty(), "{}", stdout(&output));
    assert!(stderr(&output).contains("this machine is in no cluster"), "{}", stderr(&output));
}
