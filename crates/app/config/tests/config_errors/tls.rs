//! Messages about wrong certificates of front doors, and about TLS to backends.

use std::sync::LazyLock;

use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, DnType, IsCa, KeyPair};
use rcgen::{PKCS_RSA_SHA256, date_time_ymd};

use crate::common::said_among;

/// Files by path.
static FILES: LazyLock<Vec<(&str, String)>> = LazyLock::new(|| {
    let mut params = CertificateParams::default();
    params.distinguished_name.push(DnType::CommonName, "ca");
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    let authority = CertifiedIssuer::self_signed(params, KeyPair::generate().expect("a key"));
    let authority = authority.expect("an authority");
    let key = KeyPair::generate().expect("a key");
    let rsa = KeyPair::generate_for(&PKCS_RSA_SHA256).expect("a key");
    let usual = || CertificateParams::new(vec!["www.example.com".to_string()]).expect("a name");
    let pem = |params: CertificateParams| params.signed_by(&key, &authority).expect("it").pem();
    let (mut expired, mut early) = (usual(), usual());
    expired.not_before = date_time_ymd(2020, 1, 1);
    expired.not_after = date_time_ymd(2021, 1, 1);
    early.not_before = date_time_ymd(4000, 1, 1);
    early.not_after = date_time_ymd(4001, 1, 1);
    vec![
        ("/site.pem", pem(usual())),
        ("/both.pem", key.serialize_pem() + &pem(usual()) + &authority.pem()),
        ("/expired.pem", pem(expired)),
        ("/early.pem", pem(early)),
        ("/wrong-order.pem", authority.pem() + &pem(usual())),
        ("/site.key", key.serialize_pem()),
        ("/rsa.key", rsa.serialize_pem()),
        ("/empty", "\n".to_string()),
    ]
});

/// The messages about a front door with these lines, which begin at line 6.
fn said(protocol: &str, more: &str) -> String {
    let files: Vec<(&str, &str)> = FILES.iter().map(|(path, text)| (*path, &**text)).collect();
    let text = format!(
        "pool = [{{ name = 'p', backends = ['10.0.0.1:80'] }}]\n\
         [[session]]\nlisten = '0.0.0.0:443'\nprotocol = '{protocol}'\npool = 'p'\n{more}\n"
    );
    said_among(&files, &text)
}

const SITE: &str = "{ chain = '/site.pem', key = '/site.key' }";

fn certificates(all: &str) -> String {
    said("http", &format!("tls = {{ certificates = {all} }}"))
}

#[test]
fn usable_certificates_are_accepted() {
    for fine in [format!("[{SITE}]"), "['/both.pem']".into(), format!("['/both.pem', {SITE}]")] {
        assert_eq!(certificates(&fine), "", "{fine}");
    }
    let more = format!(
        "header-timeout = '5s'\ntls = {{ certificates = [{SITE}], profile = 'modern', strict = true }}"
    );
    assert_eq!(said("tcp", &more), "");
    assert_eq!(said("http", &more), "");
}

#[test]
fn an_unusable_certificate_file_is_reported_with_the_reason() {
    for (all, expected) in [
        (
            "[{ chain = '/site.pem', key = '/rsa.key' }]",
            "session[0.0.0.0:443].tls.certificates[/site.pem].key: \"/rsa.key\" has a key (RSA, 2048 bits) that does \
             not match the certificate `www.example.com` (ECDSA, 256 bits)",
        ),
        (
            "['/site.pem']",
            "certificates[/site.pem].chain: \"/site.pem\" has no private key in PEM (-----BEGIN PRIVATE KEY-----)",
        ),
        (
            "[{ chain = '/empty', key = '/site.key' }]",
            "certificates[/empty].chain: \"/empty\" has no certificate in PEM (-----BEGIN CERTIFICATE-----)",
        ),
        (
            "[{ chain = '/site.pem', key = '/empty' }]",
            "certificates[/site.pem].key: \"/empty\" has no private key in PEM",
        ),
        (
            "[{ chain = '/wrong-order.pem', key = '/site.key' }]",
            "chain: \"/wrong-order.pem\" has a chain that does not match: certificate 1 was issued by `CN=ca`",
        ),
        (
            "['/none.pem']",
            "chain: \"/none.pem\" cannot be read: No such file or directory; accepted: a file of PEM",
        ),
        ("['site.pem']", "'site.pem' is not a path to a file"),
        ("[]", "tls.certificates: an empty list; accepted: one certificate or more"),
    ] {
        let found = certificates(all);
        assert!(found.contains(expected), "{all}\n{found}\nlacks: {expected}");
        assert!(!found.contains("warning"), "{found}");
    }
    assert!(said("http", "tls = {}").contains("tls.certificates: missing; accepted: a list of"));
}

