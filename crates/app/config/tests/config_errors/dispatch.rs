//! Messages about wrong `[[dispatch]]` tables, and about unix sockets where they cannot be used.

use std::io;
use std::path::Path;

use std::sync::LazyLock;

use equipoise_config::{FileKind, Surroundings, parse};
use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, IsCa, KeyPair};

/// PEM: an authority's certificate, a certificate for `node-a`, and its key.
static CERTIFICATES: LazyLock<(String, String, String)> = LazyLock::new(|| {
    let mut params = CertificateParams::default();
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    let authority = CertifiedIssuer::self_signed(params, KeyPair::generate().expect("a key"));
    let authority = authority.expect("an authority");
    let key = KeyPair::generate().expect("a key");
    let params = CertificateParams::new(vec!["node-a".to_string()]).expect("a name");
    let certificate = params.signed_by(&key, &authority).expect("a certificate");
    (authority.pem(), certificate.pem(), key.serialize_pem())
});

fn said(text: &str) -> String {
    let read = |file: &Path, _: FileKind| match file.to_str() {
        Some("/good") => Ok("0123456789abcdef\n".to_string()),
        Some("/short") => Ok("0123456789abcde\n".to_string()),
        Some("/empty") => Ok("\n\n".to_string()),
        Some("/pem/ca") => Ok(CERTIFICATES.0.clone()),
        Some("/pem/a") => Ok(CERTIFICATES.1.clone()),
        Some("/pem/a.key") => Ok(CERTIFICATES.2.clone()),
        Some("/open") => Ok("0123456789abcdef\nfedcba9876543210\n".to_string()),
        _ => Err(io::Error::other("No such file or directory")),
    };
    let mode = |file: &Path| Ok(if file == Path::new("/open") { 0o644 } else { 0o600 });
    let around = Surroundings {
        host_name: "node-a".into(),
        api_socket: "/run/s".into(),
        read: &read,
        mode: &mode,
    };
    match parse(text, Path::new("f"), &around) {
        Ok(loaded) => {
            let lines = loaded.warnings.iter().map(|warning| warning.in_file(Path::new("f")));
            lines.collect::<Vec<_>>().join("\n")
        }
        Err(errors) => errors.to_string(),
    }
}

/// A pool on line 1, then a dispatch table. The additional text is line 5.
fn node(more: &str) -> String {
    format!(
        "pool = [{{ name = 'app', backends = ['unix:/run/app.sock'] }}]\n\
         [[dispatch]]\nlisten = '0.0.0.0:80'\npool = 'app'\n{more}\n"
    )
}

/// The place of a part of the text, as messages begin with it.
fn place(text: &str, part: &str) -> String {
    let at = text.find(part).unwrap_or_else(|| panic!("{text}\nlacks: {part}"));
    let line = text[..at].lines().last().filter(|_| !text[..at].ends_with('\n'));
    let column = line.map_or(0, str::len) + 1;
    format!("f:{}:{column}: ", text[..at].matches('\n').count() + 1)
}

/// Checks that a message has this text and begins with the place of `part`.
fn assert_said(text: &str, part: &str, expected: &str) {
    let (found, place) = (said(text), place(text, part));
    let is_it = |line: &str| line.starts_with(&place) && line.contains(expected);
    assert!(found.lines().any(is_it), "{text}\n{found}\nlacks: {place}... {expected}");
}

const PEERS: &str = "peers = [{ node = 'node-a', address = '10.0.0.1:80' }, { node = 'b', address = '10.0.0.2:80' }]";

#[test]
fn a_valid_dispatch_table_loads_without_warnings() {
    for more in [
        format!("secret = '/good'\n{PEERS}"),
        format!(
            "secret = '/good'\nkeep = 0.5\n{PEERS}\nclass = [{{ class = 'light', methods = 'HEAD' }}]"
        ),
    ] {
        assert_eq!(said(&node(&more)), "", "{more}");
    }
}

#[test]
fn send_proxy_is_rejected_in_the_pool_of_a_dispatch_table() {
    let text = node(&format!("secret = '/good'\n{PEERS}"));
    let found = said(&text.replace("name = 'app',", "name = 'app', send-proxy = 'v1',"));
    let expected = "f:1:38: pool.app.send-proxy: a [[dispatch]] front door uses this pool, and a peer's connection carries \
                    requests of many clients; accepted: no `send-proxy`";
    assert!(found.starts_with(expected), "{found}");
}

const TLS: &str = "tls = { certificate = '/pem/a', key = '/pem/a.key', authority = '/pem/ca' }";

