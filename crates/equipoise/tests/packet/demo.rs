//! `equipoise demo packet` as a person uses it.

use std::process::Command;

use equipoise_testkit::netns::unavailable;

use crate::common::{EQUIPOISE, stderr, stdout};

#[test]
fn the_demo_shows_every_method_and_a_drain_and_ends_well() {
    let output = Command::new(EQUIPOISE).args(["demo", "packet"]).output().unwrap();
    let (printed, complaint) = (stdout(&output), stderr(&output));
    if unavailable().is_some() {
        assert!(!output.status.success());
        assert!(complaint.contains("not possible"), "{complaint}");
        return;
    }
    assert!(output.status.success(), "{printed}{complaint}");
    for shown in ["nat over IPv4", "direct-routing over IPv6", "tunnel over IPv4", "gue over IPv6"]
    {
        assert!(printed.contains(shown), "{shown}: {printed}");
    }
    assert!(printed.contains("none from another backend, none lost"), "{printed}");
    assert!(printed.contains("steps went well"), "{printed}");
}
