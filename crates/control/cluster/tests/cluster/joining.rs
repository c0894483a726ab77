use std::time::{Duration, SystemTime};

use equipoise_cluster::wire::CreateToken;
use equipoise_cluster::{Asker, Authority, JoinToken, NodeClient, NodeStatus, StateFile};

use crate::bed::{Bed, address, count, eventually, name, report, until};

/// True if a node has no certificate for this reason. Another reason may come first, such as a
/// controller that is slow to answer.
fn says(status: &NodeStatus, reason: &str) -> bool {
    status.certificate_problem.as_ref().is_some_and(|problem| problem.contains(reason))
}

/// Tries to join with this token, and waits for the refusal with this name.
async fn refused(bed: &Bed, node: &str, token: JoinToken, word: &str) {
    let (server, _desk) = bed.controller().await;
    let client = NodeClient::start(bed.options(node, &[&server], Some(token)));
    eventually(word, || count(&server, word) > 0).await;
    // The peer learns only that it may not join.
    let status = until(&client, |status| says(status, "a controller's log says why")).await;
    assert_eq!(status.certificate_until, None);
    assert!(!bed.state(node).has(StateFile::NodeCertificate));
}

#[tokio::test]
async fn a_joined_node_reports_and_needs_no_token_after_a_restart() {
    let bed = Bed::new().await;
    let (server, desk) = bed.controller().await;
    let client = bed.joined("edge-1", &[&server]).await;
    client.report(&report());
    eventually("the report", || desk.reported() == ["edge-1"]).await;
    drop(client);
    let again = NodeClient::start(bed.options("edge-1", &[&server], None));
    until(&again, |status| status.certificate_until.is_some()).await;
    again.report(&report());
    eventually("its report", || desk.reported().len() == 2).await;
    assert_eq!(count(&server, "joined"), 1);
}

#[tokio::test]
async fn a_single_use_token_admits_one_node_across_all_controllers() {
    let bed = Bed::new().await;
    let (one, _desk) = bed.controller().await;
    let (other, _desk) = bed.controller().await;
    let token = bed.token(true, None).await;
    let nodes: Vec<_> = (0..8)
        .map(|n| {
            let servers = if n % 2 == 0 { [&one] } else { [&other] };
            NodeClient::start(bed.options(&format!("n{n}"), &servers, Some(token.clone())))
        })
        .collect();
    let joined = || nodes.iter().filter(|node| node.status().certificate_until.is_some()).count();
    let replays = || count(&one, "replayed") + count(&other, "replayed");
    eventually("one is in, and the others are told", || joined() > 0 && replays() >= 7).await;
    assert_eq!(joined(), 1);
}

#[tokio::test]
async fn a_wrong_secret_is_refused() {
    let bed = Bed::new().await;
    let good = bed.token(false, None).await;
    let other = JoinToken::new(bed.authority().fingerprint());
    let secret = |token: &JoinToken| token.reveal().split('.').nth(2).unwrap().to_string();
    let wrong = good.reveal().replace(&secret(&good), &secret(&other));
    refused(&bed, "a", wrong.parse().unwrap(), "wrong_secret").await;
}

#[tokio::test]
async fn an_unknown_or_revoked_token_is_refused() {
    let bed = Bed::new().await;
    refused(&bed, "a", JoinToken::new(bed.authority().fingerprint()), "unknown").await;
    let revoked = bed.token(false, None).await;
    assert!(bed.tokens().revoke(revoked.id()).await.unwrap());
    refused(&bed, "b", revoked, "unknown").await;
}

#[tokio::test]
async fn an_expired_token_is_refused() {
    let bed = Bed::new().await;
    let hour_ago = SystemTime::now() - Duration::from_secs(3600);
    let expired = bed.token_for(Duration::from_secs(1800), false, None, hour_ago).await;
    refused(&bed, "a", expired, "expired").await;
}

#[tokio::test]
async fn a_replayed_token_is_refused() {
    let bed = Bed::new().await;
    let (server, _desk) = bed.controller().await;
    let token = bed.token(true, None).await;
    let first = NodeClient::start(bed.options("a", &[&server], Some(token.clone())));
    until(&first, |status| status.certificate_until.is_some()).await;
    refused(&bed, "b", token, "replayed").await;
}

#[tokio::test]
async fn tokens_for_another_node_and_names_in_use_are_refused() {
    let bed = Bed::new().await;
    let (server, _desk) = bed.controller().await;
    let _first = bed.joined("a", &[&server]).await;
    let token = bed.token(false, Some("a")).await;
    refused(&bed, "b", token, "other_node").await;
    // Another machine (another folder) with the same name.
    let token = bed.token(false, None).await;
    let mut options = bed.options("a", &[&server], Some(token));
    options.folder = bed.state("impostor");
    let impostor = NodeClient::start(options);
    eventually("name_taken", || count(&server, "name_taken") > 0).await;
    assert_eq!(impostor.status().certificate_until, None);
}