#[test]
fn invalid_tls_options_between_peers_are_reported_with_their_place() {
    let with = |more: &str| node(&format!("secret = '/good'\n{PEERS}\n{more}"));
    for fine in
        [TLS.to_string(), format!("{TLS}\npeer-tls = 'accepted'"), "peer-tls = 'off'".into()]
    {
        assert_eq!(said(&with(&fine)), "", "{fine}");
    }
    let rows = [
        (
            "peer-tls = 'required'".to_string(),
            "'required'",
            "peer-tls: this node has no certificate for its peers; accepted: with `tls",
        ),
        ("peer-tls = 'on'".to_string(), "'on'", "accepted: \"required\""),
        (
            format!("{TLS}\npeer-tls = 'off'"),
            "{ certificate",
            "tls: it is not used, since `peer-tls` is \"off\"",
        ),
        (
            "tls = { certificate = '/pem/a', key = '/pem/a.key' }".to_string(),
            "{ certificate",
            "authority",
        ),
        (
            TLS.replace("/pem/ca", "/pem/none"),
            "'/pem/none'",
            "authority: \"/pem/none\" cannot be read",
        ),
        (
            TLS.replace("/pem/ca", "/good"),
            "'/good' }",
            "authority: \"/good\" has no certificate in PEM",
        ),
        (
            TLS.replace("/pem/a.key", "/good"),
            "'/good', authority",
            "key: \"/good\" has no private key in PEM",
        ),
        (
            TLS.replace("'/pem/a'", "'/pem/ca'"),
            "'/pem/ca', key",
            "certificate: \"/pem/ca\" has a certificate for nobody, and this node is `node-a`",
        ),
        (
            format!("{TLS}\n[instance]\nname = 'b'"),
            "'/pem/a', key",
            "a certificate for node-a, and this node is `b`",
        ),
    ];
    for (more, part, expected) in rows {
        assert_said(&with(&more), part, expected);
    }
    let clustered =
        "[cluster]\ncontrollers = ['c:1']\n".to_string() + &node("peer-tls = 'required'");
    assert!(!said(&clustered).contains("peer-tls"), "{}", said(&clustered));
}

#[test]
fn invalid_or_insecure_dispatch_options_are_reported_with_their_place() {
    let rows = [
        (PEERS.to_string(), "[[dispatch]]", "secret: missing, so nothing can be delegated; accepted: a file with a secret"),
        (format!("secret = '/none'\n{PEERS}"), "'/none'", "\"/none\" cannot be read"),
        (format!("secret = '/short'\n{PEERS}"), "'/short'", "\"/short\" has a secret of 15 bytes; accepted: 16 or more"),
        (format!("secret = '/empty'\n{PEERS}"), "'/empty'", "\"/empty\" is empty"),
        (format!("secret = '/open'\n{PEERS}"), "'/open'", "\"/open\" has the mode 0644, so users besides its owner have access to the secret, with which requests can evade delegation; accepted: 0600 (chmod 600 /open)"),
        ("secret = '/good'".to_string(), "[[dispatch]]", "no peers are configured, and there is no cluster"),
        ("secret = '/good'\nkeep = 1.5".to_string(), "1.5", "keep: 1.5 is not a share"),
        (
            "secret = '/good'\npeers = [{ node = 'b', address = '10.0.0.2:80' }, { node = 'c', address = '10.0.0.2:80' }]"
                .to_string(),
            "'10.0.0.2:80' }]",
            "node `b` has this address; accepted: each address once",
        ),
        ("secret = '/good'\npeers = [{ node = 'b', address = 'unix:/x' }]".to_string(), "'unix:/x'", "address"),
        (format!("secret = '/good'\n{PEERS}\nclass = [{{ class = 'heavy' }}]"), "'heavy'", "accepted: \"light\""),
        (
            format!("secret = '/good'\n{PEERS}\n[[dispatch]]\nlisten = '0.0.0.0:81'\npool = 'app'"),
            "[[dispatch]]\nlisten = '0.0.0.0:81'",
            "a second table; accepted: one table",
        ),
        (
            format!("secret = '/good'\n{PEERS}\n[[session]]\nlisten = '0.0.0.0:80'\nprotocol = 'http'\npool = 'app'"),
            "'0.0.0.0:80'\npool",
            "\"0.0.0.0:80\" is in use, on line 8",
        ),
        (
            format!("secret = '/good'\n{PEERS}\n[[session]]\nlisten = '0.0.0.0:53'\nprotocol = 'udp'\npool = 'app'"),
            "'unix:/run/app.sock'",
            "a unix socket, and a front door that speaks udp uses this pool",
        ),
    ];
    for (more, part, expected) in rows {
        assert_said(&node(&more), part, expected);
    }
    let taken = "pool = [{ name = 'app' }, { name = 'app.peers' }]\n[[dispatch]]\nlisten = '0.0.0.0:80'\npool = 'app'\n";
    assert_said(taken, "'app.peers'", "is the name of the pool of the peers of");
}
