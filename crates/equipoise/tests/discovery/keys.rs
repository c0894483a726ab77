//! `[pool.discover.etcd]`, with a real etcd.

use equipoise_testkit::{Client, EtcdMembers, HttpBackend, eventually};

use crate::bed::Instance;
use crate::common::Folder;

/// # Source
/// RFC 4648, section 4.
fn base64(text: &str) -> String {
    const LETTERS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let mut out = String::new();
    for chunk in text.as_bytes().chunks(3) {
        let bits = chunk.iter().fold(0_u32, |bits, byte| bits << 8 | u32::from(*byte));
        let bits = bits << (8 * (3 - chunk.len()));
        for place in 0..4 {
            let letter = LETTERS[(bits >> (18 - 6 * place)) as usize & 63];
            out.push(if place <= chunk.len() { letter as char } else { '=' });
        }
    }
    out
}

/// Asks the JSON gateway of etcd.
fn ask(etcd: &EtcdMembers, path: &str, body: &str) -> bool {
    let address = etcd.endpoint(0).trim_start_matches("http://").parse().unwrap();
    let request = format!(
        "POST /v3/kv/{path} HTTP/1.1\r\nHost: etcd\r\nContent-Length: {}\r\n\r\n{body}",
        body.len()
    );
    Client::exchange(address, request).is_ok_and(|response| response.status() == 200)
}

fn put(etcd: &EtcdMembers, key: &str, value: &str) {
    let body = format!("{{\"key\": \"{}\", \"value\": \"{}\"}}", base64(key), base64(value));
    assert!(ask(etcd, "put", &body), "{key}");
}

fn delete(etcd: &EtcdMembers, key: &str) {
    assert!(ask(etcd, "deleterange", &format!("{{\"key\": \"{}\"}}", base64(key))), "{key}");
}

/// Waits until it answers: a refused connection would be a panic of the client.
fn wait_until_up(etcd: &EtcdMembers) {
    let address: std::net::SocketAddr =
        etcd.endpoint(0).trim_start_matches("http://").parse().unwrap();
    let is_up = || {
        std::net::TcpStream::connect(address).is_ok()
            && ask(etcd, "range", &format!("{{\"key\": \"{}\"}}", base64("x")))
    };
    assert!(eventually(is_up), "etcd does not answer");
}

#[test]
fn keys_of_etcd_are_followed_and_stay_while_it_is_down() {
    let folder = Folder::new("etcd-data");
    let Some(mut etcd) = EtcdMembers::start(folder.root(), 1, "http", &[]) else { return };
    wait_until_up(&etcd);
    let (a, b) = (HttpBackend::named("a"), HttpBackend::named("b"));
    let (at_a, at_b) = (a.address().to_string(), b.address().to_string());
    put(&etcd, "services/web/a", &at_a);
    put(&etcd, "services/website/x", "10.9.9.9:80");
    let options =
        format!("[pool.discover.etcd]\nmembers = '{}'\nprefix = 'services/web'", etcd.endpoint(0));
    let instance = Instance::start("etcd", Folder::new("etcd"), &options);
    assert_eq!(instance.ask(), (200, "a".into()));
    put(&etcd, "services/web/b", &format!("{{\"address\": \"{at_b}\", \"weight\": 5}}"));
    instance.has(&[&at_a, &at_b]);
    put(&etcd, "services/web/c", "nonsense");
    instance.has_problem("c: \"nonsense\" is not a backend's address");
    delete(&etcd, "services/web/c");
    instance.has_no_problem();
    delete(&etcd, "services/web/a");
    instance.has(&[&at_b]);
    etcd.kill(0);
    instance.has_problem("the store did not answer within 2s");
    assert_eq!(instance.ask(), (200, "b".into()));
    etcd.start_member(0);
    wait_until_up(&etcd);
    put(&etcd, "services/web/a", &at_a);
    instance.has(&[&at_a, &at_b]);
    instance.has_no_problem();
    delete(&etcd, "services/web/a");
    delete(&etcd, "services/web/b");
    instance.has_problem("the source reports no backend");
    assert_eq!(instance.ask().0, 200);
}
