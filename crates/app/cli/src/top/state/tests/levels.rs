//! The tabs of the levels beside HTTP, and the requests of actions on nodes and workers.

use equipoise_api::client::{Client, Endpoint};
use equipoise_api::wire::plan::NodeStatus;
use equipoise_api::wire::slice::StreamStatus;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpListener;

use super::*;

/// The tab with this title, at two sizes: its table.
fn tables(mut state: State, title: &str) -> [Vec<String>; 2] {
    let tabs = state.tabs();
    let at = tabs.iter().position(|tab| tab.title() == title).expect("the process has the level");
    keys(&mut state, &(at + 1).to_string());
    [(80, 24), (140, 40)].map(|(columns, rows)| {
        let shown = page(&mut state, columns, rows);
        assert!(shown[4].contains(&format!("{} {title}", at + 1)), "{}", shown[4]);
        shown[5..].iter().take_while(|line| !line.is_empty()).cloned().collect()
    })
}

fn of_status(changes: &Value) -> State {
    State::new(reading(status(&three(), changes)))
}

fn names() -> Value {
    let backend = |pool: &str, name: &str, state: &str, share: f64, addresses: &[&str]| {
        json!({ "pool": pool, "name": name, "state": state, "share": share,
            "addresses": addresses })
    };
    json!({ "dns": {
        "listen": ["0.0.0.0:53/udp"], "zones": ["example.org"], "generation": 1,
        "names": [
            { "name": "www.example.org", "mode": "pair", "ttl_seconds": 30, "fail_open": false,
              "backends": [
                backend("web", "b1", "serving", 0.625, &["192.0.2.1", "2001:db8::1"]),
                backend("web", "b2", "draining", 0.0, &["192.0.2.2"]),
                backend("web", "b3", "down", 0.0, &["192.0.2.3"]),
            ] },
            { "name": "api.example.org", "mode": "single", "ttl_seconds": 5, "fail_open": true,
              "backends": [backend("api", "a1", "unhealthy", 1.0, &["192.0.2.9"])] },
        ],
        "answers": [
            { "pool": "web", "backend": "b1", "answers_total": 1234 },
            { "pool": "web", "backend": "b2", "answers_total": 7 },
        ],
        "queries": {}, "types": {}, "rcodes": {}, "modes": {}, "drops": {}, "notes": {},
        "connections_open": 0, "connections_total": 0, "sources_known": 0, "latency": [],
        "latency_seconds_sum": 0.0, "top_resolvers": [],
    } })
}

#[test]
fn names_have_their_backends_shares_and_answers() {
    let [narrow, wide] = tables(of_status(&names()), "DNS");
    let expected = [
        "NAME             BACKEND  STATE       SHARE  ANSWERS  MODE    WHY",
        "api.example.org  api/a1   unhealthy   100 %        0  single  no backend serves…",
        "www.example.org  web/b2   draining      0 %        7  pair",
        "www.example.org  web/b3   down          0 %        0  pair",
        "www.example.org  web/b1   serving    62.5 %     1234  pair",
    ];
    assert_eq!(narrow, expected, "{narrow:#?}");
    let expected = [
        "NAME             BACKEND  STATE       SHARE  ANSWERS   TTL  MODE    ADDRESSES               WHY",
        "api.example.org  api/a1   unhealthy   100 %        0   5 s  single  192.0.2.9               \
         no backend serves, so answers have some that do…",
        "www.example.org  web/b2   draining      0 %        7  30 s  pair    192.0.2.2",
        "www.example.org  web/b3   down          0 %        0  30 s  pair    192.0.2.3",
        "www.example.org  web/b1   serving    62.5 %     1234  30 s  pair    192.0.2.1, 2001:db8::1",
    ];
    assert_eq!(wide, expected, "{wide:#?}");
}

#[test]
fn a_row_of_a_name_changes_the_backend_of_its_pool() {
    let mut state = of_status(&names());
    keys(&mut state, "1jjj");
    let row = state.row().expect("a row is selected").clone();
    let shown = (row.id.as_str(), row.question.as_str());
    assert_eq!(shown, ("www.example.org web/b1", "name www.example.org"));
    let Effect::Perform(action) = keys(&mut state, "dy") else { panic!("it is performed") };
    assert_eq!(action.command, "equipoise drain web/b1");
    // The pool of the first row is not one of this process.
    state.key(Key::Home);
    keys(&mut state, "d");
    assert_eq!(page(&mut state, 80, 24)[22], "nothing in this row can be changed");
}

