//! Messages about certificates that equipoise obtains itself.

use crate::common::said_among;

const AGREED: &str = "[acme]\nterms-agreed = true\n";

/// The messages about an https front door with this `tls`, behind these lines.
fn said(before: &str, port: u16, tls: &str) -> String {
    let text = format!(
        "pool = [{{ name = 'p', backends = ['10.0.0.1:80'] }}]\n{before}\
         [[session]]\nlisten = '0.0.0.0:{port}'\nprotocol = 'http'\npool = 'p'\ntls = {tls}\n"
    );
    said_among(&[("/ca.pem", "-----BEGIN CERTIFICATE-----"), ("/empty", "\n")], &text)
}

#[test]
fn automatic_certificates_at_port_443_need_no_other_option() {
    assert_eq!(said(AGREED, 443, "{ auto = 'www.example.org' }"), "");
    let more = format!("{AGREED}email = 'ops@example.org'\nca = '/ca.pem'\n");
    let two = "{ auto = ['WWW.example.org', 'example.org'], profile = 'modern' }";
    assert_eq!(said(&more, 443, two), "");
}

#[test]
fn automatic_certificates_require_agreement_to_the_terms() {
    for (before, place) in [("", "f:0:0"), ("[acme]\nterms-agreed = false\n", "f:3:16")] {
        let found = said(before, 443, "{ auto = 'www.example.org' }");
        let expected = "acme.terms-agreed: not true, and front doors have `auto`; accepted: true, if you agree to the \
                        terms of the authority";
        assert!(found.contains(expected), "{found}");
        assert!(place.ends_with(":0") || found.starts_with(place), "{found}");
    }
}

#[test]
fn a_name_unsuitable_for_a_certificate_is_rejected() {
    let long = format!("{}.org", "a".repeat(64));
    for wrong in [
        "*.org",
        "a.*.example.org",
        "localhost",
        "192.0.2.1",
        "example.org.",
        "-a.example.org",
        "a_b.example.org",
        "bücher.example",
        "",
        "a..org",
        &long,
    ] {
        let found = said(AGREED, 443, &format!("{{ auto = '{wrong}' }}"));
        let expected =
            "is not a name for a certificate; accepted: a host name of two labels or more, such as";
        assert!(found.contains(expected), "{wrong}: {found}");
    }
    let twice = said(AGREED, 443, "{ auto = ['a.example', 'A.example'] }");
    assert!(twice.contains("tls.auto: \"A.example\" is stated twice"), "{twice}");
    let none = said(AGREED, 443, "{ auto = [] }");
    assert!(
        none.contains("tls.certificates: missing; accepted: a list of certificates, or names"),
        "{none}"
    );
}

#[test]
fn wildcards_need_a_zone_of_this_file() {
    let zone = |name: &str| {
        format!(
            "{AGREED}[[dns]]\nzone = '{name}'\nlisten = '127.0.0.1:53'\npool = 'p'\n\
             ns = [{{ name = 'ns1', addresses = '192.0.2.1' }}]\n"
        )
    };
    let auto = "{ auto = ['*.example.org', 'www.example.org'] }";
    for before in [AGREED.to_string(), zone("example.net."), zone("b.example.org.")] {
        let found = said(&before, 443, auto);
        let expected = "tls.auto: \"*.example.org\" is a wildcard, which authorities verify by DNS alone, and no [[dns]] \
                        table here answers for \"example.org\"; accepted: a zone with that name, or `certificates`";
        assert!(found.contains(expected), "{found}");
    }
    assert_eq!(said(&zone("example.org."), 443, auto), "");
    // Names that are verified by DNS need no port.
    assert_eq!(said(&zone("example.org."), 8443, auto), "");
    // Such a controller answers the challenges of others.
    let found = said_among(
        &[],
        &format!(
            "{}[cluster]\nstore = {{}}\n",
            zone("example.org.").replace("pool = 'p'", "pool = 'q'")
                + "[[pool]]\nname = 'q'\nbackends = ['10.0.0.1:80']\n"
        ),
    );
    assert!(!found.contains("acme"), "{found}");
}

