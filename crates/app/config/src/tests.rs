//! Tests of the option tables. Tests of messages are in tests/config_errors/.

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::sync::LazyLock;

use equipoise_session::config::{
    ActiveHealth, Concurrency, FrontDoor, HealthCheck, HttpCheck, PassiveHealth, PoolOptions,
    Protocol,
};
use serde_json::Value;

use super::option::{Absent, Kind, Opt, Table};
use super::text::show_duration;
use super::*;

/// A file with every table, in which a test can change any one option.
const EVERY_TABLE: &str = r#"
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

fn outcome(text: &str) -> Result<Loaded, ConfigErrors> {
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
            ("/node.key", key.serialize_pem()),
            ("/authority.crt", ca.pem()),
            ("/authorities.crt", both),
        ]
        .map(|(path, text)| (path.into(), text))
        .into()
    });
    &PEM
}

fn parsed(text: &str) -> Loaded {
    outcome(text).unwrap_or_else(|errors| panic!("{text}\n{errors}"))
}

/// The line of a limit that nodes may share.
fn counted_together(limit: &Table) -> &'static str {
    if limit.title == "[[session.limit]]" { "by = \"front-door\"" } else { "by = \"route\"" }
}

/// [`EVERY_TABLE`] with one option of a table set to `value`.
fn every_table_with(table: &Table, option: &Opt, value: &str) -> String {
    let mut lines: Vec<String> = EVERY_TABLE.lines().map(Into::into).collect();
    let header = lines.iter().position(|line| *line == table.title).expect("every table is there");
    // A check has one of `tcp`, `http` and `grpc`, and a token either `file` or `hash`.
    let replaced = match option.name {
        "tcp" | "grpc" => "http",
        "file" => "hash",
        name => name,
    };
    let given = format!("{replaced} =");
    let end = lines[header + 1..].iter().position(|line| line.starts_with('['));
    let end = end.map_or(lines.len(), |length| header + 1 + length);
    if let Some(place) = (header + 1..end).find(|&place| lines[place].starts_with(&given)) {
        lines.remove(place);
    }
    lines.insert(header + 1, format!("{} = {value}", option.name));
    let mut text = lines.join("\n");
    // Lines that the option needs, or excludes.
    let (plain, encrypted) = ("\"http://10.0.0.1", "\"https://10.0.0.1");
    let store = "[cluster.store]\netcd = \"http://10.0.0.1:2379\"\n";
    let with = |line: &str| format!("{}\n{line}", table.title);
    match (table.title, option.name) {
        ("[[session]]", "accept-proxy") => {
            text = text.replace(table.title, &with("trusted = \"192.0.2.1\""));
        }
        ("[[session]]", "redirect") => {
            let from = text.find("[session.tls]").expect("a table");
            let to = text.find("[[session.limit]]\n").expect("a table");
            text.replace_range(from..to, "");
        }
        ("[[session.route]]", "sticky") => {
            let pools = "pools = [{ pool = \"q\" }, { pool = \"u\" }]";
            text = text.replacen(table.title, &with(pools), 1);
        }
        ("[session.route.rewrite]", "regex") => {
            text = text.replace(table.title, &with("to = \"/\""));
        }
        ("[session.route.rewrite]", "to") => {
            text = text.replace(table.title, &with("regex = \"x\""));
        }
        (_, "shared") => text = text.replace(table.title, &with(counted_together(table))),
        ("[session.hsts]", "preload") => {
            text = text.replace(table.title, &with("subdomains = true"));
        }
        ("[pool.health]", "grpc") => {
            text = text.replacen("name = \"p\"", "name = \"p\"\nupstream = \"http2\"", 1);
        }
        ("[cluster]", "controllers") => text = text.replace(store, ""),
        ("[cluster]", "join-token" | "join-token-file") => {
            text = text.replace(store, "").replace(table.title, &with("controllers = \"c:1\""));
        }
        ("[pool.discover.etcd]", "authority") => {
            text = text.replace("\"http://10.0.0.2", "\"https://10.0.0.2");
        }
        ("[cluster.store]", "authority") => {
            text = text.replace(plain, encrypted);
        }
        ("[cluster.store]" | "[pool.discover.etcd]", "certificate") => {
            text = text.replace(table.title, &with("key = \"/y\""))
        }
        ("[cluster.store]" | "[pool.discover.etcd]", "key") => {
            text = text.replace(table.title, &with("certificate = \"/y\""));
        }
        ("[cluster.store]" | "[pool.discover.etcd]", "user") => {
            text = text.replace(table.title, &with("password-file = \"/y\""));
        }
        ("[cluster.store]" | "[pool.discover.etcd]", "password-file") => {
            text = text.replace(table.title, &with("user = \"y\""));
        }
        _ => {}
    }
    text
}

