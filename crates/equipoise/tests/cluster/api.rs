//! Operators' actions on a cluster over a controller's API, and their lines in the audit log.

use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::path::Path;

use equipoise_testkit::HttpBackend;
use serde_json::{Value, json};

use crate::bed::{Machine, Site, command, reporting, soon};
use crate::common::{Process, equipoise, stderr, stdout, text};

/// Sends a request to a machine's API over its unix socket. Returns status, head and body.
fn ask(machine: &Machine, start: &str, headers: &str, body: &str) -> (u16, String, Value) {
    let mut stream = UnixStream::connect(machine.file.with_extension("sock")).unwrap();
    let length = body.len();
    let request = format!(
        "{start} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\
         Content-Type: application/json\r\nContent-Length: {length}\r\n{headers}\r\n{body}"
    );
    stream.write_all(request.as_bytes()).unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    let (head, body) = answer.split_once("\r\n\r\n").unwrap_or_else(|| panic!("{answer}"));
    let status = head[9..12].parse().unwrap();
    (status, head.to_string(), serde_json::from_str(body).unwrap_or_default())
}

fn audited(file: &Path) -> Vec<Value> {
    let text = std::fs::read_to_string(file).unwrap_or_default();
    text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

/// Waits until the log has a line with the beginning of `who`, and with method, path and outcome.
fn until_noted(log: &Path, (who, method, path, outcome): (&str, &str, &str, &str)) {
    let is_it = |line: &Value| {
        line["who"].as_str().is_some_and(|it| it.starts_with(who))
            && line["method"] == method
            && line["path"] == path
            && line["outcome"] == outcome
    };
    soon(path, || audited(log).iter().any(is_it));
}

/// A controller with its state in a file, and its audit log in another file.
fn controller(site: &Site, backend: &HttpBackend) -> Machine {
    let mut one = site.machine("c1", backend.address(), |machine| {
        format!("name = \"test\"\nstore = {{}}\nlisten = \"{}\"", machine.cluster.address())
    });
    let file = std::fs::read_to_string(&one.file).unwrap();
    let log = format!("[api]\naudit-log = {:?}\n", text(&site.folder.path("audit")));
    std::fs::write(&one.file, file.replace("[api]\n", &log)).unwrap();
    command(&["cluster", "init", "--config", text(&one.file)]);
    one.start();
    one.process().wait_for_text("cluster API");
    one
}

/// The agent `a1`, with a join token.
fn agent(site: &Site, controller: &Machine, token: &str) -> Process {
    let (state, address) = (site.folder.path("a1"), controller.cluster.address());
    let file = site.folder.write(
        "a1.toml",
        &format!(
            "[instance]\nname = \"a1\"\n[cluster]\nstate = {:?}\ncontrollers = \"{address}\"\njoin-token = {token:?}\n",
            text(&state),
        ),
    );
    Process::start(&["agent", text(&file)])
}

/// A controller never joined and cannot be evicted; the error says how to remove it.
fn cannot_be_evicted(one: &Machine) {
    let (status, _, problem) = ask(one, "POST /v1/cluster/nodes/c1/evict", "", "");
    let detail = problem["detail"].as_str().unwrap_or_default();
    assert!(status == 409 && detail.contains("c1 is a controller"), "{problem:#}");
    assert!(detail.contains("remove ca.key from its machine"), "{problem:#}");
    let (status, _, problem) = ask(one, "GET /v1/cluster/nodes/c1", "", "");
    assert!(status == 404 && problem["detail"].as_str().unwrap().contains("is a controller"));
    let (_, _, joined) = ask(one, "GET /v1/cluster/nodes", "", "");
    assert_eq!(joined["controllers"], json!(["c1"]), "{joined:#}");
    let by_command = equipoise(&["cluster", "evict", "c1", "--config", text(&one.file)]);
    let said = stderr(&by_command);
    assert!(!by_command.status.success() && said.contains("c1 is a controller"), "{said}");
    let by_command = equipoise(&["cluster", "evict", "nobody", "--config", text(&one.file)]);
    assert!(stderr(&by_command).contains("no node of that name ever joined"));
}

#[test]
fn the_api_manages_tokens_members_and_evictions_and_audits_changes() {
    let backend = HttpBackend::named("a");
    let Some(site) = Site::new("cluster-api") else { return };
    let one = controller(&site, &backend);
    let (status, _, members) = ask(&one, "GET /v1/cluster/members", "", "");
    assert_eq!((status, &members["cluster"]), (200, &json!("test")), "{members:#}");

    // A node can join with a token that was created over the API.
    let wanted = r#"{"time_to_live_seconds":600,"single_use":true}"#;
    let (status, head, made) = ask(&one, "POST /v1/cluster/tokens", "", wanted);
    assert_eq!(status, 200, "{made:#}");
    assert!(head.to_ascii_lowercase().contains("\r\netag: "), "{head}");
    let (token, id) = (made["token"].as_str().unwrap(), made["listed"]["id"].as_str().unwrap());
    let agent = agent(&site, &one, token);
    agent.wait_for_text("certified for the cluster");
    one.until("both report", |status| reporting(status) == ["a1", "c1"]);
    let (_, _, members) = ask(&one, "GET /v1/cluster/members", "", "");
    let names: Vec<_> = members["members"].as_array().unwrap().iter().map(|m| &m["name"]).collect();
    assert_eq!(names, ["a1", "c1"], "{members:#}");
    let (_, _, tokens) = ask(&one, "GET /v1/cluster/tokens", "", "");
    assert_eq!(
        (&tokens["tokens"][0]["id"], &tokens["tokens"][0]["used_by"]),
        (&json!(id), &json!("a1"))
    );
    let (status, _, left) = ask(&one, &format!("DELETE /v1/cluster/tokens/{id}"), "", "");
    assert_eq!((status, left), (200, json!({ "tokens": [] })));
    let (status, _, problem) = ask(&one, &format!("DELETE /v1/cluster/tokens/{id}"), "", "");
    assert_eq!(status, 404, "{problem:#}");
    let (status, _, problem) =
        ask(&one, "POST /v1/cluster/tokens", "", r#"{"time_to_live_seconds":0}"#);
    assert!(
        status == 422 && problem["detail"].as_str().unwrap().contains("90 days"),
        "{problem:#}"
    );

    cannot_be_evicted(&one);

    // The evict request has the condition that the state is unchanged.
    let evict = "POST /v1/cluster/nodes/a1/evict";
    let (status, ..) = ask(&one, evict, "If-Match: \"0123456789abcdef\"\r\n", "");
    assert_eq!(status, 412);
    let (_, head, joined) = ask(&one, "GET /v1/cluster/nodes/a1", "", "");
    assert_eq!(joined["evicted"], false, "{joined:#}");
    let tag = head.lines().find_map(|line| line.strip_prefix("etag: ")).unwrap();
    let (status, _, evicted) = ask(&one, evict, &format!("If-Match: {tag}\r\n"), "");
    assert_eq!((status, &evicted["evicted"]), (200, &json!(true)), "{evicted:#}");
    agent.wait_for_text("was evicted");

    // The command line uses the cluster API; its requests are in the same log.
    let config = text(&one.file);
    let by_command = command(&["cluster", "token", "create", "--config", config]);
    let listed = command(&["cluster", "token", "list", "--json", "--config", config]);
    let listed: Value = serde_json::from_str(&listed).unwrap();
    let id = listed["tokens"][0]["id"].as_str().unwrap();
    command(&["cluster", "token", "revoke", id, "--config", config]);
    command(&["cluster", "evict", "a1", "--config", config]);
    let log = site.folder.path("audit");
    let expected = [
        ("uid:", "POST", "/v1/cluster/tokens", "done"),
        ("join-token:", "POST", "/cluster/v1/join", "done"),
        ("uid:", "POST", "/v1/cluster/nodes/a1/evict", "refused"),
        ("uid:", "POST", "/v1/cluster/nodes/a1/evict", "done"),
        ("operator:c1", "POST", "/cluster/v1/tokens", "done"),
        ("operator:c1", "DELETE", &format!("/cluster/v1/tokens/{id}"), "done"),
        ("operator:c1", "DELETE", "/cluster/v1/nodes/a1", "done"),
    ];
    expected.into_iter().for_each(|line| until_noted(&log, line));
    let text = std::fs::read_to_string(&log).unwrap();
    for token in [token, by_command.trim()] {
        let secret = token.split('.').nth(2).unwrap();
        assert!(!text.contains(secret), "a token's secret is in the log");
    }
}

#[test]
fn cluster_commands_use_the_api_given_by_the_option() {
    let backend = HttpBackend::named("a");
    let Some(site) = Site::new("cluster-by-api") else { return };
    let one = controller(&site, &backend);
    let socket = one.file.with_extension("sock");
    let api = ["--api", text(&socket)];
    let asked = |args: &[&str]| {
        // Without a file: the machine that runs the command may have none.
        let output = equipoise(&[args, &api].concat());
        assert!(output.status.success(), "{args:?}: {}", stderr(&output));
        stdout(&output)
    };
    let token = asked(&["cluster", "token", "create", "--single-use"]);
    let agent = agent(&site, &one, token.trim());
    agent.wait_for_text("certified for the cluster");
    assert!(asked(&["cluster", "token", "list"]).contains(" used by a1"));
    one.until("both report", |status| reporting(status) == ["a1", "c1"]);
    // The figures of a page may be newer than those of the previous page.
    let words = |page: &str| -> Vec<String> {
        let columns =
            page.lines().filter(|line| line.starts_with("MEMBER") || line.contains("1  "));
        columns.map(|line| line.split_whitespace().take(3).collect::<Vec<_>>().join(" ")).collect()
    };
    let file = ["--config", text(&one.file)];
    soon("both ways show the same", || {
        let shown = words(&asked(&["status", "--cluster"]));
        shown == ["MEMBER KIND STATE", "a1 agent alive", "c1 node alive"]
            && shown == words(&asked(&["cluster", "members"]))
            && shown == words(&command(&[&["status", "--cluster"][..], &file].concat()))
    });
    let members = asked(&["status", "--cluster", "--json"]);
    let members: Value = serde_json::from_str(&members).unwrap();
    assert_eq!(members["controller"], "c1", "{members:#}");
    let listed = asked(&["cluster", "token", "list", "--json"]);
    let listed: Value = serde_json::from_str(&listed).unwrap();
    let id = listed["tokens"][0]["id"].as_str().unwrap();
    assert!(asked(&["cluster", "token", "revoke", id]).contains("is revoked"));
    assert!(asked(&["cluster", "evict", "a1"]).contains("is evicted"));
    assert!(asked(&["cluster", "node", "list"]).contains("evicted"));
    agent.wait_for_text("was evicted");

    // A member that is not a controller refuses, and shows its own knowledge.
    let mut node = site.node("n1", backend.address(), std::slice::from_ref(&one));
    node.start();
    let socket = node.file.with_extension("sock");
    let output = equipoise(&["status", "--cluster", "--api", text(&socket)]);
    let shown = stdout(&output);
    assert!(!output.status.success() && shown.contains("on a controller: "), "{shown}");
    assert!(shown.contains("the node n1 by its own knowledge"), "{shown}");
}

#[test]
fn a_node_refuses_cluster_requests_and_refers_to_a_controller() {
    let backend = HttpBackend::named("a");
    let Some(site) = Site::new("cluster-api-node") else { return };
    let one = controller(&site, &backend);
    let mut node = site.node("n1", backend.address(), std::slice::from_ref(&one));
    node.start();
    let line = format!("run other commands on a controller: {}", one.cluster.address());
    for path in ["members", "tokens", "nodes"] {
        let (status, _, problem) = ask(&node, &format!("GET /v1/cluster/{path}"), "", "");
        let detail = problem["detail"].as_str().unwrap_or_default();
        assert!(status == 404 && detail.ends_with(&line), "{path}: {problem:#}");
    }
}
