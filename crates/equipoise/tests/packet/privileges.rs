//! The packet level without root: with capabilities alone, which most threads do not keep.

use std::fs;
use std::os::unix::fs::{PermissionsExt, chown};
use std::path::{Path, PathBuf};

use equipoise_testkit::netns::SiteShape;

use crate::bed::{Bed, soon, wait_for_text};
use crate::common::{EQUIPOISE, text};
use crate::method::{DIRECT, Service};

/// Neither root nor the owner of anything.
const USER: u32 = 64_123;
const SITE: SiteShape = SiteShape { backends: 2, two_arms: true };
/// As in `packaging/equipoise.service.d/packet.conf`.
const CAPABILITIES: &str = "+net_bind_service,+bpf,+perfmon,+net_admin,+net_raw";

const NET_BIND_SERVICE: u64 = 1 << 10;
pub(crate) const NET_ADMIN: u64 = 1 << 12;
const NET_RAW: u64 = 1 << 13;
const LOADING: u64 = 1 << 38 | 1 << 39;
const ALL: u64 = NET_BIND_SERVICE | NET_ADMIN | NET_RAW | LOADING;

/// Gives the user the folders that the unit gives it, and starts the balancer.
fn balance_as_user(bed: &mut Bed) -> PathBuf {
    let bpf = Path::new("/sys/fs/bpf");
    let parent = bpf.join("equipoise");
    let pins = parent.join(bed.instance());
    let runtime = bed.path("run");
    for folder in [&parent, &pins, &runtime] {
        fs::create_dir_all(folder).unwrap();
    }
    for passage in [bpf, &parent] {
        fs::set_permissions(passage, PermissionsExt::from_mode(0o711)).unwrap();
    }
    let root = bed.path("equipoise.toml").parent().unwrap().to_owned();
    for folder in [&root, &pins, &runtime] {
        chown(folder, Some(USER), Some(USER)).unwrap();
    }
    let file = bed.path("equipoise.toml");
    let runtime = format!("RUNTIME_DIRECTORY={}", text(&runtime));
    let user = USER.to_string();
    let bounding = format!("-all,{CAPABILITIES}");
    let arguments = [
        &[&runtime[..], "setpriv", "--reuid", &user, "--regid", &user, "--clear-groups"],
        &["--inh-caps", CAPABILITIES, "--ambient-caps", CAPABILITIES][..],
        &["--bounding-set", &bounding, "--no-new-privs"],
        &[EQUIPOISE, "run", text(&file)],
    ]
    .concat();
    let guest = bed.site.balancer.start("env", &arguments).unwrap();
    wait_for_text(bed.balancer.insert(guest), " ready ");
    pins
}

/// The sets `CapPrm`, `CapEff`, `CapInh` and `CapAmb` of all threads, with their names.
pub(crate) fn threads(pid: u32) -> Vec<(String, [u64; 4])> {
    let tasks = fs::read_dir(format!("/proc/{pid}/task")).unwrap();
    // A thread may end while this reads.
    let status = |task: PathBuf| fs::read_to_string(task.join("status")).ok();
    let statuses = tasks.filter_map(|task| status(task.unwrap().path()));
    statuses.map(|status| (field(&status, "Name").to_owned(), sets(&status))).collect()
}

pub(crate) fn field<'s>(status: &'s str, name: &str) -> &'s str {
    let lines = status.lines().filter_map(|line| line.split_once(':'));
    let found = lines.filter(|(key, _)| *key == name).map(|(_, value)| value.trim()).next();
    found.unwrap_or_else(|| panic!("there is no {name}: {status}"))
}

fn sets(status: &str) -> [u64; 4] {
    ["CapPrm", "CapEff", "CapInh", "CapAmb"]
        .map(|name| u64::from_str_radix(field(status, name), 16).unwrap())
}

/// Only the thread that starts the engine and the next process has everything.
fn check_threads(pid: u32) {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
    assert_eq!(sets(&status), [NET_BIND_SERVICE; 4], "the main thread: {status}");
    assert_eq!(u64::from_str_radix(field(&status, "CapBnd"), 16).unwrap(), ALL);
    let threads = threads(pid);
    println!("{threads:x?}");
    for (name, sets) in &threads {
        let expected = match &name[..] {
            "privileged" => ALL,
            "packet" => ALL & !LOADING,
            _ => NET_BIND_SERVICE,
        };
        assert_eq!(*sets, [expected; 4], "thread {name}");
    }
    for name in ["privileged", "packet", "packet-netlink", "data-0"] {
        assert!(threads.iter().any(|thread| thread.0 == name), "there is no {name}: {threads:x?}");
    }
}

fn is_served(bed: &Bed, service: Service) -> bool {
    bed.curl(&[&format!("http://{}/", DIRECT.vip(service))]).is_ok()
}

#[test]
fn without_root_only_two_threads_keep_capabilities_through_reloads_and_upgrades() {
    let Some(mut bed) = Bed::new("privileges", SITE) else { return };
    bed.prepare(&[DIRECT]);
    // The first VIP comes with a reload, so the capabilities must last beyond the start.
    bed.configure("");
    let pins = balance_as_user(&mut bed);
    let config = DIRECT.config(Service::Web, &bed.site, "");
    bed.configure(&config);
    bed.command(&["reload"]);
    assert!(is_served(&bed, Service::Web), "{}", bed.log());
    let pid = bed.balancer.as_ref().unwrap().pid();
    check_threads(pid);
    // Another interface is attached without the capabilities of loading.
    let more = config.replacen("interface = \"eth0\"", "interface = [\"eth0\", \"late0\"]", 1);
    bed.configure(&more);
    bed.command(&["reload"]);
    bed.site.balancer.ip("link add late0 type veth peer name late1").unwrap();
    assert!(soon(|| bed.log().contains("interface late0: attached")), "{}", bed.log());

    bed.command(&["upgrade"]);
    let status: serde_json::Value =
        serde_json::from_str(&bed.command(&["status", "--json"])).unwrap();
    let newest = status["pid"].as_u64().unwrap() as u32;
    assert_ne!(newest, pid);
    check_threads(newest);
    assert!(is_served(&bed, Service::Web), "{}", bed.log());
    bed.stop_newest();
    let _ = fs::remove_dir(pins);
}