#[tokio::test]
async fn a_join_token_is_not_sent_to_controllers_of_another_cluster() {
    let (bed, others) = (Bed::new().await, Bed::new().await);
    let (server, _desk) = others.controller().await;
    let token = bed.token(false, None).await;
    let client = NodeClient::start(bed.options("a", &[&server], Some(token)));
    until(&client, |status| says(status, "another cluster's authority")).await;
    assert_eq!(count(&server, "other_cluster"), 0, "the token was not sent");
}

#[tokio::test]
async fn a_node_refuses_a_controller_with_a_certificate_for_another_host() {
    let bed = Bed::new().await;
    let (server, _desk) =
        bed.controller_with(|options| options.hosts = vec!["c1.example".to_string()]).await;
    let client =
        NodeClient::start(bed.options("a", &[&server], Some(bed.token(false, None).await)));
    until(&client, |status| says(status, "add 127.0.0.1 to `cluster.advertise`")).await;
}

#[tokio::test]
async fn operators_make_list_and_revoke_tokens_and_nodes_may_not() {
    let bed = Bed::new().await;
    let (server, _desk) = bed.controller().await;
    let operator = bed.operator(&server);
    let wish = CreateToken { time_to_live_s: 60, single_use: true, node: Some(name("a")) };
    let made = operator.create_token(&wish).await.unwrap();
    let listed = operator.tokens().await.unwrap().tokens;
    assert_eq!(listed, std::slice::from_ref(&made.listed));
    assert_eq!((listed[0].single_use, listed[0].node.clone()), (true, Some(name("a"))));
    let token: JoinToken = made.token.parse().unwrap();
    let client = NodeClient::start(bed.options("a", &[&server], Some(token)));
    until(&client, |status| status.certificate_until.is_some()).await;
    let used = operator.tokens().await.unwrap().tokens.remove(0).used.unwrap();
    assert_eq!(used.node, name("a"));
    operator.revoke_token(&made.listed.id).await.unwrap();
    assert_eq!(operator.tokens().await.unwrap().tokens, []);
    assert_eq!(operator.revoke_token(&made.listed.id).await.unwrap_err().status(), Some(404));
    let too_long = CreateToken { time_to_live_s: u64::MAX, ..wish.clone() };
    assert_eq!(operator.create_token(&too_long).await.unwrap_err().status(), Some(400));

    let folder = bed.state("a");
    let node = Asker::node(&folder, &name("a"), vec![address(&server)]).unwrap();
    assert_eq!(node.members().await.unwrap().cluster, name("test"));
    assert_eq!(node.tokens().await.unwrap_err().status(), Some(403));
    assert_eq!(node.create_token(&wish).await.unwrap_err().status(), Some(403));
    assert_eq!(node.evict(&name("a")).await.unwrap_err().status(), Some(403));
}

#[tokio::test]
async fn an_evicted_node_is_refused_until_it_rejoins_with_a_token() {
    let bed = Bed::new().await;
    let (server, desk) = bed.controller().await;
    let client = bed.joined("a", &[&server]).await;
    desk.plan(1, 1);
    until(&client, |status| status.edition.is_some()).await;
    bed.operator(&server).evict(&name("a")).await.unwrap();
    eventually("refused", || count(&server, "refused_evicted") > 0).await;
    client.report(&report());
    until(&client, |s| s.reports.values().any(|one| one.problem.is_some())).await;
    assert_eq!(desk.reported(), [] as [&str; 0]);
    drop(client);
    // Its folder is removed, and a token is made for it.
    std::fs::remove_dir_all(bed.scratch.path("a")).unwrap();
    let token = bed.token(true, Some("a")).await;
    let back = NodeClient::start(bed.options("a", &[&server], Some(token)));
    until(&back, |status| status.certificate_until.is_some()).await;
    back.report(&report());
    eventually("the report", || desk.reported() == ["a"]).await;
}

#[tokio::test]
async fn an_operator_of_another_cluster_rejects_the_controllers_certificate() {
    let bed = Bed::new().await;
    let (server, _desk) = bed.controller().await;
    let foreign = Authority::new(&name("test"), SystemTime::now()).unwrap();
    let asker = Asker::operator(&foreign, &name("root"), vec![address(&server)]).unwrap();
    // It does not accept the server's certificate either.
    let refused = asker.members().await.unwrap_err().to_string();
    assert!(refused.contains("another cluster's authority"), "{refused}");
}

#[tokio::test]
async fn a_controller_rejects_a_node_certificate_of_another_cluster() {
    let (bed, others) = (Bed::new().await, Bed::new().await);
    let (server, _desk) = bed.controller().await;
    let (elsewhere, _desk) = others.controller().await;
    drop(others.joined("a", &[&elsewhere]).await);
    // The node accepts this controller. Both clusters have the same name, so only the signature of
    // its own certificate differs.
    let folder = others.state("a");
    let trusted = folder.path_of(StateFile::AuthorityCertificate);
    std::fs::write(trusted, bed.authority().certificate_pem()).unwrap();
    let asker = Asker::node(&folder, &name("a"), vec![address(&server)]).unwrap();
    let refused = asker.members().await.unwrap_err();
    assert_eq!(refused.status(), None, "no request is served: {refused}");
    assert!(!refused.to_string().contains("another cluster's authority"), "{refused}");
    eventually("the controller refuses", || count(&server, "handshake_failed") == 1).await;
}
