//! Lines of the journal.

use std::sync::{Arc, Mutex};

use equipoise_cluster::wire::CreateToken;
use equipoise_cluster::{AttemptLimits, Deed, JoinToken, Journal, NodeClient};

use crate::bed::{Bed, count, eventually, name, until};

#[derive(Debug, Default)]
struct Notes {
    deeds: Mutex<Vec<Deed>>,
    counted: Mutex<u64>,
}

impl Journal for Notes {
    fn note(&self, deed: Deed) {
        self.deeds.lock().unwrap().push(deed);
    }

    fn count(&self) {
        *self.counted.lock().unwrap() += 1;
    }
}

impl Notes {
    fn deeds(&self) -> Vec<(String, String, String, u16)> {
        let deeds = self.deeds.lock().unwrap();
        let one = |it: &Deed| (it.who.clone(), it.method.clone(), it.path.clone(), it.status);
        deeds.iter().map(one).collect()
    }
}

#[tokio::test]
async fn tokens_joins_and_evictions_are_audited_with_caller_and_no_secrets() {
    let (bed, notes) = (Bed::new().await, Arc::new(Notes::default()));
    let journal = Arc::clone(&notes);
    let (server, _desk) = bed.controller_with(|options| options.journal = journal).await;
    let operator = bed.operator(&server);
    let wish = CreateToken { time_to_live_s: 60, single_use: false, node: None };
    let made = operator.create_token(&wish).await.unwrap();
    let token: JoinToken = made.token.parse().unwrap();
    let client = NodeClient::start(bed.options("a", &[&server], Some(token.clone())));
    until(&client, |status| status.certificate_until.is_some()).await;
    operator.tokens().await.unwrap();
    operator.evict(&name("a")).await.unwrap();
    operator.evict(&name("nobody")).await.unwrap_err();
    operator.revoke_token(token.id()).await.unwrap();
    let (root, joining) = ("operator:root".to_string(), format!("join-token:{}", token.id()));
    let at = |path: &str| format!("/cluster/v1/{path}");
    let expected = [
        (root.clone(), "POST".to_string(), at("tokens"), 200),
        (joining, "POST".to_string(), at("join"), 200),
        (root.clone(), "DELETE".to_string(), at("nodes/a"), 204),
        (root.clone(), "DELETE".to_string(), at("nodes/nobody"), 404),
        (root, "DELETE".to_string(), at(&format!("tokens/{}", token.id())), 204),
    ];
    assert_eq!(notes.deeds(), expected, "looks are left out");
    let deeds = notes.deeds.lock().unwrap();
    assert_eq!(deeds[0].after.as_ref().unwrap()["id"], token.id().as_str());
    assert_eq!(deeds[1].after.as_ref().unwrap()["node"], "a");
    let secret = made.token.split('.').nth(2).unwrap();
    assert!(!format!("{deeds:?}").contains(secret));
}

#[tokio::test]
async fn refused_joins_are_audited_and_above_a_rate_only_counted() {
    let (bed, notes) = (Bed::new().await, Arc::new(Notes::default()));
    let journal = Arc::clone(&notes);
    let (server, _desk) = bed
        .controller_with(|options| {
            options.journal = journal;
            options.limits.attempts =
                AttemptLimits { burst: 3.0, per_second: 0.001, ..AttemptLimits::default() };
        })
        .await;
    let guess = JoinToken::new(bed.authority().fingerprint());
    let client = NodeClient::start(bed.options("a", &[&server], Some(guess.clone())));
    eventually("held back", || count(&server, "too_often") >= 2).await;
    drop(client);
    let deeds = notes.deeds.lock().unwrap();
    assert_eq!(deeds.len(), 3, "{deeds:?}");
    for deed in deeds.iter() {
        assert_eq!((deed.status, &*deed.who), (403, &*format!("join-token:{}", guess.id())));
        let detail = deed.detail.as_ref().unwrap();
        assert!(detail.starts_with("a: there is no token"), "{detail}");
    }
    assert!(*notes.counted.lock().unwrap() >= 2);
}
