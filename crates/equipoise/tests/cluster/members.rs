//! Members join, leave and are evicted; a leader dies.

use std::time::Instant;

use equipoise_testkit::HttpBackend;

use crate::bed::{Site, command, generation, leader, reporting, soon, term};
use crate::canary::{Canary, STARVED, VACANT_MAX};
use crate::common::{Load, Process, equipoise, stderr, stdout, text};
use crate::watching;

#[test]
fn a_leader_is_killed_and_another_leads_soon_without_a_failed_request() {
    let backend = HttpBackend::named("a");
    let Some(site) = Site::new("cluster-leader") else { return };
    let mut controllers = site.controllers(backend.address());
    let mut node = site.node("n1", backend.address(), &controllers);
    node.start();
    let all = ["c1", "c2", "c3", "n1"];
    for one in &controllers {
        one.until("every member reports to every controller", |status| reporting(status) == all);
    }
    node.process().wait_for_text("following instructions");
    let load = Load::start(node.door.address(), 2);
    load.wait_for(100);

    let canary = Canary::start(site.folder.root());
    let mut terms = Vec::new();
    for _ in 0..2 {
        let before = controllers[0].until("a leader", |status| leader(status).is_some());
        terms.push(term(&before));
        let name = leader(&before).unwrap().to_string();
        let place = controllers.iter().position(|one| one.name == name).unwrap();
        let other = (place + 1) % controllers.len();
        let late = canary.late();
        drop(controllers[place].process.take());
        let died = Instant::now();
        let after = controllers[other].until("another leader", |status| {
            leader(status).is_some_and(|it| it != name) && term(status) > term(&before)
        });
        let (took, late) = (died.elapsed(), canary.late() - late);
        let next = leader(&after).unwrap();
        println!(
            "{name} was killed; {next} leads after {took:?}; the machine was late by {late:?}"
        );
        assert!(took < VACANT_MAX || late > STARVED, "vacant for {took:?}");
        // The new leader plans, and the node follows it.
        let planned = controllers[other].until("a plan of the new leader", |status| {
            generation(status).is_some_and(|(term, _)| term > terms[terms.len() - 1])
        });
        let wanted = generation(&planned).unwrap().0;
        controllers[other].until("the node goes by it", |status| {
            let members = status["view"]["members"].as_array().unwrap();
            let applied = |m: &serde_json::Value| m["applied"]["term"].as_u64() >= Some(wanted);
            members.iter().any(|m| m["name"] == "n1" && applied(m))
        });
        load.wait_for(100);
        controllers[place].start();
        controllers[place].process().wait_for_text("cluster API");
    }
    let (good, bad) = load.finish();
    assert!(bad.is_empty(), "{} of {good} failed: {:?}", bad.len(), bad.first());
}

#[test]
fn a_node_without_controllers_keeps_serving_and_reports_the_age_of_its_instructions() {
    let backend = HttpBackend::named("a");
    let Some(site) = Site::new("cluster-alone") else { return };
    let mut controllers = site.controllers(backend.address());
    let mut node = site.node("n1", backend.address(), &controllers);
    node.start();
    node.process().wait_for_text("following instructions");
    controllers[0].until("the node goes by a plan", |status| {
        let members = status["view"]["members"].as_array().unwrap();
        members.iter().any(|m| m["name"] == "n1" && m["applied"].is_object())
    });
    let load = Load::start(node.door.address(), 2);
    controllers.iter_mut().for_each(|one| drop(one.process.take()));
    node.process().wait_for_text("no controller has newer instructions; continuing with the last");
    let (alone, socket) = (Instant::now(), node.file.with_extension("sock"));
    let cluster = || watching::status(&socket).expect("it answers")["cluster"].clone();
    let before = cluster();
    load.wait_for(100);
    let passed = alone.elapsed().as_secs_f64();
    let after = cluster();
    for number in ["term", "generation"] {
        assert!(before[number].is_u64(), "{before:#}");
        assert_eq!(before[number], after[number], "the last instructions stay");
    }
    assert!(after["age_seconds"].as_f64() >= Some(passed), "{passed}: {after:#}");
    let (term, generation) = (&after["term"], &after["generation"]);
    let line = format!("  follows instructions {term}.{generation} of ");
    soon("the command shows the age", || {
        let shown = stdout(&equipoise(&["status", "--cluster", "--config", text(&node.file)]));
        shown.lines().any(|it| it.starts_with(&line) && it.ends_with(" ago"))
    });
    let (_, bad) = load.finish();
    assert!(bad.is_empty(), "{:?}", bad.first());
}

#[test]
fn an_agent_joins_reports_and_is_listed_and_a_spent_token_is_refused() {
    let backend = HttpBackend::named("a");
    let Some(site) = Site::new("cluster-agent") else { return };
    let controllers = site.controllers(backend.address());
    let config = text(&controllers[0].file);
    let token = command(&[
        "cluster",
        "token",
        "create",
        "--single-use",
        "--ttl",
        "10m",
        "--config",
        config,
    ]);
    let agent = |name: &str| {
        let state = site.folder.path(name);
        let address = controllers[1].cluster.address();
        let file = site.folder.write(
            &format!("{name}.toml"),
            &format!(
                "[instance]\nname = {name:?}\n[cluster]\nstate = {:?}\ncontrollers = \"{address}\"\njoin-token = {:?}\n",
                text(&state),
                token.trim()
            ),
        );
        Process::start(&["agent", text(&file)])
    };
    let first = agent("db-1");
    first.wait_for_text("certified for the cluster");
    let second = agent("db-2");
    second.wait_for_text("a controller's log says why");
    controllers[1].process().wait_for_text("is for one use, and db-1 used it");
    controllers[1].until("it reports", |status| reporting(status).contains(&"db-1"));
    let listed = command(&["cluster", "token", "list", "--config", config]);
    assert!(listed.contains("used by db-1"), "{listed}");
    let shown = command(&["cluster", "members", "--config", text(&controllers[1].file)]);
    assert!(shown.contains("db-1") && shown.contains("agent"), "{shown}");
    assert!(!first.printed().contains(token.trim()), "a token was logged");

    command(&["cluster", "evict", "db-1", "--config", config]);
    first.wait_for_text("was evicted");
    let again = equipoise(&["cluster", "init", "--config", config]);
    assert!(stderr(&again).contains("exists already and is not overwritten"), "{}", stderr(&again));
}