/// The messages about an API with these lines, which begin at line 4.
fn said_of_api(more: &str) -> String {
    let files: Vec<(&str, &str)> = FILES.iter().map(|(path, text)| (*path, &**text)).collect();
    said_among(&files, &format!("session = []\n[api]\nlisten = '0.0.0.0:9909'\n{more}\n"))
}

fn api_tls(more: &str) -> String {
    format!("tls = {{ certificates = [{SITE}]{more} }}\n")
}

fn api_client(more: &str) -> String {
    format!("[[api.client]]\nname = 'c'\nrole = 'read'\n{more}\n")
}

#[test]
fn tls_options_of_the_api_are_checked_like_a_front_door() {
    let tls = api_tls;
    for fine in
        [tls(", clients = { ca = '/both.pem' }"), format!("allow-remote = true\n{}", tls(""))]
    {
        assert_eq!(said_of_api(&fine), "", "{fine}");
    }
    for (text, expected) in [
        (
            tls(""),
            "f:3:10: api.listen: \"0.0.0.0:9909\" can be reached from other machines, and no",
        ),
        (
            tls(", clients = { ca = '/both.pem', required = false }"),
            "f:3:10: api.listen: \"0.0.0.0:9909\" can be reached from other machines, and no",
        ),
        ("tls = {}".into(), "api.tls.certificates: missing; accepted: "),
        (
            "tls = { certificates = [] }".into(),
            "api.tls.certificates: an empty list; accepted: one",
        ),
        (
            "tls = { certificates = [{ chain = '/site.pem', key = '/rsa.key' }] }".into(),
            "api.tls.certificates[/site.pem].key: \"/rsa.key\" has a key (RSA, 2048 bits) that does not match",
        ),
        (
            "tls = { certificates = [{ chain = '/expired.pem', key = '/site.key' }] }".into(),
            "warning: api.tls.certificates[/expired.pem].chain: \"/expired.pem\" has a certificate",
        ),
        (
            tls(", clients = { ca = '/none.pem' }"),
            "api.tls.clients.ca: \"/none.pem\" cannot be read",
        ),
        (tls(", auto = 'a.example'"), "api.tls.auto: unknown option"),
    ] {
        let found = said_of_api(&text);
        assert!(found.contains(expected), "{text}\n{found}\nlacks: {expected}");
    }
    let files: Vec<(&str, &str)> = FILES.iter().map(|(path, text)| (*path, &**text)).collect();
    let off = said_among(&files, &format!("session = []\n[api]\nlisten = 'off'\n{}", tls("")));
    assert!(
        off.starts_with("f:4:7: warning: api.tls: has no effect: `listen` is \"off\""),
        "{off}"
    );
}

