//! Leaders that are killed repeatedly, members that lie, and invalid tokens.

use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::thread;
use std::time::{Duration, Instant};

use equipoise_testkit::HttpBackend;
use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};

use crate::bed::{Machine, Site, command, leader, reporting, soon, term};
use crate::canary::{Canary, STARVED, VACANT_MAX};
use crate::common::{Load, Process, text};
use crate::watching::watch;

/// A number from the environment.
fn number(name: &str, otherwise: u64) -> u64 {
    std::env::var(name).ok().and_then(|text| text.parse().ok()).unwrap_or(otherwise)
}

/// Kills the current leader at moments that a seed decides, and restarts it, for some time under
/// load.
fn leaders_die(test: &str, seconds: u64, seed: u64) {
    let backend = HttpBackend::named("a");
    let Some(site) = Site::new(test) else { return };
    let mut rng = StdRng::seed_from_u64(seed);
    let mut controllers = site.controllers(backend.address());
    let mut node = site.node("n1", backend.address(), &controllers);
    node.start();
    node.process().wait_for_text("following instructions");
    let load = Load::start(node.door.address(), 2);
    let stop = Arc::new(AtomicBool::new(false));
    let watching = watch(node.file.with_extension("sock"), &stop);
    let end = Instant::now() + Duration::from_secs(seconds);
    let canary = Canary::start(site.folder.root());
    let (mut vacancies, mut starved) = (Vec::new(), 0);
    while Instant::now() < end || vacancies.len() < 2 {
        // The seed decides the moment; the pause waits for no event.
        thread::sleep(Duration::from_millis(rng.random_range(0..2500)));
        let before = controllers[0].until("a leader", |status| leader(status).is_some());
        let name = leader(&before).unwrap().to_string();
        let place = controllers.iter().position(|one| one.name == name).unwrap();
        let other = (place + 1) % controllers.len();
        let late = canary.late();
        controllers[place].kill();
        let died = Instant::now();
        controllers[other].until("another leader", |status| term(status) > term(&before));
        let (vacant, late) = (died.elapsed(), canary.late() - late);
        vacancies.push(vacant);
        if late > STARVED {
            starved += 1;
            println!(
                "seed {seed}: {name} killed, vacant for {vacant:.1?}; the machine was late by {late:.1?}"
            );
        } else {
            assert!(vacant <= VACANT_MAX, "{name} killed, vacant for {vacant:?}: {vacancies:?}");
        }
        thread::sleep(Duration::from_millis(rng.random_range(0..500)));
        controllers[place].start();
    }
    load.wait_for(50);
    stop.store(true, Relaxed);
    let (looks, terms) = watching.join().expect("instructions never went back");
    let (good, bad) = load.finish();
    vacancies.sort();
    let (middle, longest) = (vacancies[vacancies.len() / 2], vacancies[vacancies.len() - 1]);
    println!(
        "seed {seed}: {} leaders killed, another leads after {middle:.1?} (median), {longest:.1?} (longest), each within \
         {VACANT_MAX:?} but for {starved} of which the machine was starved for over {STARVED:?}; {good} requests, {} failed; {looks} looks at the node's instructions, {terms} terms",
        vacancies.len(),
        bad.len()
    );
    assert!(bad.is_empty(), "{} of {good} failed: {:?}", bad.len(), bad.first());
    assert!(looks > 10 && terms >= 1, "{looks} {terms}");
}

#[test]
fn killing_leaders_at_random_fails_no_request_and_reverts_no_plan() {
    leaders_die("cluster-kills", number("CLUSTER_SECONDS", 15), number("CLUSTER_SEED", 1));
}

#[test]
#[ignore = "minutes: make test-cluster-long"]
fn leaders_are_killed_for_minutes() {
    leaders_die("cluster-kills-long", number("CLUSTER_SECONDS", 300), number("CLUSTER_SEED", 2));
}