/// Calls `see` for every table and option of the file.
fn each_option(table: &'static Table, see: &mut dyn FnMut(&'static Table, &'static Opt)) {
    for option in table.options {
        match option.kind {
            Kind::Table(inner) | Kind::Tables(inner) | Kind::Briefs(inner, _) => {
                each_option(inner, see)
            }
            _ => see(table, option),
        }
    }
}

/// A value that is not the default.
fn sample(table: &Table, option: &Opt) -> String {
    let default = match option.absent {
        Absent::Default(toml) => toml,
        _ => "",
    };
    let quoted = |text: &str| format!("\"{text}\"");
    if let Some(text) = route_sample(table, option) {
        return quoted(text);
    }
    match (option.name, &option.kind) {
        ("certificate", _) if table.title != "[cluster.store]" => quoted("/other.crt"),
        ("authority", _) if table.title == "[dispatch.tls]" => quoted("/authorities.crt"),
        ("chain", _) => quoted("/other.crt"),
        ("ca", _) if !table.title.contains("webhook") => quoted("/authorities.crt"),
        // A zone that is known without tzdata and differs from UTC.
        ("zone", _) if table.title == "[[pool.elastic.schedule]]" => quoted("Etc/Unknown"),
        ("peer-tls", _) => quoted("accepted"),
        ("ejection", _) => quoted("11s"),
        ("ejection-max", _) => quoted("6m"),
        ("command", _) => "[\"/bin/other\", \"{port}\"]".into(),
        ("environment", _) => "[\"A=B\"]".into(),
        ("address", Kind::Text(form)) if form.noun == "an IP address" => quoted("127.0.0.9"),
        ("ports", _) => quoted("9000-9099"),
        ("add" | "remove" | "list", Kind::Text(_)) => quoted("http://127.0.0.1/other"),
        ("add" | "remove" | "list", _) => quoted("/bin/other"),
        ("folder" | "logs" | "token-file" | "ca" | "state", _) => quoted("/x"),
        ("min", _) => "3".into(),
        ("stop", _) => "0.05".into(),
        ("share-max" | "scale-in-rate", _) => "0.5".into(),
        (_, Kind::Number(min, _)) => format!("{:?}", min + 0.125),
        (_, Kind::Flag) => (default != "true").to_string(),
        (_, Kind::Count(min, max)) => {
            if default == max.to_string() { min } else { max }.to_string()
        }
        (_, Kind::CountOr(min, ..)) => min.to_string(),
        (_, Kind::Share) => "0.25".into(),
        (_, Kind::Duration(min, max)) => {
            let min = quoted(&show_duration(*min));
            if default == min { quoted(&show_duration(*max)) } else { min }
        }
        (_, Kind::Size(min, _)) => quoted(&format!("{min}B")),
        ("access-format", _) => quoted("json"),
        (_, Kind::Choice(choices)) => {
            let words = choices.words();
            // The template's front door speaks HTTP, the last protocol.
            let other = words.iter().find(|(word, _)| quoted(word) != default && *word != "http");
            quoted(other.expect("a choice has two words").0)
        }
        ("path", _) if table.title == "[pool.sticky]" => quoted("/x"),
        ("prefix", _) if table.title == "[pool.discover.etcd]" => quoted("x"),
        ("paths", _) => quoted("/x"),
        ("socket" | "file" | "seed-file" | "audit-log", _) => quoted("/x"),
        ("hash", _) => quoted(&format!("sha256:{}", "1".repeat(64))),
        ("listen", _) => quoted("127.0.0.1:1"),
        ("access-log", _) => quoted("/x/y"),
        ("otlp", _) => quoted("http://127.0.0.1:4319"),
        ("service", _) if table.title == "[tracing]" => quoted("x"),
        ("access-fields", _) => quoted("route"),
        ("address", _) => quoted("10.9.9.9:9"),
        ("http", _) => quoted("/other"),
        ("status", Kind::Text(_)) => quoted("204"),
        ("pool", _) if table.title == "[[session.sni]]" => quoted("t"),
        ("pool", _) => quoted("p"),
        ("name" | "host" | "node" | "namespace" | "user" | "server-name", _) => quoted("x"),
        ("join-token", _) => {
            let authority = equipoise_cluster::Fingerprint::of_key(b"an authority's key");
            quoted(&equipoise_cluster::JoinToken::new(authority).reveal())
        }
        ("join-token-file" | "authority" | "certificate" | "key" | "password-file", _) => {
            quoted("/x")
        }
        (name, _) => quoted(other_sample(name)),
    }
}

