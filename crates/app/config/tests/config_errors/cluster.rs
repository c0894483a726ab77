//! Messages about `[cluster]`.

use std::io;
use std::path::Path;

use equipoise_cluster::ClusterRole;
use equipoise_config::{ConfigErrors, Loaded, Surroundings, parse};

fn outcome(text: &str) -> Result<Loaded, ConfigErrors> {
    let around = Surroundings {
        host_name: "host".into(),
        api_socket: "/run/api.sock".into(),
        read: &|file, _| match file.to_str() {
            Some("/missing") => Err(io::Error::from(io::ErrorKind::NotFound)),
            _ => Ok("text".into()),
        },
        mode: &|file| match file.to_str() {
            Some("/open") => Ok(0o100644),
            Some("/group") => Ok(0o100640),
            Some("/fifo") => Ok(0o010_644),
            Some("/missing") => Err(io::Error::from(io::ErrorKind::NotFound)),
            _ => Ok(0o100600),
        },
    };
    parse(&format!("[cluster]\n{text}\n"), Path::new("f"), &around)
}

fn role(text: &str) -> ClusterRole {
    outcome(text).unwrap_or_else(|errors| panic!("{text}\n{errors}")).config.cluster.unwrap().role
}

#[test]
fn store_makes_a_controller_and_controllers_make_a_node() {
    assert!(matches!(role("store = {}"), ClusterRole::Controller { etcd: None, .. }));
    let etcd = "store = { etcd = ['https://e1:2379', 'https://e2:2379'], authority = '/ca.pem' }";
    let ClusterRole::Controller { etcd: Some(etcd), .. } = role(etcd) else { panic!("{etcd}") };
    assert_eq!(etcd.endpoints.len(), 2);
    let node = role("controllers = ['c1:9911', '[2001:db8::1]:9911']\njoin-token-file = '/t'");
    let ClusterRole::Node { controllers, token: Some(_) } = node else { panic!("{node:?}") };
    assert_eq!(controllers.len(), 2);
}

#[test]
fn cluster_members_that_serve_no_backend_load_without_warnings() {
    let plans = "store = {}\nadvertise = ['c1']\n[[session]]\nlisten = '127.0.0.1:80'\nprotocol = 'http'\npool = 'p'\n\
                 [[pool]]\nname = 'p'\n[pool.elastic]\nmax = 3";
    for file in ["controllers = 'c1:9911'", "store = {}\nadvertise = ['c1']", plans] {
        let loaded = outcome(file).unwrap_or_else(|errors| panic!("{file}\n{errors}"));
        let warnings: Vec<_> = loaded.warnings.iter().map(|it| it.text.clone()).collect();
        assert!(warnings.is_empty(), "{file}\n{warnings:?}");
    }
}

#[test]
fn contradictory_or_invalid_cluster_options_are_rejected() {
    let token = "eqp1.0123456789.AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA.\
                 AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA";
    let rows = [
        ("", "f:1:1: cluster: neither `store` nor `controllers`"),
        (
            "store = {}\ncontrollers = 'c1:9911'",
            "f:3:15: cluster.controllers: `store` is set too, which makes this a controller",
        ),
        (
            "store = {}\njoin-token-file = '/t'",
            "f:3:19: cluster.join-token-file: is for nodes, and `store` makes this a controller",
        ),
        (
            "controllers = 'c1:9911'\nlisten = '0.0.0.0:9911'",
            "f:3:10: cluster.listen: is for controllers, and `controllers` makes this a node",
        ),
        ("controllers = []", "cluster.controllers: an empty list"),
        ("controllers = ['c1:1', 'c1:1']", "\"c1:1\" is listed twice"),
        ("controllers = 'c1'", "cluster.controllers: 'c1' is not a controller's address"),
        (
            "controllers = 'c1:1'\njoin-token = 'x'",
            "cluster.join-token: 'x' is not a join token; accepted: the line that",
        ),
        (
            &format!("controllers = 'c1:1'\njoin-token = '{token}'\njoin-token-file = '/t'"),
            "cluster.join-token-file: `join-token` is given too; accepted: one of the two",
        ),
        ("store = { etcd = 'e1:2379' }", "'e1:2379' is not the URL of an etcd member"),
        (
            "store = { etcd = ['http://e1:2379', 'https://e2:2379'], authority = '/a' }",
            "some are http and some https",
        ),
        ("store = { etcd = 'https://e1:2379' }", "https needs the certificate of etcd's authority"),
        (
            "store = { etcd = 'http://e1:2379', authority = '/a' }",
            "cluster.store.authority: the URLs are http, which is not encrypted",
        ),
        (
            "store = { etcd = 'http://e1:2379', user = 'u' }",
            "cluster.store.user: is given without `password-file`; accepted: both or neither",
        ),
        (
            "store = { etcd = 'https://e1:2379', authority = '/missing' }",
            "cluster.store.authority: \"/missing\" cannot be read",
        ),
    ];
    for (text, said) in rows {
        let errors = outcome(text).unwrap_err().to_string();
        assert!(errors.contains(said), "{text}\n{errors}\nlacks {said}");
    }
}

#[test]
fn secret_files_readable_by_other_users_cause_a_warning() {
    let warned = |text: &str| {
        let loaded = outcome(text).unwrap_or_else(|errors| panic!("{text}\n{errors}"));
        loaded.warnings.iter().map(|it| it.in_file(Path::new("f"))).collect::<Vec<_>>().join("\n")
    };
    let node = |file: &str| format!("controllers = 'c1:1'\njoin-token-file = '{file}'");
    let etcd = |more: &str| {
        format!(
            "store = {{ etcd = 'https://e1:2379', authority = '/ca', {more} }}\nadvertise = ['c1']"
        )
    };
    let key = |file: &str| etcd(&format!("certificate = '/open', key = '{file}'"));
    let password = |file: &str| etcd(&format!("user = 'u', password-file = '{file}'"));
    // A missing file was used before; a group may share files other than keys.
    let fine = [node("/missing"), node("/group"), key("/t"), password("/group")];
    for file in fine {
        assert_eq!(warned(&file), "", "{file}");
    }
    assert_eq!(
        warned(&node("/open")),
        "f:3:19: warning: cluster.join-token-file: \"/open\" has the mode 0644, so users besides its owner and group \
         have access to the join token; accepted: 0600 or 0640 (chmod o-rwx,g-w /open)"
    );
    assert_eq!(
        warned(&node("/fifo")),
        "f:3:19: warning: cluster.join-token-file: \"/fifo\" is not a regular file, so the join token cannot be read \
         from it; accepted: a regular file (not a FIFO, a device or a directory)"
    );
    for (file, said) in [
        (
            key("/group"),
            "cluster.store.key: \"/group\" has the mode 0640, so users besides its owner have access to the key",
        ),
        (key("/open"), "accepted: 0600 (chmod 600 /open)"),
        (password("/open"), "cluster.store.password-file: \"/open\" has the mode 0644"),
    ] {
        assert!(warned(&file).contains(said), "{file}\n{}", warned(&file));
    }
}

#[test]
fn debug_output_of_the_configuration_omits_secrets() {
    let secret = "AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA";
    let loaded =
        outcome(&format!("controllers = 'c1:1'\njoin-token = 'eqp1.0123456789.{secret}.{secret}'"));
    let shown = format!("{:?}", loaded.unwrap());
    assert!(shown.contains("0123456789") && !shown.contains(secret), "{shown}");
}
