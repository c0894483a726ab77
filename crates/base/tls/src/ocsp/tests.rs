#![allow(clippy::unwrap_used, reason = "tests say what they expect by failing")]

use std::time::{Duration, UNIX_EPOCH};

use rcgen::{BasicConstraints, CertificateParams, IsCa, Issuer, KeyPair, SerialNumber};

use super::*;

/// An element of less than 64 KiB.
fn der(tag: u8, content: &[&[u8]]) -> Vec<u8> {
    let content = content.concat();
    let length = content.len();
    let head = match length {
        0..128 => vec![tag, length as u8],
        _ => vec![tag, 0x82, (length >> 8) as u8, length as u8],
    };
    [head, content].concat()
}

/// A certificate with its issuer's.
fn chain(serial: u8) -> [Vec<u8>; 2] {
    let mut authority = CertificateParams::new(vec![]).unwrap();
    authority.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    let key = KeyPair::generate().unwrap();
    let issuer = authority.self_signed(&key).unwrap().der().to_vec();
    let issuer_key = Issuer::from_params(&authority, &key);
    let mut params = CertificateParams::new(vec!["a.example".to_string()]).unwrap();
    params.serial_number = Some(SerialNumber::from(vec![serial]));
    let own = KeyPair::generate().unwrap();
    [params.signed_by(&own, &issuer_key).unwrap().der().to_vec(), issuer]
}

/// A response about a certificate with this serial number of the chain's issuer.
fn response(chain: &[Vec<u8>; 2], serial: u8, status: u8, until: Option<&[u8]>) -> Vec<u8> {
    let (_, leaf) = X509Certificate::from_der(&chain[0]).unwrap();
    let (_, issuer) = X509Certificate::from_der(&chain[1]).unwrap();
    let hash = |bytes: &[u8]| digest(&SHA256, bytes).as_ref().to_vec();
    let oid = der(6, &[&[0x60, 0x86, 0x48, 1, 0x65, 3, 4, 2, 1]]);
    let name = der(4, &[&hash(leaf.issuer().as_raw())]);
    let key = der(4, &[&hash(&issuer.public_key().subject_public_key.data)]);
    let id = der(0x30, &[&der(0x30, &[&oid]), &name, &key, &der(2, &[&[serial]])]);
    let status = der(status, &[]);
    let from = der(24, &[b"20260101000000Z"]);
    let until = until.map(|at| der(0xa0, &[&der(24, &[at])])).unwrap_or_default();
    let single = der(0x30, &[&id, &status, &from, &until]);
    let responder = der(0xa2, &[&der(4, &[&[0; 20]])]);
    let data = der(0x30, &[&responder, &from, &der(0x30, &[&single])]);
    let basic = der(0x30, &[&data, &der(0x30, &[]), &der(3, &[&[0]])]);
    let bytes = der(0x30, &[&der(6, &[&[0x2b]]), &der(4, &[&basic])]);
    der(0x30, &[&der(10, &[&[0]]), &der(0xa0, &[&bytes])])
}

fn read(response: &[u8], chain: &[Vec<u8>; 2]) -> Result<Validity, OcspError> {
    validity(response, &[&chain[0], &chain[1]])
}

#[test]
fn an_ocsp_response_is_usable_only_within_its_validity_period() {
    let chain = chain(7);
    let validity = read(&response(&chain, 7, 0x80, Some(b"20260108000000Z")), &chain).unwrap();
    // 2026-01-01, 00:00 UTC.
    let from = UNIX_EPOCH + Duration::from_secs(1_767_225_600);
    let week = Duration::from_secs(7 * 86_400);
    assert_eq!(validity, Validity { from, until: Some(from + week) });
    let second = Duration::from_secs(1);
    for (now, fault) in [
        (from - second, Some(OcspError::Early)),
        (from, None),
        (from + week, None),
        (from + week + second, Some(OcspError::Expired)),
    ] {
        assert_eq!(validity.fault(now), fault, "{now:?}");
    }
    let endless = read(&response(&chain, 7, 0x80, None), &chain).unwrap();
    assert_eq!(endless.fault(from + week * 100), None);
}

#[test]
fn an_unusable_ocsp_response_returns_a_specific_error() {
    let chain = chain(7);
    let good = response(&chain, 7, 0x80, None);
    let another = super::tests::chain(7);
    for (response, expected) in [
        (response(&chain, 8, 0x80, None), OcspError::Other),
        // Of another issuer.
        (response(&another, 7, 0x80, None), OcspError::Other),
        (response(&chain, 7, 0xa1, None), OcspError::Revoked),
        (response(&chain, 7, 0x82, None), OcspError::Unknown),
        (der(0x30, &[&der(10, &[&[3]])]), OcspError::Refusal(3)),
        (b"-----BEGIN CERTIFICATE-----".to_vec(), OcspError::Encoding),
        (Vec::new(), OcspError::Encoding),
    ] {
        assert_eq!(read(&response, &chain), Err(expected));
    }
    // No part of one is read beyond its end.
    for length in 0..good.len() {
        assert_eq!(read(&good[..length], &chain), Err(OcspError::Encoding), "{length}");
    }
}
