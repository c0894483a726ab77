//! `[pool.discover.dns]`, with BIND.

use equipoise_testkit::eventually;
use serde_json::Value;

use crate::bed::Instance;
use crate::common::Folder;
use crate::common::servers::serve_at;
use crate::server::{Named, is_installed};

fn start(test: &str, named: &Named, options: &str) -> Instance {
    let server = named.address;
    let pool = format!("[pool.discover.dns]\nservers = '{server}'\nttl-min = '100ms'\n{options}");
    Instance::start(test, Folder::new(test), &pool)
}

fn at(port: u16, hosts: &[u8]) -> Vec<String> {
    hosts.iter().map(|host| format!("127.0.0.{host}:{port}")).collect()
}

impl Instance {
    fn has_all(&self, addresses: &[String]) {
        self.has(&addresses.iter().map(String::as_str).collect::<Vec<_>>());
    }
}

#[test]
fn addresses_follow_their_records_and_stay_while_the_server_fails() {
    if !is_installed() {
        return;
    }
    let port = serve_at(&[("127.0.0.1", "a"), ("127.0.0.2", "b"), ("127.0.0.3", "c")]);
    let mut named = Named::start("dns-follow", "app A 127.0.0.1\napp A 127.0.0.2");
    let instance = start("dns-follow", &named, &format!("name = 'app.disc.test'\nport = {port}"));
    assert_eq!(instance.ask().0, 200, "they are there when the process is ready");
    instance.has_all(&at(port, &[1, 2]));
    named.change("app A 127.0.0.2\napp A 127.0.0.3");
    instance.has_all(&at(port, &[2, 3]));
    let is_kept = |problem: &str| {
        instance.has_problem(problem);
        assert_eq!(instance.addresses(), at(port, &[2, 3]), "{problem}");
        assert_eq!(instance.ask().0, 200, "{problem}");
    };
    // The name is gone, and then its type.
    named.change("other A 127.0.0.9");
    is_kept("the source reports no backend: the name does not exist, or has no address");
    named.change("app TXT none");
    is_kept("the source reports no backend");
    named.stop();
    is_kept("no answer from the servers of `servers` within");
    named.run_broken();
    is_kept("error response: Server Failure");
    let age = instance.pool()["source"]["age_seconds"].as_f64();
    assert!(age > Some(0.5), "{age:?}");
    named.change("app A 127.0.0.1");
    instance.has_all(&at(port, &[1]));
    instance.has_no_problem();
    assert_eq!(instance.ask(), (200, "a".into()));
}

#[test]
fn srv_records_give_ports_and_weights_and_worse_priorities_are_backups() {
    if !is_installed() {
        return;
    }
    let first = serve_at(&[("127.0.0.1", "a"), ("127.0.0.2", "b")]);
    let second = serve_at(&[("127.0.0.3", "c")]);
    let targets = "a A 127.0.0.1\nb A 127.0.0.2\nc A 127.0.0.3\nc AAAA ::1\n";
    let records = |of_a: u16, of_b: u16| {
        format!(
            "{targets}_http._tcp SRV 0 {of_a} {first} a\n_http._tcp SRV 0 {of_b} {first} b\n\
             _http._tcp SRV 5 0 {second} c"
        )
    };
    let named = Named::start("dns-srv", &records(10, 30));
    let options = "name = '_http._tcp.disc.test'\ntype = 'srv'";
    let instance = start("dns-srv", &named, options);
    let third = format!("127.0.0.3:{second}");
    let all = [at(first, &[1, 2]), vec![third.clone()]].concat();
    instance.has_all(&all);
    let of = |address: &str| -> Value {
        let pool = instance.pool();
        let backends = pool["backends"].as_array().unwrap().clone();
        backends.into_iter().find(|it| it["address"] == address).unwrap()
    };
    let weights = || at(first, &[1, 2]).map_weights(of);
    assert_eq!(weights(), [10, 30]);
    assert_eq!(of(&third)["state"], "standby", "{:#}", of(&third));
    for _ in 0..20 {
        assert_ne!(instance.ask(), (200, "c".into()));
    }
    named.change(&records(65_535, 13_107));
    assert!(eventually(|| weights() == [1000, 200]), "{:#}", instance.pool());
    // A target without an address is left out, and named.
    named
        .change(&format!("{targets}_http._tcp SRV 0 1 {first} a\n_http._tcp SRV 0 1 {first} gone"));
    instance.has_all(&at(first, &[1]));
    instance.has_problem("gone.disc.test. has no address");
    named.change(&format!("{targets}_http._tcp SRV 0 0 0 ."));
    instance.has_problem("the source reports no backend");
    assert_eq!(instance.ask(), (200, "a".into()), "the service is denied, and the last set stays");
}

trait Weights {
    fn map_weights(&self, of: impl Fn(&str) -> Value) -> Vec<u64>;
}

impl Weights for Vec<String> {
    fn map_weights(&self, of: impl Fn(&str) -> Value) -> Vec<u64> {
        self.iter().map(|address| of(address)["weight"].as_u64().unwrap()).collect()
    }
}

#[test]
fn a_large_answer_comes_over_tcp_and_each_family_has_its_type() {
    if !is_installed() {
        return;
    }
    // Longer than a datagram; BIND accepts at most 100 records of a type.
    let many: Vec<_> = (0..100).map(|at| format!("many A 127.0.1.{at}")).collect();
    let both = "both A 127.0.0.1\nboth AAAA ::1";
    let named = Named::start("dns-many", &format!("{}\n{both}", many.join("\n")));
    let instance = start("dns-many", &named, "name = 'many.disc.test'\nport = 80");
    assert!(eventually(|| instance.addresses().len() == 100), "{:#}", instance.pool()["source"]);
    for (kind, addresses) in [
        ("addresses", vec!["127.0.0.1:80", "[::1]:80"]),
        ("a", vec!["127.0.0.1:80"]),
        ("aaaa", vec!["[::1]:80"]),
    ] {
        let options = format!("name = 'both.disc.test'\nport = 80\ntype = '{kind}'");
        let instance = start(&format!("dns-{kind}"), &named, &options);
        instance.has(&addresses);
    }
}

#[test]
fn a_denied_name_empties_the_pool_after_its_time() {
    if !is_installed() {
        return;
    }
    let named = Named::start("dns-empty", "app A 127.0.0.1");
    let pool = format!(
        "[pool.discover]\nempty-after = '1s'\n[pool.discover.dns]\nservers = '{}'\nname = 'app.disc.test'\n\
         port = 80\nttl-min = '100ms'",
        named.address
    );
    let instance = Instance::start("dns-empty", Folder::new("dns-empty"), &pool);
    instance.has(&["127.0.0.1:80"]);
    named.change("other A 127.0.0.1");
    instance.has_problem("the source reports no backend");
    instance.has(&[]);
}