#[test]
fn vips_have_their_backends_flows_and_traffic() {
    let backend = |name: &str, address: &str, changes: Value| {
        let mut backend = json!({
            "name": name, "address": address, "state": "up", "listed": true, "reachable": true,
            "flows": 0, "flows_closing": 0, "packets_total": 0, "bytes_total": 0, "drops_total": 0,
        });
        backend.as_object_mut().unwrap().extend(changes.as_object().unwrap().clone());
        backend
    };
    let backends = [
        backend(
            "b1",
            "10.0.0.1:443",
            json!({ "flows": 1500, "flows_closing": 40,
            "packets_total": 12_400, "bytes_total": 2_000_000_000 }),
        ),
        backend(
            "b2",
            "10.0.0.2:443",
            json!({ "state": "draining", "flows": 12,
            "flows_closing": 5, "packets_total": 4000, "bytes_total": 3_100_000 }),
        ),
        backend("b3", "10.0.0.3:443", json!({ "state": "gone", "detail": "connection refused" })),
        backend(
            "b4",
            "10.0.0.4:443",
            json!({ "reachable": false, "flows": 3,
            "packets_total": 1, "bytes_total": 60 }),
        ),
    ];
    let state = of_status(&json!({ "packet": {
        "interfaces": [], "flows": 1515, "flows_max": 100_000, "flows_not_learnt_total": 0,
        "flows_moved_total": 0, "pins": 0, "pins_max": 0, "pins_full_total": 0, "pending": 0,
        "publications_total": 1, "published_seconds_ago": 1.0, "registry_bytes": 0,
        "kernel_bytes": 0, "drops": {}, "notes": {},
        "vips": [{ "vip": "192.0.2.10:443/tcp", "pool": "web", "forward": "nat",
            "scheduler": "maglev", "key": "connection", "phase": "steady", "flows": 1515,
            "packets_total": 16_401, "bytes_total": 2_003_100_060, "decisions": {}, "drops": {},
            "notes": {}, "backends": backends }],
    } }));
    let [narrow, wide] = tables(state, "Packet");
    let expected = [
        "VIP                 BACKEND  STATE     FLOWS  CLOSING  PACKETS  WHY",
        "192.0.2.10:443/tcp  b3       gone          0        0        0  connection refu…",
        "192.0.2.10:443/tcp  b4       up            3        0        1  the MAC address…",
        "192.0.2.10:443/tcp  b2       draining     12        5     4000",
        "192.0.2.10:443/tcp  b1       up         1500       40    12.4k",
    ];
    assert_eq!(narrow, expected, "{narrow:#?}");
    let expected = [
        "VIP                 BACKEND  STATE     FLOWS  CLOSING  PACKETS  BYTES  ADDRESS       WHY",
        "192.0.2.10:443/tcp  b3       gone          0        0        0      0  10.0.0.3:443  connection refused",
        "192.0.2.10:443/tcp  b4       up            3        0        1     60  10.0.0.4:443  \
         the MAC address of the next hop is not known",
        "192.0.2.10:443/tcp  b2       draining     12        5     4000   3.1M  10.0.0.2:443",
        "192.0.2.10:443/tcp  b1       up         1500       40    12.4k     2G  10.0.0.1:443",
    ];
    assert_eq!(wide, expected, "{wide:#?}");
}

#[test]
fn classes_of_a_front_door_have_kept_shares_and_an_overload_first() {
    let mut delegating = status(&three(), &json!({}));
    let classes = json!({ "planned": true, "returned_total": 0, "markers_refused_total": 0,
        "classes": [
            { "class": "light", "keep": 0.75, "arrived_total": 1000, "delegated_total": 250,
              "taken_total": 0, "bytes_total": 0 },
            { "class": "computing", "keep": 0.5, "refuse": 0.125, "arrived_total": 400,
              "delegated_total": 150, "taken_total": 7, "handed_back_total": 1,
              "bytes_total": 0 },
        ] });
    delegating.front_doors[0].dispatch = serde_json::from_value(classes).unwrap();
    let [narrow, wide] = tables(State::new(reading(delegating)), "Dispatch");
    let expected = [
        "FRONT DOOR/CLASS  KEPT  REFUSED  ARRIVED  DELEGATED  TAKEN  WHY",
        "door/computing    50 %   12.5 %      400        150      7  the whole cluster i…",
        "door/light        75 %      0 %     1000        250      0  by the plan",
    ];
    assert_eq!(narrow, expected, "{narrow:#?}");
    let expected = [
        "FRONT DOOR/CLASS  KEPT  REFUSED  ARRIVED  DELEGATED  TAKEN  HANDED BACK  WHY",
        "door/computing    50 %   12.5 %      400        150      7            1  the whole cluster is overloaded",
        "door/light        75 %      0 %     1000        250      0            0  by the plan",
    ];
    assert_eq!(wide, expected, "{wide:#?}");
}