/// A value of an option of routes with a name that other tables have, too.
fn route_sample(table: &Table, option: &Opt) -> Option<&'static str> {
    let is_header = table.title.ends_with("-headers]");
    match option.name {
        "add" | "set" if is_header => Some("X-A: b"),
        "remove" if is_header => Some("X-A"),
        "to" if table.title.starts_with("[session") => Some("/other"),
        _ => None,
    }
}

fn other_sample(name: &str) -> &'static str {
    match name {
        "accept-mac" => "00:00:5e:00:01:0a",
        "by" | "hash-by" => "header:x-key",
        "subject" => "CN=bob",
        "san" => "x.example",
        "sha256" => "abababababababababababababababababababababababababababababababab",
        "rate" => "7/m",
        "bandwidth" => "3MB/s",
        "cookie" => "stay",
        "etcd" => "http://10.9.9.9:2379",
        "zone" | "mailbox" => "other.example.",
        "zone-file" => "/x.zone",
        "addresses" => "192.0.2.99",
        "backend" | "backends" => "n2",
        "labels" => "a=b",
        "names" => "b.example",
        "redirect" => "https:8443",
        "alpn" => "h2",
        "identity" | "version" => "x",
        "servers" => "10.9.9.9:53",
        "allow" | "deny" | "rate-limit-exempt" | "trusted" => "192.0.2.0/24",
        "forwarded" => "forwarded",
        "statuses" => "503",
        "upgrades" => "h2c",
        "cookie-secrets" => "00112233445566778899aabbccddeeff",
        "secret" => "/z.secret",
        "items" | "replies" | "control" => "rt/x",
        "item-type" | "reply-type" => "my_msgs::msg::dds_::Item_",
        "interfaces" | "peers" => "10.9.9.9",
        "more" => "file:///x.xml",
        "body" => "ready",
        "hedge" => "p95",
        "days" => "tue",
        "from" => "09:15",
        "to" => "17:45",
        "utc-offset" => "+02:00",
        "auto" => "b.example",
        "email" => "a@b.example",
        "grpc" => "a.Service",
        "directory" => "https://ca.example/dir",
        "path" | "path-prefix" | "prefix" | "error-pages" => "/other",
        "url" => "http://10.9.9.9/x",
        "controllers" => "c9.example:9911",
        "advertise" => "c9.example",
        "methods" => "GET",
        "tunnel-source6" => "2001:db8::/64",
        "tunnel-source" => "10.1.0.0/16",
        "seed" => "another secret of the fleet",
        "speed" => "7Mbit/s",
        "interface" | "reply-interface" => "eth9",
        "vip" => "192.0.2.9:80/tcp",
        "members" => "http://10.9.9.9:2379",
        "service" | "tag" | "datacenter" | "port" => "x",
        "path-regex" | "regex" => "^/o(t)her",
        "method" => "PATCH",
        "header" => "X-A: b",
        "query" => "a=b",
        "source" => "192.0.2.0/24",
        "sticky" => "cookie:user",
        "content-type" => "text/html",
        "retry-on" => "502-504",
        _ => panic!("no sample for {name}"),
    }
}

#[test]
fn every_option_changes_the_configuration() {
    let base = parsed(EVERY_TABLE).config;
    each_option(&tables::FILE, &mut |table, option| {
        match (table.title, option.name) {
            // It permits something, and changes nothing by itself.
            (_, "allow-remote" | "terms-agreed") => return,
            // Another key does not match the certificate.
            ("[dispatch.tls]" | "[pool.tls]", "key") => return,
            ("[[session.tls.certificates]]" | "[[api.tls.certificates]]", "key") => return,
            // Each needs the other: the next test has both.
            ("[[slice]]", "key" | "idl") => return,
            // They matter only to names with `labels`, which have their own tests.
            ("[[pool.backends]]", "labels") => return,
            _ => {}
        }
        let mut text = every_table_with(table, option, &sample(table, option));
        if option.name == "audit-log-max" {
            text = text.replace("[api]\n", "[api]\naudit-log = \"/x\"\n");
        }
        let changed = parsed(&text).config;
        assert_ne!(changed, base, "no code reads {} {}", table.title, option.name);
    });
}