#[test]
fn api_clients_must_state_unique_certificates() {
    let (tls, client) = (api_tls, api_client);
    let clients = tls(", clients = { ca = '/both.pem' }");
    let (subject, hash) = ("subject = 'CN=a'", "ab:".repeat(31) + "ab");
    for fine in [
        format!("{clients}{}", client(subject)),
        format!("{clients}{}", client(&format!("{subject}\nsan = 'a.b'\nsha256 = '{hash}'"))),
    ] {
        assert_eq!(said_of_api(&fine), "", "{fine}");
    }
    for (text, expected) in [
        (
            format!("{}{}", tls(""), client(subject)),
            "f:5:1: api.client.c: clients are not asked for certificates; accepted: with `clients",
        ),
        (
            format!("{clients}{}", client("")),
            "f:5:1: api.client.c: states no certificate; accepted: `subject`, `san` or `sha256`",
        ),
        (
            format!("{clients}{}{}", client(subject), client(subject).replace("'c'", "'d'")),
            "f:9:1: api.client.d: the same certificates as those of `c`, which comes first",
        ),
        (
            format!("{clients}{}{}", client(subject), client("san = 'x'")),
            "\"c\" is in use, on line 6",
        ),
        (
            format!("{clients}{}", client("subject = 'alice'")),
            "'alice' is not a certificate's subject",
        ),
        (
            format!("{clients}{}", client("subject = 'CN = alice, O = Example'")),
            "'CN = alice, O = Example' is not a certificate's subject; accepted: its attributes in",
        ),
        (
            format!("{clients}{}", client("sha256 = 'ab'")),
            "'ab' is not a certificate's fingerprint",
        ),
        (format!("{clients}{}", client("san = 'a b'")), "'a b' is not an alternative name"),
    ] {
        let found = said_of_api(&text);
        assert!(found.contains(expected), "{text}\n{found}\nlacks: {expected}");
    }
}

#[test]
fn every_wrong_certificate_is_reported() {
    let found = certificates("['/none.pem', '/site.pem', '/empty']");
    assert_eq!(found.lines().count(), 3, "{found}");
}

#[test]
fn a_certificate_outside_its_validity_period_causes_a_warning() {
    let of = |chain: &str| certificates(&format!("[{{ chain = '{chain}', key = '/site.key' }}]"));
    let expired = of("/expired.pem");
    assert!(
        expired.starts_with(
            "f:6:35: warning: session[0.0.0.0:443].tls.certificates[/expired.pem].chain: \"/expired.pem\" has a certificate \
             (`www.example.com`) that expired "
        ),
        "{expired}"
    );
    assert!(of("/early.pem").contains("that becomes valid in "), "{}", of("/early.pem"));
}

#[test]
fn a_client_ca_file_must_contain_a_certificate() {
    let of = |ca: &str| {
        said("tcp", &format!("tls = {{ certificates = [{SITE}], clients = {{ ca = '{ca}' }} }}"))
    };
    assert_eq!(of("/both.pem"), "");
    for (ca, expected) in [
        ("/none.pem", "tls.clients.ca: \"/none.pem\" cannot be read"),
        ("/site.key", "tls.clients.ca: \"/site.key\" has no certificate in PEM"),
    ] {
        assert!(of(ca).contains(expected), "{}", of(ca));
    }
}

#[test]
fn options_without_effect_for_the_protocol_are_reported() {
    let tls = format!("tls = {{ certificates = [{SITE}] }}");
    let udp = said("udp", &tls);
    assert!(
        udp.contains("tls: stated, but TLS needs a stream; accepted with http and tcp"),
        "{udp}"
    );
    for protocol in ["tcp", "udp"] {
        let idle = said(protocol, "header-timeout = '5s'");
        assert!(
            idle.contains("warning: session[0.0.0.0:443].header-timeout: has no effect"),
            "{idle}"
        );
    }
}

/// The messages about a pool with this `tls`, for a front door of this protocol.
fn to_backends(protocol: &str, tls: &str) -> String {
    let files: Vec<(&str, &str)> = FILES.iter().map(|(path, text)| (*path, &**text)).collect();
    let text = format!(
        "pool = [{{ name = 'p', backends = ['10.0.0.1:443'], tls = {tls} }}]\n\
         [[session]]\nlisten = '0.0.0.0:80'\nprotocol = '{protocol}'\npool = 'p'\n"
    );
    said_among(&files, &text)
}

#[test]
fn tls_to_backends_is_accepted_for_streams() {
    for fine in [
        "{ ca = '/both.pem' }",
        "{ ca = '/site.pem', server-name = 'app.internal', profile = 'modern' }",
        "{ ca = '/site.pem', server-name = '10.0.0.1', certificate = '/both.pem' }",
        "{ ca = '/site.pem', certificate = '/site.pem', key = '/site.key' }",
    ] {
        for protocol in ["http", "tcp"] {
            assert_eq!(to_backends(protocol, fine), "", "{fine}");
        }
        let udp = to_backends("udp", fine);
        assert!(udp.contains("pool.p.tls: stated, and a front door that speaks udp"), "{udp}");
    }
}

