//! The process driver with real processes, which run this test program with a role in a variable.
#![allow(clippy::unwrap_used, reason = "a panic is how a test fails")]

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use equipoise_driver::{
    Ask, BackendState, Backoff, Desired, DesiredState, Driver, DriverOptions, Event, Limits,
    LogOptions, Ports, ProcessDriver, ProcessOptions, Scaler, ScalerOptions, SizeLimit, Wish,
};
use tokio::sync::mpsc;

const ROLE: &str = "EQUIPOISE_TEST_ROLE";
/// Timeout for events that certainly happen, also on a busy machine.
const LONG: Duration = Duration::from_secs(60);

/// Not a test: the backends' main function. Without a role it does nothing.
#[test]
#[ignore = "it is what the other tests start"]
fn child() {
    let Ok(role) = std::env::var(ROLE) else { return };
    match role.as_str() {
        "parent" => parent(),
        role => backend(role),
    }
}

/// Listens at `PORT`, and answers each connection with its process id.
fn backend(role: &str) {
    let port: u16 = std::env::var("PORT").unwrap().parse().unwrap();
    println!("{role} at {port}");
    if role == "exits" {
        eprintln!("the database is gone");
        std::process::exit(3);
    }
    if role == "deaf" {
        std::thread::sleep(Duration::from_secs(600));
    }
    if role == "stubborn" {
        // SAFETY: ignoring a signal runs no code of ours.
        unsafe { libc::signal(libc::SIGTERM, libc::SIG_IGN) };
    }
    let grandchild = (role == "parental")
        .then(|| Command::new("sleep").arg("600").spawn().expect("sleep is there").id());
    let listener = TcpListener::bind(("127.0.0.1", port)).unwrap();
    for (count, stream) in listener.incoming().enumerate() {
        let mut stream = stream.unwrap();
        let _ = write!(stream, "{} {}", std::process::id(), grandchild.unwrap_or(0));
        // The first connection is the driver's readiness check, the second the test's.
        if role == "crashes" && count >= 1 {
            std::process::exit(7);
        }
    }
}

/// Makes three backends with a driver, prints their ids, and waits to be killed.
fn parent() {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let (events, _keep) = mpsc::channel(8);
        let driver = ProcessDriver::open("web", options("serves"), events).unwrap();
        for number in 1..4 {
            println!("pid={}", driver.add(&ask(number, None)).await.unwrap().id);
        }
        println!("pid=all");
        std::future::pending::<()>().await;
    });
}

/// The command and environment that run [`child`] in a role.
fn role(role: &str) -> (Vec<String>, [(String, String); 1]) {
    let program = std::env::current_exe().unwrap().to_str().unwrap().to_string();
    let arguments = ["child", "--exact", "--ignored", "--nocapture"].map(String::from);
    let variable = [(ROLE.to_string(), role.to_string())];
    (std::iter::once(program).chain(arguments).collect(), variable)
}

fn options(named: &str) -> ProcessOptions {
    let (command, variable) = role(named);
    let port = ("PORT".to_string(), "{port}".to_string());
    ProcessOptions {
        command,
        environment: variable.into_iter().chain([port]).collect(),
        ready_timeout: LONG,
        stop_timeout: LONG,
        ..ProcessOptions::default()
    }
}

fn ask(number: u32, size: Option<&str>) -> Ask {
    let name = format!("web-e{number}");
    let (pool, key, size) = ("web".to_string(), name.clone(), size.map(str::to_string));
    Ask { pool, name, size, key, attempt: 1, address: None, id: None }
}

fn driver(options: ProcessOptions) -> (ProcessDriver, mpsc::Receiver<Event>) {
    let (to, events) = mpsc::channel(64);
    (ProcessDriver::open("web", options, to).unwrap(), events)
}

/// The process ids in a backend's answer: its own, and its child's.
fn answer(address: SocketAddr) -> (u32, u32) {
    let mut text = String::new();
    TcpStream::connect(address).unwrap().read_to_string(&mut text).unwrap();
    let (own, child) = text.split_once(' ').unwrap();
    (own.parse().unwrap(), child.parse().unwrap())
}

/// A zombie counts as dead: its parent may not have reaped it yet.
fn is_alive(pid: u32) -> bool {
    let status = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    let state = status.rsplit_once(") ").map(|(_, rest)| rest.as_bytes()[0]);
    state.is_some_and(|state| state != b'Z' && state != b'X')
}

fn dies(pid: u32) -> bool {
    let until = Instant::now() + LONG;
    while is_alive(pid) && Instant::now() < until {
        std::thread::sleep(Duration::from_millis(5));
    }
    !is_alive(pid)
}

