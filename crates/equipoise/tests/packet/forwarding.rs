//! Every forwarding method with real clients.

use std::collections::BTreeSet;

use equipoise_testkit::netns::SiteShape;

use crate::bed::{Bed, soon};
use crate::common::text;
use crate::method::{
    ALL, DIRECT, DIRECT6, FOUR_IN_6, GUE, GUE_6_IN_4, GUE6, IP6IP6, IPIP, Method, NAT, NAT6,
    SIX_IN_4, Service,
};

const ONE_ARM: SiteShape = SiteShape { backends: 3, two_arms: false };
const TWO_ARMS: SiteShape = SiteShape { backends: 3, two_arms: true };

/// A site that balances by these methods.
fn bed(test: &str, shape: SiteShape, methods: &[Method], services: &[Service]) -> Option<Bed> {
    let mut bed = Bed::new(test, shape)?;
    bed.prepare(methods);
    let mut config = String::new();
    for method in methods {
        let replies = shape.two_arms && method.translates();
        let more = if replies { "reply-interface = \"eth1\"\n" } else { "" };
        for service in services {
            config += &method.config(*service, &bed.site, more);
        }
    }
    bed.configure(&config);
    bed.balance();
    Some(bed)
}

/// Tries each method, prints its outcome, and fails if one failed.
fn each(methods: &[Method], attempt: impl Fn(Method) -> Result<String, String>) {
    let mut failed = Vec::new();
    for method in methods {
        match attempt(*method) {
            Ok(outcome) => println!("{:<22} {outcome}", method.name),
            Err(why) => {
                println!("{:<22} FAILED: {why}", method.name);
                failed.push(method.name);
            }
        }
    }
    assert!(failed.is_empty(), "{failed:?} failed; see above");
}

/// 24 connections reach several backends, and each backend sees the client's own address.
fn spread(bed: &Bed, method: Method) -> Result<String, String> {
    let url = format!("http://{}/who", method.vip(Service::Web));
    let client = format!("\"client\":\"{}\"", bed.site.client_address(method.vip_v6));
    let mut names = BTreeSet::new();
    for _ in 0..24 {
        let answer = bed.curl(&[&url])?;
        if !answer.contains(&client) {
            return Err(format!("the backend does not see {client}: {answer}"));
        }
        let name = answer.split("\"backend\":\"").nth(1).and_then(|rest| rest.split('"').next());
        names.insert(name.unwrap_or_default().to_owned());
    }
    match names.len() {
        0 | 1 => Err(format!("all 24 connections went to {names:?}")),
        _ => Ok(format!("24 requests answered by {}", Vec::from_iter(names).join(", "))),
    }
}

/// A body of 4 MB goes there and back unchanged.
fn large_body(bed: &Bed, method: Method) -> Result<String, String> {
    let file = bed.large_file(4 << 20);
    let back = bed.path("back");
    let url = format!("http://{}/echo", method.vip(Service::Web));
    let upload = format!("@{}", text(&file));
    bed.curl(&["--data-binary", &upload, "-H", "Expect:", "-o", text(&back), &url])?;
    let same = std::fs::read(&file).ok() == std::fs::read(&back).ok();
    if same { Ok("4 MB there and back".into()) } else { Err("another body came back".into()) }
}

#[test]
fn curl_is_served_by_every_forwarding_method() {
    let Some(bed) = bed("curl", ONE_ARM, &ALL, &[Service::Web]) else { return };
    each(&ALL, |method| {
        let few = spread(&bed, method)?;
        Ok(few + "; " + &large_body(&bed, method)?)
    });
}

#[test]
fn curl_is_served_when_backends_are_behind_a_second_interface() {
    let methods = [NAT, NAT6, DIRECT, DIRECT6, IPIP, IP6IP6, GUE];
    let Some(bed) = bed("arms", TWO_ARMS, &methods, &[Service::Web]) else { return };
    each(&methods, |method| {
        let few = spread(&bed, method)?;
        Ok(few + "; " + &large_body(&bed, method)?)
    });
}

#[test]
fn iperf3_is_served_by_every_forwarding_method() {
    let Some(mut bed) = bed("iperf", ONE_ARM, &ALL, &[Service::Iperf]) else { return };
    bed.serve_iperf();
    each(&ALL, |method| {
        let (up, down) = (iperf(&bed, method, &[])?, iperf(&bed, method, &["-R"])?);
        Ok(format!("{up:>6} Mbit/s up, {down:>6} Mbit/s down"))
    });
}

/// Bytes that must be received: some thousands of packets. iperf3 sends eight times as much. It
/// ends when that was sent, and does not count bytes that are still in transit.
const RECEIVED_BYTES_MIN: u64 = 4 << 20;

/// Megabits per second of four parallel streams, as measured by the receiver.
fn iperf(bed: &Bed, method: Method, more: &[&str]) -> Result<u64, String> {
    let vip = method.vip(Service::Iperf);
    let (address, port) = (vip.ip().to_string(), vip.port().to_string());
    let arguments = ["-c", &address, "-p", &port, "-n", "32M", "-P", "4", "-J"];
    let mut report = serde_json::Value::Null;
    // A server accepts one client at a time, and the end of the previous client may not have
    // reached it yet. After each client it closes its listener with the connections in its queue.
    let answered = soon(|| {
        let outcome = bed.site.client.run("iperf3", &[&arguments, more].concat());
        let printed = outcome.unwrap_or_else(|error| error.to_string());
        let from = printed.find('{').unwrap_or(0);
        report = serde_json::from_str(&printed[from..]).unwrap_or_else(|_| printed.into());
        let is_between = |error: &str| {
            let is_reset = error.contains("control message: Connection reset by peer");
            error.contains("server is busy")
                || is_reset && report["start"]["connected"].as_array().is_some_and(Vec::is_empty)
        };
        !report["error"].as_str().is_some_and(is_between)
    });
    let received = report["end"]["sum_received"]["bytes"].as_u64().filter(|_| answered);
    let received = received.ok_or_else(|| format!("no report: {report}"))?;
    if received < RECEIVED_BYTES_MIN {
        return Err(format!("only {received} bytes were received"));
    }
    let rate = report["end"]["sum_received"]["bits_per_second"].as_f64().unwrap_or(0.0);
    Ok((rate / 1e6) as u64)
}

#[test]
fn a_client_reduces_its_path_mtu_to_fit_the_tunnel() {
    let methods = [IPIP, IP6IP6, SIX_IN_4, FOUR_IN_6, GUE, GUE6, GUE_6_IN_4];
    let Some(bed) = bed("pmtu", ONE_ARM, &methods, &[Service::Web]) else { return };
    each(&methods, |method| {
        let route = || {
            let vip = method.vip_address();
            bed.site.client.ip(&format!("route get {vip}")).map_err(|error| error.to_string())
        };
        let before = route()?;
        if before.contains(" mtu ") {
            return Err(format!("the client knows a smaller MTU before it has sent: {before}"));
        }
        let outcome = large_body(&bed, method)?;
        let (after, mtu) = (route()?, 1500 - method.overhead);
        if !after.contains(&format!(" mtu {mtu} ")) {
            return Err(format!("after {outcome} the client does not know of {mtu}: {after}"));
        }
        Ok(format!("{outcome} with packets of {mtu} bytes"))
    });
}
