//! Backends with host names in the file. A DNS server of the test resolves them, through a
//! `resolv.conf` that only the process under test sees.
#![allow(clippy::unwrap_used, reason = "a panic is how a test fails")]

#[path = "../common/mod.rs"]
mod common;

mod answers;
mod bed;
mod lookups;
mod reloads;
mod resolver;

use std::thread;
use std::time::{Duration, Instant};

use bed::{Instance, Zone, may_mount, serve_at};
use common::{get_unix, stdout};
use equipoise_testkit::eventually;
use resolver::{Answer, Resolver};

/// Bound for an operator's command. Three names and a dead resolver took 28 s when a load resolved
/// names.
const COMMAND_WITHIN: Duration = Duration::from_secs(15);

#[test]
fn a_name_joins_its_pool_when_it_resolves_and_follows_its_record() {
    joins_and_follows("exclusive");
}

#[test]
fn a_name_of_a_multiplexed_pool_joins_and_follows_its_record() {
    joins_and_follows("multiplexed");
}

fn joins_and_follows(upstream: &str) {
    if !may_mount() {
        return;
    }
    let port = serve_at(&[("127.0.0.1", "a"), ("127.0.0.2", "b")]);
    let test = format!("names-follow-{upstream}");
    let zone = Zone::start(&test, "other 1 IN A 127.0.0.9\n");
    let pool = format!("backends = ['app.names.test:{port}']\nupstream = '{upstream}'");
    let instance = Instance::start(&test, zone.address, &pool);
    assert_eq!(instance.ask().0, 503, "the place is empty, and nothing else is refused");
    instance.process.wait_for_text("not resolved; it gets no requests");
    let backend = instance.backend();
    assert_eq!(
        (&backend["state"], &backend["resolved"]),
        (&"unhealthy".into(), &serde_json::json!([]))
    );
    assert!(backend["health_detail"].as_str().unwrap().contains("not resolved"), "{backend:#}");
    let (worked, said) = instance.command(&["reload"]);
    assert!(worked, "{said}");
    let checked = instance.check();
    assert!(checked.status.success(), "{}", stdout(&checked));
    assert!(
        stdout(&checked).contains("\"app.names.test\" cannot be resolved"),
        "{}",
        stdout(&checked)
    );

    zone.change("app 1 IN A 127.0.0.1\n");
    instance.arrives_at("a");
    assert_eq!(instance.backend()["resolved"], serde_json::json!([format!("127.0.0.1:{port}")]));
    zone.change("app 1 IN A 127.0.0.2\n");
    instance.arrives_at("b");
    // A thread may not have heard of the new address yet.
    let ten = || (0..10).all(|_| instance.ask() == (200, "b".to_owned()));
    assert!(eventually(ten), "sessions to the old address are not used");
    // If the record is removed, the last good answer stays.
    zone.change("other 1 IN A 127.0.0.9\n");
    instance.process.wait_for_text("not resolved; it keeps 127.0.0.2");
    assert_eq!(instance.ask(), (200, "b".to_owned()));
}

#[test]
fn the_first_address_of_a_name_that_connects_serves_in_both_families() {
    if !may_mount() {
        return;
    }
    let port = serve_at(&[("127.0.0.3", "live"), ("::1", "v6")]);
    let records = "app 1 IN A 127.0.0.2\napp 1 IN A 127.0.0.3\nsix 1 IN AAAA ::1\n";
    let zone = Zone::start("names-families", records);
    // No retry: the dead address costs no request.
    let pool = format!(
        "backends = ['app.names.test:{port}']\nretries = 0\n[pool.health]\ntcp = true\ninterval = '1s'"
    );
    let instance = Instance::start("names-families", zone.address, &pool);
    instance.arrives_at("live");
    for _ in 0..20 {
        assert_eq!(instance.ask(), (200, "live".to_owned()));
    }
    assert!(eventually(|| instance.backend()["health"] == "healthy"), "{:#}", instance.backend());
    let file = std::fs::read_to_string(&instance.file).unwrap();
    std::fs::write(&instance.file, file.replace("app.names", "six.names")).unwrap();
    let (worked, said) = instance.command(&["reload"]);
    assert!(worked, "{said}");
    instance.arrives_at("v6");
}

#[test]
fn a_name_of_the_hosts_file_needs_no_server() {
    if !may_mount() {
        return;
    }
    let port = serve_at(&[("127.0.0.1", "a")]);
    let silent = Resolver::start(|_| Answer::Silence);
    let pool = format!("backends = ['listed.test:{port}']");
    let instance = Instance::start("names-hosts", silent.address, &pool);
    assert_eq!(instance.ask(), (200, "a".to_owned()), "it is known when the process is ready");
}

#[test]
fn a_dead_resolver_holds_up_no_command() {
    if !may_mount() {
        return;
    }
    let port = serve_at(&[("127.0.0.1", "a")]);
    let silent = Resolver::start(|_| Answer::Silence);
    let pool = format!(
        "backends = [{{ name = 'live', address = '127.0.0.1:{port}' }}, 'x.names.test:1', 'y.names.test:2', 'z.names.test:3']"
    );
    let instance = Instance::start("names-dead", silent.address, &pool);
    let file = std::fs::read_to_string(&instance.file).unwrap();
    std::fs::write(&instance.file, file.replace(".names.test", ".other.test")).unwrap();
    let commands = [&["reload"][..], &["drain", "web/live"], &["undrain", "web/live"], &["status"]];
    for args in commands {
        let begun = Instant::now();
        let (worked, said) = instance.command(args);
        let took = begun.elapsed();
        assert!(worked, "{args:?}: {said}");
        assert!(took < COMMAND_WITHIN, "{args:?} took {took:?}");
    }
    let begun = Instant::now();
    let health = get_unix(&instance.folder.path("api.sock"), "/v1/health");
    assert!(health.starts_with("HTTP/1.1 200"), "{health}");
    assert!(begun.elapsed() < COMMAND_WITHIN, "health took {:?}", begun.elapsed());
    // The same while a reload waits for names.
    thread::scope(|scope| {
        std::fs::write(&instance.file, file.replace(".names.test", ".third.test")).unwrap();
        let reload = scope.spawn(|| instance.command(&["reload"]));
        let begun = Instant::now();
        let (worked, said) = instance.command(&["drain", "web/live"]);
        assert!(worked && begun.elapsed() < COMMAND_WITHIN, "{said} after {:?}", begun.elapsed());
        let (worked, said) = reload.join().unwrap();
        assert!(worked, "{said}");
    });
    let (worked, said) = instance.command(&["undrain", "web/live"]);
    assert!(worked, "{said}");
    instance.arrives_at("a");
}
