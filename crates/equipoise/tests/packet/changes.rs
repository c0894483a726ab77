//! Backends and balancer start and stop under load: established connections stay at their backends.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

use equipoise_testkit::netns::SiteShape;
use rustix::process::Signal;

use crate::bed::{Bed, soon, wait_for_text};
use crate::common::successor::successor;
use crate::common::{EQUIPOISE, text};
use crate::load::{Load, Met, failures};
use crate::method::{DIRECT, GUE6, IPIP, Method, NAT, NAT6, Service};

const SHAPE: SiteShape = SiteShape { backends: 3, two_arms: false };
/// Enough for each of three backends to have some, with odds of 10^-6 against.
const CONNECTIONS: usize = 36;

/// A site that balances the line service by one method over these backends, with connections
/// through it.
fn loaded(test: &str, method: Method, backends: &[usize]) -> Option<(Bed, Load)> {
    let mut bed = Bed::new(test, SHAPE)?;
    bed.prepare(&[method]);
    bed.configure(&method.config_of(Service::Lines, &bed.site, backends, ""));
    bed.balance();
    let load = Load::start(&bed.site.client, method.vip(Service::Lines), CONNECTIONS);
    load.wait_for(5);
    assert_eq!(failures(&load.met()), [""; 0], "{}", bed.log());
    let counts = load.by_backend();
    assert_eq!(counts.len(), backends.len(), "{counts:?}");
    Some((bed, load))
}

/// The backends of `count` new connections, opened one after another.
pub(crate) fn newcomers(
    bed: &Bed,
    vip: SocketAddr,
    count: usize,
) -> (BTreeMap<String, usize>, Vec<String>) {
    let load = Load::start(&bed.site.client, vip, count);
    load.wait_for(2);
    let counts = load.by_backend();
    (counts, failures(&load.finish()))
}

/// The connections at `backend`.
fn of<'a>(met: &'a [Met], backend: &str) -> Vec<&'a Met> {
    met.iter().filter(|met| met.backend == backend).collect()
}

#[test]
fn a_drained_backend_keeps_connections_and_receives_no_new_connections() {
    let method = IPIP;
    let Some((bed, load)) = loaded("drain", method, &[0, 1, 2]) else { return };
    let name = format!("{}/backend-1", method.pool(Service::Lines));
    let before = load.by_backend();
    let says_flows = || {
        let said = bed.command(&["drain", &name]);
        said.contains("draining") && said.contains(" flows")
    };
    assert!(soon(says_flows), "{}", bed.command(&["status"]));
    load.wait_for(20);
    let (counts, failed) = newcomers(&bed, method.vip(Service::Lines), CONNECTIONS);
    assert_eq!(failed, [""; 0], "{}", bed.log());
    assert!(!counts.contains_key("backend-1"), "a drained backend got new connections: {counts:?}");
    load.wait_for(20);
    assert_eq!(load.by_backend(), before);

    bed.command(&["undrain", &name]);
    let vip = method.vip(Service::Lines);
    let again = || newcomers(&bed, vip, CONNECTIONS).0.contains_key("backend-1");
    assert!(soon(again), "an undrained backend gets no connections");
    load.wait_for(20);
    assert_eq!(load.by_backend(), before);
    assert_eq!(failures(&load.finish()), [""; 0]);
}

#[test]
fn when_a_backend_dies_new_connections_work_and_others_stay() {
    let method = NAT;
    let Some((mut bed, load)) = loaded("death", method, &[0, 1, 2]) else { return };
    let vip = method.vip(Service::Lines);
    bed.servers[1] = None;
    let noticed = || {
        let (counts, failed) = newcomers(&bed, vip, CONNECTIONS);
        failed.is_empty() && !counts.contains_key("backend-2")
    };
    assert!(soon(noticed), "new connections go on failing:\n{}", bed.log());
    load.wait_for(10);
    let met = load.met();
    for survivor in ["backend-1", "backend-3"] {
        let failed = of(&met, survivor).into_iter().filter(|met| met.failure.is_some());
        assert_eq!(failed.count(), 0, "{:?}", failures(&met));
    }
    assert!(of(&met, "backend-2").iter().all(|met| met.failure.is_some()));

    bed.serve_again(1);
    let back = || newcomers(&bed, vip, CONNECTIONS).0.contains_key("backend-2");
    assert!(soon(back), "a backend that is back gets no connections:\n{}", bed.log());
}

#[test]
fn a_backend_with_its_link_down_receives_no_new_connections() {
    let method = DIRECT;
    let Some((bed, load)) = loaded("link", method, &[0, 1, 2]) else { return };
    let vip = method.vip(Service::Lines);
    let host = &bed.site.backends[2];
    host.ip("link set eth0 down").expect("a link can be set down");
    let noticed = || {
        let (counts, failed) = newcomers(&bed, vip, 6);
        failed.is_empty() && !counts.contains_key("backend-3")
    };
    assert!(soon(noticed), "new connections go on failing:\n{}", bed.log());
    let met = load.met();
    for survivor in ["backend-1", "backend-2"] {
        let failed = of(&met, survivor).into_iter().filter(|met| met.failure.is_some());
        assert_eq!(failed.count(), 0, "{:?}", failures(&met));
    }
}

