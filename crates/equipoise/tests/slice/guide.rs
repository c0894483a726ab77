//! Runs the programs of docs/slice-programs.md unchanged.

use std::path::{Path, PathBuf};

use equipoise_slice_dds::client::Assignment;

use crate::bed::{Bed, SLICES, cyclonedds, python};
use crate::common::{Process, text};

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// The first code block of a language.
fn block(language: &str) -> String {
    let page = std::fs::read_to_string(root().join("docs/slice-programs.md")).unwrap();
    let (_, rest) = page.split_once(&format!("\n```{language}\n")).expect("the page has it");
    let (block, _) = rest.split_once("\n```\n").expect("it ends");
    format!("{block}\n")
}

/// Runs a program of the page as a worker, and returns the output of the client in Python.
fn replies(
    bed: &mut Bed,
    name: &str,
    args: &[&str],
    program: &[&str],
    assignment: &[&str],
) -> Vec<String> {
    let client_python = cyclonedds().unwrap();
    bed.worker_with(name, args, program);
    bed.until_owned_by(&[name]);
    let client = root().join("crates/levels/slice-dds/examples/client.py");
    let mut command = std::process::Command::new(client_python);
    command.args([text(&client), &bed.domain.to_string(), &SLICES.to_string(), "60", "lo"]);
    command.args(assignment);
    command.env("PYTHONDONTWRITEBYTECODE", "1");
    let mut client = Process::of(command);
    assert!(client.ended().success(), "{}", client.printed());
    let mut lines: Vec<_> = client.printed().lines().map(str::to_string).collect();
    lines.sort_by_key(|line| line.split(' ').next().and_then(|id| id.parse::<i64>().ok()));
    lines
}

#[test]
fn programs_of_the_guide_run_unchanged() {
    if !python() {
        return;
    }
    // Items are `item N`, which is two words.
    let expected: Vec<_> = (0..60).map(|id| format!("{id} 2")).collect();
    let mut bed = Bed::with_losses("slice-guide", 85, "");
    let shell = bed.folder.write("words.sh", &block("sh"));
    let lines = ["--format", "lines", "--parallel", "2"];
    assert_eq!(replies(&mut bed, "shell", &lines, &["sh", text(&shell)], &[]), expected);
    let mut shell = bed.workers.remove("shell").unwrap();
    let program = bed.folder.write("words.py", &block("python"));
    bed.worker_with("python", &[], &["python3", text(&program)]);
    shell.signal(libc::SIGTERM);
    assert_eq!(shell.ended().code(), Some(0), "{}", shell.printed());
    bed.kill_worker("python");
    let words = ["python3", text(&program)];
    // With an assignment, the client publishes items into the groups of their slices.
    assert_eq!(replies(&mut bed, "python", &[], &words, &["hash"]), expected);
}

#[test]
fn python_and_rust_clients_assign_ids_to_the_same_slices() {
    let Some(python) = cyclonedds() else { return };
    let asked = "from dpslb import *; ids = [*range(1000), 2**63 - 1]\n\
                 for of in by_modulo(50), by_hash(50), by_range([3, 10, 700]): print(*map(of, ids))";
    let mut command = std::process::Command::new(python);
    command.args(["-c", asked]).env("PYTHONDONTWRITEBYTECODE", "1");
    command.current_dir(root().join("crates/levels/slice-dds/examples"));
    let said = command.output().unwrap();
    let range = Assignment::range(vec![3, 10, 700]).unwrap();
    let ids = || (0..1000).chain([i64::MAX as u64]);
    let line = |of: Assignment| {
        ids().map(|id| of.slice(id).0.to_string()).collect::<Vec<_>>().join(" ") + "\n"
    };
    let expected = [Assignment::Modulo(50), Assignment::Hash(50), range].map(line).concat();
    assert_eq!(String::from_utf8_lossy(&said.stdout), expected, "{said:?}");
}

#[test]
fn an_invalid_acknowledgement_line_of_a_program_is_logged() {
    let mut bed = Bed::new("slice-babbler", 86, "");
    let babbler = ["sh", "-c", "echo hello from the program; cat > /dev/null"];
    bed.worker_with("one", &["--format", "lines"], &babbler);
    bed.workers["one"].wait_for_text("`hello from the program` is not a line of a job's number");
}
