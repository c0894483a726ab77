#![allow(clippy::unwrap_used, reason = "a panic is how a test fails")]

use rcgen::{
    BasicConstraints, CertificateParams, CertifiedIssuer, IsCa, KeyPair, PKCS_ECDSA_P384_SHA384,
    PKCS_ED25519, PKCS_RSA_SHA256, date_time_ymd,
};

use super::*;
use crate::Part;

fn authority(name: &str) -> CertifiedIssuer<'static, KeyPair> {
    let mut params = CertificateParams::default();
    params.distinguished_name.push(rcgen::DnType::CommonName, name);
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    CertifiedIssuer::self_signed(params, KeyPair::generate().unwrap()).unwrap()
}

fn signed(names: &[&str], key: &KeyPair, by: &CertifiedIssuer<'static, KeyPair>) -> String {
    let names: Vec<_> = names.iter().map(|name| name.to_string()).collect();
    CertificateParams::new(names).unwrap().signed_by(key, by).unwrap().pem()
}

#[test]
fn a_certificate_is_read_from_one_text_or_two() {
    let (ca, key) = (authority("ca"), KeyPair::generate().unwrap());
    let chain = signed(&["www.Example.com", "*.example.org", "192.0.2.1"], &key, &ca) + &ca.pem();
    let both = format!("{}{chain}", key.serialize_pem());
    let (two, one) = (
        Certificate::from_pem(&chain, &key.serialize_pem()).unwrap(),
        Certificate::from_pem(&both, &both).unwrap(),
    );
    assert_eq!(one, two);
    assert_eq!(one.names(), ["www.example.com", "*.example.org"]);
    assert_eq!(one.subject(), "www.example.com");
    assert_eq!(one.kind(), KeyKind::Ecdsa);
    assert_eq!(one.key().cert.len(), 2);
    assert!(one.valid_from() < one.valid_until());
}

#[test]
fn ecdsa_ed25519_and_rsa_keys_are_recognized() {
    let ca = authority("ca");
    for (algorithm, kind) in [
        (&PKCS_ECDSA_P384_SHA384, KeyKind::Ecdsa),
        (&PKCS_ED25519, KeyKind::Ed25519),
        (&PKCS_RSA_SHA256, KeyKind::Rsa),
    ] {
        let key = KeyPair::generate_for(algorithm).unwrap();
        let chain = signed(&["a.example"], &key, &ca);
        let read = Certificate::from_pem(&chain, &key.serialize_pem()).unwrap();
        assert_eq!(read.kind(), kind);
    }
}

#[test]
fn the_validity_period_is_that_of_the_first_certificate() {
    let (ca, key) = (authority("ca"), KeyPair::generate().unwrap());
    let mut params = CertificateParams::new(["a.example".to_string()]).unwrap();
    params.not_before = date_time_ymd(2020, 1, 1);
    params.not_after = date_time_ymd(2021, 1, 1);
    let leaf = params.signed_by(&key, &ca).unwrap().pem();
    let unix = |time: SystemTime| time.duration_since(std::time::UNIX_EPOCH).unwrap().as_secs();
    for chain in [leaf.clone(), leaf + &ca.pem()] {
        let read = Certificate::from_pem(&chain, &key.serialize_pem()).unwrap();
        let period = (unix(read.valid_from()), unix(read.valid_until()));
        assert_eq!(period, (1_577_836_800, 1_609_459_200));
    }
    let of_ca = Certificate::from_pem(&ca.pem(), &ca.key().serialize_pem()).unwrap();
    assert!(unix(of_ca.valid_until()) > 1_609_459_200, "the chain has two periods");
}

#[test]
fn an_error_identifies_chain_or_key_and_describes_the_fault() {
    let (ca, other) = (authority("first ca"), authority("other ca"));
    let key = KeyPair::generate().unwrap();
    let rsa = KeyPair::generate_for(&PKCS_RSA_SHA256).unwrap();
    let ed25519 = KeyPair::generate_for(&PKCS_ED25519).unwrap();
    let (leaf, pem) = (signed(&["a.example"], &key, &ca), key.serialize_pem());
    let cut = leaf.replacen('M', "!", 1);
    let encrypted = pem.replace("PRIVATE", "ENCRYPTED PRIVATE");
    let weak = "-----BEGIN PRIVATE KEY-----\nAAAA\n-----END PRIVATE KEY-----\n".to_string();
    let no_der = "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n".to_string();
    for (chain, key, part, text) in [
        (String::new(), pem.clone(), Part::Chain, "no certificate in PEM"),
        (pem.clone(), pem.clone(), Part::Chain, "no certificate in PEM"),
        (cut, pem.clone(), Part::Chain, "a block of PEM that cannot be decoded"),
        (leaf.clone() + &no_der, pem.clone(), Part::Chain, "(number 2 in the file)"),
        (
            leaf.clone() + &other.pem(),
            pem.clone(),
            Part::Chain,
            "certificate 1 was issued by `CN=first ca`, and the next one is that of `CN=other ca`",
        ),
        (ca.pem() + &leaf, pem.clone(), Part::Chain, "issued by `CN=first ca`"),
        (
            leaf.clone() + &authority("first ca").pem(),
            pem.clone(),
            Part::Chain,
            "certificate 1 names `CN=first ca` as its issuer, and the next one has that name, but another key",
        ),
        (leaf.clone(), leaf.clone(), Part::Key, "no private key in PEM"),
        (leaf.clone(), encrypted, Part::Key, "an encrypted private key"),
        (leaf.clone(), weak, Part::Key, "a private key that cannot be used"),
        (
            leaf.clone(),
            rsa.serialize_pem(),
            Part::Key,
            "a key (RSA, 2048 bits) that does not match the certificate `a.example` (ECDSA, 256 bits)",
        ),
        (
            leaf.clone(),
            ed25519.serialize_pem(),
            Part::Key,
            "a key (Ed25519) that does not match the certificate `a.example` (ECDSA, 256 bits)",
        ),
        (
            leaf.clone() + &ca.pem(),
            ca.key().serialize_pem(),
            Part::Key,
            "the key of certificate 2 in the chain; accepted: that certificate first",
        ),
    ] {
        let error = Certificate::from_pem(&chain, &key).unwrap_err();
        assert_eq!(error.part(), part, "{error}");
        assert!(error.to_string().contains(text), "{error}\nlacks: {text}");
    }
}

#[test]
fn certificates_for_addresses_do_not_share_their_tickets() {
    let ca = authority("ca");
    let of = |names: &[&str]| {
        let key = KeyPair::generate().unwrap();
        let chain = signed(names, &key, &ca);
        Certificate::from_pem(&chain, &key.serialize_pem()).unwrap().ticket_names()
    };
    assert_eq!(of(&["a.example"]), ["a.example"]);
    for names in [&["192.0.2.1"][..], &[], &["a.example", "192.0.2.1"]] {
        assert_ne!(of(names), of(names));
    }
}
