use std::sync::{Arc, Mutex};
use std::time::Duration;

use equipoise_cluster::{NodeClient, NodeOptions, StateFile};
use equipoise_controller::{Edition, NodeReport};
use tokio::time::Instant;

use crate::bed::{Bed, address, count, eventually, report, until};

fn edition(term: u64, generation: u64) -> Option<Edition> {
    Some(Edition { term, generation })
}

#[tokio::test]
async fn every_controller_receives_reports_and_one_streams_instructions() {
    let bed = Bed::new().await;
    let (one, desk_one) = bed.controller().await;
    let (other, desk_other) = bed.controller().await;
    let client = bed.joined("a", &[&one, &other]).await;
    desk_one.plan(1, 1);
    desk_other.plan(1, 1);
    until(&client, |status| status.edition == edition(1, 1)).await;
    client.report(&report());
    eventually("both have it", || desk_one.reported() == ["a"] && desk_other.reported() == ["a"])
        .await;
    assert_eq!(count(&one, "streams") + count(&other, "streams"), 1);
    let applied = client.instructions().borrow().edition();
    assert_eq!(Some(applied), edition(1, 1));
}

#[tokio::test]
async fn a_report_is_attributed_to_the_node_of_its_certificate() {
    let bed = Bed::new().await;
    let (server, desk) = bed.controller().await;
    let (a, b) = (bed.joined("a", &[&server]).await, bed.joined("b", &[&server]).await);
    a.report(&report());
    b.report(&report());
    eventually("both", || desk.reported().len() == 2).await;
    let mut reported = desk.reported();
    reported.sort();
    assert_eq!(reported, ["a", "b"]);
}

#[tokio::test]
async fn an_invalid_report_is_refused_and_counted_without_blocking_the_next() {
    let bed = Bed::new().await;
    let (server, desk) = bed.controller().await;
    let client = bed.joined("liar", &[&server]).await;
    client.report(&NodeReport { capacity: -1.0, ..report() });
    let status = until(&client, |s| s.reports.values().any(|one| one.failed == 1)).await;
    let problem = status.reports.into_values().next().unwrap().problem.unwrap();
    assert!(problem.contains("capacity is -1"), "{problem}");
    assert_eq!(count(&server, "refused_reports"), 1);
    client.report(&report());
    eventually("the truth", || desk.reported() == ["liar"]).await;
}

/// The editions that a node installs from now on.
fn installed(client: &NodeClient) -> Arc<Mutex<Vec<Edition>>> {
    let mut instructions = client.instructions();
    instructions.mark_unchanged();
    let installed = Arc::new(Mutex::new(Vec::new()));
    let note = Arc::clone(&installed);
    tokio::spawn(async move {
        while instructions.changed().await.is_ok() {
            note.lock().unwrap().push(instructions.borrow_and_update().edition());
        }
    });
    installed
}

#[tokio::test]
async fn a_node_installs_no_stale_instructions_of_any_controller() {
    let bed = Bed::new().await;
    let (server, desk) = bed.controller().await;
    let client = bed.joined("a", &[&server]).await;
    desk.plan(5, 7);
    until(&client, |status| status.edition == edition(5, 7)).await;
    let age = client.status().instructions_age.unwrap();
    let seen = installed(&client);
    // A late message of a former leader, from a controller that forwards it. A new node receives
    // it, so it has reached the streams. The stream of the first node omits it.
    desk.plan(4, 900);
    let new = bed.joined("new", &[&server]).await;
    until(&new, |status| status.edition == edition(4, 900)).await;
    assert_eq!(client.status().edition, edition(5, 7));
    desk.plan(5, 8);
    until(&client, |status| status.edition == edition(5, 8)).await;
    assert!(client.status().instructions_age.unwrap() <= age + Duration::from_secs(20));
    let only = |generation| [Edition { term: 5, generation }];
    eventually("the newer edition alone", || *seen.lock().unwrap() == only(8)).await;
    drop(new);
    // Another controller, which knows only older instructions.
    let (behind, desk_behind) = bed.controller().await;
    desk_behind.plan(5, 6);
    server.stop().await;
    drop(client);
    let client = bed.joined("b", &[&behind]).await;
    until(&client, |status| status.edition == edition(5, 6)).await;
    let seen = installed(&client);
    desk_behind.plan(5, 5);
    let newer = bed.joined("c", &[&behind]).await;
    until(&newer, |status| status.edition == edition(5, 5)).await;
    assert_eq!(client.status().edition, edition(5, 6));
    desk_behind.plan(5, 9);
    until(&client, |status| status.edition == edition(5, 9)).await;
    eventually("the newer edition alone", || *seen.lock().unwrap() == only(9)).await;
}

