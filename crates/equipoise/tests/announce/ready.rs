//! The exit code and the reasons of `equipoise ready`.

use crate::bed::{Machine, can_run};

#[test]
fn an_address_is_ready_while_a_backend_may_receive_work() {
    if !can_run(&[]) {
        return;
    }
    let mut machine = Machine::new("ready", "b1", "198.51.100.7");
    machine.host.ip("addr add 198.51.100.7/32 dev lo").unwrap();
    let (is_ready, said) = machine.command(&["ready"]);
    assert!(!is_ready && said.contains("no equipoise answers at"), "{said}");

    machine.start();
    assert_eq!(machine.command(&["ready"]), (true, "198.51.100.7: ready\n".into()));
    assert_eq!(machine.command(&["ready", "--quiet", "198.51.100.7"]), (true, String::new()));
    let (is_ready, said) = machine.command(&["ready", "198.51.100.8"]);
    let why = "198.51.100.8: not ready: no VIP, front door or DNS listener has this address\n";
    assert_eq!((is_ready, said.as_str()), (false, why));

    assert!(machine.command(&["disable", "web/b"]).0);
    let why = "198.51.100.7: not ready: door: no backend of its pools may receive work\n";
    assert_eq!(machine.command(&["ready"]), (false, why.into()));
    assert!(machine.command(&["enable", "web/b"]).0);
    assert!(machine.command(&["ready"]).0);

    // During the delay it still answers, and says so.
    let mut equipoise = machine.equipoise.take().unwrap();
    equipoise.signal(libc::SIGTERM);
    equipoise.wait_for_text("stopping: still accepting new work");
    let why = "198.51.100.7: not ready: equipoise is stopping\n";
    assert_eq!(machine.command(&["ready"]), (false, why.into()));
    // A second signal ends the delay.
    equipoise.signal(libc::SIGTERM);
    assert!(equipoise.ended().success(), "{}", equipoise.printed());
}

#[test]
fn a_wildcard_front_door_is_ready_for_addresses_of_its_family() {
    if !can_run(&[]) {
        return;
    }
    let mut machine = Machine::new("ready-all", "b1", "0.0.0.0");
    machine.start();
    assert!(machine.command(&["ready", "203.0.113.1"]).0);
    assert!(!machine.command(&["ready", "2001:db8::1"]).0, "of the other family");
    let other = machine.file.to_str().unwrap().to_owned();
    for option in ["--bird", "--keepalived"] {
        let (succeeded, said) = machine.command(&["announce", option, &other, "--address", "::1"]);
        assert!(!succeeded && said.contains("is another file"), "{said}");
    }
    let (is_ready, said) = machine.command(&["ready"]);
    assert!(!is_ready && said.contains("no address besides loopback and wildcards"), "{said}");
}
