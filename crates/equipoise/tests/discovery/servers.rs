//! `[pool.discover.http]`, `[pool.discover.consul]` and `[pool.discover.kubernetes]`, with a server
//! that speaks as the documentation of each says.

use std::os::unix::fs::PermissionsExt;

use equipoise_testkit::HttpBackend;

use crate::bed::Instance;
use crate::common::Folder;
use crate::scripted::Scripted;

fn start(test: &str, options: &str) -> Instance {
    let folder = Folder::new(test);
    let token = folder.write("token", "the-token\n");
    std::fs::set_permissions(token, std::fs::Permissions::from_mode(0o600)).unwrap();
    Instance::start(test, folder, options)
}

/// Answers in `status`, and requests, while the server fails in several ways.
fn fails_and_keeps(server: &Scripted, instance: &Instance, kept: &[&str], garbage: &str) {
    for (status, body, problem) in [
        (500, "", "answered 500 Internal Server Error"),
        (403, "", "answered 403 Forbidden"),
        (200, "nonsense", garbage),
    ] {
        server.change(status, body);
        instance.has_problem(problem);
        assert_eq!(instance.addresses(), kept, "{problem}");
    }
}

#[test]
fn a_list_at_a_url_is_followed_and_stays_while_the_server_fails() {
    let (a, b) = (HttpBackend::named("a"), HttpBackend::named("b"));
    let (at_a, at_b) = (a.address().to_string(), b.address().to_string());
    let server = Scripted::start(&format!("{{\"backends\": [\"{at_a}\"]}}"));
    let options = format!(
        "[pool.discover.http]\nurl = '{}/list?x=1'\ninterval = '500ms'\ntoken-file = '{{folder}}/token'",
        server.url()
    );
    let instance = start("http-list", &options);
    assert_eq!(instance.ask(), (200, "a".into()));
    server.wait_for(|it| {
        it.head.target() == "/list?x=1"
            && it.head.header("authorization") == Some("Bearer the-token")
    });
    server.change(200, &format!("[{{\"targets\": [\"{at_a}\", \"{at_b}\"], \"labels\": {{}}}}]"));
    instance.has(&[&at_a, &at_b]);
    let mut kept = [&*at_a, &*at_b];
    kept.sort_unstable();
    fails_and_keeps(&server, &instance, &kept, "not JSON");
    server.change(302, "");
    instance.has_problem("answered 302 Found");
    server.change(200, &format!("{{\"backends\": [\"{at_a}\"]{}}}", " ".repeat(5 << 20)));
    instance.has_problem("sent more than 4194304 bytes");
    server.change(200, "{\"backends\": []}");
    instance.has_problem("the source reports no backend");
    instance.folder.write("token", "another\n");
    server.wait_for(|it| it.head.header("authorization") == Some("Bearer another"));
    drop(server);
    instance.has_problem("cannot be reached: Connection refused");
    assert_eq!(instance.addresses(), kept);
    assert_eq!(instance.ask().0, 200);
}

fn instances(backends: &[(&HttpBackend, &str, u32)]) -> String {
    let one = |(backend, id, weight): &(&HttpBackend, &str, u32)| {
        let (ip, port) = (backend.address().ip(), backend.address().port());
        format!(
            "{{\"Node\": {{\"Node\": \"n1\", \"Address\": \"{ip}\", \"Datacenter\": \"dc1\"}},\
              \"Service\": {{\"ID\": \"{id}\", \"Service\": \"web\", \"Tags\": [], \"Address\": \"\", \"Port\": {port},\
              \"Meta\": {{\"zone\": \"a\"}}, \"Weights\": {{\"Passing\": {weight}, \"Warning\": 1}}}}, \"Checks\": []}}"
        )
    };
    format!("[{}]", backends.iter().map(one).collect::<Vec<_>>().join(","))
}

