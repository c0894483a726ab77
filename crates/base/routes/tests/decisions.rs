//! Decisions of a table, beside a look at every route.

use std::net::{IpAddr, Ipv4Addr};

use equipoise_routes::{
    Conditions, FieldCondition, HostCondition, PathCondition, RequestParts, Source, Table, Unmet,
    normal,
};
use proptest::prelude::*;

/// A request as a client sends it: the path is not in its normal form yet.
#[derive(Clone, Debug)]
struct Sent {
    method: &'static str,
    host: String,
    path: String,
    query: String,
    source: IpAddr,
    headers: Vec<(String, String)>,
}

impl Sent {
    fn get(host: &str, target: &str) -> Sent {
        let (path, query) = target.split_once('?').unwrap_or((target, ""));
        Sent {
            method: "GET",
            host: host.into(),
            path: path.into(),
            query: query.into(),
            source: Ipv4Addr::new(192, 0, 2, 1).into(),
            headers: Vec::new(),
        }
    }

    fn with<T>(&self, look: impl FnOnce(&RequestParts<'_>) -> T) -> T {
        let path = normal::path(self.path.as_bytes()).expect("a path");
        look(&RequestParts {
            method: self.method,
            host: self.host.as_bytes(),
            path: &path,
            query: self.query.as_bytes(),
            source: self.source,
            headers: &&self.headers[..],
        })
    }
}

fn hosts(texts: &[&str]) -> Vec<HostCondition> {
    texts.iter().map(|text| text.parse().expect("a host")).collect()
}

fn prefix(text: &str) -> PathCondition {
    PathCondition::prefix(text).expect("a path")
}

fn exact(text: &str) -> PathCondition {
    PathCondition::exact(text).expect("a path")
}

fn regex(text: &str) -> PathCondition {
    PathCondition::Regex(text.parse().expect("an expression"))
}

fn table(routes: Vec<Conditions>) -> Table {
    Table::new(routes).expect("it is small")
}

fn of_paths(paths: Vec<PathCondition>) -> Conditions {
    Conditions { paths, ..Conditions::default() }
}

fn decided(table: &Table, sent: &Sent) -> Option<usize> {
    sent.with(|request| table.decide(request))
}

#[test]
fn the_first_route_in_the_files_order_is_taken() {
    let table = table(vec![
        of_paths(vec![exact("/api/health")]),
        of_paths(vec![regex("^/api/v[0-9]+/admin")]),
        of_paths(vec![prefix("/api")]),
        of_paths(vec![exact("/api/v2/users")]),
        of_paths(vec![regex("[.](png|jpg)$")]),
        of_paths(vec![prefix("/")]),
    ]);
    for (path, route) in [
        ("/api/health", 0),
        ("/api/v1/admin/x", 1),
        ("/api", 2),
        ("/api/", 2),
        ("/api/v2/users", 2),
        ("/api/logo.png", 2),
        ("/apis", 5),
        ("/logo.png", 4),
        ("/", 5),
    ] {
        assert_eq!(decided(&table, &Sent::get("a.example", path)), Some(route), "{path}");
    }
}

#[test]
fn no_spelling_of_a_path_or_host_avoids_a_route() {
    let guarded = Conditions {
        hosts: hosts(&["app.example", "*.internal.example"]),
        paths: vec![prefix("/admin")],
        ..Conditions::default()
    };
    let table = table(vec![guarded, Conditions::default()]);
    for host in [
        "app.example",
        "APP.example",
        "app.example:8080",
        "app.example.",
        "App.Example.:80",
        "a.internal.example",
        "b.A.internal.example:1",
    ] {
        for path in [
            "/admin",
            "/admin/",
            "/admin/x",
            "//admin",
            "/./admin",
            "/x/../admin",
            "/%61dmin",
            "/x/%2e%2e/admin",
            "/x/.%2E//admin/y",
            "/../admin",
        ] {
            assert_eq!(decided(&table, &Sent::get(host, path)), Some(0), "{host} {path}");
        }
    }
    for (host, path) in [
        ("internal.example", "/admin"),
        ("xinternal.example", "/admin"),
        (".internal.example", "/admin"),
        ("app.example.evil", "/admin"),
        ("app.example", "/administrator"),
        ("app.example", "/Admin"),
        ("app.example", "/admin/.."),
        ("", "/admin"),
    ] {
        assert_eq!(decided(&table, &Sent::get(host, path)), Some(1), "{host} {path}");
    }
}

#[test]
fn every_condition_has_to_be_met() {
    let header = |text| FieldCondition::header(text).expect("a header");
    let query = |text| FieldCondition::query(text).expect("a parameter");
    let conditions = Conditions {
        methods: vec!["GET".into(), "HEAD".into()],
        headers: vec![header("X-Canary: yes"), header("Cookie: ~(^|; )beta=[0-9]+")],
        query: vec![query("v=2"), query("debug")],
        sources: vec![Source::new(Ipv4Addr::new(192, 0, 2, 0).into(), 24)],
        ..Conditions::default()
    };
    let table = table(vec![conditions]);
    let whole = Sent {
        headers: vec![
            ("x-CANARY".into(), "no".into()),
            ("X-Canary".into(), "yes".into()),
            ("cookie".into(), "a=b; beta=7".into()),
        ],
        ..Sent::get("a.example", "/?debug&%76=%32")
    };
    let why = |sent: &Sent| sent.with(|request| table.explain(request).remove(0));
    assert_eq!(why(&whole), None);
    let mapped = "::ffff:192.0.2.7".parse().expect("an address");
    for (sent, mismatch) in [
        (Sent { method: "POST", ..whole.clone() }, Some(Unmet::Method)),
        (Sent { headers: vec![], ..whole.clone() }, Some(Unmet::Header("x-canary".into()))),
        (Sent { query: "v=22&debug".into(), ..whole.clone() }, Some(Unmet::Query("v".into()))),
        (Sent { query: "v=2".into(), ..whole.clone() }, Some(Unmet::Query("debug".into()))),
        (Sent { source: Ipv4Addr::new(192, 0, 3, 1).into(), ..whole.clone() }, Some(Unmet::Source)),
        (Sent { source: mapped, ..whole.clone() }, None),
    ] {
        assert_eq!(why(&sent), mismatch);
        assert_eq!(decided(&table, &sent), mismatch.is_none().then_some(0));
    }
}

#[test]
fn a_route_behind_one_that_takes_all_of_its_requests_is_hidden() {
    let header = |text| FieldCondition::header(text).expect("a header");
    let on = |host: &[&str], paths: Vec<PathCondition>| Conditions {
        hosts: hosts(host),
        paths,
        ..Conditions::default()
    };
    let table = table(vec![
        on(&["*.example.com"], vec![prefix("/api")]),
        on(&["a.example.com", "b.c.example.com"], vec![exact("/api/x"), prefix("/api/y")]),
        on(&["a.example.com"], vec![exact("/x")]),
        on(&["a.example.com", "example.com"], vec![prefix("/api")]),
        Conditions { headers: vec![header("X-A")], ..Conditions::default() },
        Conditions { headers: vec![header("x-a: 1"), header("X-B")], ..Conditions::default() },
        of_paths(vec![prefix("/")]),
        of_paths(vec![regex("x")]),
        Conditions::default(),
        Conditions::default(),
    ]);
    assert_eq!(table.hidden(), [(1, 0), (5, 4), (7, 6), (9, 8)]);
}

#[test]
fn the_longest_prefix_is_the_one_to_rewrite() {
    let table = table(vec![of_paths(vec![prefix("/a"), prefix("/a/b/"), exact("/x")])]);
    for (path, prefix) in [("/a/c", "/a"), ("/a/b/c", "/a/b"), ("/a/bc", "/a"), ("/x", "")] {
        assert_eq!(table.prefix_of(0, path.as_bytes()), prefix, "{path}");
    }
}

/// Words that meet and miss each other's conditions often.
fn word() -> impl Strategy<Value = String> {
    prop::sample::select(vec!["a", "b", "ab", "a.b", "%61", "..", ".", ""]).prop_map(String::from)
}

fn sent_path() -> impl Strategy<Value = String> {
    prop::collection::vec(word(), 0..4).prop_map(|words| format!("/{}", words.join("/")))
}

fn normal_path() -> impl Strategy<Value = String> {
    sent_path().prop_map(|path| {
        let path = normal::path(path.as_bytes()).expect("a path").into_owned();
        String::from_utf8(path).expect("text")
    })
}

fn host() -> impl Strategy<Value = String> {
    let label = prop::sample::select(vec!["a", "b", "ab"]);
    prop::collection::vec(label, 1..4).prop_map(|labels| labels.join("."))
}

fn host_condition() -> impl Strategy<Value = HostCondition> {
    (host(), any::<bool>()).prop_map(|(host, is_wildcard)| {
        let text = if is_wildcard { format!("*.{host}") } else { host };
        text.parse().expect("a host")
    })
}

fn path_condition() -> impl Strategy<Value = PathCondition> {
    let expressions = vec!["^/a", "b$", "/a/", "^/$", "a+b"];
    prop_oneof![
        normal_path().prop_map(|path| exact(&path)),
        normal_path().prop_map(|path| prefix(&path)),
        prop::sample::select(expressions).prop_map(regex),
    ]
}

fn conditions() -> impl Strategy<Value = Conditions> {
    let fields = |is_header| {
        let text = prop::sample::select(vec![("a", "1"), ("a", "~2"), ("b", ""), ("c", "1")]);
        prop::collection::vec(text, 0..2).prop_map(move |fields: Vec<(&str, &str)>| {
            let read = |(name, value): &(&str, &str)| match (is_header, value.is_empty()) {
                (true, true) => FieldCondition::header(name),
                (true, false) => FieldCondition::header(&format!("{name}: {value}")),
                (false, true) => FieldCondition::query(name),
                (false, false) => FieldCondition::query(&format!("{name}={value}")),
            };
            fields.iter().map(|field| read(field).expect("a field")).collect::<Vec<_>>()
        })
    };
    let method = prop::sample::select(vec!["GET", "POST"]).prop_map(String::from);
    let source = (0u8..4, 28u8..33)
        .prop_map(|(last, length)| Source::new(Ipv4Addr::new(192, 0, 2, last).into(), length));
    (
        prop::collection::vec(host_condition(), 0..3),
        prop::collection::vec(path_condition(), 0..3),
        prop::collection::vec(method, 0..2),
        fields(true),
        fields(false),
        prop::collection::vec(source, 0..2),
    )
        .prop_map(|(hosts, paths, methods, headers, query, sources)| Conditions {
            hosts,
            paths,
            methods,
            headers,
            query,
            sources,
        })
}

fn sent() -> impl Strategy<Value = Sent> {
    let pair =
        (prop::sample::select(vec!["a", "b", "c"]), prop::sample::select(vec!["1", "2", ""]));
    let pairs = || prop::collection::vec(pair.clone(), 0..3);
    let method = prop::sample::select(vec!["GET", "POST"]);
    (method, host(), sent_path(), pairs(), pairs(), 0u8..4).prop_map(
        |(method, host, path, headers, query, last)| Sent {
            method,
            host,
            path,
            query: query.iter().map(|(n, v)| format!("{n}={v}")).collect::<Vec<_>>().join("&"),
            source: Ipv4Addr::new(192, 0, 2, last).into(),
            headers: headers.iter().map(|(n, v)| (n.to_string(), v.to_string())).collect(),
        },
    )
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 2_000, ..ProptestConfig::default() })]

    #[test]
    fn a_decision_is_that_of_a_look_at_every_route(
        routes in prop::collection::vec(conditions(), 0..12),
        requests in prop::collection::vec(sent(), 1..20),
    ) {
        let table = table(routes);
        let hidden: Vec<usize> = table.hidden().iter().map(|(route, _)| *route).collect();
        for sent in requests {
            let first = sent.with(|request| table.explain(request).iter().position(Option::is_none));
            prop_assert_eq!(decided(&table, &sent), first);
            prop_assert!(first.is_none_or(|route| !hidden.contains(&route)));
        }
    }

    #[test]
    fn the_normal_form_is_stable_and_below_the_root(path in "/[a/.%25;e]{0,12}") {
        if let Ok(once) = normal::path(path.as_bytes()) {
            let twice = normal::path(&once).map(|path| path.into_owned());
            prop_assert_eq!(twice.as_deref(), Ok(&*once));
            prop_assert!(once.starts_with(b"/"));
            let parts = once.split(|byte| *byte == b'/');
            prop_assert!(parts.into_iter().all(|part| part != b"." && part != b".."));
        }
    }
}