/// Sends a request by `curl` with a member's own certificate. Returns the controller's status code.
fn post(site: &Site, member: &str, controller: &Machine, path: &str, body: &str) -> u16 {
    let folder = site.folder.path(member);
    let (certificate, key) = (folder.join("node.pem"), folder.join("node.key"));
    let authority = site.folder.path("c1").join("ca.pem");
    let url = format!("https://{}/cluster/v1/{path}", controller.cluster.address());
    let output = Command::new("curl")
        .args(["-sS", "-o", "/dev/null", "-w", "%{http_code}", "--max-time", "20"])
        .args(["--cacert", text(&authority), "--cert", text(&certificate), "--key", text(&key)])
        .args(["-H", "Content-Type: application/json", "--data-binary", body, &url])
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    said.parse().unwrap_or_else(|_| panic!("{said} {}", String::from_utf8_lossy(&output.stderr)))
}

fn member<'s>(status: &'s serde_json::Value, name: &str) -> &'s serde_json::Value {
    let members = status["view"]["members"].as_array().unwrap();
    members.iter().find(|member| member["name"] == name).unwrap()
}

#[test]
fn invalid_member_reports_are_refused_and_affect_no_other_member() {
    if Command::new("curl").arg("--version").output().is_err() {
        println!("skipped: curl is not installed");
        return;
    }
    let backend = HttpBackend::named("a");
    let Some(site) = Site::new("cluster-liar") else { return };
    let controllers = site.controllers(backend.address());
    let mut nodes = ["n1", "liar"].map(|name| site.node(name, backend.address(), &controllers));
    nodes.iter_mut().for_each(Machine::start);
    let before = controllers[0].until("all report with a load", |status| {
        reporting(status).len() == 5 && member(status, "liar")["load"].is_object()
    });
    let load = Load::start(nodes[0].door.address(), 1);
    // From here on the test itself speaks with the member's certificate.
    nodes[1].kill();
    let truth =
        |load: &str| format!("{{\"kind\":\"node\",\"version\":\"x\",\"capacity\":2.0,{load}}}");
    let lies = [
        (truth("\"load\":{\"cpu\":NaN,\"memory\":1.0}"), 400),
        (truth("\"load\":{\"cpu\":null,\"memory\":1.0}"), 400),
        (truth("\"load\":{\"cpu\":-5.0,\"memory\":1.0}"), 422),
        (truth("\"load\":{\"cpu\":1e9,\"memory\":1.0}"), 422),
        (truth("\"load\":{\"cpu\":1e999,\"memory\":1.0}"), 400),
        (truth("\"load\":{\"cpu\":1.0,\"memory\":1e9}"), 422),
        (truth("\"pools\":{\"web\":{\"queued\":-1.0,\"backends\":{}}}"), 422),
        (truth("\"dispatches\":1"), 400),
        ("{\"kind\":\"node\",\"version\":\"x\",\"capacity\":-2.0}".to_string(), 422),
        ("[]".to_string(), 400),
        (String::new(), 400),
    ];
    for (lie, expected) in &lies {
        let status = post(&site, "liar", &controllers[0], "report", lie);
        assert_eq!(status, *expected, "{lie}");
    }
    let refused = lies.iter().filter(|(_, status)| *status == 422).count() as u64;
    let after = controllers[0].until("they are counted against it", |status| {
        member(status, "liar")["refused"].as_u64() >= Some(refused)
    });
    assert_eq!(member(&after, "liar")["capacity"], member(&before, "liar")["capacity"]);
    let cpu = member(&after, "liar")["load"]["cpu"].as_f64().unwrap();
    assert!((0.0..=150.0).contains(&cpu), "its last true report counts: {cpu}");
    // It can only speak as itself, and a node is not an operator.
    for path in ["tokens", "renew"] {
        let status = post(&site, "liar", &controllers[0], path, "{\"time_to_live_s\":60}");
        assert!((400..500).contains(&status), "{path}: {status}");
    }
    // Its share still rises.
    let is_fine = |it: &serde_json::Value| ["joining", "present"].iter().any(|word| it == word);
    let after = controllers[0]
        .until("the other is as it was", |status| is_fine(&member(status, "n1")["standing"]));
    assert_eq!(member(&after, "n1")["refused"].as_u64(), Some(0));
    load.wait_for(20);
    let (_, failed) = load.finish();
    assert!(failed.is_empty(), "{:?}", failed.first());
}

