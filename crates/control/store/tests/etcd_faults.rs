//! etcd members that die, hang and return; certificates and users.
#![allow(clippy::unwrap_used, reason = "a panic is how a test fails")]

mod support;

use std::sync::Arc;
use std::time::{Duration, Instant};

use equipoise_store::{
    Change, ConnectError, Election, Entry, Etcd, EtcdTls, EtcdUser, HeldLease, Outcome, Store,
    StoreError, Transaction, WatchEvent,
};
use equipoise_testkit::Folder;
use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, IsCa, KeyPair};
use support::etcd::{Members, PATIENCE, connect, patient};
use support::{folder, key, next};

/// Writes `from..to`, each until it is certainly done once.
///
/// Every write requires the previous one, so that a read resolves an unknown outcome.
async fn write_in_order(store: &Etcd, from: u64, to: u64) {
    for i in from..to {
        let end = Instant::now() + PATIENCE;
        loop {
            assert!(Instant::now() < end, "write {i} does not come through");
            let found = match store.get(&key("a/1")).await {
                Ok(found) => found,
                Err(error) if error.is_passing() => continue,
                Err(error) => panic!("{error:?}"),
            };
            let (expect, has) = match &found {
                None => (equipoise_store::Expect::Absent, None),
                Some(entry) => (
                    equipoise_store::Expect::Modified(entry.modified),
                    std::str::from_utf8(&entry.value).unwrap().parse::<u64>().ok(),
                ),
            };
            if has == Some(i) {
                break;
            }
            assert_eq!(has, i.checked_sub(1), "a write that was acknowledged is gone");
            let value = i.to_string().into_bytes().into();
            match store.compare_and_put(&key("a/1"), expect, value).await {
                Ok(committed) => {
                    committed.done().expect("nobody else writes, and none was repeated");
                    break;
                }
                Err(error) => assert!(error.is_passing(), "{error:?}"),
            }
        }
    }
}

/// Checks that a watch reports the values in sequence, up to `to`. A listing may come between them:
/// a member that is behind looks like a store that was restored. It may skip values, and has none
/// from before the last event.
fn expect_in_order(
    store: &Etcd,
    from: equipoise_store::Revision,
    to: u64,
) -> tokio::task::JoinHandle<()> {
    let store = store.clone();
    tokio::spawn(async move {
        let mut watch = store.watch(folder("a"), from).await.unwrap();
        let number =
            |entry: &Entry| -> u64 { std::str::from_utf8(&entry.value).unwrap().parse().unwrap() };
        let mut due = 0;
        while due < to {
            match next(&mut watch).await {
                WatchEvent::Update(update) => {
                    let [Change::Put(entry)] = &update.changes[..] else { panic!("{update:?}") };
                    assert_eq!(number(entry), due);
                    due += 1;
                }
                WatchEvent::Resync(listing) => {
                    let listed = listing.entries.iter().map(|it| number(it) + 1).sum();
                    assert!(listed >= due, "{listing:?} is older than {due}");
                    due = listed;
                }
            }
        }
    })
}

#[tokio::test]
async fn writes_continue_when_the_leader_of_three_members_is_killed() {
    let Some(mut members) = Members::start(3, "http", &[]) else { return };
    let store = members.connect("killed").await;
    let start = store.list(&folder("a")).await.unwrap().revision;
    let watched = expect_in_order(&store, start, 90);
    for round in 0..3 {
        write_in_order(&store, round * 30, round * 30 + 10).await;
        let leader = members.leader().await;
        members.kill(leader);
        let killed = Instant::now();
        write_in_order(&store, round * 30 + 10, round * 30 + 11).await;
        println!("round {round}: the next write {:?} after the kill", killed.elapsed());
        write_in_order(&store, round * 30 + 11, round * 30 + 20).await;
        members.start_member(leader);
        write_in_order(&store, round * 30 + 20, round * 30 + 30).await;
    }
    tokio::time::timeout(PATIENCE, watched).await.expect("the watch sees all").unwrap();
}