#[test]
fn a_balancer_that_is_killed_and_started_again_moves_no_connection() {
    for method in [DIRECT, GUE6] {
        let Some((mut bed, load)) = loaded("restart", method, &[0, 1, 2]) else { return };
        // Some connections are at a backend that no table gives them: they were there before the
        // drain.
        let name = format!("{}/backend-1", method.pool(Service::Lines));
        bed.command(&["drain", &name]);
        load.wait_for(20);
        let before = load.by_backend();
        let mut balancer = bed.balancer.take().expect("it runs");
        balancer.signal(Signal::KILL);
        balancer.wait().expect("it is our child");
        // The program forwards packets without its process.
        load.wait_for(20);
        bed.balance();
        load.wait_for(20);
        let (_, failed) = newcomers(&bed, method.vip(Service::Lines), CONNECTIONS);
        assert_eq!(failed, [""; 0], "{}", bed.log());
        assert_eq!(load.by_backend(), before);
        assert_eq!(failures(&load.finish()), [""; 0], "{}", bed.log());
    }
}

#[test]
fn upgrades_of_the_balancer_move_no_connection() {
    let method = DIRECT;
    let Some((bed, load)) = loaded("upgrade", method, &[0, 1, 2]) else { return };
    let name = format!("{}/backend-1", method.pool(Service::Lines));
    bed.command(&["drain", &name]);
    load.wait_for(20);
    let before = load.by_backend();
    let address = method.vip_address().to_string();
    for _ in 0..3 {
        let is_over = AtomicBool::new(false);
        std::thread::scope(|scope| {
            // Programs that lead traffic here would take it away.
            let watched = scope.spawn(|| {
                let mut asked = 0;
                while !is_over.load(Relaxed) {
                    bed.command(&["ready", &address]);
                    asked += 1;
                }
                asked
            });
            bed.command(&["upgrade"]);
            is_over.store(true, Relaxed);
            assert!(watched.join().expect("the address is served all the time") > 10);
        });
        load.wait_for(10);
        let (counts, failed) = newcomers(&bed, method.vip(Service::Lines), CONNECTIONS);
        assert_eq!(failed, [""; 0], "{}", bed.log());
        assert!(!counts.contains_key("backend-1"), "a drained backend got connections: {counts:?}");
    }
    assert_eq!(load.by_backend(), before);
    assert_eq!(failures(&load.finish()), [""; 0], "{}", bed.log());
    bed.stop_newest();
}

#[test]
fn a_stop_during_an_upgrade_detaches_the_program() {
    let Some(mut bed) = Bed::new("upgrade-stopped", SHAPE) else { return };
    bed.configure(&DIRECT.config(Service::Lines, &bed.site, ""));
    let program = bed.path("equipoise");
    std::os::unix::fs::symlink(EQUIPOISE, &program).unwrap();
    bed.balance_by(text(&program));
    std::fs::remove_file(&program).unwrap();
    std::fs::write(&program, successor("released stop", 2)).unwrap();
    std::fs::set_permissions(&program, PermissionsExt::from_mode(0o755)).unwrap();
    let mut balancer = bed.balancer.take().unwrap();
    balancer.signal(Signal::USR2);
    wait_for_text(&balancer, "packet: left running");
    let is_attached = || bed.site.balancer.ip("link show").unwrap().contains("xdp");
    assert!(is_attached());
    balancer.signal(Signal::TERM);
    assert!(balancer.wait().unwrap().success(), "{}", balancer.printed());
    assert!(!is_attached(), "{}", balancer.printed());
    let pins = Path::new("/sys/fs/bpf/equipoise").join(bed.instance());
    assert!(!pins.exists(), "{}", balancer.printed());
}

#[test]
fn a_reload_that_adds_a_backend_moves_no_connection() {
    let method = NAT6;
    let Some((bed, load)) = loaded("join", method, &[0, 1]) else { return };
    let before = load.by_backend();
    bed.configure(&method.config(Service::Lines, &bed.site, ""));
    bed.command(&["reload"]);
    let vip = method.vip(Service::Lines);
    let joined = || newcomers(&bed, vip, CONNECTIONS).0.contains_key("backend-3");
    assert!(soon(joined), "the new backend gets no connections:\n{}", bed.log());
    load.wait_for(20);
    assert_eq!(load.by_backend(), before);

    // A second reload removes the backend: its connections continue.
    let mut load = load;
    load.more(&bed.site.client, vip, CONNECTIONS);
    load.wait_for(5);
    let before = load.by_backend();
    assert!(before.contains_key("backend-3"), "{before:?}");
    bed.configure(&method.config_of(Service::Lines, &bed.site, &[0, 1], ""));
    bed.command(&["reload"]);
    load.wait_for(20);
    let gone = || !newcomers(&bed, vip, CONNECTIONS).0.contains_key("backend-3");
    assert!(soon(gone), "a removed backend goes on getting connections");
    load.wait_for(20);
    assert_eq!(load.by_backend(), before);
    assert_eq!(failures(&load.finish()), [""; 0], "{}", bed.log());
}
