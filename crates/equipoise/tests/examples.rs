//! packaging/examples: those for systemd work with the packaged unit, and every file is used by a
//! test or by the commands of a page in docs/.

mod common;

use std::net::{SocketAddr, TcpListener};
use std::os::fd::{AsRawFd, RawFd};
use std::os::unix::net::UnixDatagram;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use common::{EQUIPOISE, Folder, Process, stderr, stdout, text};
use equipoise_testkit::netns::{Host, unavailable};
use equipoise_testkit::{Client, HttpBackend, PATIENCE, workspace};

const SOCKET: &str = include_str!("../../../packaging/examples/systemd/equipoise.socket");
const UPGRADE: &str = include_str!("../../../packaging/examples/systemd/upgrade-on-reload.conf");

/// The files below a folder.
fn files(folder: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    let entries = std::fs::read_dir(folder).unwrap_or_else(|e| panic!("{}: {e}", folder.display()));
    for entry in entries {
        let path = entry.expect("it can be read").path();
        if path.is_dir() { found.extend(files(&path)) } else { found.push(path) }
    }
    found
}

/// Tests name a file by its path below packaging/examples. The commands of docs/ are run by
/// scripts/docs_test.py, and have `$REPOSITORY` before the path.
#[test]
fn every_example_is_used_by_a_test() {
    let read = |folder: &str| -> String {
        let is_read = |path: &PathBuf| path.extension().is_some_and(|it| it == "rs" || it == "md");
        let texts = files(&workspace().join(folder)).into_iter().filter(is_read);
        texts.map(|path| std::fs::read_to_string(path).expect("it is text")).collect()
    };
    let (tests, docs) = (read("crates/equipoise/tests"), read("docs"));
    let examples = workspace().join("packaging/examples");
    let all = files(&examples);
    assert!(all.len() > 5, "{all:?}");
    for example in all {
        let name = text(example.strip_prefix(&examples).expect("it is below")).to_owned();
        let is_run = docs.contains(&format!("$REPOSITORY/packaging/examples/{name}"));
        let is_named = ['"', '/'].iter().any(|before| tests.contains(&format!("{before}{name}\"")));
        assert!(is_run || is_named, "no test uses packaging/examples/{name}");
    }
}

/// The values of an option of a unit.
fn values<'u>(unit: &'u str, option: &str) -> Vec<&'u str> {
    let values = unit.lines().filter_map(|line| line.strip_prefix(option)?.strip_prefix('='));
    values.collect()
}

#[test]
fn systemd_accepts_the_sockets_and_each_drop_in() {
    if !Path::new("/usr/bin/systemd-analyze").exists() {
        println!("skipped: there is no systemd-analyze; `make package-root` installs it");
        return;
    }
    let packaging = workspace().join("packaging");
    for drop_in in
        ["systemd/limits.conf", "systemd/upgrade-on-reload.conf", "systemd/write-config.conf"]
    {
        let folder = Folder::new("example-units");
        let put = |from: &Path, to: &str| {
            let to = folder.path(to);
            std::fs::create_dir_all(to.parent().expect("a folder")).expect("it can be made");
            std::fs::copy(from, &to).unwrap_or_else(|error| panic!("{}: {error}", from.display()));
        };
        let system = "etc/systemd/system";
        put(&packaging.join("equipoise.service"), &format!("{system}/equipoise.service"));
        let socket = packaging.join("examples/systemd/equipoise.socket");
        put(&socket, &format!("{system}/equipoise.socket"));
        let example = packaging.join("examples").join(drop_in);
        put(&example, &format!("{system}/equipoise.service.d/example.conf"));
        // Programs that the unit names: only their existence is checked.
        put(Path::new("/bin/true"), "usr/bin/equipoise");
        let mut verify = Command::new("systemd-analyze");
        verify.args(["verify", "--man=no", "--recursive-errors=no"]);
        verify.arg(format!("--root={}", folder.root().display()));
        let output = verify.args(["equipoise.service", "equipoise.socket"]).output();
        let said = stderr(&output.expect("it runs"));
        // Systemd before 253 does not know these two, and says nothing else.
        let is_news = |line: &&str| {
            drop_in.contains("upgrade")
                && (line.ends_with("notify-reload") || line.contains("Unknown key 'ReloadSignal'"))
        };
        let wrong: Vec<_> = said.lines().filter(|line| !is_news(line)).collect();
        assert!(wrong.is_empty(), "{drop_in}: {wrong:#?}");
    }
}

/// A configuration with an HTTP front door at each address.
fn config(folder: &Folder, doors: &[SocketAddr], backend: SocketAddr) -> PathBuf {
    let door = |at: &SocketAddr| {
        format!("[[session]]\nlisten = \"{at}\"\nprotocol = \"http\"\npool = \"web\"\n")
    };
    let config = format!(
        "[api]\nsocket = {:?}\nlisten = \"off\"\n[instance]\nthreads = 2\n\
         [[pool]]\nname = \"web\"\nbackends = [\"{backend}\"]\n{}",
        folder.path("api.sock"),
        doors.iter().map(door).collect::<String>()
    );
    folder.write("equipoise.toml", &config)
}

