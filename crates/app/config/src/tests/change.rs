//! Changes of one option of the file with every table.

use super::every_table::EVERY_TABLE;
use crate::key::Options as _;
use crate::option::{Absent, Kind, Opt, Table};
use crate::tables::{CHECK_TYPES, Health};
use crate::text::show_duration;

/// The line of a limit that nodes may share.
fn counted_together(limit: &Table) -> &'static str {
    if limit.title == "[[session.limit]]" { "by = \"front-door\"" } else { "by = \"route\"" }
}

/// [`EVERY_TABLE`] with one option of a table set to `value`, or in place of one that it excludes.
fn every_table_given(table: &Table, option: &Opt, value: &str) -> String {
    let mut lines: Vec<String> = EVERY_TABLE.lines().map(Into::into).collect();
    let header = lines.iter().position(|line| *line == table.title).expect("every table is there");
    let states_check = |name: &str| CHECK_TYPES.iter().any(|kind| kind.option.name() == name);
    // A check has one type, and a token either `file` or `hash`.
    let replaced = match option.name {
        name if table.title == Health::TABLE.title && states_check(name) => "http",
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
    lines.join("\n")
}

/// [`EVERY_TABLE`] with one option of a table set to `value`, and with what the option needs.
pub(super) fn every_table_with(table: &Table, option: &Opt, value: &str) -> String {
    let mut text = every_table_given(table, option, value);
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
        ("[acme]", "from-controllers") => {
            let node = "[cluster]\ncontrollers = \"c:1\"\n";
            text = text.replace(store, "").replace("[cluster]\n", node);
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

/// A value that is not the default.
pub(super) fn sample(table: &Table, option: &Opt) -> String {
    let default = match option.absent {
        Absent::Default(usual) => usual.toml(),
        _ => String::new(),
    };
    let quoted = |text: &str| format!("\"{text}\"");
    if let Some(text) = route_sample(table, option) {
        return quoted(text);
    }
    match (option.name, &option.kind) {
        ("certificate", _) if table.title != "[cluster.store]" => quoted("/other.crt"),
        ("authority", _) if table.title == "[dispatch.tls]" => quoted("/authorities.crt"),
        ("chain" | "ocsp", _) => quoted("/other.crt"),
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
        "key-file" => "/quic.key",
        "server-ids" => "n1=01",
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
        "auto" | "for-nodes" => "b.example",
        "email" => "a@b.example",
        "grpc" => "a.Service",
        "directory" => "https://ca.example/dir",
        "path" | "path-prefix" | "prefix" | "error-pages" => "/other",
        "url" => "http://10.9.9.9/x",
        "controllers" => "c9.example:9911",
        "advertise" => "c9.example",
        "methods" => "GET",
        "source-addresses" => "192.0.2.7",
        "source-ports" => "20000-30000",
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
