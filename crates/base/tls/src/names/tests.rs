#![allow(clippy::unwrap_used, reason = "a panic is how a test fails")]

use rcgen::{
    CertificateParams, KeyPair, PKCS_ECDSA_P256_SHA256, PKCS_RSA_SHA256, SignatureAlgorithm,
};
use rustls::SignatureScheme::{ECDSA_NISTP256_SHA256, ED25519, RSA_PSS_SHA256};

use super::*;
use crate::certificate::CertificateFiles;

fn certificate(names: &[&str], algorithm: &'static SignatureAlgorithm) -> Certificate {
    let key = KeyPair::generate_for(algorithm).unwrap();
    let names: Vec<_> = names.iter().map(|name| name.to_string()).collect();
    let chain = CertificateParams::new(names).unwrap().self_signed(&key).unwrap().pem();
    Certificate::from_pem(&chain, &key.serialize_pem()).unwrap()
}

#[test]
fn a_certificate_is_picked_by_name_then_by_accepted_key_type() {
    let all = [
        certificate(&["a.example", "www.a.example"], &PKCS_RSA_SHA256),
        certificate(&["*.a.example"], &PKCS_ECDSA_P256_SHA256),
        certificate(&["a.example"], &PKCS_ECDSA_P256_SHA256),
        certificate(&["b.example"], &PKCS_RSA_SHA256),
    ];
    let places = |strict: bool| {
        let by_name = ByName::new(all.to_vec().into(), strict, &[]);
        let all = &all;
        move |name: Option<&str>, schemes: &[SignatureScheme]| {
            let picked = by_name.pick(name, schemes)?.clone();
            all.iter().position(|it| *it == picked)
        }
    };
    let (usual, strict) = (places(false), places(true));
    let (ecdsa, rsa) = ([ECDSA_NISTP256_SHA256, RSA_PSS_SHA256], [RSA_PSS_SHA256]);
    for (name, schemes, picked) in [
        (Some("a.example"), &ecdsa[..], Some(2)),
        (Some("a.example"), &rsa, Some(0)),
        // The exact name first, whatever its key.
        (Some("www.a.example"), &ecdsa, Some(0)),
        (Some("ftp.a.example"), &ecdsa, Some(1)),
        // rustls reports the lack of a common signature.
        (Some("ftp.a.example"), &rsa, Some(1)),
        (Some("b.example"), &ecdsa, Some(3)),
    ] {
        assert_eq!(usual(name, schemes), picked, "{name:?}");
        assert_eq!(strict(name, schemes), picked, "{name:?}");
    }
    // The default is every certificate for the first name of the first certificate.
    for name in [None, Some("c.example"), Some("x.ftp.a.example"), Some("example")] {
        assert_eq!(usual(name, &ecdsa), Some(2), "{name:?}");
        assert_eq!(usual(name, &rsa), Some(0), "{name:?}");
        assert_eq!(usual(name, &[ED25519]), Some(2), "{name:?}");
        assert_eq!(strict(name, &ecdsa), None, "{name:?}");
    }
}

#[test]
fn a_certificate_without_dns_names_is_a_default() {
    let all = vec![certificate(&["192.0.2.1"], &PKCS_RSA_SHA256)];
    let by_name = ByName::new(all.clone().into(), false, &[]);
    assert_eq!(by_name.pick(Some("a.example"), &[RSA_PSS_SHA256]), all.first());
}

#[test]
fn a_name_awaiting_its_first_certificate_gets_no_other_certificate() {
    let awaited = |name: &str| AutomaticName {
        name: name.into(),
        files: CertificateFiles { chain: format!("/{name}.pem").into(), key: None, ocsp: None },
    };
    let schemes = [ECDSA_NISTP256_SHA256];
    let names = ["a.example", "b.example"].map(awaited);
    let b = certificate(&["b.example"], &PKCS_ECDSA_P256_SHA256).of_files(names[1].files.clone());
    let by_name = ByName::new(vec![b.clone()].into(), false, &names);
    assert_eq!(by_name.pick(Some("a.example"), &schemes), None);
    for served in [Some("b.example"), Some("c.example"), None] {
        assert_eq!(by_name.pick(served, &schemes), Some(&b), "{served:?}");
    }
    assert_eq!(ByName::new(Vec::new().into(), false, &names).pick(None, &schemes), None);
}