#[test]
fn invalid_tls_options_for_backends_are_reported() {
    for (tls, expected) in [
        ("{ ca = '/none.pem' }", "tls.ca: \"/none.pem\" cannot be read: No such file"),
        ("{ ca = '/empty' }", "tls.ca: \"/empty\" has no certificate in PEM"),
        (
            "{ ca = '/site.pem', certificate = '/site.pem' }",
            "tls.certificate: \"/site.pem\" has no private key in PEM",
        ),
        (
            "{ ca = '/site.pem', certificate = '/site.pem', key = '/rsa.key' }",
            "tls.key: \"/rsa.key\" has a key (RSA, 2048 bits) that does not match",
        ),
        ("{ ca = '/site.pem', key = '/site.key' }", "tls.key: a key without `certificate`"),
        ("{ ca = '/site.pem', server-name = 'a b' }", "'a b' is not a name of a server"),
        (
            "{ ca = '/site.pem', certificate = '/expired.pem', key = '/site.key' }",
            "warning: pool.p.tls.certificate: \"/expired.pem\" has a certificate",
        ),
        ("{ verify = false }", "warning: pool.p.tls.verify: false, so backends are not verified"),
        ("{ verify = false, ca = '/site.pem' }", "warning: pool.p.tls.ca: has no effect"),
    ] {
        let found = to_backends("http", tls);
        assert!(found.contains(expected), "{tls}\n{found}\nlacks: {expected}");
    }
}

#[test]
fn a_redirect_needs_clear_text_and_hsts_needs_tls() {
    let tls = format!("tls = {{ certificates = [{SITE}] }}");
    for (protocol, more, expected) in [
        ("http", "redirect = 'https'".to_string(), None),
        ("http", "redirect = 'https:8443'".to_string(), None),
        ("http", "redirect = 'http'".to_string(), Some("'http' is not a redirect")),
        ("http", "redirect = 'https:0'".to_string(), Some("'https:0' is not a redirect")),
        ("tcp", "redirect = 'https'".to_string(), Some("redirect: has no effect")),
        (
            "http",
            format!("redirect = 'https'\n{tls}"),
            Some("redirect: stated, and clients of this front door use TLS already"),
        ),
        ("http", format!("hsts = {{}}\n{tls}"), None),
        ("http", format!("hsts = {{ preload = true, subdomains = true }}\n{tls}"), None),
        (
            "http",
            format!("hsts = {{ preload = true }}\n{tls}"),
            Some("hsts.preload: true, which browsers accept only with `subdomains`"),
        ),
        ("http", "hsts = {}".to_string(), Some("hsts: stated, but browsers ignore it without TLS")),
    ] {
        let found = said(protocol, &more);
        match expected {
            None => assert_eq!(found, "", "{more}"),
            Some(expected) => {
                assert!(found.contains(expected), "{more}\n{found}\nlacks: {expected}")
            }
        }
    }
}

#[test]
fn http3_needs_a_build_with_http3_and_a_tls_front_door() {
    let tls = format!("tls = {{ certificates = [{SITE}] }}");
    let with_tls = format!("http3 = true\n{tls}");
    if !equipoise_session::HTTP3 {
        let expected = "http3: true, and this build has no HTTP/3: build with --features http3";
        assert!(said("http", &with_tls).contains(expected));
        return;
    }
    assert_eq!(said("http", &with_tls), "");
    assert_eq!(said("http", "http3 = false"), "");
    for (protocol, more, expected) in [
        ("http", "http3 = true".to_string(), "http3: true, and HTTP/3 has no form without TLS"),
        ("tcp", with_tls.clone(), "http3: has no effect"),
        (
            "http",
            format!("accept-proxy = true\ntrusted = '10.0.0.0/8'\n{with_tls}"),
            "http3: true, and QUIC has no PROXY protocol",
        ),
    ] {
        let found = said(protocol, &more);
        assert!(found.contains(expected), "{more}\n{found}\nlacks: {expected}");
    }
}