/// Whether a process runs that has this mark in its environment. A zombie has none.
fn runs_with(mark: &str) -> bool {
    let variable = format!("EQUIPOISE_TEST_MARK={mark}");
    let has_it = |process: std::fs::DirEntry| {
        let environment = std::fs::read(process.path().join("environ")).unwrap_or_default();
        environment.split(|byte| *byte == 0).any(|it| it == variable.as_bytes())
    };
    std::fs::read_dir("/proc").unwrap().filter_map(Result::ok).any(has_it)
}

#[tokio::test]
async fn a_process_serves_after_add_and_ends_with_removal_or_driver() {
    let (driver, _events) = driver(options("serves"));
    let added = driver.add(&ask(1, None)).await.unwrap();
    let other = driver.add(&ask(2, None)).await.unwrap();
    assert_ne!(added.address, other.address);
    let (pid, _) = answer(added.address);
    assert_eq!(pid.to_string(), added.id);
    driver.remove(&ask(1, None)).await.unwrap();
    assert!(!is_alive(pid));
    assert!(TcpStream::connect(added.address).is_err());
    driver.remove(&ask(1, None)).await.unwrap();
    let (other_pid, _) = answer(other.address);
    drop(driver);
    assert!(dies(other_pid), "they do not outlive the driver");
}

#[tokio::test]
async fn a_process_exiting_before_it_listens_fails_with_its_last_output() {
    let (driver, _events) = driver(options("exits"));
    let error = driver.add(&ask(1, None)).await.unwrap_err().to_string();
    assert!(error.contains("exit status: 3"), "{error}");
    assert!(error.contains("the database is gone"), "{error}");
}

