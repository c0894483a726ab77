//! The packet level of the real binary: start, adoption after a kill, `--keep`, reload, refusals.
//!
//! Runs in network namespaces, and so as root. Without root the tests print why they do nothing.

#![allow(clippy::unwrap_used, reason = "a test may panic")]

#[path = "common/lines.rs"]
mod lines;

use std::fs;
use std::net::{IpAddr, SocketAddr, TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::time::Duration;

use equipoise_netns::{Guest, Site, SiteShape, unavailable};
use equipoise_testkit::eventually;
use rustix::process::Signal;
use serde_json::Value;

use lines::{Session, serve};

const EQUIPOISE: &str = env!("CARGO_BIN_EXE_equipoise");
/// Longest time to wait. A debug build loads its program in about a second; a busy machine takes
/// longer.
const PATIENCE: Duration = Duration::from_secs(60);
const PORT: u16 = 8080;

/// Client, router, balancer with two arms, and two backends that answer with their names.
struct Bed {
    site: Site,
    instance: String,
    folder: PathBuf,
}

impl Bed {
    fn new(test: &str) -> Option<Bed> {
        if let Some(why) = unavailable() {
            println!("skipped: {why}");
            return None;
        }
        let site = Site::new(SiteShape { backends: 2, two_arms: true }).unwrap();
        for (number, backend) in site.backends.iter().enumerate() {
            let listener = backend.enter(|| TcpListener::bind(("0.0.0.0", PORT))).unwrap();
            std::thread::spawn(move || serve(&listener, number + 1));
        }
        let instance = format!("{test}-{}", std::process::id());
        let folder = std::env::temp_dir().join(format!("equipoise-{instance}"));
        fs::create_dir_all(&folder).unwrap();
        let bed = Bed { site, instance, folder };
        bed.configure(&bed.vips(1), "");
        Some(bed)
    }

    fn vip(number: u8) -> IpAddr {
        Site::vip(number, false)
    }

    /// `[[packet]]` tables of `count` VIPs with nat, each with its own backend port.
    fn vips(&self, count: u8) -> String {
        let vip = |number: u8| {
            let backend = |index| {
                SocketAddr::new(
                    self.site.backend_address(index, false),
                    PORT + u16::from(number) - 1,
                )
            };
            format!(
                "[[pool]]\nname = \"web{number}\"\nbackends = [{{ address = \"{}\", name = \"b1\" }}, {{ address = \
                 \"{}\", name = \"b2\" }}]\n\
                 [[packet]]\nvip = \"{}:80/tcp\"\ninterface = \"eth0\"\nreply-interface = \"eth1\"\nforward = \"nat\"\n\
                 pool = \"web{number}\"\n",
                backend(0),
                backend(1),
                Bed::vip(number)
            )
        };
        (1..=count).map(vip).collect()
    }

    fn file(&self) -> PathBuf {
        self.folder.join("equipoise.toml")
    }

    fn socket(&self) -> String {
        self.folder.join("api.sock").display().to_string()
    }

    fn configure(&self, tables: &str, flows: &str) {
        let text = format!(
            "[instance]\nname = \"{}\"\n[api]\nsocket = \"{}\"\nlisten = \"off\"\n[flows]\nmax = 4096\npins-max = 2048\n\
             {flows}\n{tables}",
            self.instance,
            self.socket()
        );
        fs::write(self.file(), text).unwrap();
    }

    fn start(&self, more: &[&str]) -> Guest {
        let file = self.file();
        let mut arguments = vec!["run", file.to_str().unwrap()];
        arguments.extend(more);
        let process = self.site.balancer.start(EQUIPOISE, &arguments).unwrap();
        says(&process, " ready ");
        process
    }

    fn ask(&self, words: &[&str]) -> Output {
        Command::new(EQUIPOISE).args(words).args(["--api", &self.socket()]).output().unwrap()
    }

    fn done(&self, words: &[&str]) -> String {
        let output = self.ask(words);
        let error = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{words:?}: {error}");
        String::from_utf8(output.stdout).unwrap()
    }

    fn status(&self) -> Value {
        serde_json::from_str(&self.done(&["status", "--json"])).unwrap()
    }

    fn connect(&self, vip: u8) -> Session {
        self.connect_to(vip, 80)
    }

    fn connect_to(&self, vip: u8, port: u16) -> Session {
        let to = SocketAddr::new(Bed::vip(vip), port);
        let stream = self.site.client.enter(|| TcpStream::connect_timeout(&to, PATIENCE)).unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        Session::of(stream).unwrap()
    }

    fn pins(&self) -> PathBuf {
        Path::new("/sys/fs/bpf/equipoise").join(&self.instance)
    }

    fn has_program(&self, interface: &str) -> bool {
        let shown = self.site.balancer.ip(&format!("link show {interface}"));
        shown.unwrap().contains("prog/xdp")
    }
}

impl Drop for Bed {
    /// Removes what a killed process left.
    fn drop(&mut self) {
        for left in [self.pins(), Path::new("/run/equipoise").join(&self.instance)] {
            for entry in fs::read_dir(&left).into_iter().flatten().flatten() {
                let _ = fs::remove_file(entry.path());
            }
            let _ = fs::remove_dir(&left);
        }
        let _ = fs::remove_dir_all(&self.folder);
    }
}

fn says(process: &Guest, text: &str) {
    let found = process.wait_for(PATIENCE, |printed| printed.contains(text).then_some(()));
    found.unwrap_or_else(|printed| panic!("waited in vain for `{text}`; printed:\n{printed}"));
}

fn stop(mut process: Guest) {
    process.signal(Signal::TERM);
    assert!(process.wait().unwrap().success(), "{}", process.printed());
}

/// Checks that all connections are still at their backends.
fn assert_kept(sessions: &mut [Session]) {
    for session in sessions {
        assert_eq!(session.asked().unwrap(), session.backend);
    }
}

fn sessions(bed: &Bed, count: usize) -> Vec<Session> {
    let sessions: Vec<_> = (0..count).map(|_| bed.connect(1)).collect();
    let first = |name: &str| sessions.iter().filter(|session| session.backend == name).count();
    let (one, two) = (first("backend-1"), first("backend-2"));
    assert!(one > 0 && two > 0, "{one} and {two} of {count}");
    sessions
}

#[test]
fn a_vip_is_served_and_explained_and_a_stop_detaches_everything() {
    let Some(bed) = Bed::new("served") else { return };
    let process = bed.start(&[]);
    assert!(bed.has_program("eth0") && bed.has_program("eth1"));
    let mut sessions = sessions(&bed, 20);
    let learnt = eventually(|| bed.status()["packet"]["flows"].as_u64() >= Some(20));
    let status = bed.status();
    assert!(learnt, "{status:#}");
    let vip = &status["packet"]["vips"][0];
    assert_eq!(vip["vip"], format!("{}:80/tcp", Bed::vip(1)));
    assert_eq!((&vip["forward"], &vip["scheduler"]), (&"nat".into(), &"maglev".into()));
    assert_eq!(vip["drops"], serde_json::json!({}), "{status:#}");
    let open: u64 =
        vip["backends"].as_array().unwrap().iter().filter_map(|b| b["flows"].as_u64()).sum();
    assert_eq!(open, 20, "{status:#}");
    assert!(vip["packets_total"].as_u64() >= Some(60), "{status:#}");
    assert!(vip["notes"]["reply"].as_u64() >= Some(40), "{status:#}");
    let table = bed.done(&["status"]);
    assert!(table.contains("eth0 (native), eth1 (native, replies)"), "{table}");

    let (client, to) = (sessions[0].stream.get_ref().local_addr().unwrap(), Bed::vip(1));
    let told = bed.done(&["flow", &client.to_string(), &format!("{to}:80/tcp")]);
    let name = sessions[0].backend.replace("backend-", "b");
    assert!(
        told.contains(&format!("backend web1/{name} (")) && told.contains("by: ring"),
        "{told}"
    );

    let why = bed.done(&["why", "tcp", &client.to_string(), &format!("{to}:80")]);
    let line = format!("packet: VIP {to}:80/tcp: forwarded to {name} (");
    assert!(why.contains(&format!(": backend web1/{name}\n")) && why.contains(&line), "{why}");
    let why = bed.done(&["why", &format!("http://{to}/"), "--from", &client.to_string()]);
    assert!(why.contains(&format!(": backend web1/{name}\n")), "{why}");
    let why = bed.done(&["why", &format!("http://{to}/"), "--from", &client.ip().to_string()]);
    assert!(why.contains(": a backend of pool web1\n"), "{why}");

    assert_kept(&mut sessions);
    stop(process);
    assert!(!bed.has_program("eth0") && !bed.has_program("eth1"));
    assert!(!bed.pins().exists());
}

#[test]
fn a_round_robin_vip_names_no_backend_for_an_unknown_flow() {
    let Some(bed) = Bed::new("turns") else { return };
    bed.configure(&bed.vips(1).replace("pool =", "scheduler = \"round-robin\"\npool ="), "");
    let process = bed.start(&[]);
    let told = bed.done(&["flow", "198.51.100.2:40000", &format!("{}:80/tcp", Bed::vip(1))]);
    let why = "the flow is not known, and round-robin is not a hash of it: its first packet goes to the backend whose turn it is";
    assert!(told.contains(why) && told.contains("by: turn"), "{told}");
    assert!(!told.contains("backend web1"), "no backend is named: {told}");
    stop(process);
}

#[test]
fn an_added_or_moved_pin_determines_the_backend_of_its_flow_also_after_its_removal() {
    let Some(bed) = Bed::new("pinned") else { return };
    let process = bed.start(&[]);
    let vip = format!("{}:80/tcp", Bed::vip(1));
    let goes = |flow: &str| bed.done(&["flow", flow, &vip]);
    let flow = "198.51.100.2:40000";
    let (here, there) = if goes(flow).contains("web1/b1") { ("b1", "b2") } else { ("b2", "b1") };
    assert_eq!(bed.done(&["pin", "list"]), "no pins\n");
    bed.done(&["pin", "add", flow, &vip, there]);
    assert!(bed.done(&["pin", "list"]).contains(flow));
    let told = goes(flow);
    assert!(told.contains(&format!("web1/{there}")) && told.contains("by: pin"), "{told}");
    bed.done(&["pin", "move", flow, &vip, here]);
    let told = goes(flow);
    assert!(told.contains(&format!("web1/{here}")) && told.contains("by: pin"), "{told}");
    bed.done(&["pin", "move", flow, &vip, there]);
    let told = goes(flow);
    assert!(told.contains(&format!("web1/{there}")), "{told}");
    assert!(told.contains("pinned there by an operator"), "{told}");
    bed.done(&["pin", "remove", flow, &vip]);
    assert_eq!(bed.done(&["pin", "list"]), "no pins\n");
    // Until it ends, the flow stays at its backend, which the ring alone would not choose.
    let told = goes(flow);
    assert!(told.contains(&format!("web1/{there}")) && !told.contains("by an operator"), "{told}");
    let refused = bed.ask(&["pin", "add", flow, &vip, "b3"]);
    let error = String::from_utf8_lossy(&refused.stderr).into_owned();
    assert!(
        error.contains("pool `web1` has no backend `b3`; its backends are `b1`, `b2`"),
        "{error}"
    );
    stop(process);
}

#[test]
fn a_killed_process_is_taken_over_and_no_flow_moves() {
    let Some(bed) = Bed::new("killed") else { return };
    let mut process = bed.start(&[]);
    let mut sessions = sessions(&bed, 20);
    assert!(eventually(|| bed.status()["packet"]["flows"].as_u64() >= Some(20)));
    process.signal(Signal::KILL);
    process.wait().unwrap();
    // No process runs, and packets are still forwarded.
    assert_kept(&mut sessions);
    bed.connect(1);

    let process = bed.start(&[]);
    says(&process, "went on with the tables of an earlier process");
    assert_kept(&mut sessions);
    bed.done(&["drain", "web1/b1"]);
    for _ in 0..10 {
        assert_eq!(bed.connect(1).backend, "backend-2");
    }
    assert!(eventually(|| bed.status()["packet"]["vips"][0]["phase"] == "steady"));
    assert_kept(&mut sessions);
    stop(process);
}

/// Kills a process after its pool has changed, so that only pins keep flows at their backends.
fn killed_off_the_ring(bed: &Bed) -> Vec<Session> {
    let mut process = bed.start(&[]);
    let mut sessions = sessions(bed, 40);
    assert!(eventually(|| bed.status()["packet"]["flows"].as_u64() >= Some(40)));
    bed.configure(&skewed(&bed.vips(1)), "");
    bed.done(&["reload"]);
    assert!(eventually(|| bed.status()["packet"]["vips"][0]["phase"] == "steady"));
    let pins = bed.status()["packet"]["pins"].as_u64();
    assert!(pins >= Some(3), "{pins:?} flows are off the ring");
    assert_kept(&mut sessions);
    process.signal(Signal::KILL);
    process.wait().unwrap();
    sessions
}

/// Gives the first backend a ninth of the second's share.
fn skewed(tables: &str) -> String {
    tables.replace("name = \"b2\"", "name = \"b2\", weight = 9")
}

#[test]
fn changed_table_sizes_create_new_tables_and_move_no_flow() {
    let Some(bed) = Bed::new("sizes") else { return };
    let mut sessions = killed_off_the_ring(&bed);
    let (tables, before) = (skewed(&bed.vips(1)), "pins-max = 2048");
    for (from, to) in [(before, "pins-max = 1024"), ("max = 4096", "max = 2048")] {
        bed.configure(&tables, "vips-max = 32");
        let text = fs::read_to_string(bed.file()).unwrap();
        fs::write(bed.file(), text.replacen(from, to, 1)).unwrap();
        let mut process = bed.start(&[]);
        says(
            &process,
            "began with new tables: those of an earlier process cannot be taken over, they have other sizes",
        );
        says(&process, "40 flows of an earlier process are known from its registry");
        assert_kept(&mut sessions);
        let status = bed.status();
        assert!(status["packet"]["pins"].as_u64() >= Some(3), "{status:#}");
        assert_eq!(status["packet"]["flows_moved_total"], 0, "{status:#}");
        process.signal(Signal::KILL);
        process.wait().unwrap();
    }
}

#[test]
fn maps_of_another_version_or_missing_maps_move_no_flow() {
    let Some(bed) = Bed::new("versions") else { return };
    let mut sessions = killed_off_the_ring(&bed);
    let run = Path::new("/run/equipoise").join(&bed.instance);
    fs::write(run.join("layout"), "abi 1\n").unwrap();
    let mut process = bed.start(&[]);
    says(&process, "another version of equipoise made them");
    assert_kept(&mut sessions);
    process.signal(Signal::KILL);
    process.wait().unwrap();

    for entry in fs::read_dir(bed.pins()).unwrap() {
        fs::remove_file(entry.unwrap().path()).unwrap();
    }
    let mut process = bed.start(&[]);
    says(&process, "they are gone");
    says(&process, "40 flows of an earlier process are known");
    assert_kept(&mut sessions);
    process.signal(Signal::KILL);
    process.wait().unwrap();

    fs::write(run.join("layout"), "abi 1\n").unwrap();
    fs::write(run.join("ledger"), "equipoise ledger 1\n").unwrap();
    let process = bed.start(&[]);
    says(&process, "40 flows of an earlier process are forgotten");
    says(&process, "ledger cannot be used: it is damaged");
    stop(process);
    assert!(!run.join("ledger").exists() && !run.join("flows").exists());
}

#[test]
fn pins_are_listed_moved_and_removed_after_a_restart() {
    let Some(bed) = Bed::new("pins-kept") else { return };
    let mut process = bed.start(&[]);
    let vip = format!("{}:80/tcp", Bed::vip(1));
    let goes = |flow: &str| bed.done(&["flow", flow, &vip]);
    let flows = ["198.51.100.2:40000", "198.51.100.2:40001", "198.51.100.2:40002"];
    for flow in flows {
        let there = if goes(flow).contains("web1/b1") { "b2" } else { "b1" };
        bed.done(&["pin", "add", flow, &vip, there]);
    }
    let listed = bed.done(&["pin", "list"]);
    let explained = goes(flows[0]);
    assert!(explained.contains("pinned there by an operator"), "{explained}");
    // With the old tables, then with new ones.
    for tables in ["", "vips-max = 32"] {
        process.signal(Signal::KILL);
        process.wait().unwrap();
        bed.configure(&bed.vips(1), tables);
        process = bed.start(&[]);
        assert_eq!(bed.done(&["pin", "list"]), listed);
        assert_eq!(goes(flows[0]), explained);
    }
    let there = if explained.contains("web1/b1") { "b2" } else { "b1" };
    bed.done(&["pin", "move", flows[0], &vip, there]);
    assert!(goes(flows[0]).contains(&format!("web1/{there}")));
    bed.done(&["pin", "remove", flows[1], &vip]);

    // Its VIP is removed: the pin can still be removed.
    bed.configure(&bed.vips(2).replace(&vip, "192.0.2.77:80/tcp"), "vips-max = 32");
    bed.done(&["reload"]);
    process.signal(Signal::KILL);
    process.wait().unwrap();
    let process = bed.start(&[]);
    let listed = bed.done(&["pin", "list"]);
    assert!(listed.contains(flows[0]) && !listed.contains(flows[1]), "{listed}");
    for flow in [flows[0], flows[2]] {
        bed.done(&["pin", "remove", flow, &vip]);
    }
    assert_eq!(bed.done(&["pin", "list"]), "no pins\n");
    let refused = bed.ask(&["pin", "remove", flows[0], &vip]);
    let error = String::from_utf8_lossy(&refused.stderr).into_owned();
    assert!(error.contains("there is no VIP"), "{error}");
    stop(process);
}

#[test]
fn a_kept_program_forwards_until_a_configuration_has_no_vips() {
    let Some(bed) = Bed::new("kept") else { return };
    stop(bed.start(&["--keep"]));
    assert!(bed.has_program("eth0") && bed.pins().join("tables").exists());
    // Enough for each backend to have one, with odds of 2 in a million against.
    let mut sessions = sessions(&bed, 20);
    let process = bed.start(&["--keep"]);
    says(&process, "went on with the tables of an earlier process");
    assert_kept(&mut sessions);
    stop(process);
    assert_kept(&mut sessions);
    bed.configure("session = []", "");
    fs::write(
        bed.file(),
        format!(
            "session = []\n[instance]\nname = \"{}\"\n[api]\nsocket = \"{}\"\nlisten = \"off\"\n",
            bed.instance,
            bed.socket()
        ),
    )
    .unwrap();
    let process = bed.start(&[]);
    says(&process, "interface eth0: detached the program of an earlier process");
    assert!(!bed.has_program("eth0") && !bed.pins().exists());
    stop(process);
}

#[test]
fn a_reload_follows_the_file_without_moving_a_flow_or_is_refused() {
    let Some(bed) = Bed::new("reload") else { return };
    bed.configure(&bed.vips(1), "vips-max = 2");
    for (number, backend) in bed.site.backends.iter().enumerate() {
        let listener = backend.enter(|| TcpListener::bind(("0.0.0.0", PORT + 1))).unwrap();
        std::thread::spawn(move || serve(&listener, number + 1));
    }
    let process = bed.start(&[]);
    let mut sessions = sessions(&bed, 20);
    bed.configure(&bed.vips(2), "vips-max = 2");
    let told = bed.done(&["reload"]);
    assert!(told.contains("VIPs: 2"), "{told}");
    bed.connect(2);
    assert_kept(&mut sessions);

    // The file has room for three, but not the loaded program.
    bed.configure(&bed.vips(3), "vips-max = 3");
    let refused = bed.ask(&["reload"]);
    let error = String::from_utf8_lossy(&refused.stderr).into_owned();
    assert!(!refused.status.success());
    assert!(
        error.contains("3 ") && error.contains("room for 2") && error.contains("restart"),
        "{error}"
    );
    bed.connect(2);

    bed.configure(&bed.vips(1).replace("scheduler = \"maglev\"\n", ""), "vips-max = 2");
    bed.done(&["reload"]);
    assert_kept(&mut sessions);
    assert_eq!(bed.status()["packet"]["vips"].as_array().map(Vec::len), Some(1));

    bed.configure("", "vips-max = 2");
    bed.done(&["reload"]);
    assert!(!bed.has_program("eth0"));
    assert_eq!(bed.status().get("packet"), None);
    stop(process);
}

#[test]
fn a_reload_allocates_nat_memory_with_the_first_nat_vip() {
    let Some(bed) = Bed::new("first-nat") else { return };
    let address = |index| SocketAddr::new(bed.site.backend_address(index, false), PORT);
    let direct = format!(
        "[[pool]]\nname = \"direct\"\nbackends = [\"{}\", \"{}\"]\n\
         [[packet]]\nvip = \"{}:{PORT}/tcp\"\ninterface = \"eth0\"\n\
         forward = \"direct-routing\"\npool = \"direct\"\n",
        address(0),
        address(1),
        Bed::vip(1)
    );
    for backend in &bed.site.backends {
        backend.hidden_address(Bed::vip(1)).unwrap();
    }
    bed.configure(&direct, "");
    let mut process = bed.start(&[]);
    let bytes = || bed.status()["packet"]["kernel_bytes"].as_u64().unwrap();
    let (flows, without) = (bed.pins().join("translated-flows"), bytes());
    assert!(bed.pins().join("tables").exists() && !flows.exists());
    let mut sessions: Vec<_> = (0..10).map(|_| bed.connect_to(1, PORT)).collect();

    bed.configure(&format!("{direct}{}", bed.vips(1)), "");
    bed.done(&["reload"]);
    assert!(flows.exists());
    assert_eq!(bytes() - without, 16 * 4096, "for [flows] max");
    sessions.extend((0..10).map(|_| bed.connect(1)));
    assert_kept(&mut sessions);

    // The next process knows which replies are those of nat.
    process.signal(Signal::KILL);
    process.wait().unwrap();
    let process = bed.start(&[]);
    says(&process, "went on with the tables of an earlier process");
    assert_eq!(bytes() - without, 16 * 4096);
    assert_kept(&mut sessions);
    stop(process);
    assert!(!bed.pins().exists());
}

#[test]
fn a_deleted_interface_is_attached_again_when_it_reappears() {
    let Some(bed) = Bed::new("interface") else { return };
    let process = bed.start(&[]);
    bed.site.balancer.ip("link del eth0").unwrap();
    says(&process, "interface eth0: not there; attached when it comes");
    let state = || bed.status()["packet"]["interfaces"][0]["state"].clone();
    assert!(eventually(|| state() == "absent"));
    // Under another name, until its other end accepts frames from XDP.
    bed.site.balancer.ip("link add new type veth peer name elsewhere").unwrap();
    bed.site.balancer.pass_everything("elsewhere").unwrap();
    bed.site.balancer.ip("link set new name eth0").unwrap();
    bed.site.balancer.ip("link set eth0 up").unwrap();
    assert!(eventually(|| state() == "native" && bed.has_program("eth0")), "{}", process.printed());
    stop(process);
}

#[test]
fn a_second_process_of_an_instance_is_refused() {
    let Some(bed) = Bed::new("second") else { return };
    let process = bed.start(&[]);
    let other = bed.folder.join("other.toml");
    let text = fs::read_to_string(bed.file()).unwrap();
    fs::write(&other, text.replace("api.sock", "other.sock")).unwrap();
    let refused = bed.site.balancer.run(EQUIPOISE, &["run", other.to_str().unwrap()]);
    let error = refused.unwrap_err().to_string();
    assert!(error.contains("has a packet level already, in another process"), "{error}");
    bed.connect(1);
    stop(process);
}

#[test]
fn without_root_the_start_error_names_the_needed_privilege() {
    use std::os::unix::process::CommandExt;
    let Some(bed) = Bed::new("nobody") else { return };
    let output = Command::new("chmod").args(["0777", bed.folder.to_str().unwrap()]).status();
    assert!(output.unwrap().success());
    const NOBODY: u32 = 65_534;
    let mut command = Command::new(EQUIPOISE);
    command.arg("run").arg(bed.file()).uid(NOBODY).gid(NOBODY);
    let output = command.output().unwrap();
    let error = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(!output.status.success());
    assert!(error.contains("the packet level needs root"), "{error}");
}