/// A worker as the API describes it, with these fields changed.
fn worker(name: &str, changes: &Value) -> Value {
    let mut worker = json!({
        "name": name, "state": "active", "state_seconds": 60.0, "reason": null, "drained": false,
        "problem": null, "host": null, "pid": null, "started_unix_seconds": null, "slices": 0,
        "load": 0.0, "items_per_second": 0.0, "queued": 0, "in_hand": 0,
        "queue_age_seconds": 0.0, "stalled_seconds": 0.0, "items_total": 0, "drops": {},
        "checkpoints": null,
    });
    worker.as_object_mut().unwrap().extend(changes.as_object().unwrap().clone());
    worker
}

/// A process with a stream that it leads, and one that another controller leads.
fn streams() -> State {
    let stream = |name: &str, leading: bool, leader: &str, workers: Value| -> StreamStatus {
        let stream = json!({
            "name": name, "slices_total": 64, "domain": 7, "leading": leading, "leader": leader,
            "problem": null, "imbalance": 1.0, "workers": workers, "slices": [], "handovers": [],
            "hot": [], "unread": [], "connections_strange_total": 0, "handovers_moved_total": 0,
            "handovers_called_off_total": 0, "handover_seconds_p50": null,
            "handover_seconds_max": null,
        });
        serde_json::from_value(stream).expect("it is a stream")
    };
    let summary = json!({ "streams": [{ "name": "orders", "leading": true, "problem": null,
        "workers": 3, "slices_total": 64, "slices_unowned": 0, "slices_blocked": 0,
        "items_per_second": 12_780.0, "queued": 15, "imbalance": 1.0 }] });
    let mut all = reading(status(&three(), &summary));
    let workers = json!([
        worker(
            "w1",
            &json!({ "host": "host-a", "slices": 60, "load": 0.75,
            "items_per_second": 12_400.0, "queued": 3, "queue_age_seconds": 0.003 })
        ),
        worker(
            "w2",
            &json!({ "state": "draining", "drained": true, "reason": "by an operator",
            "host": "host-b", "slices": 4, "load": 0.25, "items_per_second": 380.0, "queued": 12,
            "queue_age_seconds": 0.25 })
        ),
        worker("w3", &json!({ "state": "lost", "reason": "no report for 12 s" })),
    ]);
    all.streams =
        vec![stream("orders", true, "ctl-1", workers), stream("audit", false, "ctl-2", json!([]))];
    State::new(all)
}

#[test]
fn streams_have_their_workers_slices_and_queues() {
    let [narrow, wide] = tables(streams(), "Slices");
    let expected = [
        "STREAM/WORKER  STATE     SLICES  LOAD  ITEMS/S  QUEUED  OLDEST  WHY",
        "orders/w3      lost           0  0.00        0       0       0  no report for 1…",
        "orders/w2      draining       4  0.25      380      12  250 ms  by an operator",
        "orders/w1      active        60  0.75    12.4k       3  3.0 ms",
        "audit          -              -     -        -       -       -  ctl-2 leads it,…",
    ];
    assert_eq!(narrow, expected, "{narrow:#?}");
    let expected = [
        "STREAM/WORKER  STATE     SLICES  LOAD  ITEMS/S  QUEUED  OLDEST  HOST    WHY",
        "orders/w3      lost           0  0.00        0       0       0  -       no report for 12 s",
        "orders/w2      draining       4  0.25      380      12  250 ms  host-b  by an operator",
        "orders/w1      active        60  0.75    12.4k       3  3.0 ms  host-a",
        "audit          -              -     -        -       -       -  -       ctl-2 leads it, and knows its workers",
    ];
    assert_eq!(wide, expected, "{wide:#?}");
}

