//! Health checks through tunnels: a backend with dead decapsulation gets no work, although its own
//! address answers.

use std::collections::BTreeMap;

use equipoise_testkit::netns::{Guest, SiteShape};
use rustix::process::Signal;

use crate::bed::{Bed, soon, start, wait_for_text};
use crate::changes::newcomers;
use crate::common::{EQUIPOISE, text};
use crate::method::{
    FOUR_IN_6, GUE, GUE_4_IN_6, GUE_6_IN_4, GUE6, IP6IP6, IPIP, Method, SIX_IN_4, Service,
};

const SITE: SiteShape = SiteShape { backends: 2, two_arms: false };
const TUNNELS: [Method; 8] = [IPIP, IP6IP6, SIX_IN_4, FOUR_IN_6, GUE, GUE6, GUE_6_IN_4, GUE_4_IN_6];
/// If one backend of two is used, the odds that it gets none of these are 10^-3.
const CONNECTIONS: usize = 10;

fn config(bed: &Bed, methods: &[Method], more: &str) -> String {
    let one = |method: &Method| method.config(Service::Lines, &bed.site, more);
    let all: String = methods.iter().map(one).collect();
    let quick = "timeout = \"1s\", rise = 1, fall = 2";
    all.replace("timeout = \"2s\", rise = 1, fall = 3", quick)
}

/// Adds the VIPs to the backends' loopback.
fn give_vips(bed: &Bed, methods: &[Method]) {
    for backend in &bed.site.backends {
        for method in methods {
            backend.hidden_address(method.vip_address()).unwrap();
        }
    }
}

/// Starts decapsulation at backend `index`, until the guest ends.
fn decapsulate(bed: &Bed, index: usize) -> Guest {
    let guest = start(&bed.site.backends[index], &["decap", "--interface", "eth0"]);
    wait_for_text(&guest, "ready");
    guest
}

fn stop(mut guest: Guest) {
    guest.signal(Signal::TERM);
    assert!(guest.wait().unwrap().success(), "{}", guest.printed());
}

fn status(bed: &Bed) -> serde_json::Value {
    serde_json::from_str(&bed.command(&["status", "--json"])).unwrap()
}

/// State, verdict and reason of backend `name` at each VIP.
fn seen(bed: &Bed, name: &str) -> BTreeMap<String, (String, String, String)> {
    let text = |value: &serde_json::Value| value.as_str().unwrap_or_default().to_owned();
    let status = status(bed);
    let vips = status["packet"]["vips"].as_array().unwrap();
    let of_vip = |vip: &serde_json::Value| {
        let backends = vip["backends"].as_array().unwrap();
        let it = backends.iter().find(|it| it["name"] == name)?;
        let seen = (text(&it["state"]), text(&it["tunnel"]), text(&it["tunnel_detail"]));
        Some((text(&vip["vip"]), seen))
    };
    vips.iter().filter_map(of_vip).collect()
}

/// Waits until every VIP reports this state of backend `name`.
fn wait_for(bed: &Bed, name: &str, state: &str, tunnel: &str) {
    let mut last = BTreeMap::new();
    let found = soon(|| {
        last = seen(bed, name);
        !last.is_empty() && last.values().all(|it| (&*it.0, &*it.1) == (state, tunnel))
    });
    assert!(found, "{name} is not {state} and {tunnel:?} everywhere: {last:#?}\n{}", bed.log());
}

/// Whether each pool's first backend is unhealthy only because of the tunnel: its own address
/// answers.
fn all_pools_say_why(bed: &Bed) -> bool {
    let status = status(bed);
    let says_why = |pool: &serde_json::Value| {
        let backend = &pool["backends"][0];
        let why = backend["health_detail"].as_str().unwrap_or_default();
        backend["state"] == "unhealthy"
            && backend["health"] == "unhealthy"
            && why.ends_with("/tcp: no answer through the tunnel within 1s")
            && !why.contains("last check failed")
    };
    status["pools"].as_array().unwrap().iter().all(says_why)
}

