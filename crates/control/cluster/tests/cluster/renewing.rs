use std::time::{Duration, SystemTime};

use crate::bed::{Bed, count, eventually, report, until};

#[tokio::test]
async fn certificates_are_renewed_before_they_end_and_nothing_is_lost() {
    let bed = Bed::new().await;
    // A certificate is valid from five minutes before its creation, so this one is renewed at once,
    // and again.
    let (server, desk) = bed
        .controller_with(|options| {
            options.node_lifetime = Duration::from_secs(152);
            options.own_lifetime = Duration::from_secs(3);
        })
        .await;
    let client = bed.joined("a", &[&server]).await;
    let first = client.status().certificate_until.unwrap();
    desk.plan(1, 1);
    until(&client, |status| status.edition.is_some()).await;
    until(&client, |status| status.certificate_until.is_some_and(|until| until > first)).await;
    assert!(count(&server, "renewed") > 0);
    // The controller's own certificate is renewed, too.
    eventually("its own", || count(&server, "own_certificate_renewed") > 0).await;
    client.report(&report());
    eventually("the report", || desk.reported() == ["a"]).await;
    desk.plan(1, 2);
    until(&client, |status| status.edition.is_some_and(|one| one.generation == 2)).await;
    assert_eq!(count(&server, "joined"), 1, "it did not have to join again");
}

#[tokio::test]
async fn a_node_that_was_away_too_long_joins_again_with_its_token() {
    let bed = Bed::new().await;
    let (server, _desk) =
        bed.controller_with(|options| options.node_lifetime = Duration::from_secs(1)).await;
    let token = bed.token(false, None).await;
    let client =
        equipoise_cluster::NodeClient::start(bed.options("a", &[&server], Some(token.clone())));
    let status = until(&client, |status| status.certificate_until.is_some()).await;
    drop(client);
    let end = status.certificate_until.unwrap();
    eventually("its end", || SystemTime::now() > end).await;
    assert_eq!(
        count(&server, "renewed"),
        0,
        "a certificate that is due at once is no reason to ask on"
    );
    let joins = count(&server, "joined");
    let again = equipoise_cluster::NodeClient::start(bed.options("a", &[&server], Some(token)));
    until(&again, |status| status.certificate_until.is_some_and(|until| until > end)).await;
    assert!(count(&server, "joined") > joins);
}
