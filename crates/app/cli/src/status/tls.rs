//! Lines about certificates that need attention.

use equipoise_api::wire::tls::{BackendTlsStatus, CertificateStatus, TlsStatus};

/// Days before its end from which on a certificate has a line.
const DAYS: i64 = 21;

/// A line for each certificate that expires soon, has expired or could not be exchanged.
pub(super) fn details(door: &str, tls: &TlsStatus) -> Vec<String> {
    let line = |certificate: &CertificateStatus, text: String| {
        format!("{door}: certificate {} ({}) {text}", certificate.subject, certificate.chain)
    };
    let lines = tls.certificates.iter().flat_map(|it| {
        let expiry = match it.days_left {
            ..0 => Some(format!("EXPIRED {} days ago", -it.days_left)),
            0..DAYS => Some(format!("expires in {} days", it.days_left)),
            DAYS.. => None,
        };
        let problem = it.problem.as_ref().map(|problem| format!("is still in use: {problem}"));
        expiry.into_iter().chain(problem).map(|text| line(it, text)).collect::<Vec<_>>()
    });
    lines.collect()
}

/// A line for a backend whose certificate expires soon or has expired. Failures are in its
/// `health_detail`.
pub(super) fn backend_details(backend: &str, tls: &BackendTlsStatus) -> Option<String> {
    match tls.days_left? {
        days @ ..0 => Some(format!("{backend}: its certificate EXPIRED {} days ago", -days)),
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
        assert_eq!(of(Some(-2)), Some("web/b1: its certificate EXPIRED 2 days ago".into()));
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
            details("web", &tls),
            [
                "web: certificate a.example (/a.pem) expires in 20 days",
                "web: certificate a.example (/a.pem) expires in 0 days",
                "web: certificate a.example (/a.pem) EXPIRED 3 days ago",
                "web: certificate a.example (/a.pem) is still in use: it is cut",
            ]
        );
    }
}