#[test]
fn wrong_expired_revoked_and_foreign_join_tokens_are_refused_counted_and_logged() {
    let backend = HttpBackend::named("a");
    let Some(site) = Site::new("cluster-tokens") else { return };
    let controllers = site.controllers(backend.address());
    let config = text(&controllers[0].file);
    let create = |more: &[&str]| {
        let args = [&["cluster", "token", "create", "--config", config], more].concat();
        command(&args).trim().to_string()
    };
    let good = create(&[]);
    // FORM.ID.SECRET.AUTHORITY with a changed secret.
    let mut parts: Vec<String> = good.split('.').map(str::to_string).collect();
    let flipped = if parts[2].starts_with('a') { "b" } else { "a" };
    parts[2].replace_range(..1, flipped);
    let wrong = parts.join(".");
    let expired = create(&["--ttl", "1s"]);
    let revoked = create(&[]);
    let id = command(&["cluster", "token", "list", "--json", "--config", config]);
    let listed: serde_json::Value = serde_json::from_str(&id).unwrap();
    let ids: Vec<&str> =
        listed["tokens"].as_array().unwrap().iter().filter_map(|it| it["id"].as_str()).collect();
    let id = ids.iter().find(|id| revoked.contains(**id)).expect("a token's text has its id");
    command(&["cluster", "token", "revoke", id, "--config", config]);
    let for_other = create(&["--node", "somebody"]);
    soon("its time is over", || {
        command(&["cluster", "token", "list", "--config", config]).contains("expired")
    });
    let join = |name: &str, token: &str| {
        let (state, address) = (site.folder.path(name), controllers[1].cluster.address());
        let config = format!(
            "[instance]\nname = {name:?}\n[cluster]\nstate = {:?}\ncontrollers = \"{address}\"\njoin-token-file = {:?}\n",
            text(&state),
            text(&site.folder.write(&format!("{name}.token"), token)),
        );
        let file = site.folder.write(&format!("{name}.toml"), &config);
        Process::start(&["agent", text(&file)])
    };
    let refused = [
        ("w1", &wrong, "wrong_secret", "the secret of token ID is wrong"),
        ("w2", &expired, "expired", "the token ID expired "),
        ("w3", &revoked, "unknown", "there is no token ID; it was never created here, was revoked"),
        ("w4", &for_other, "other_node", "the token ID is for the node somebody, but w4 presented"),
    ];
    let tries: Vec<Process> = refused.iter().map(|(name, token, ..)| join(name, token)).collect();
    let status = controllers[1].until("each is counted under its name", |status| {
        refused.iter().all(|(_, _, count, _)| status["counts"][*count].as_u64() >= Some(1))
    });
    for (one, (_, token, count, reason)) in tries.iter().zip(&refused) {
        one.wait_for_text("a controller's log says why");
        assert!(!one.printed().contains("certified for the cluster"), "{count}");
        let id = token.split('.').nth(1).unwrap();
        let reason = format!("a node may not join: {}", reason.replace("ID", id));
        controllers[1].process().wait_for_text(&reason);
        let secret = token.split('.').nth(2).unwrap();
        assert!(!controllers[1].process().printed().contains(secret), "{count}: it was logged");
    }
    assert!(reporting(&status).iter().all(|name| !name.starts_with('w')), "{status}");
    let fine = join("fine", &good);
    fine.wait_for_text("certified for the cluster");
}