#[tokio::test]
async fn requests_fail_without_a_majority_and_resume_with_it() {
    let Some(mut members) = Members::start(3, "http", &[]) else { return };
    let store = members.connect("majority").await;
    let start = store.list(&folder("a")).await.unwrap().revision;
    let watched = expect_in_order(&store, start, 20);
    let lease = HeldLease::take(Arc::new(store.clone()), Duration::from_secs(5)).await.unwrap();
    write_in_order(&store, 0, 10).await;
    let leader = members.leader().await;
    let lost = [leader, (leader + 1) % 3];
    for index in lost {
        members.kill(index);
    }
    let asked = Instant::now();
    let error = store.get(&key("a/1")).await.unwrap_err();
    assert!(matches!(error, StoreError::Unavailable { .. }), "{error:?}");
    let error = store.put(&key("a/2"), b"x".as_slice().into()).await.unwrap_err();
    assert!(matches!(error, StoreError::Unavailable { .. }), "{error:?}");
    println!("told after {:?} for two requests: {error}", asked.elapsed());
    // The lease is lost by its own clock, without a message from the store.
    let mut lease = lease;
    tokio::time::timeout(PATIENCE, lease.lost()).await.expect("it gives up by itself");
    for index in lost {
        members.start_member(index);
    }
    let regained = Instant::now();
    write_in_order(&store, 10, 20).await;
    println!("writes again {:?} after the members were started", regained.elapsed());
    tokio::time::timeout(PATIENCE, watched).await.expect("the watch sees all").unwrap();
}

#[tokio::test]
async fn a_leader_with_a_frozen_etcd_member_is_replaced_and_fenced() {
    let Some(members) = Members::start(3, "http", &[]) else { return };
    // Each controller has one member only, as in a network partition.
    let leader = members.leader().await;
    let (near, far) = (leader, (leader + 1) % 3);
    let one = |index: usize| {
        let mut options = members.options("hang");
        options.endpoints = vec![members.endpoint(index)];
        options
    };
    let (near, far) = (connect(one(near)).await, connect(one(far)).await);
    let office = |store: &Etcd| {
        Election::new(Arc::new(store.clone()), "controller", Duration::from_secs(2)).unwrap()
    };
    let mut first = office(&near).campaign("near").await.unwrap();
    members.freeze(leader, true);
    let frozen = Instant::now();
    tokio::time::timeout(PATIENCE, first.lost()).await.expect("the leader notices by itself");
    let noticed = frozen.elapsed();
    let office = office(&far);
    let second = tokio::time::timeout(PATIENCE, office.campaign("far"))
        .await
        .expect("another leads")
        .unwrap();
    println!("the former noticed after {noticed:?}, another led after {:?}", frozen.elapsed());
    assert!(second.term() > first.term());
    members.freeze(leader, false);
    let late = Transaction::new().put(key("plan/now"), *b"late");
    let end = Instant::now() + PATIENCE;
    let refusal = loop {
        match near.commit(first.fence(late.clone())).await {
            Ok(committed) => break committed.done().unwrap_err(),
            Err(error) => assert!(error.is_passing() && Instant::now() < end, "{error:?}"),
        }
    };
    assert!(first.is_fenced_off(&refusal), "{refusal}");
}

#[tokio::test]
async fn connecting_to_an_absent_member_fails_in_time_with_its_address() {
    let port = equipoise_testkit::free_port();
    let options = equipoise_store::EtcdOptions::new([format!("http://{}", port.address())]);
    let end = Instant::now() + PATIENCE;
    loop {
        let asked = Instant::now();
        let connecting = tokio::time::timeout(PATIENCE, Etcd::connect(options.clone()));
        let error = connecting.await.expect("it does not hang").unwrap_err();
        println!("told after {:?}; it has patience for {:?}", asked.elapsed(), options.patience);
        let ConnectError::Unusable { endpoints, source } = &error else { panic!("{error:?}") };
        assert!(endpoints.contains(&port.address().to_string()));
        // The outcome of an attempt that timed out, as on a busy machine, is unknown.
        if source.outcome() == Outcome::NotDone {
            return;
        }
        assert!(Instant::now() < end, "{source:?}");
    }
}