#[tokio::test]
async fn a_process_that_does_not_listen_fails_at_the_ready_timeout_and_is_killed() {
    let ready_timeout = Duration::from_millis(300);
    let marked = |role: &str, ready_timeout| {
        let (mut options, mark) = (options(role), format!("{role}-{}", std::process::id()));
        options.environment.insert("EQUIPOISE_TEST_MARK".to_string(), mark.clone());
        (driver(ProcessOptions { ready_timeout, ..options }), mark)
    };
    let ((driver, _events), mark) = marked("deaf", ready_timeout);
    let error = driver.add(&ask(1, None)).await.unwrap_err().to_string();
    assert!(error.contains("accepts no connections"), "{error}");
    assert!(error.contains("300ms (ready-timeout)"), "{error}");
    let until = Instant::now() + LONG;
    while runs_with(&mark) {
        assert!(Instant::now() < until, "it is killed");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    // A process that listens is found by its mark, and stays.
    let ((other, _events), mark) = marked("serves", LONG);
    other.add(&ask(1, None)).await.unwrap();
    assert!(runs_with(&mark));
}

#[tokio::test]
async fn the_error_names_a_missing_program() {
    let command = vec!["/no/such/program".to_string(), "{port}".to_string()];
    let (driver, _events) = driver(ProcessOptions { command, ..ProcessOptions::default() });
    let error = driver.add(&ask(1, None)).await.unwrap_err();
    assert!(error.to_string().contains("cannot start /no/such/program"), "{error}");
}

#[tokio::test]
async fn a_process_that_ignores_sigterm_is_killed() {
    let stop_timeout = Duration::from_millis(200);
    let (driver, _events) = driver(ProcessOptions { stop_timeout, ..options("stubborn") });
    let (pid, _) = answer(driver.add(&ask(1, None)).await.unwrap().address);
    let began = Instant::now();
    driver.remove(&ask(1, None)).await.unwrap();
    assert!(!is_alive(pid));
    assert!(began.elapsed() >= stop_timeout);
}

#[tokio::test]
async fn child_processes_end_with_their_removed_backend() {
    let (driver, _events) = driver(options("parental"));
    let (_, grandchild) = answer(driver.add(&ask(1, None)).await.unwrap().address);
    assert!(is_alive(grandchild));
    driver.remove(&ask(1, None)).await.unwrap();
    assert!(dies(grandchild));
}

#[tokio::test]
async fn a_crashed_process_restarts_at_its_address_and_loops_are_reported() {
    let restart = Backoff { first: Duration::from_millis(10), most: Duration::from_millis(50) };
    let (driver, mut events) =
        driver(ProcessOptions { restart, loop_after: 3, ..options("crashes") });
    let added = driver.add(&ask(1, None)).await.unwrap();
    let mut loops = Vec::new();
    for _ in 0..3 {
        answer(added.address);
        let event = events.recv().await.unwrap();
        let Event::Down { name, reason, is_loop, .. } = event else { panic!("{event:?}") };
        assert_eq!(name, "web-e1");
        assert!(reason.contains("exit status: 7"), "{reason}");
        loops.push(is_loop);
        let event = events.recv().await.unwrap();
        assert!(matches!(event, Event::Up { .. }), "{event:?}");
    }
    assert_eq!(loops, [false, false, true]);
    driver.remove(&ask(1, None)).await.unwrap();
}

#[tokio::test]
async fn ports_come_from_the_range() {
    // Outside the range of automatic ports, so that no connection takes the port before the process
    // does.
    let from = 18_000 + (std::process::id() % 1000) as u16;
    let is_free = |port: &u16| TcpListener::bind(("127.0.0.1", *port)).is_ok();
    let free = (from..20_000).find(is_free).expect("one of a thousand is free");
    let ports = Ports::Range(free, free);
    let (driver, _events) = driver(ProcessOptions { ports, ..options("serves") });
    assert_eq!(driver.add(&ask(1, None)).await.unwrap().address.port(), free);
    let error = driver.add(&ask(2, None)).await.unwrap_err().to_string();
    assert!(error.contains(&format!("no port of {free}-{free} is free")), "{error}");
    driver.remove(&ask(1, None)).await.unwrap();
    driver.add(&ask(3, None)).await.unwrap();
}

#[tokio::test]
async fn the_output_of_a_backend_is_written_to_its_log() {
    let folder = tempfile::tempdir().unwrap();
    let logs = LogOptions { folder: folder.path().join("logs"), ..LogOptions::default() };
    let (driver, _events) = driver(ProcessOptions { logs: Some(logs), ..options("serves") });
    let port = driver.add(&ask(1, None)).await.unwrap().address.port();
    driver.remove(&ask(1, None)).await.unwrap();
    let path = folder.path().join("logs/web-e1.log");
    let until = Instant::now() + LONG;
    let has_it = |path: &Path| {
        std::fs::read_to_string(path).unwrap_or_default().contains(&format!("serves at {port}"))
    };
    while !has_it(&path) {
        assert!(Instant::now() < until, "the log has it in the end");
        std::thread::sleep(Duration::from_millis(5));
    }
}

#[tokio::test]
async fn a_process_gets_path_and_configured_variables_only() {
    let folder = tempfile::tempdir().unwrap();
    let script = "env > {name}.env; exec python3 -m http.server --bind {address} {port}";
    let command = ["sh", "-c", script].map(String::from).to_vec();
    let set = ("SIZE".to_string(), "{size} of {pool}".to_string());
    let (driver, _events) = driver(ProcessOptions {
        command,
        environment: [set].into(),
        folder: Some(folder.path().to_path_buf()),
        ready_timeout: LONG,
        ..ProcessOptions::default()
    });
    driver.add(&ask(1, Some("small"))).await.unwrap();
    let seen = std::fs::read_to_string(folder.path().join("web-e1.env")).unwrap();
    assert!(seen.contains("PATH=") && seen.contains("SIZE=small of web"), "{seen}");
    assert!(!seen.contains("CARGO"), "{seen}");
    // The shell sets the last four itself.
    let allowed = ["PATH", "LANG", "TZ", "SIZE", "PWD", "OLDPWD", "SHLVL", "_"];
    let names = seen.lines().filter_map(|line| Some(line.split_once('=')?.0));
    let others: Vec<&str> = names.filter(|name| !allowed.contains(name)).collect();
    assert!(others.is_empty(), "variables of this process: {others:?}");
    let of_ours = std::env::vars().find(|(name, _)| !allowed.contains(&name.as_str()));
    assert!(of_ours.is_some(), "this process has a variable that must not be passed on");
}

fn is_root() -> bool {
    rustix::process::geteuid().is_root()
}

#[tokio::test]
async fn a_process_runs_as_the_configured_user() {
    if !is_root() {
        eprintln!("skipped: only root may start processes as another user");
        return;
    }
    let command = ["python3", "-m", "http.server", "--bind", "{address}", "{port}"];
    let (driver, _events) = driver(ProcessOptions {
        command: command.map(String::from).to_vec(),
        user: Some("nobody".to_string()),
        folder: Some("/".into()),
        ready_timeout: LONG,
        ..ProcessOptions::default()
    });
    let added = driver.add(&ask(1, None)).await.unwrap();
    let status = std::fs::read_to_string(format!("/proc/{}/status", added.id)).unwrap();
    let line = |name: &str| {
        status.lines().find_map(|line| line.strip_prefix(name)).unwrap_or_default().to_string()
    };
    assert!(line("Uid:").split_whitespace().all(|id| id != "0"), "{}", line("Uid:"));
    assert_eq!(line("Groups:").trim(), "");
}

#[tokio::test]
async fn a_size_limits_cpu_and_memory() {
    let limit = SizeLimit { cpus: Some(0.5), memory_bytes: Some(256 << 20) };
    let limits = [("small".to_string(), limit)].into();
    let (to, _events) = mpsc::channel(8);
    let driver =
        match ProcessDriver::open("web", ProcessOptions { limits, ..options("serves") }, to) {
            Ok(driver) => driver,
            Err(refused) if !is_root() => {
                eprintln!("skipped: {refused}");
                return;
            }
            Err(refused) => panic!("{refused}"),
        };
    let added = driver.add(&ask(1, Some("small"))).await.unwrap();
    let groups = std::fs::read_to_string(format!("/proc/{}/cgroup", added.id)).unwrap();
    assert!(groups.lines().any(|line| line.ends_with("-web/web-e1")), "{groups}");
    driver.remove(&ask(1, None)).await.unwrap();
    let other = driver.add(&ask(2, Some("large"))).await.unwrap();
    let groups = std::fs::read_to_string(format!("/proc/{}/cgroup", other.id)).unwrap();
    assert!(!groups.contains("-web/web-e2"), "{groups}");
}

/// Kernel: a process that gets SIGKILL cannot end its children itself.
#[test]
fn processes_die_when_their_parent_is_killed() {
    let (argv, variable) = role("parent");
    let mut parent = Command::new(&argv[0])
        .args(&argv[1..])
        .envs(variable)
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let lines = BufReader::new(parent.stdout.take().unwrap()).lines();
    let said = lines
        .map(Result::unwrap)
        .filter_map(|line| line.split_once("pid=").map(|(_, pid)| pid.to_string()));
    let pids: Vec<u32> =
        said.take_while(|pid| pid != "all").map(|pid| pid.parse().unwrap()).collect();
    assert_eq!(pids.len(), 3);
    assert!(pids.iter().all(|pid| is_alive(*pid)), "the thread that forked them is there");
    parent.kill().unwrap();
    parent.wait().unwrap();
    for pid in pids {
        assert!(dies(pid), "process {pid} outlives us");
    }
}

#[tokio::test]
async fn a_scaler_runs_processes_and_ends_them_with_itself() {
    let scaler = Scaler::start(ScalerOptions {
        pool: "web".to_string(),
        limits: Limits::default(),
        driver: DriverOptions::Process(options("serves")),
        earlier: Default::default(),
        has: Vec::new(),
        next_number: 1,
    });
    let scaler = scaler.await.unwrap();
    let mut view = scaler.subscribe();
    let desired = |of_the_second: Wish| {
        let one = |number: u32| Desired {
            name: format!("web-e{number}"),
            key: format!("key-{number}"),
            size: None,
            wish: if number == 2 { of_the_second } else { Wish::Serve },
            added: None,
            driver: None,
            outlives: false,
            replaces: None,
        };
        let backends = (1..=3).map(one).collect();
        DesiredState { backends, next_number: 4, ..DesiredState::default() }
    };
    scaler.desire(desired(Wish::Serve)).await.unwrap();
    let all_ready = |view: &std::sync::Arc<equipoise_driver::PoolView>| {
        view.backends.len() == 3 && view.backends.iter().all(|one| one.state == BackendState::Ready)
    };
    view.wait_for(all_ready).await.unwrap();
    let addresses: Vec<SocketAddr> =
        scaler.view().backends.iter().map(|one| one.address.unwrap()).collect();
    let pids: Vec<u32> = addresses.iter().map(|address| answer(*address).0).collect();
    scaler.desire(desired(Wish::Drain)).await.unwrap();
    view.wait_for(|view| view.backends[1].state == BackendState::Draining).await.unwrap();
    assert_eq!(answer(addresses[1]).0, pids[1], "it serves what it has");
    scaler.desire(desired(Wish::Leave)).await.unwrap();
    view.wait_for(|view| view.backends.len() == 2).await.unwrap();
    assert!(!is_alive(pids[1]));
    // A process that dies is shown as down, and is started again.
    // SAFETY: the process is the test's own.
    unsafe { libc::kill(i32::try_from(pids[0]).unwrap(), libc::SIGKILL) };
    view.wait_for(|view| view.backends[0].state == BackendState::Failed).await.unwrap();
    view.wait_for(|view| view.backends[0].state == BackendState::Ready).await.unwrap();
    assert_ne!(answer(addresses[0]).0, pids[0]);
    scaler.stop().await;
    assert!(!is_alive(pids[2]));
}
