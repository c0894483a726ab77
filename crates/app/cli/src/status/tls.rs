//! Lines about certificates that need attention.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use equipoise_api::wire::tls::{AutomaticStatus, BackendTlsStatus, CertificateStatus, TlsStatus};
use equipoise_basics::rough;

/// Days before its end from which on a certificate has a line.
const DAYS: i64 = 21;

/// Whole days since a certificate expired, as warnings count them. `days_left` counts the day that
/// has begun, too.
fn days_ago(days_left: i64) -> i64 {
    -days_left - 1
}

/// A line for each certificate that expires soon, has expired or could not be exchanged, and for
/// each name with a certificate that could not be obtained or renewed.
pub(super) fn details(door: &str, tls: &TlsStatus, now: SystemTime) -> Vec<String> {
    let line = |certificate: &CertificateStatus, text: String| {
        format!("{door}: certificate {} ({}) {text}", certificate.subject, certificate.chain)
    };
    // It may live for less than these days.
    let is_renewed = |certificate: &CertificateStatus| {
        tls.automatic.iter().any(|it| it.name == certificate.subject && it.failures == 0)
    };
    let lines = tls.certificates.iter().flat_map(|it| {
        let expiry = match it.days_left {
            0.. if is_renewed(it) => None,
            ..0 => Some(format!("EXPIRED {} days ago", days_ago(it.days_left))),
            0..DAYS => Some(format!("expires in {} days", it.days_left)),
            DAYS.. => None,
        };
        let problem = it.problem.as_ref().map(|problem| format!("is still in use: {problem}"));
        let staple = it.not_stapled.as_ref();
        let staple = staple.map(|problem| format!("has no OCSP response to staple: {problem}"));
        expiry
            .into_iter()
            .chain(problem)
            .chain(staple)
            .map(|text| line(it, text))
            .collect::<Vec<_>>()
    });
    let automatic = tls.automatic.iter().filter_map(|it| automatic(door, it, now));
    lines.chain(automatic).collect()
}

fn automatic(door: &str, status: &AutomaticStatus, now: SystemTime) -> Option<String> {
    let AutomaticStatus { name, failures, last_error, .. } = status;
    let next = status.next_try_unix_seconds.map(|at| UNIX_EPOCH + Duration::from_secs(at));
    let wait = next.map(|at| rough(at.duration_since(now).unwrap_or_default().as_secs()));
    match (&*status.stage, last_error, wait) {
        ("ordering", None, _) => {
            Some(format!("{door}: the certificate for {name} is being ordered"))
        }
        ("ordering", Some(error), _) => Some(format!(
            "{door}: the certificate for {name} is being ordered again (failed attempts: {failures}): {error}"
        )),
        (stage, Some(error), wait) => {
            let what = if stage == "issued" { "renewed" } else { "obtained" };
            let wait = wait.unwrap_or_else(|| "0 s".into());
            Some(format!(
                "{door}: the certificate for {name} could not be {what} (failed attempts: {failures}; next in {wait}): {error}"
            ))
        }
        ("waiting", None, _) => {
            Some(format!("{door}: the certificate for {name} is not ordered yet"))
        }
        (_, None, _) => None,
    }
}

/// A line for a backend with a certificate that expires soon or has expired. Failures are in its
/// `health_detail`.
pub(super) fn backend_details(backend: &str, tls: &BackendTlsStatus) -> Option<String> {
    match tls.days_left? {
        days @ ..0 => {
            Some(format!("{backend}: its certificate EXPIRED {} days ago", days_ago(days)))
        }
        days @ 0..DAYS => Some(format!("{backend}: its certificate expires in {days} days")),
        DAYS.. => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_backend_has_a_line_for_a_certificate_that_ends_soon() {
        let of = |days_left| {
            let tls = BackendTlsStatus { days_left, ..BackendTlsStatus::default() };
            backend_details("web/b1", &tls)
        };
        assert_eq!([of(None), of(Some(21))], [None, None]);
        assert_eq!(of(Some(2)), Some("web/b1: its certificate expires in 2 days".into()));
        assert_eq!(of(Some(-2)), Some("web/b1: its certificate EXPIRED 1 days ago".into()));
    }

    #[test]
    fn only_certificates_that_need_attention_have_a_line() {
        let of = |days_left, problem: Option<&str>| CertificateStatus {
            subject: "a.example".into(),
            chain: "/a.pem".into(),
            days_left,
            problem: problem.map(str::to_string),
            ..CertificateStatus::default()
        };
        let certificates =
            vec![of(21, None), of(20, None), of(0, None), of(-3, None), of(90, Some("it is cut"))];
        let tls = TlsStatus { certificates, ..TlsStatus::default() };
        assert_eq!(
            details("web", &tls, UNIX_EPOCH),
            [
                "web: certificate a.example (/a.pem) expires in 20 days",
                "web: certificate a.example (/a.pem) expires in 0 days",
                "web: certificate a.example (/a.pem) EXPIRED 2 days ago",
                "web: certificate a.example (/a.pem) is still in use: it is cut",
            ]
        );
    }

    #[test]
    fn names_have_a_line_until_their_certificate_is_issued_and_while_it_cannot_be_renewed() {
        let of = |name: &str, stage: &str, error: Option<&str>| AutomaticStatus {
            name: name.into(),
            stage: stage.into(),
            failures: u32::from(error.is_some()) * 2,
            last_error: error.map(str::to_string),
            next_try_unix_seconds: Some(300),
        };
        let automatic = vec![
            of("a", "ordering", None),
            of("b", "waiting", Some("refused")),
            of("c", "issued", None),
            of("d", "issued", Some("down")),
        ];
        // It lives for six days, and is renewed in time.
        let certificate =
            CertificateStatus { subject: "c".into(), days_left: 3, ..CertificateStatus::default() };
        let tls = TlsStatus { certificates: vec![certificate], automatic, ..TlsStatus::default() };
        assert_eq!(
            details("web", &tls, UNIX_EPOCH),
            [
                "web: the certificate for a is being ordered",
                "web: the certificate for b could not be obtained (failed attempts: 2; next in 5 min): refused",
                "web: the certificate for d could not be renewed (failed attempts: 2; next in 5 min): down",
            ]
        );
    }
}