#[test]
fn the_key_of_a_stream_and_its_type_change_the_configuration() {
    let with = |key: &str, idl: &str| {
        let own = format!("item-type = 'A', key = '{key}', idl = '{idl}'");
        parsed(&format!("slice = [{{ name = 's', slices = 9, {own} }}]")).config
    };
    let base = with("id", "struct A { long id; string of; };");
    assert_ne!(with("of", "struct A { long id; string of; };"), base);
    assert_ne!(with("id", "struct A { long id; };"), base);
}

#[test]
fn a_value_of_any_type_is_taken_or_named_in_an_error() {
    let values =
        ["1", "-1", "1.5", "true", "'x'", "''", "[]", "[1]", "[[]]", "{}", "{ x = 1 }", "07:32:00"];
    each_option(&tables::FILE, &mut |table, option| {
        for value in values {
            if let Err(errors) = outcome(&every_table_with(table, option, value)) {
                let named = errors.problems.iter().any(|p| p.option.ends_with(option.name));
                assert!(named, "{} = {value}: {errors}", option.name);
            }
        }
    });
}

#[test]
fn a_file_cut_anywhere_is_judged() {
    for end in 0..EVERY_TABLE.len() {
        match outcome(&EVERY_TABLE[..end]) {
            Ok(_) => {}
            Err(errors) => assert!(!errors.problems.is_empty()),
        }
    }
}

#[test]
fn the_defaults_are_those_of_the_levels() {
    assert_eq!(parsed("").config.packet, PacketConfig::default());
    let config = parsed(
        "pool = [{ name = 'p', health = { http = '/' } }]\n\
         session = [{ listen = '0.0.0.0:80', protocol = 'http', pool = 'p' }]\n",
    )
    .config;
    let pool = &config.session.pools[0];
    assert_eq!(pool.scheduler, Default::default());
    assert_eq!(pool.options, PoolOptions::default());
    assert_eq!(pool.passive, PassiveHealth::default());
    assert_eq!(pool.concurrency, Concurrency::Learnt);
    assert_eq!(pool.slow_start, None);
    let check = HealthCheck::Http(HttpCheck::get("/"));
    assert_eq!(pool.health, Some(ActiveHealth { check, ..ActiveHealth::default() }));
    let door = FrontDoor::new("0.0.0.0:80".parse().unwrap(), Protocol::Http, "p");
    assert_eq!(config.session.front_doors, [door]);

    let stream = &parsed("slice = [{ name = 's', slices = 9 }]").config.slices[0];
    assert_eq!(stream.protocol, equipoise_slice::Config::default());
    assert_eq!(stream.policy, equipoise_slice::balance::Policy::default());

    let brief =
        parsed("[[pool]]\nname = 'p'\nhealth = { tcp = true }\nbackends = ['10.0.0.1:80']").config;
    assert_eq!(brief.session.pools[0].health, Some(ActiveHealth::default()));
    assert_eq!(&*brief.session.pools[0].backends[0].name, "10.0.0.1:80");
    assert_eq!(brief.session.pools[0].backends[0].weight, Default::default());
}

#[test]
fn an_empty_file_is_the_default() {
    let loaded = parsed("");
    assert_eq!(loaded.config.session, SessionConfig::default());
    assert_eq!(&*loaded.config.instance.name, "host");
    assert_eq!(loaded.config.operations.api_socket, Path::new("/run/api.sock"));
    assert_eq!(loaded.warnings.len(), 1);
    assert_eq!(Config::default().session, SessionConfig::default());
}

#[test]
fn every_scheduler_has_the_name_that_the_api_gives_it() {
    let mut kinds = BTreeSet::new();
    for (name, kind, _) in tables::SCHEDULER.0 {
        assert_eq!(serde_json::to_value(kind).unwrap(), *name);
        kinds.insert(name);
    }
    assert_eq!(kinds.len(), equipoise_core::SchedulerKind::ALL.len());
}

#[test]
fn bounds_are_in_order_and_hold_the_default() {
    let mut options = 0;
    each_option(&tables::FILE, &mut |table, option| {
        options += 1;
        let name = format!("{} {}", table.title, option.name);
        match option.kind {
            Kind::Count(min, max) | Kind::Size(min, max) => assert!(min < max, "{name}"),
            Kind::Duration(min, max) => assert!(min < max, "{name}"),
            Kind::CountOr(min, max, _) => assert!(min < max, "{name}"),
            _ => {}
        }
        assert!(option.help.ends_with('.'), "{name}: {}", option.help);
        // A default out of bounds panics when its table is read; `every_option_changes...` reads
        // them.
        assert!(EVERY_TABLE.contains(table.title), "{name}");
    });
    assert!(options > 50, "{options} options");
}