#[tokio::test]
async fn a_node_follows_another_controller_when_its_own_dies() {
    let bed = Bed::new().await;
    let (one, desk_one) = bed.controller().await;
    let (other, desk_other) = bed.controller().await;
    let client = bed.joined("a", &[&one, &other]).await;
    desk_one.plan(1, 1);
    desk_other.plan(1, 1);
    let status = until(&client, |s| s.edition == edition(1, 1) && s.following.is_some()).await;
    let first = status.following.unwrap();
    let (dying, living, desk) = if first == one.address().to_string() {
        (one, other, desk_other)
    } else {
        (other, one, desk_one)
    };
    drop(dying);
    let died = Instant::now();
    let second = living.address().to_string();
    until(&client, |status| status.following.as_ref() == Some(&second)).await;
    println!("it followed another after {:?}", died.elapsed());
    desk.plan(2, 1);
    until(&client, |status| status.edition == edition(2, 1)).await;
}

/// A controller is cut off from the others, which the node cannot see: the stream lives without new
/// instructions.
#[tokio::test]
async fn a_node_leaves_a_stalled_controller_and_ignores_its_older_plans() {
    let bed = Bed::new().await;
    let (one, desk_one) = bed.controller().await;
    let (other, desk_other) = bed.controller().await;
    let client = bed.joined("a", &[&one, &other]).await;
    desk_one.plan(1, 1);
    desk_other.plan(1, 1);
    let status = until(&client, |s| s.edition == edition(1, 1) && s.following.is_some()).await;
    let seen = installed(&client);
    let is_one = status.following == Some(one.address().to_string());
    let (cut_off, desk_cut_off, rest, desk) = if is_one {
        (one, desk_one, other, desk_other)
    } else {
        (other, desk_other, one, desk_one)
    };
    desk.plan(2, 1);
    let second = rest.address().to_string();
    until(&client, |s| s.edition == edition(2, 1) && s.following.as_ref() == Some(&second)).await;
    // A leader that has been replaced without its knowledge, and is the only one left.
    desk_cut_off.plan(1, 900);
    drop(rest);
    let first = cut_off.address().to_string();
    until(&client, |status| status.following.as_ref() == Some(&first)).await;
    desk_cut_off.plan(1, 901);
    desk_cut_off.plan(2, 2);
    until(&client, |status| status.edition == edition(2, 2)).await;
    let wanted = [(2, 1), (2, 2)].map(|(term, generation)| Edition { term, generation });
    eventually("all that it went by", || *seen.lock().unwrap() == wanted).await;
}

#[tokio::test]
async fn a_node_without_controllers_keeps_its_instructions_and_reports_their_age() {
    let bed = Bed::new().await;
    let (server, desk) = bed.controller().await;
    let client = bed.joined("a", &[&server]).await;
    desk.plan(1, 1);
    let address = server.address().to_string();
    let status = until(&client, |status| status.edition == edition(1, 1)).await;
    assert!(status.heard().is_some() && status.reports[&address].heard == status.heard());
    drop(server);
    let status = until(&client, |status| status.following.is_none()).await;
    assert!(status.follow_problem.is_some());
    let aged = |status: &equipoise_cluster::NodeStatus| {
        status.instructions_age.is_some_and(|age| age > Duration::from_millis(300))
    };
    let status = until(&client, aged).await;
    assert_eq!(status.edition, edition(1, 1));
    assert_eq!(client.instructions().borrow().generation, 1);
    // It continues to ask, without an answer.
    let asked_later = |status: &equipoise_cluster::NodeStatus| {
        let one = &status.reports[&address];
        one.tried < one.heard
    };
    let status = until(&client, asked_later).await;
    assert!(status.heard() > Some(Duration::from_millis(200)), "{status:?}");
}