/// Performs an action at an API that accepts it. Returns the request line and the outcome.
async fn performed(effect: Effect, answer: &Value) -> (String, String) {
    let Effect::Perform(action) = effect else { panic!("nothing is performed: {effect:?}") };
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let client = Client::new(Endpoint::Tcp(listener.local_addr().unwrap().to_string()));
    let serve = async {
        let (mut connection, _) = listener.accept().await.unwrap();
        let mut head = Vec::new();
        while !head.windows(4).any(|end| end == b"\r\n\r\n") {
            head.push(connection.read_u8().await.unwrap());
        }
        let body = answer.to_string();
        let response = format!(
            "HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: {}\r\n\r\n{body}",
            body.len()
        );
        connection.write_all(response.as_bytes()).await.unwrap();
        String::from_utf8(head).unwrap().lines().next().unwrap().to_owned()
    };
    let (line, outcome) = tokio::join!(serve, action.perform(&client));
    (line, outcome.expect("it is accepted"))
}

#[tokio::test]
async fn d_and_u_ask_for_the_selected_node() {
    let node = |name: &str, admin: &str| {
        json!({
            "name": name, "kind": "node", "state": "alive", "version": "1.0.0", "capacity": 2.0,
            "admin": admin, "standing": "serving", "shares": {}, "cpu_percent": 40.0,
            "memory_percent": 30.0, "net_percent": 1.0, "l1": 40.0, "l2": 40.0, "keep": 1.0,
            "report_age_seconds": 1.0, "applied": "1.1", "refused_total": 0,
        })
    };
    let read = |node: Value| serde_json::from_value::<NodeStatus>(node).unwrap();
    let mut all = reading(status(&three(), &json!({})));
    all.nodes = vec![read(node("n1", "up")), read(node("n2", "drain"))];
    let mut state = State::new(all);
    let at = state.tabs().iter().position(|tab| *tab == Tab::Nodes).unwrap();
    keys(&mut state, &(at + 1).to_string());
    // The drained node is first.
    assert_eq!(state.row().unwrap().id, "n2");
    keys(&mut state, "u");
    let shown = page(&mut state, 80, 24).join("\n");
    assert!(shown.contains("The same as: equipoise undrain n2"), "{shown}");
    let (request, outcome) = performed(keys(&mut state, "y"), &node("n2", "up")).await;
    assert_eq!(request, "POST /v1/nodes/n2/undrain HTTP/1.1");
    assert_eq!(outcome, "node n2: wanted up, serving");
    keys(&mut state, "jd");
    let shown = page(&mut state, 80, 24).join("\n");
    assert!(shown.contains("The same as: equipoise drain n1"), "{shown}");
    let (request, outcome) = performed(keys(&mut state, "y"), &node("n1", "drain")).await;
    assert_eq!(request, "POST /v1/nodes/n1/drain HTTP/1.1");
    assert_eq!(outcome, "node n1: wanted drain, serving");
    keys(&mut state, "w");
    let message = "only backends have a weight that can be set";
    assert_eq!(page(&mut state, 80, 24)[22], message);
}

#[tokio::test]
async fn d_and_u_ask_for_the_selected_worker() {
    let mut state = streams();
    let at = state.tabs().iter().position(|tab| *tab == Tab::Slices).unwrap();
    keys(&mut state, &(at + 1).to_string());
    keys(&mut state, "ju");
    let shown = page(&mut state, 80, 24).join("\n");
    assert!(shown.contains("equipoise slice undrain w2 --stream orders"), "{shown}");
    let (request, outcome) = performed(keys(&mut state, "y"), &worker("w2", &json!({}))).await;
    assert_eq!(request, "POST /v1/slices/orders/workers/w2/undrain HTTP/1.1");
    assert_eq!(outcome, "orders/w2: active");
    keys(&mut state, "jd");
    let shown = page(&mut state, 80, 24).join("\n");
    assert!(shown.contains("equipoise slice drain w1 --stream orders"), "{shown}");
    let draining = worker("w1", &json!({ "state": "draining", "drained": true }));
    let (request, outcome) = performed(keys(&mut state, "y"), &draining).await;
    assert_eq!(request, "POST /v1/slices/orders/workers/w1/drain HTTP/1.1");
    assert_eq!(outcome, "orders/w1: draining");
    // A stream that another controller leads has no worker here.
    keys(&mut state, "jd");
    assert_eq!(page(&mut state, 80, 24)[22], "nothing in this row can be changed");
}
