//! Metrics of TLS at front doors, at the API, and to backends.

use std::fmt::Error;

use prometheus_client::encoding::DescriptorEncoder;
use prometheus_client::metrics::MetricType;
use prometheus_client::registry::Unit;

use super::collector::{counter, describe, gauge};
use super::{FrontDoorReading, PoolReading};
use crate::wire::tls::{BackendTlsStatus, CertificateStatus, TlsStatus};

/// Writes the metrics, if a front door has TLS.
pub(super) fn encode(
    doors: &[FrontDoorReading],
    out: &mut DescriptorEncoder<'_>,
) -> Result<(), Error> {
    let with_tls: Vec<(&str, &TlsStatus)> =
        doors.iter().filter_map(|it| Some((it.name.as_str(), it.tls.as_ref()?))).collect();
    if with_tls.is_empty() {
        return Ok(());
    }
    let help = "Complete TLS handshakes, by whether they resumed a session";
    let mut family = describe(out, "tls_handshakes", help, None, MetricType::Counter)?;
    for (door, tls) in &with_tls {
        let full = tls.handshakes_total.saturating_sub(tls.resumed_total);
        for (resumed, count) in [("false", full), ("true", tls.resumed_total)] {
            counter(&mut family, &[("front_door", door), ("resumed", resumed)], count)?;
        }
    }
    let help = "End of a certificate's validity, since 1970";
    let (name, unit) = ("tls_certificate_expiry_timestamp", Some(&Unit::Seconds));
    let mut family = describe(out, name, help, unit, MetricType::Gauge)?;
    for (door, certificate) in certificates(&with_tls) {
        gauge(&mut family, &labels(door, certificate), certificate.valid_until_unix_seconds)?;
    }
    let help = "Whether newer files of a certificate have an error, so that it is still in use";
    let mut family = describe(out, "tls_certificate_stale", help, None, MetricType::Gauge)?;
    for (door, certificate) in certificates(&with_tls) {
        let is_stale = u64::from(certificate.problem.is_some());
        gauge(&mut family, &labels(door, certificate), is_stale)?;
    }
    automatic(&with_tls, out)
}

/// Writes the metrics of the API's address.
pub(super) fn encode_api(tls: &TlsStatus, out: &mut DescriptorEncoder<'_>) -> Result<(), Error> {
    let help = "Complete TLS handshakes of the API, by whether they resumed a session";
    let mut family = describe(out, "api_tls_handshakes", help, None, MetricType::Counter)?;
    let full = tls.handshakes_total.saturating_sub(tls.resumed_total);
    for (resumed, count) in [("false", full), ("true", tls.resumed_total)] {
        counter(&mut family, &[("resumed", resumed)], count)?;
    }
    let help = "End of the validity of a certificate of the API, since 1970";
    let (name, unit) = ("api_tls_certificate_expiry_timestamp", Some(&Unit::Seconds));
    let mut family = describe(out, name, help, unit, MetricType::Gauge)?;
    for it in &tls.certificates {
        let labels = [("certificate", it.subject.as_str()), ("chain", it.chain.as_str())];
        gauge(&mut family, &labels, it.valid_until_unix_seconds)?;
    }
    let help =
        "Whether newer files of a certificate of the API have an error, so that it is still in use";
    let mut family = describe(out, "api_tls_certificate_stale", help, None, MetricType::Gauge)?;
    for it in &tls.certificates {
        let labels = [("certificate", it.subject.as_str()), ("chain", it.chain.as_str())];
        gauge(&mut family, &labels, u64::from(it.problem.is_some()))?;
    }
    Ok(())
}

/// Writes the metrics of names for which this process obtains certificates, if there are any.
fn automatic(doors: &[(&str, &TlsStatus)], out: &mut DescriptorEncoder<'_>) -> Result<(), Error> {
    let names =
        || doors.iter().flat_map(|(door, tls)| tls.automatic.iter().map(move |it| (*door, it)));
    if names().next().is_none() {
        return Ok(());
    }
    let help = "Failed attempts to obtain a certificate since the last success";
    let mut family = describe(out, "tls_automatic_failures", help, None, MetricType::Gauge)?;
    for (door, it) in names() {
        let labels = [("front_door", door), ("name", it.name.as_str())];
        gauge(&mut family, &labels, it.failures.into())?;
    }
    let help = "Time of the next attempt to obtain or renew a certificate, since 1970";
    let (name, unit) = ("tls_automatic_next_try_timestamp", Some(&Unit::Seconds));
    let mut family = describe(out, name, help, unit, MetricType::Gauge)?;
    for (door, it) in names() {
        let labels = [("front_door", door), ("name", it.name.as_str())];
        if let Some(time) = it.next_try_unix_seconds {
            gauge(&mut family, &labels, time)?;
        }
    }
    Ok(())
}

/// Writes the metrics of backends, if a pool uses TLS.
pub(super) fn encode_backends(
    pools: &[PoolReading],
    out: &mut DescriptorEncoder<'_>,
) -> Result<(), Error> {
    let backends = pools.iter().flat_map(|pool| pool.backends.iter().map(move |it| (pool, it)));
    let with_tls: Vec<(&str, &str, &BackendTlsStatus)> = backends
        .filter_map(|(pool, it)| Some((&*pool.name, &*it.name, it.tls.as_ref()?)))
        .collect();
    if with_tls.is_empty() {
        return Ok(());
    }
    let help = "Complete TLS handshakes with the backend, by whether they resumed a session";
    let mut family = describe(out, "backend_tls_handshakes", help, None, MetricType::Counter)?;
    for &(pool, backend, tls) in &with_tls {
        let full = tls.handshakes_total.saturating_sub(tls.resumed_total);
        for (resumed, count) in [("false", full), ("true", tls.resumed_total)] {
            let labels = [("pool", pool), ("backend", backend), ("resumed", resumed)];
            counter(&mut family, &labels, count)?;
        }
    }
    let help = "End of the validity of the backend's certificate, since 1970";
    let (name, unit) = ("backend_tls_certificate_expiry_timestamp", Some(&Unit::Seconds));
    let mut family = describe(out, name, help, unit, MetricType::Gauge)?;
    for (pool, backend, tls) in with_tls {
        if let Some(until) = tls.valid_until_unix_seconds {
            gauge(&mut family, &[("pool", pool), ("backend", backend)], until)?;
        }
    }
    Ok(())
}

fn certificates<'a>(
    doors: &'a [(&'a str, &'a TlsStatus)],
) -> impl Iterator<Item = (&'a str, &'a CertificateStatus)> {
    doors.iter().flat_map(|(door, tls)| tls.certificates.iter().map(move |it| (*door, it)))
}

/// The file tells apart certificates for one name.
fn labels<'a>(door: &'a str, certificate: &'a CertificateStatus) -> [(&'a str, &'a str); 3] {
    [("front_door", door), ("certificate", &certificate.subject), ("chain", &certificate.chain)]
}