#[test]
fn instances_of_consul_are_followed_by_blocking_queries() {
    let (a, b) = (HttpBackend::named("a"), HttpBackend::named("b"));
    let (at_a, at_b) = (a.address().to_string(), b.address().to_string());
    let server = Scripted::start(&instances(&[(&a, "web-1", 3)]));
    let options = format!(
        "[pool.discover]\nlabels = 'zone=a'\n[pool.discover.consul]\nurl = '{}'\nservice = 'web'\ntag = 'v1'\n\
         datacenter = 'dc1'\ntoken-file = '{{folder}}/token'",
        server.url()
    );
    let instance = start("consul", &options);
    assert_eq!(instance.ask(), (200, "a".into()));
    let backend = instance.pool()["backends"][0].clone();
    assert_eq!((&backend["name"], &backend["weight"]), (&"web-1".into(), &3.into()));
    let path = "/v1/health/service/web?passing=true&tag=v1&dc=dc1";
    server.wait_for(|it| {
        it.head.target() == path && it.head.header("x-consul-token") == Some("the-token")
    });
    server.wait_for(|it| it.head.target() == format!("{path}&index=1&wait=60s"));
    let queries = server.count("index=");
    server.change(200, &instances(&[(&a, "web-1", 3), (&b, "web-2", 1)]));
    instance.has(&[&at_a, &at_b]);
    assert!(server.count("index=") <= queries + 2, "it waits, and does not poll");
    let mut kept = [&*at_a, &*at_b];
    kept.sort_unstable();
    fails_and_keeps(&server, &instance, &kept, "the answer is not that of Consul");
    server.change(200, "[]");
    instance.has_problem("the source reports no backend");
    server.change(200, &instances(&[(&b, "web-2", 1)]));
    instance.has(&[&at_b]);
    instance.has_no_problem();
}

fn slices(endpoints: &[(&HttpBackend, &str, bool)]) -> String {
    let one = |(backend, pod, ready): &(&HttpBackend, &str, bool)| {
        let (ip, port) = (backend.address().ip(), backend.address().port());
        format!(
            "{{\"metadata\": {{\"name\": \"web-{pod}\"}}, \"addressType\": \"IPv4\", \
              \"ports\": [{{\"name\": \"http\", \"port\": {port}}}, {{\"name\": \"admin\", \"port\": 1}}], \
              \"endpoints\": [{{\"addresses\": [\"{ip}\"], \"conditions\": {{\"ready\": {ready}}}, \
              \"targetRef\": {{\"kind\": \"Pod\", \"name\": \"{pod}\"}}}}]}}"
        )
    };
    let items: Vec<_> = endpoints.iter().map(one).collect();
    format!(
        "{{\"kind\": \"EndpointSliceList\", \"metadata\": {{\"resourceVersion\": \"VERSION\"}}, \"items\": [{}]}}",
        items.join(",")
    )
}

#[test]
fn endpoint_slices_are_listed_and_watched() {
    let (a, b) = (HttpBackend::named("a"), HttpBackend::named("b"));
    let (at_a, at_b) = (a.address().to_string(), b.address().to_string());
    let server = Scripted::start(&slices(&[(&a, "pod-1", true), (&b, "pod-2", false)]));
    let options = format!(
        "[pool.discover.kubernetes]\nurl = '{}'\nservice = 'web'\nnamespace = 'shop'\nport = 'http'\n\
         token-file = '{{folder}}/token'",
        server.url()
    );
    let instance = start("kubernetes", &options);
    assert_eq!(instance.ask(), (200, "a".into()), "one that is not ready gets no requests");
    assert_eq!(instance.pool()["backends"][0]["name"], "pod-1");
    let path = "/apis/discovery.k8s.io/v1/namespaces/shop/endpointslices?labelSelector=kubernetes.io%2Fservice-name%3Dweb";
    server.wait_for(|it| {
        it.head.target() == format!("{path}&limit=100")
            && it.head.header("authorization") == Some("Bearer the-token")
    });
    server.wait_for(|it| {
        it.head.target() == format!("{path}&watch=true&resourceVersion=1&timeoutSeconds=60")
    });
    server.change(200, &slices(&[(&a, "pod-1", true), (&b, "pod-2", true)]));
    instance.has(&[&at_a, &at_b]);
    let mut kept = [&*at_a, &*at_b];
    kept.sort_unstable();
    fails_and_keeps(&server, &instance, &kept, "the answer is not a list of EndpointSlices");
    server.change(200, &slices(&[(&b, "pod-2", true)]));
    instance.has(&[&at_b]);
    instance.has_no_problem();
    server.change(200, &slices(&[]));
    instance.has_problem("the source reports no backend");
    assert_eq!(instance.ask(), (200, "b".into()));
}
