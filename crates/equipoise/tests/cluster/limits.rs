//! Two balancers of a cluster before one backend with four slots: they share its limit.

use std::net::SocketAddr;
use std::time::Duration;

use equipoise_testkit::HttpBackend;
use serde_json::Value;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Semaphore;

use crate::bed::{Machine, Site, reporting, soon_within};
use crate::common::{Load, equipoise, text};
use crate::seen::controller;

/// Requests that the backend processes at a time, each for [`WORK`].
const SLOTS: usize = 4;
const WORK: Duration = Duration::from_millis(20);

/// Time to learn a limit, first each alone and then together. It is longer on a busy machine.
const LEARNING: Duration = Duration::from_secs(240);

/// Starts a backend that processes a request in each of its slots and queues further ones. Returns
/// its address.
fn backend_with_slots() -> SocketAddr {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    listener.set_nonblocking(true).unwrap();
    let address = listener.local_addr().unwrap();
    std::thread::spawn(move || {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async {
            let slots: &'static Semaphore = Box::leak(Box::new(Semaphore::new(SLOTS)));
            let listener = TcpListener::from_std(listener).unwrap();
            while let Ok((stream, _)) = listener.accept().await {
                tokio::spawn(serve(stream, slots));
            }
        });
    });
    address
}

async fn serve(mut stream: TcpStream, slots: &Semaphore) -> Option<()> {
    let mut input = Vec::new();
    loop {
        while !input.ends_with(b"\r\n\r\n") {
            if stream.read_buf(&mut input).await.ok()? == 0 {
                return None;
            }
        }
        input.clear();
        let slot = slots.acquire().await.ok()?;
        tokio::time::sleep(WORK).await;
        drop(slot);
        stream.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok").await.ok()?;
    }
}

/// The backend in a machine's `status`.
fn seen(machine: &Machine) -> Value {
    let socket = machine.file.with_extension("sock");
    let output = equipoise(&["status", "--json", "--api", text(&socket)]);
    let status: Value = serde_json::from_slice(&output.stdout).unwrap_or_default();
    status["pools"][0]["backends"][0].clone()
}

fn number(backend: &Value, name: &str) -> u64 {
    backend[name].as_u64().unwrap_or(0)
}

#[test]
fn balancers_share_the_limit_of_a_backend_by_demand_and_go_on_alone_without_controllers() {
    let unused = HttpBackend::named("unused");
    let Some(mut site) = Site::new("cluster-limits") else { return };
    // Clients wait for a permit as long as they need to.
    site.pool = "backends = [\"BACKEND\"]\nqueue = { wait = \"10s\" }\n".to_string();
    let mut one = controller(&site, &unused);
    let backend = backend_with_slots();
    let mut nodes = ["n1", "n2"].map(|name| site.node(name, backend, std::slice::from_ref(&one)));
    nodes.iter_mut().for_each(Machine::start);
    one.until("all report", |status| reporting(status).len() == 3);

    // Far more than each alone would give the backend, and three times as much at the first node.
    let loads = [(0, 120), (1, 40)]
        .map(|(node, clients): (usize, usize)| Load::start(nodes[node].door.address(), clients));
    let mut now = [Value::Null, Value::Null];
    let mut look = |holds: &dyn Fn(&[Value; 2]) -> bool| {
        now = [seen(&nodes[0]), seen(&nodes[1])];
        holds(&now)
    };
    soon_within(LEARNING, "both have a share of a limit near the knee", || {
        look(&|both| {
            let group = number(&both[0], "group_limit");
            let limits = [number(&both[0], "limit"), number(&both[1], "limit")];
            let is_shared = group > 0 && group == number(&both[1], "group_limit");
            // 160 are offered. Measurements on a busy machine are noisy.
            let is_near = (SLOTS as u64..=8 * SLOTS as u64).contains(&group);
            is_shared && is_near && limits[0] > limits[1] && limits[0] + limits[1] <= group + 1
        })
    });
    let socket = nodes[0].file.with_extension("sock");
    let page = crate::bed::command(&["status", "--api", text(&socket)]);
    assert!(page.contains("that all balancers of the cluster share"), "{page}");

    one.kill();
    soon_within(LEARNING, "both go on alone", || {
        look(&|both| both.iter().all(|it| it["group_limit"].is_null() && number(it, "limit") > 0))
    });
    loads.iter().for_each(|load| load.wait_for(200));
    let [(first, refused), (second, refused_too)] = loads.map(Load::finish);
    assert!(first > second, "{first} {second}");
    // If a busy machine learns a limit below the knee, a request may wait too long.
    let refused = [refused, refused_too].concat();
    assert!(50 * refused.len() <= first + second, "{first} {second} {refused:?}");
}