/// A certificate authority and the certificates that it signs, as PEM.
struct Authority(CertifiedIssuer<'static, KeyPair>);

impl Authority {
    fn new() -> Authority {
        let mut params = CertificateParams::new(Vec::new()).unwrap();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        Authority(CertifiedIssuer::self_signed(params, KeyPair::generate().unwrap()).unwrap())
    }

    fn sign(&self, name: &str) -> (String, String) {
        let own = KeyPair::generate().unwrap();
        let params = CertificateParams::new(vec![name.to_string()]).unwrap();
        (params.signed_by(&own, &self.0).unwrap().pem(), own.serialize_pem())
    }
}

#[tokio::test]
async fn certificates_are_checked_on_both_sides() {
    let scratch = Folder::new("tls");
    let authority = Authority::new();
    let (certificate, own_key) = authority.sign("127.0.0.1");
    for (name, pem) in
        [("ca.pem", authority.0.pem()), ("member.pem", certificate), ("member.key", own_key)]
    {
        std::fs::write(scratch.path(name), pem).unwrap();
    }
    let file = |name: &str| scratch.path(name).to_str().unwrap().to_string();
    let arguments = [
        "--cert-file".to_string(),
        file("member.pem"),
        "--key-file".to_string(),
        file("member.key"),
        "--client-cert-auth".to_string(),
        "--trusted-ca-file".to_string(),
        file("ca.pem"),
    ];
    let Some(members) = Members::start(1, "https", &arguments) else { return };
    let with = |authority_pem: String, identity_pem| {
        let mut options = patient(members.options("tls"));
        options.tls = Some(EtcdTls { authority_pem, identity_pem, server_name: None });
        options
    };
    let ours = Some(authority.sign("controller"));
    let store = connect(with(authority.0.pem(), ours.clone())).await;
    store.put(&key("a/1"), b"x".as_slice().into()).await.unwrap();

    let other = Authority::new();
    for (why, options) in [
        ("another authority's member", with(other.0.pem(), ours)),
        ("another authority's client", with(authority.0.pem(), Some(other.sign("controller")))),
        ("no client certificate", with(authority.0.pem(), None)),
    ] {
        let error = Etcd::connect(options).await.expect_err(why);
        match error {
            ConnectError::Unusable { source: StoreError::Denied(_), .. } => {}
            error => panic!("{why}: {error:?}"),
        }
    }
}

#[tokio::test]
async fn a_user_is_limited_to_its_role_and_survives_token_expiry() {
    let Some(members) = Members::start(1, "http", &["--auth-token-ttl=1".to_string()]) else {
        return;
    };
    drop(members.connect("x").await);
    let mut root = etcd_client::Client::connect([members.endpoint(0)], None).await.unwrap();
    root.user_add("root", "rootpw", None).await.unwrap();
    root.user_grant_role("root", "root").await.unwrap();
    root.role_add("edge").await.unwrap();
    let ours = etcd_client::Permission::read_write("edge/").with_prefix();
    root.role_grant_permission("edge", ours).await.unwrap();
    root.user_add("edge", "secret", None).await.unwrap();
    root.user_grant_role("edge", "edge").await.unwrap();
    root.auth_enable().await.unwrap();

    let as_user = |namespace: &str, password: &str| {
        let mut options = patient(members.options(namespace));
        options.user = Some(EtcdUser { name: "edge".into(), password: password.into() });
        options
    };
    for (why, options) in [
        ("a wrong password", as_user("edge", "wrong")),
        ("another's folder", as_user("other", "secret")),
        ("nobody", patient(members.options("edge"))),
    ] {
        match Etcd::connect(options).await.expect_err(why) {
            ConnectError::Unusable { source: StoreError::Denied(_), .. } => {}
            error => panic!("{why}: {error:?}"),
        }
    }
    let store = connect(as_user("edge", "secret")).await;
    let held = HeldLease::take(Arc::new(store.clone()), Duration::from_secs(600)).await.unwrap();
    let start = store.put(&key("a/1"), b"x".as_slice().into()).await.unwrap();
    let mut watch = store.watch(folder("a"), start).await.unwrap();
    // The member forgets tokens after a second without use, and all of them at a restart.
    let mut members = members;
    members.kill(0);
    members.start_member(0);
    let end = Instant::now() + PATIENCE;
    while let Err(error) = store.put(&key("a/2"), b"y".as_slice().into()).await {
        assert!(error.is_passing() && Instant::now() < end, "{error:?}");
    }
    let event = next(&mut watch).await;
    assert!(matches!(event, WatchEvent::Update(_)), "{event:?}");
    held.release().await.unwrap();
}
