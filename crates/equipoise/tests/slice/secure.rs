//! DDS Security through the whole level, with certificates by
//! `packaging/dds-security/make-certificates`. Needs the feature `dds-security` (`make
//! test-dds-security`).

use std::path::PathBuf;
use std::process::Command;

use crate::bed::{
    Bed, LEASE, Load, SLICES, each_done_once, python, slices_of, worker, worker_program,
};
use crate::common::{Process, text};

#[test]
fn a_worker_without_a_certificate_is_ignored_and_slices_still_move() {
    if !python() {
        return;
    }
    let mut bed = Bed::unstarted("slice-secure", 90);
    let folder = bed.folder.path("dds");
    let script = PathBuf::from(env!("CARGO_MANIFEST_DIR"))
        .join("../../packaging/dds-security/make-certificates");
    let names = ["controller", "one", "two", "client"];
    let made = Command::new(script).arg(&folder).args(names).output().unwrap();
    assert!(made.status.success(), "{}", String::from_utf8_lossy(&made.stderr));
    let more = |name: &str| format!("file://{}/{name}.xml", folder.display());
    bed.write(&format!("more = \"{}\"", more("controller")));
    bed.start();
    // A worker without a certificate on the same topics of the same domain. No other process may
    // communicate with it.
    let domain = bed.domain.to_string();
    let slices = SLICES.to_string();
    let stream = ["--slices", &slices, "--domain", &domain, "--interface", "lo"];
    let topics = ["--items", "items", "--control", "items/control", "--lease", LEASE];
    let rest = ["--name", "intruder", "--", "cat"];
    let args = [&["slice", "worker"], &stream[..], &topics[..], &rest[..]].concat();
    let intruder = Process::start(&args);
    intruder.wait_for_text("worker started");
    for name in ["one", "two"] {
        let (program, log) = (worker_program(), bed.folder.path(&format!("{name}.done")));
        bed.worker_with(name, &["--more", &more(name)], &["python3", text(&program), text(&log)]);
    }
    bed.until("both are there", |status| {
        ["one", "two"].iter().all(|name| worker(status, name)["state"] == "active")
    });
    let mut stream = bed.stream();
    stream.dds.more = Some(more("client"));
    let load = Load::over(&stream, 200.0);
    load.wait_for(50);
    let (from, to) = match slices_of(&bed.status(), "one") {
        0 => ("two", "one"),
        _ => ("one", "two"),
    };
    bed.until("they have moved", |status| {
        let away: Vec<_> = status["slices"].as_array().unwrap().iter().collect();
        let away = away.iter().filter(|slice| slice["owner"] == from && slice["blocked"].is_null());
        let away: Vec<_> = away.map(|slice| slice["slice"].to_string()).collect();
        if !away.is_empty() {
            bed.command(&["move", &away.join(","), to]);
        }
        slices_of(status, to) == u64::from(SLICES)
    });
    load.wait_for(50);
    let outcome = load.finish();
    each_done_once(&bed, &outcome);
    let status = bed.status();
    assert!(worker(&status, "intruder").is_null(), "{status:#}");
    assert!(
        !intruder.printed().contains("a controller knows the worker"),
        "{}",
        intruder.printed()
    );
}
