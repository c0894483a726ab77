//! The paper's scenarios, each with its result.

use std::thread;
use std::time::{Duration, Instant};

use anyhow::ensure;

use super::load::{Clients, Summary, Way, resolve};
use super::stage::{NAME, NODES, RESOLVER, Stage, address, door};

/// Number of clients that one node can just serve, and a cluster easily.
const CLIENTS: usize = 4;
/// Pause of a client between an answer and its next request.
const PAUSE: Duration = Duration::from_millis(50);

fn seconds(count: u64) -> Duration {
    Duration::from_secs(count)
}

/// The clients' results for the time `over` from now on.
fn watch(clients: &Clients, over: Duration) -> Summary {
    let began = Instant::now();
    thread::sleep(over);
    Summary::of(&clients.since(began), began.elapsed())
}

pub(super) fn even(stage: &Stage) -> anyhow::Result<String> {
    let clients = Clients::start(&stage.client, 2 * CLIENTS, Way::Name, PAUSE);
    thread::sleep(seconds(1));
    let summary = watch(&clients, seconds(6));
    clients.stop()?;
    ensure!(summary.failed == 0, "{} requests failed", summary.failed);
    ensure!(summary.by.len() == NODES, "not every node served requests:\n{}", summary.line());
    Ok(summary.line())
}

pub(super) fn unbalanced(stage: &Stage) -> anyhow::Result<String> {
    let clients = Clients::start(&stage.client, 4 * CLIENTS, Way::Node(door(1)), Duration::ZERO);
    let first = watch(&clients, seconds(2));
    thread::sleep(seconds(8));
    let last = watch(&clients, seconds(5));
    let failed = clients.stop()?.iter().filter(|one| one.by.is_none()).count();
    ensure!(failed == 0, "{failed} requests failed");
    ensure!(last.by.len() > 1, "node-1 served all requests:\n{}", last.line());
    Ok(format!(
        "the first 2 seconds: {}\nafter 10 seconds: {}\nnode-1's dispatcher made it {:.1} times as many",
        first.line(),
        last.line(),
        last.per_second / first.per_second
    ))
}

pub(super) fn fluctuation(stage: &Stage) -> anyhow::Result<String> {
    let few = Clients::start(&stage.client, CLIENTS, Way::Name, PAUSE);
    let before = watch(&few, seconds(4));
    let many = Clients::start(&stage.client, 3 * CLIENTS, Way::Name, PAUSE);
    let during = watch(&few, seconds(6));
    let crowd = many.stop()?;
    thread::sleep(seconds(1));
    let after = watch(&few, seconds(4));
    let all = few.stop()?.into_iter().chain(crowd);
    let failed = all.filter(|one| one.by.is_none()).count();
    ensure!(failed == 0, "{failed} requests failed");
    Ok(format!("before: {}\nduring: {}\nafter: {}", before.line(), during.line(), after.line()))
}

pub(super) fn failure(stage: &mut Stage) -> anyhow::Result<String> {
    let clients = Clients::start(&stage.client, 2 * CLIENTS, Way::Name, PAUSE);
    let before = watch(&clients, seconds(3));
    let killed = Instant::now();
    stage.kill(NODES)?;
    // Waits until the name has not led to the node for longer than an answer's TTL.
    let lost = address(NODES).into();
    let (mut last_given, mut given) = (killed, 0);
    while last_given.elapsed() < seconds(3) {
        let answer = stage.client.enter(|| resolve(NAME, RESOLVER));
        if answer.is_ok_and(|addresses| addresses.contains(&lost)) {
            (last_given, given) = (Instant::now(), given + 1);
            ensure!(killed.elapsed() < seconds(30), "the name still leads to node-{NODES}");
        }
        thread::sleep(Duration::from_millis(20));
    }
    let during = Summary::of(&clients.since(killed), killed.elapsed());
    let after = watch(&clients, seconds(3));
    clients.stop()?;
    ensure!(
        after.failed == 0,
        "{} requests failed after node-{NODES} was known dead",
        after.failed
    );
    Ok(format!(
        "before: {}\nthe name stopped leading there after {:.1} s ({given} answers had it until then)\n\
         in between: {}\nafter: {}",
        before.line(),
        (last_given - killed).as_secs_f64(),
        during.line(),
        after.line()
    ))
}
