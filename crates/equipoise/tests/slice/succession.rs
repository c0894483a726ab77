//! Several controllers over a real etcd: one leads a stream, and another one takes over when it is
//! killed.

use serde_json::Value;

use crate::bed::{LEASE, Load, SLICES, done_once, python, stream, table, worker_program};
use crate::common::{Process, equipoise, stderr, stdout, text};
use crate::site::{Machine, Site, soon};

/// The stream as the machine's API shows it.
fn seen(machine: &Machine) -> Value {
    let socket = machine.file.with_extension("sock");
    let output = equipoise(&["slice", "status", "--json", "--api", text(&socket)]);
    let streams: Value = serde_json::from_slice(&output.stdout).unwrap_or_default();
    streams["streams"][0].clone()
}

fn leads(machine: &Machine) -> bool {
    machine.process.is_some() && seen(machine)["leading"] == true
}

fn all_owned(status: &Value) -> bool {
    let slices = status["slices"].as_array().map(Vec::as_slice).unwrap_or_default();
    slices.len() == SLICES as usize && slices.iter().all(|slice| slice["owner"].is_string())
}

#[test]
fn another_controller_takes_a_stream_over_and_no_item_is_lost_or_done_twice() {
    if !python() {
        return;
    }
    let Some(mut site) = Site::new("slice-succession") else { return };
    site.pool = "backends = [\"BACKEND\"]".to_string();
    site.rest = table(81, LEASE, "items", "");
    let mut machines = site.controllers("127.0.0.1:9".parse().unwrap());
    soon("one leads", || machines.iter().any(leads));
    let config = site.folder.write("worker.toml", &site.rest);
    let workers = ["one", "two"].map(|name| {
        let log = site.folder.path(&format!("{name}.done"));
        let args = ["slice", "worker", "--config", text(&config), "--name", name, "--"];
        let program = worker_program();
        let program = ["python3", text(&program), text(&log), "1"];
        let process = Process::start(&[&args[..], &program].concat());
        process.wait_for_text("a controller knows the worker");
        process
    });
    let load = Load::over(&stream(81), 200.0);
    load.wait_for(100);
    let mut leading = None;
    soon("one leads still", || {
        leading = machines.iter().position(leads);
        leading.is_some()
    });
    let leader = leading.unwrap();
    let name = machines[leader].name.clone();
    let other = &machines[(leader + 1) % machines.len()];
    let socket = other.file.with_extension("sock");
    soon("others know the leader", || seen(other)["leader"] == *name);
    let asked = equipoise(&["slice", "drain", "one", "--api", text(&socket)]);
    let said = stdout(&asked) + &stderr(&asked);
    assert!(
        !asked.status.success()
            && said.contains(&format!("{name} leads the stream items: send the request to it")),
        "{said}"
    );

    machines[leader].kill();
    soon("another leads, with every slice owned", || {
        machines.iter().any(|it| it.process.is_some() && leads(it) && all_owned(&seen(it)))
    });
    load.wait_for(200);
    soon("the next one says that it leads", || {
        machines.iter().any(|it| {
            it.process.is_some()
                && it.name != name
                && it.asked(&["slice", "status"]).contains(&format!("led by {}", it.name))
        })
    });
    let outcome = load.finish();
    done_once(&site.folder, &outcome);
    drop(workers);
}
