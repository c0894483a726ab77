//! The registry of the lab's experiments, their runs and the page of their results:
//! `lab/report/test_report.py` tests them.

use std::path::Path;
use std::process::Command;

/// Whether `python3` is there, and new enough for `tomllib`.
fn is_python_new_enough() -> bool {
    let asked = Command::new("python3").args(["-c", "import tomllib"]).output();
    asked.is_ok_and(|output| output.status.success())
}

#[test]
fn every_experiment_is_declared_runs_are_resumed_and_the_report_is_drawn() {
    if !is_python_new_enough() {
        println!("skipped: needs Python 3.11 or newer");
        return;
    }
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../lab/report");
    let tests =
        Command::new("python3").args(["-m", "unittest", "discover", "-s"]).arg(folder).output();
    let output = tests.expect("python3 starts");
    let printed = String::from_utf8_lossy(&output.stderr);
    println!("{printed}");
    assert!(output.status.success(), "{printed}");
}