/// Starts equipoise with sockets as systemd passes them: from descriptor 3 on, with the variables
/// LISTEN_PID, LISTEN_FDS and LISTEN_FDNAMES.
fn activate(host: &Host, sockets: &[TcpListener], file: &Path) -> Process {
    // systemd knows the process id; here the shell, which becomes equipoise, does.
    let mut command = host.command("sh");
    command.args(["-c", "export LISTEN_PID=$$; exec \"$@\"", "sh", EQUIPOISE, "run", text(file)]);
    command.env("LISTEN_FDS", sockets.len().to_string());
    command.env("LISTEN_FDNAMES", vec!["equipoise.socket"; sockets.len()].join(":"));
    // High numbers, so that no copy replaces a socket that is still to be copied.
    let above = |socket: &TcpListener| -> RawFd {
        // SAFETY: fcntl duplicates a descriptor that is open.
        unsafe { libc::fcntl(socket.as_raw_fd(), libc::F_DUPFD_CLOEXEC, 100) }
    };
    let copies: Vec<RawFd> = sockets.iter().map(above).collect();
    let passed = copies.clone();
    let pass = move || {
        for (fd, copy) in (3..).zip(&passed) {
            // SAFETY: dup2 takes two numbers and touches no memory.
            if unsafe { libc::dup2(*copy, fd) } < 0 {
                return Err(std::io::Error::last_os_error());
            }
        }
        Ok(())
    };
    // SAFETY: between fork and exec the closure only makes system calls and does not allocate.
    unsafe { command.pre_exec(pass) };
    let process = Process::of(command);
    // SAFETY: the copies were made above, and nothing else uses them.
    copies.into_iter().for_each(|copy| assert_eq!(unsafe { libc::close(copy) }, 0));
    process
}

#[test]
fn ports_that_systemd_holds_refuse_no_connection_during_a_restart() {
    if let Some(reason) = unavailable() {
        println!("skipped: {reason}");
        return;
    }
    let (host, folder) = (Host::new("activated").unwrap(), Folder::new("activated"));
    let doors: Vec<SocketAddr> = values(SOCKET, "ListenStream")
        .into_iter()
        .map(|address| address.parse().expect("an address and a port"))
        .collect();
    assert_eq!(doors.len(), 2, "{SOCKET}");
    // All data threads share each socket, as ReusePort=no has it.
    let bind = |door: &SocketAddr| TcpListener::bind(door).expect("the namespace is empty");
    let sockets: Vec<_> = host.enter(|| doors.iter().map(bind).collect());
    let backend = host.enter(|| HttpBackend::named("b"));
    let file = config(&folder, &doors, backend.address());
    let connect = |door: &SocketAddr| {
        let to = SocketAddr::from(([127, 0, 0, 1], door.port()));
        host.enter(|| Client::connect(to))
    };
    let request = "GET / HTTP/1.1\r\nHost: localhost\r\n\r\n";
    let mut first = activate(&host, &sockets, &file);
    first.wait_for_text(" ready ");
    for door in &doors {
        assert_eq!(connect(door).ask(request).expect("it answers").status(), 200);
    }
    first.signal(libc::SIGTERM);
    assert!(first.ended().success(), "{}", first.printed());
    // No process runs, and the ports still accept.
    let mut waiting: Vec<_> = doors.iter().map(connect).collect();
    for client in &mut waiting {
        client.send(request);
    }
    let _second = activate(&host, &sockets, &file);
    for mut client in waiting {
        assert_eq!(client.response().expect("it answers").status(), 200);
    }
}

/// A process that is killed when this is dropped: it is not a child of the test.
struct Successor(u32);

impl Drop for Successor {
    fn drop(&mut self) {
        let _ = Command::new("kill").args(["-s", "KILL", &self.0.to_string()]).status();
    }
}

/// `systemctl reload` with `Type=notify-reload` sends this signal, and then waits until the
/// process has announced the reload and its end.
#[test]
fn the_signal_of_a_reload_upgrades_and_systemd_learns_of_the_new_process() {
    let folder = Folder::new("upgrade-on-reload");
    let notices = UnixDatagram::bind(folder.path("notify")).expect("the folder is empty");
    notices.set_read_timeout(Some(PATIENCE)).expect("it is not zero");
    let notice = || {
        let mut buffer = [0; 256];
        let length = notices.recv(&mut buffer).expect("a notice comes");
        String::from_utf8(buffer[..length].to_vec()).expect("it is text")
    };
    let file = config(&folder, &[], HttpBackend::named("b").address());
    let mut command = Command::new(EQUIPOISE);
    command.args(["run", text(&file)]).env("NOTIFY_SOCKET", folder.path("notify"));
    let mut process = Process::of(command);
    assert_eq!(notice(), "READY=1\n");

    assert_eq!(values(UPGRADE, "Type"), ["notify-reload"]);
    assert_eq!(values(UPGRADE, "ExecReload"), [""], "no command of the packaged unit is left");
    let signal = values(UPGRADE, "ReloadSignal");
    let sent = Command::new("kill").args(["-s", signal[0], &process.pid().to_string()]).output();
    let sent = sent.expect("it is part of every system");
    assert!(sent.status.success(), "{}{}", stdout(&sent), stderr(&sent));
    let reloading = notice();
    assert!(reloading.starts_with("RELOADING=1\nMONOTONIC_USEC="), "{reloading}");
    let replaced = notice();
    let new = replaced.strip_prefix("MAINPID=").and_then(|rest| rest.strip_suffix("\nREADY=1\n"));
    let new = new.and_then(|pid| pid.parse().ok()).unwrap_or_else(|| panic!("{replaced}"));
    let _successor = Successor(new);
    assert_ne!(new, process.pid());
    assert!(process.ended().success(), "{}", process.printed());
}
