//! A file with every table, and what a test needs to read it.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::LazyLock;

use crate::{ConfigErrors, Loaded, Surroundings, parse};

/// A file with every table, in which a test can change any one option.
pub(super) const EVERY_TABLE: &str = r#"
[instance]
[api]
[[api.token]]
name = "t"
role = "operate"
hash = "sha256:0000000000000000000000000000000000000000000000000000000000000000"
[[api.client]]
name = "c"
role = "operate"
subject = "CN=alice"
[api.tls]
[api.tls.clients]
ca = "/authority.crt"
[[api.tls.certificates]]
chain = "/node.crt"
key = "/node.key"
[log]
[tracing]
otlp = "http://127.0.0.1:4318"
[shutdown]
[load]
[[load.links]]
interface = "eth0"
speed = "1Gbit/s"
[controller]
[acme]
terms-agreed = true
[cluster]
[cluster.store]
etcd = "http://10.0.0.1:2379"
[[pool]]
name = "p"
[[pool.backends]]
address = "10.0.0.1:80"
[pool.sticky]
[pool.queue]
[pool.health]
http = "/"
[pool.passive]
[pool.tls]
ca = "/authority.crt"
certificate = "/node.crt"
key = "/node.key"
[pool.elastic]
max = 5
[pool.elastic.process]
ports = "8080-8080"
command = ["/bin/app", "{port}"]
[[pool.elastic.sizes]]
name = "small"
[[pool.elastic.schedule]]
from = "08:00"
to = "18:00"
min = 1
[[session]]
listen = "0.0.0.0:80"
protocol = "http"
pool = "q"
[session.tls]
auto = "a.example"
[session.tls.clients]
ca = "/authority.crt"
[[session.tls.certificates]]
chain = "/node.crt"
key = "/node.key"
[session.hsts]
[[session.route]]
host = "a.example"
[[session.route]]
path = "/rewritten"
[session.route.rewrite]
[session.route.request-headers]
[session.route.response-headers]
[[session.route]]
path = "/split"
[[session.route.pools]]
pool = "q"
weight = 2
[[session.route.pools]]
pool = "u"
[[session.route]]
path = "/redirected"
[session.route.redirect]
to = "/there"
[[session.route]]
path = "/answered"
[session.route.answer]
[[session.route]]
path = "/copied"
[session.route.mirror]
pool = "q"
[[session.route.limit]]
rate = "5/s"
[[session.limit]]
rate = "5/s"
[[session]]
listen = "0.0.0.0:443"
protocol = "tcp"
pool = "u"
[[session.sni]]
names = "a.example"
pool = "u"
[[packet]]
vip = "192.0.2.1:80/tcp"
interface = "eth0"
forward = "gue"
pool = "q"
[[packet]]
vip = "192.0.2.1:443/udp"
interface = "eth0"
forward = "gue"
pool = "q"
[[packet.quic]]
server-id-length = 1
nonce-length = 4
[flows]
[[dispatch]]
listen = "0.0.0.0:81"
pool = "q"
secret = "/y"
[[dispatch.peers]]
node = "y"
address = "10.0.0.9:80"
[[dispatch.class]]
class = "computing"
[dispatch.tls]
certificate = "/node.crt"
key = "/node.key"
authority = "/authority.crt"
[[pool]]
name = "q"
[[pool]]
name = "r"
[pool.elastic]
max = 5
[pool.elastic.exec]
add = "/bin/add"
remove = "/bin/remove"
[[pool]]
name = "s"
[pool.elastic]
max = 5
[pool.elastic.webhook]
add = "http://127.0.0.1/add"
remove = "http://127.0.0.1/remove"
[[dns]]
zone = "cluster.example."
listen = "192.0.2.53:53"
pool = "t"
mode = "ordered"
[[dns.ns]]
name = "ns1"
addresses = "192.0.2.53"
[[dns.nodes]]
backend = "n1"
addresses = "192.0.2.1"
[[dns.names]]
name = "www"
pool = "t"
[nameserver]
[[slice]]
name = "s"
slices = 9
[slice.balancing]
[slice.workers]
[[slice]]
name = "c"
slices = 9
domain = 7
order = "stateful"
[slice.checkpoint]
[[pool]]
name = "u"
[[pool]]
name = "v"
[pool.discover]
[pool.discover.file]
path = "/v.json"
[[pool]]
name = "w"
[pool.discover]
[pool.discover.dns]
name = "w.example"
port = 80
[[pool]]
name = "w1"
[pool.discover]
[pool.discover.http]
url = "http://lists.example/web"
[[pool]]
name = "w2"
[pool.discover]
[pool.discover.etcd]
members = "http://10.0.0.2:2379"
prefix = "services/web"
[[pool]]
name = "w3"
[pool.discover]
[pool.discover.consul]
service = "web"
[[pool]]
name = "w4"
[pool.discover]
[pool.discover.kubernetes]
service = "web"
[[pool]]
name = "t"
backends = [{ name = "n1", address = "10.0.0.2:80" }, { name = "n2", address = "10.0.0.3:80", labels = "a=b" }]
"#;

pub(super) fn outcome(text: &str) -> Result<Loaded, ConfigErrors> {
    let around = Surroundings {
        host_name: "host".into(),
        api_socket: "/run/api.sock".into(),
        read: &|file, _| match file.extension() {
            Some(_) if pem().contains_key(file) => Ok(pem()[file].clone()),
            Some(_) => Ok("text IN TXT \"hello\"\n".into()),
            None => Ok("the-secret-of-this-fleet-and-of-its-API".into()),
        },
        mode: &|_| Ok(0o600),
    };
    parse(text, Path::new("test.toml"), &around)
}

/// Certificates and a key of this host, by path: those of [`EVERY_TABLE`] and others.
fn pem() -> &'static BTreeMap<PathBuf, String> {
    use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, IsCa, KeyPair};
    static PEM: LazyLock<BTreeMap<PathBuf, String>> = LazyLock::new(|| {
        let authority = || {
            let mut params = CertificateParams::default();
            params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
            CertifiedIssuer::self_signed(params, KeyPair::generate().unwrap()).unwrap()
        };
        let (ca, other) = (authority(), authority());
        let key = KeyPair::generate().unwrap();
        let certificate = || {
            let params = CertificateParams::new(["host".into(), "x".into()]).unwrap();
            params.signed_by(&key, &ca).unwrap().pem()
        };
        let both = format!("{}{}", ca.pem(), other.pem());
        [
            ("/node.crt", certificate()),
            ("/other.crt", certificate()),
            ("/quic.key", "8f95f09245765f80256934e50c66207f\n".into()),
            ("/node.key", key.serialize_pem()),
            ("/authority.crt", ca.pem()),
            ("/authorities.crt", both),
        ]
        .map(|(path, text)| (path.into(), text))
        .into()
    });
    &PEM
}

pub(super) fn parsed(text: &str) -> Loaded {
    outcome(text).unwrap_or_else(|errors| panic!("{text}\n{errors}"))
}
