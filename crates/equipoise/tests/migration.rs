//! Configurations of HAProxy, nginx, keepalived and ipvsadm beside their translations:
//! lab/migration runs both, and compares their answers.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../lab/migration")
}

/// Runs the comparison; `None` without Python.
fn run(arguments: &[&str]) -> Option<Output> {
    let mut command = Command::new("python3");
    command.arg(folder().join("run.py")).args(arguments);
    let output = command.env("EQUIPOISE", env!("CARGO_BIN_EXE_equipoise")).output();
    if output.is_err() {
        println!("skipped: there is no python3");
    }
    output.ok()
}

#[test]
fn translated_configurations_answer_like_the_original_balancers() {
    let Some(output) = run(&[]) else { return };
    let printed = String::from_utf8_lossy(&output.stdout);
    println!("{printed}");
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{printed}{errors}");
}

#[test]
fn imported_configurations_answer_like_the_original_balancers() {
    let Some(output) = run(&["--imported"]) else { return };
    let printed = String::from_utf8_lossy(&output.stdout);
    println!("{printed}");
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{printed}{errors}");
}

#[test]
fn the_readme_contains_the_current_table_of_configurations() {
    let Some(output) = run(&["--table"]) else { return };
    let table = String::from_utf8(output.stdout).expect("it is text");
    if table.starts_with("skipped") {
        println!("{table}");
        return;
    }
    let page = fs::read_to_string(folder().join("README.md")).expect("the page exists");
    assert!(
        page.contains(table.trim_end()),
        "README.md lacks the table of `run.py --table`:\n{table}"
    );
}