#[test]
fn a_backend_with_dead_decapsulation_gets_nothing_until_it_works_again() {
    let Some(mut bed) = Bed::new("tunnel-checks", SITE) else { return };
    give_vips(&bed, &TUNNELS);
    let [first, _second] = [0, 1].map(|index| decapsulate(&bed, index));
    bed.configure(&config(&bed, &TUNNELS, ""));
    bed.balance();
    for name in ["backend-1", "backend-2"] {
        wait_for(&bed, name, "up", "healthy");
    }

    stop(first);
    wait_for(&bed, "backend-1", "gone", "unhealthy");
    wait_for(&bed, "backend-2", "up", "healthy");
    assert!(soon(|| all_pools_say_why(&bed)), "{:#}", status(&bed));
    let line = "backend 192.0.2.11 became unhealthy after 2 failed checks: no answer through";
    wait_for_text(bed.balancer.as_ref().unwrap(), line);

    // No check and no answer passed the program, and the kernel answered none.
    for vip in status(&bed)["packet"]["vips"].as_array().unwrap() {
        assert_eq!(vip["packets_total"], 0, "{vip}");
        assert_eq!(vip["drops"], serde_json::json!({}), "{vip}");
    }
    for method in [IPIP, GUE6] {
        let vip = method.vip(Service::Lines);
        let elsewhere = || {
            let (counts, failed) = newcomers(&bed, vip, CONNECTIONS);
            failed.is_empty() && counts.keys().eq(["backend-2"])
        };
        assert!(soon(elsewhere), "{}", bed.log());
    }

    let _first = decapsulate(&bed, 0);
    wait_for(&bed, "backend-1", "up", "healthy");
    let vip = IPIP.vip(Service::Lines);
    let back = || newcomers(&bed, vip, CONNECTIONS).0.contains_key("backend-1");
    assert!(soon(back), "{}", bed.log());
    // Checks leave no connection half open.
    let half_open = || bed.site.backends[0].run("ss", &["-Htn", "state", "syn-recv"]).unwrap();
    assert!(soon(|| half_open().is_empty()), "{}", half_open());
}

#[test]
fn a_reload_keeps_check_results_and_can_disable_the_checks() {
    let Some(mut bed) = Bed::new("tunnel-reload", SITE) else { return };
    give_vips(&bed, &[IPIP, GUE]);
    // The kernel drops packets from its own addresses; the check receives the answer nevertheless.
    bed.site.balancer.address("lo", GUE.vip_address(), 32).unwrap();
    // The first backend never decapsulates.
    let _second = decapsulate(&bed, 1);
    bed.configure(&config(&bed, &[IPIP], ""));
    bed.balance();
    wait_for(&bed, "backend-1", "gone", "unhealthy");
    wait_for(&bed, "backend-2", "up", "healthy");

    bed.configure(&config(&bed, &[IPIP, GUE], ""));
    bed.command(&["reload"]);
    let vip = format!("{}/tcp", IPIP.vip(Service::Lines));
    assert_eq!(seen(&bed, "backend-1")[&vip].1, "unhealthy");
    wait_for(&bed, "backend-1", "gone", "unhealthy");
    wait_for(&bed, "backend-2", "up", "healthy");

    bed.configure(&config(&bed, &[IPIP, GUE], "check-tunnel = false\n"));
    bed.command(&["reload"]);
    wait_for(&bed, "backend-1", "up", "");
}

#[test]
fn tunnel_checks_without_cap_net_raw_are_off_and_logged() {
    let Some(mut bed) = Bed::new("tunnel-right", SITE) else { return };
    give_vips(&bed, &[IPIP]);
    let file = bed.configure(&config(&bed, &[IPIP], ""));
    let run = [EQUIPOISE, "run", text(&file)];
    let without = ["--bounding-set", "-net_raw", "--inh-caps", "-net_raw"];
    let guest = bed.site.balancer.start("setpriv", &[&without[..], &run].concat()).unwrap();
    let guest = bed.balancer.insert(guest);
    wait_for_text(guest, " ready ");
    wait_for_text(guest, "cannot open a packet socket (it needs CAP_NET_RAW)");
    wait_for(&bed, "backend-1", "up", "unknown");
    for (.., why) in seen(&bed, "backend-1").into_values() {
        assert!(why.starts_with("not checked through the tunnel: cannot open"), "{why}");
    }
}
