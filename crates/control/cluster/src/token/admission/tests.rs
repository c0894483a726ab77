use super::*;

const DAY: Duration = Duration::from_secs(86_400);

fn name(text: &str) -> Name {
    text.parse().expect("a test's name")
}

fn at(seconds: u64) -> SystemTime {
    UNIX_EPOCH + Duration::from_secs(seconds)
}

fn applicant(node: &str, key: &[u8]) -> Applicant {
    Applicant { name: name(node), key: Fingerprint::of_key(key) }
}

/// A token that is valid from 1000 to 2000.
fn token() -> (JoinToken, TokenRecord) {
    let token = JoinToken::new(Fingerprint::of_key(b"authority"));
    let record = TokenRecord {
        secret_hash: token.secret_hash(),
        created_at: 1000,
        expires_at: 2000,
        single_use: false,
        node: None,
        used: None,
    };
    (token, record)
}

fn holder(key: &[u8], valid_until: u64) -> NodeRecord {
    let (token, _) = token();
    let key = Fingerprint::of_key(key);
    NodeRecord { key, joined_at: 0, valid_until, token: token.id().clone(), evicted: Vec::new() }
}

#[test]
fn a_good_token_admits_until_it_expires() {
    let (token, record) = token();
    let who = applicant("a", b"key");
    let judged = |now| judge(&token, Some(&record), None, &who, at(now), DAY);
    let admitted = judged(1999).unwrap();
    assert_eq!(admitted.token, None, "a token for many uses does not change");
    assert_eq!(admitted.node.valid_until, 1999 + 86_400);
    let id = token.id().clone();
    assert_eq!(judged(2000), Err(JoinRefused::Expired { id: id.clone(), ago_s: 0 }));
    assert_eq!(judged(2060), Err(JoinRefused::Expired { id, ago_s: 60 }));
}

#[test]
fn a_wrong_secret_hides_all_other_refusal_reasons() {
    let (token, mut record) = token();
    let (other, _) = self::token();
    record.secret_hash = other.secret_hash();
    (record.expires_at, record.node) = (0, Some(name("b")));
    let judged = judge(&token, Some(&record), None, &applicant("a", b"key"), at(1500), DAY);
    assert_eq!(judged, Err(JoinRefused::WrongSecret { id: token.id().clone() }));
    let judged = judge(&token, None, None, &applicant("a", b"key"), at(1500), DAY);
    assert_eq!(judged, Err(JoinRefused::Unknown { id: token.id().clone() }));
}

#[test]
fn a_single_use_token_admits_one_node_and_its_retries() {
    let (token, mut record) = token();
    record.single_use = true;
    let (first, second) = (applicant("a", b"key"), applicant("b", b"other"));
    let admitted = judge(&token, Some(&record), None, &first, at(1500), DAY).unwrap();
    let used = admitted.token.expect("it is used up");
    let replayed = judge(&token, Some(&used), None, &second, at(1501), DAY);
    let id = token.id().clone();
    assert_eq!(replayed, Err(JoinRefused::Replayed { id: id.clone(), by: name("a") }));
    let same_name = applicant("a", b"other");
    let replayed = judge(&token, Some(&used), Some(&admitted.node), &same_name, at(1501), DAY);
    assert_eq!(replayed, Err(JoinRefused::Replayed { id, by: name("a") }));
    let again = judge(&token, Some(&used), Some(&admitted.node), &first, at(1501), DAY).unwrap();
    assert_eq!(again.token, None);
}

#[test]
fn a_token_for_a_node_admits_no_other() {
    let (token, mut record) = token();
    record.node = Some(name("a"));
    let judged = judge(&token, Some(&record), None, &applicant("b", b"key"), at(1500), DAY);
    let (id, wanted, got) = (token.id().clone(), name("a"), name("b"));
    assert_eq!(judged, Err(JoinRefused::OtherNode { id, wanted, got }));
    assert!(judge(&token, Some(&record), None, &applicant("a", b"key"), at(1500), DAY).is_ok());
}

#[test]
fn a_living_nodes_name_is_taken_over_only_by_a_token_for_it() {
    let (token, mut record) = token();
    let who = applicant("a", b"new key");
    let mut judged = |holder: &NodeRecord, node: Option<&str>| {
        record.node = node.map(name);
        judge(&token, Some(&record), Some(holder), &who, at(1500), DAY).map(drop)
    };
    let taken = Err(JoinRefused::NameTaken { name: name("a") });
    assert_eq!(judged(&holder(b"old key", 1501), None), taken);
    assert_eq!(judged(&holder(b"old key", 1501), Some("a")), Ok(()));
    assert_eq!(judged(&holder(b"old key", 1500), None), Ok(()), "its certificate has ended");
    assert_eq!(judged(&holder(b"new key", 1501), None), Ok(()), "it is the same machine");
}

#[test]
fn an_evicted_key_rejoins_only_with_a_token_for_its_node() {
    let (token, mut record) = token();
    let mut held = holder(b"key", 5000);
    held.evicted = vec![Evicted { key: held.key, until: 5000 }];
    let (same, other) = (applicant("a", b"key"), applicant("a", b"other"));
    let judged = |who: &Applicant, record: &TokenRecord| {
        judge(&token, Some(record), Some(&held), who, at(1500), DAY)
    };
    assert_eq!(judged(&same, &record), Err(JoinRefused::NameTaken { name: name("a") }));
    let replaced = judged(&other, &record).unwrap();
    assert_eq!(replaced.node.evicted.len(), 1, "the old key stays out");
    record.node = Some(name("a"));
    assert_eq!(judged(&same, &record).unwrap().node.evicted, []);
}