#[test]
fn the_reference_page_is_current() {
    let file = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../../docs/reference.md");
    let page = std::fs::read_to_string(&file).unwrap_or_default();
    assert!(
        page == reference::reference(),
        "docs/reference.md is out of date; rewrite it: cargo build && \
         target/debug/equipoise schema --reference > docs/reference.md"
    );
}

/// The example file on the reference page.
fn example() -> &'static str {
    let rest = reference::HEAD.split("```toml\n").nth(1);
    rest.and_then(|rest| rest.split("```").next()).expect("the page begins with an example")
}

#[test]
fn the_reference_page_shows_a_file_that_loads() {
    assert_eq!(parsed(example()).warnings, []);
}

/// Evaluates the part of JSON Schema that `schema` uses, by the specification.
fn accepts(schema: &Value, value: &Value) -> bool {
    let any = |key: &str| {
        let schemas = schema.get(key).and_then(Value::as_array);
        schemas.is_none_or(|schemas| schemas.iter().any(|schema| accepts(schema, value)))
    };
    let typed = match schema.get("type").and_then(Value::as_str) {
        Some("object") => value.is_object(),
        Some("array") => value.is_array(),
        Some("string") => value.is_string(),
        Some("boolean") => value.is_boolean(),
        Some("integer") => value.is_u64(),
        Some("number") => value.is_number(),
        Some(other) => panic!("unknown type {other}"),
        None => true,
    };
    let in_bounds = value.as_f64().is_none_or(|number| {
        number >= schema.get("minimum").and_then(Value::as_f64).unwrap_or(f64::MIN)
            && number <= schema.get("maximum").and_then(Value::as_f64).unwrap_or(f64::MAX)
    });
    let required = schema.get("required").and_then(Value::as_array);
    let members = value.as_object().is_none_or(|object| {
        let known = schema.get("properties");
        let member =
            |(key, value)| known.is_none_or(|k| k.get(key).is_some_and(|s| accepts(s, value)));
        object.iter().all(member)
            && required.is_none_or(|keys| {
                keys.iter().all(|key| object.contains_key(key.as_str().unwrap()))
            })
    });
    let items = schema.get("items").zip(value.as_array());
    let items =
        items.is_none_or(|(schema, array)| array.iter().all(|element| accepts(schema, element)));
    let constant = schema.get("const").is_none_or(|constant| constant == value);
    typed && in_bounds && members && items && constant && any("anyOf") && any("oneOf")
}

#[test]
fn the_schema_accepts_what_loads_and_refuses_what_does_not() {
    let schema = schema::schema();
    let json = |toml: &str| {
        schema::to_json(&toml::de::DeValue::Table(DeTable::parse(toml).unwrap().into_inner()))
    };
    assert!(accepts(&schema, &json(EVERY_TABLE)));
    let file = json(example());
    assert!(accepts(&schema, &file));
    for (pointer, wrong) in [
        ("/pool/0/retries", serde_json::json!(11)),
        ("/pool/0/scheduler", "fastest".into()),
        ("/pool/0/backends/0", 1.into()),
        ("/pool/0/backends/1/weight", serde_json::json!(1001)),
        ("/session/0", serde_json::json!({ "listen": "0.0.0.0:80", "protocol": "http" })),
        ("/pool/0/health", serde_json::json!({ "https": "/" })),
    ] {
        let mut file = file.clone();
        *file.pointer_mut(pointer).unwrap() = wrong;
        assert!(!accepts(&schema, &file), "{pointer}");
    }
}

#[test]
fn a_check_takes_time_in_proportion_to_pools() {
    let file = |count: usize| -> String {
        let one = |number: usize| {
            let port = 1024 + number;
            format!(
                "[[session]]\nlisten = '10.0.0.1:{port}'\nprotocol = 'http'\npool = 'p{number}'\n\
                 [[pool]]\nname = 'p{number}'\nbackends = ['10.0.0.2:{port}']\n\
                 [[pool]]\nname = 'unused{number}'\nbackends = ['10.0.0.2:{port}']\n"
            )
        };
        (0..count).map(one).collect()
    };
    let time_of = |text: &str| {
        equipoise_testkit::cpu_time(|| {
            let said = outcome(text).unwrap();
            assert!(said.warnings.iter().any(|warning| warning.option == "pool.unused0"));
        })
    };
    let (few, many) = (file(100), file(1600));
    let best_of = |text: &str| (0..3).map(|_| time_of(text)).min().unwrap();
    let (few, many) = (best_of(&few), best_of(&many));
    // 16 times as many pools take 256 times as long if each is compared with every other.
    assert!(many < few * 64, "100 pools: {few:?}, 1600 pools: {many:?}");
}