#[test]
fn options_of_acme_are_checked() {
    for (line, expected) in [
        ("email = 'nobody'", "acme.email: 'nobody' is not an email address"),
        (
            "directory = 'http://ca.example/dir'",
            "is not the URL of an ACME directory; accepted: https://HOST",
        ),
        ("ca = '/none.pem'", "acme.ca: \"/none.pem\" cannot be read"),
        ("ca = '/empty'", "acme.ca: \"/empty\" has no certificate in PEM"),
    ] {
        let found = said(&format!("{AGREED}{line}\n"), 443, "{ auto = 'a.example' }");
        assert!(found.contains(expected), "{line}: {found}");
    }
    let unused = said_among(
        &[],
        &format!(
            "pool = [{{ name = 'p', backends = ['10.0.0.1:80'] }}]\n{AGREED}\
             [[session]]\nlisten = '0.0.0.0:80'\nprotocol = 'http'\npool = 'p'\n"
        ),
    );
    assert!(
        unused.contains("warning: acme: has no effect: no front door has `tls = { auto"),
        "{unused}"
    );
}

#[test]
fn an_acme_server_unable_to_reach_this_process_causes_a_warning() {
    let auto = "{ auto = 'www.example.org' }";
    let found = said(AGREED, 8443, auto);
    let expected = "f:8:16: warning: session[0.0.0.0:8443].tls.auto: the authority connects to port 80 or 443 of the name, \
                    and neither an http front door without `tls` listens on 80 nor this one on 443; forward one of the \
                    ports to a front door of this process";
    assert!(found.contains(expected), "{found}");
    let clear = "[[session]]\nlisten = '0.0.0.0:80'\nprotocol = 'http'\npool = 'p'\n";
    assert_eq!(said(&format!("{AGREED}{clear}"), 8443, auto), "");
    let node = "[cluster]\ncontrollers = ['c1.example:9911']\njoin-token-file = '/token'\n";
    let found = said(&format!("{AGREED}{node}"), 443, auto);
    assert!(found.contains("tls.auto: a node orders certificates for itself"), "{found}");
    // Controllers share account and certificates.
    let controller = said(&format!("{AGREED}[cluster]\nstore = {{}}\n"), 443, auto);
    assert!(!controller.contains("tls.auto"), "{controller}");
}

#[test]
fn for_nodes_needs_a_controller_and_from_controllers_needs_a_node() {
    let controller = "[cluster]\nname = 'c'\nlisten = '192.0.2.1:7700'\n";
    let node = "[cluster]\ncontrollers = '192.0.2.1:7700'\njoin-token-file = '/t'\n";
    let given = format!("{AGREED}for-nodes = ['a.example', 'B.example']\n");
    let taken = "[acme]\nfrom-controllers = true\n";
    let auto = "{ auto = 'a.example' }";
    for before in [format!("{given}{controller}"), format!("{taken}{node}")] {
        let found = said(&before, 443, auto);
        assert!(!found.contains("acme") && !found.contains("auto"), "{before}{found}");
    }
    for (before, expected) in [
        (given.clone(), "acme.for-nodes: stated, and this machine is no controller of a cluster"),
        (format!("{given}{node}"), "acme.for-nodes: stated, and this machine is no controller"),
        (taken.to_string(), "acme.from-controllers: stated, and this machine is no node"),
        (format!("{taken}{controller}"), "acme.from-controllers: stated, and this machine is no"),
        (
            format!("{AGREED}for-nodes = '*.example.org'\n{controller}"),
            "acme.for-nodes: \"*.example.org\" is a wildcard",
        ),
        (format!("{AGREED}for-nodes = 'a'\n{controller}"), "is not a name for a certificate"),
        (node.to_string(), "a node orders certificates for itself"),
    ] {
        let found = said(&before, 443, auto);
        assert!(found.contains(expected), "{before}{found}");
    }
}