#[tokio::test]
async fn a_node_gets_instructions_although_one_controller_hangs() {
    // It accepts connections, and never sends a byte.
    let hanging = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let bed = Bed::new().await;
    let (server, desk) = bed.controller().await;
    drop(bed.joined("a", &[&server]).await);
    desk.plan(1, 1);
    let mut options = bed.options("a", &[&server], None);
    let stuck = hanging.local_addr().unwrap().to_string().parse().unwrap();
    options.controllers.push(stuck);
    options.patience.handshake = Duration::from_millis(300);
    for _ in 0..4 {
        // The first controller to ask is random.
        let client = equipoise_cluster::NodeClient::start(options.clone());
        until(&client, |status| status.edition == edition(1, 1)).await;
    }
}

#[tokio::test]
async fn a_restarted_node_uses_saved_instructions_and_refuses_older_plans() {
    let bed = Bed::new().await;
    let (server, desk) = bed.controller().await;
    let client = bed.joined("a", &[&server]).await;
    desk.plan(5, 7);
    until(&client, |status| status.edition == edition(5, 7)).await;
    let file = bed.state("a").path_of(StateFile::Instructions);
    let has = |what: &str| std::fs::read_to_string(&file).is_ok_and(|text| text.contains(what));
    eventually("it is kept", || has("\"generation\":7")).await;
    // Instructions that are not written at once have their edition stored.
    desk.plan(5, 9);
    let noted = bed.state("a").path_of(StateFile::Edition);
    eventually("it is noted", || {
        std::fs::read_to_string(&noted).is_ok_and(|text| text.trim() == "5.9")
    })
    .await;
    assert!(has("\"generation\":7"), "and nothing else is written for it");
    let options = bed.options("a", &[&server], None);
    drop(client);
    drop(server);

    // No controller is reachable.
    let client = NodeClient::start(options.clone());
    assert_eq!(client.instructions().borrow().edition(), Edition { term: 5, generation: 7 });
    let status = until(&client, |status| status.follow_problem.is_some()).await;
    assert_eq!((status.edition, status.is_kept), (edition(5, 7), true));
    assert!(status.instructions_age.unwrap() > Duration::ZERO);
    drop(client);

    // A controller that knows only older instructions.
    let (behind, desk) = bed.controller().await;
    let options = NodeOptions { controllers: vec![address(&behind)], ..options };
    desk.plan(5, 7);
    let client = NodeClient::start(options);
    let mut instructions = client.instructions();
    until(&client, |status| status.following.is_some()).await;
    for (term, generation) in [(4, 900), (5, 6), (5, 7)] {
        desk.plan(term, generation);
        let status = client.status();
        assert_eq!((status.edition, status.is_kept), (edition(5, 7), true));
    }
    // Newer than the saved instructions, and older than those that it installed last.
    desk.plan(5, 8);
    let status = until(&client, |status| status.stale == 1).await;
    assert_eq!((status.edition, status.is_kept), (edition(5, 7), true));
    assert!(!instructions.has_changed().unwrap());
    desk.plan(5, 9);
    let status = until(&client, |status| !status.is_kept).await;
    assert_eq!(status.edition, edition(5, 9), "the last installed edition is not stale");
    assert!(instructions.has_changed().unwrap());
    assert_eq!(instructions.borrow_and_update().edition(), Edition { term: 5, generation: 9 });
}