#[test]
fn sni_routing_needs_a_tcp_front_door_without_tls() {
    let sni = "sni = [{ names = ['a.example', '*.b.example'], pool = 'p' }]";
    assert_eq!(said("tcp", sni), "");
    assert_eq!(said("tcp", &format!("{sni}\nheader-timeout = '5s'")), "");
    let of = |names: &str, pool: &str| {
        said("tcp", &format!("sni = [{{ names = {names}, pool = '{pool}' }}]"))
    };
    for (found, expected) in [
        (said("http", sni), "sni: stated, and this front door is not tcp"),
        (said("udp", sni), "sni: stated, and this front door is not tcp"),
        (
            said("tcp", &format!("{sni}\ntls = {{ certificates = [{SITE}] }}")),
            "sni: stated, and `tls` ends the clients' TLS here",
        ),
        (of("['a.example', 'A.example']", "p"), "\"A.example\" is stated twice"),
        (of("['a.*.example']", "p"), "'a.*.example' is not a host name"),
        (of("['192.0.2.1']", "p"), "'192.0.2.1' is not a host name"),
        (of("['a.example']", "q"), "pool: no pool is named \"q\""),
    ] {
        assert!(found.contains(expected), "{found}\nlacks: {expected}");
    }
}

#[test]
fn tls_terms_of_other_balancers_suggest_the_right_option() {
    let https = said("https", "");
    assert!(https.contains("(did you mean \"http\", and `tls`?)"), "{https}");
    let ssl = said("http", "ssl = true");
    assert!(ssl.contains("unknown option in this version; did you mean `tls`, a table?"), "{ssl}");
}

#[test]
fn a_certificate_without_its_key_names_the_table_that_has_both() {
    let found = certificates("['/site.pem']");
    let expected = "accepted: both in one file, or `{ chain = \"...\", key = \"...\" }`";
    assert!(found.contains("no private key") && found.contains(expected), "{found}");
}

#[test]
fn every_wrong_name_of_a_list_is_reported() {
    let found =
        said("tcp", "sni = [{ names = ['a.*.example', 'b.example', '192.0.2.1', 7], pool = 'p' }]");
    for wrong in ["'a.*.example' is not", "'192.0.2.1' is not", "7 is a whole number"] {
        assert!(found.contains(wrong), "{found}\nlacks: {wrong}");
    }
    assert_eq!(found.lines().count(), 3, "{found}");
}

#[test]
fn tls_in_tls_is_refused() {
    let text = "pool = [{ name = 'p', backends = ['10.0.0.1:80'], tls = { server-name = 'b.example' } }]\n\
                [[session]]\nlisten = '0.0.0.0:443'\nprotocol = 'tcp'\npool = 'p'\n\
                sni = [{ names = ['a.example'], pool = 'p' }]\n";
    let found = said_among(&[], text);
    assert!(found.contains("passes the clients' TLS on"), "{found}");
}

#[test]
fn a_ca_for_a_clear_text_collector_causes_a_warning() {
    let found = |url: &str| {
        let files = [("/ca.pem", "-----BEGIN CERTIFICATE-----")];
        said_among(&files, &format!("[tracing]\notlp = '{url}'\nca = '/ca.pem'\n"))
    };
    let expected = "warning: tracing.ca: has no effect: the URL of the collector is of http";
    assert!(found("http://127.0.0.1:4318").contains(expected));
    assert!(!found("https://127.0.0.1:4318").contains("tracing.ca"));
}

#[test]
fn an_unusable_ocsp_response_is_reported() {
    let with = |ocsp: &str| {
        certificates(&format!("[{{ chain = '/site.pem', key = '/site.key', ocsp = '{ocsp}' }}]"))
    };
    for (file, expected) in [
        ("/none", "\"/none\" cannot be read: No such file or directory; it is not stapled"),
        (
            "/empty",
            "\"/empty\" is not an OCSP response in DER, as `openssl ocsp -respout` writes it",
        ),
    ] {
        let found = with(file);
        let place = "warning: session[0.0.0.0:443].tls.certificates[/site.pem].ocsp: ";
        assert!(found.contains(place) && found.contains(expected), "{found}");
    }
    let wrong = with("site.ocsp");
    assert!(wrong.contains("accepted: a path with a `/` in it, such as"), "{wrong}");
}
