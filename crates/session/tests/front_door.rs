//! What a front door does around requests: the PROXY protocol before them, the access log after them.

mod common;

use std::io::{self, Write};
use std::sync::{Arc, Mutex};

use common::{Plan, both_upstreams, get};
use equipoise_session::Reason;
use equipoise_session::config::{FrontDoor, TrustedSources, Upstream};
use equipoise_testkit::{Ending, HttpBackend, eventually};

both_upstreams! {
    a_required_proxy_header_names_the_client,
    a_connection_without_the_required_proxy_header_is_reset,
    each_request_has_a_line_in_the_access_log,
}

/// The PROXY header is required, and accepted from loopback.
fn behind_a_proxy(front: &mut FrontDoor) {
    front.accept_proxy = true;
    front.trusted = TrustedSources::from_iter([([127, 0, 0, 1].into(), 32)]);
}

fn a_required_proxy_header_names_the_client(mode: Upstream) {
    let backend = HttpBackend::echo();
    let plan = Plan::new(mode, &[backend.address()]);
    let proxy = plan.front(behind_a_proxy).start();
    let mut client = proxy.connect();
    client.send(format!("PROXY TCP4 192.0.2.7 192.0.2.1 4711 80\r\n{}", get("/1")));
    client.response().expect("an answer");
    client.ask(get("/2")).expect("an answer on the same connection");
    for request in backend.requests() {
        assert_eq!(request.head.all("x-forwarded-for"), ["192.0.2.7"]);
    }
    proxy.assert_drops(&[]);
}

fn a_connection_without_the_required_proxy_header_is_reset(mode: Upstream) {
    let backend = HttpBackend::echo();
    let plan = Plan::new(mode, &[backend.address()]);
    let proxy = plan.front(behind_a_proxy).start();
    let mut client = proxy.connect();
    client.send(get("/"));
    assert_eq!(client.read_to_end(), (Vec::new(), Ending::Reset));
    proxy.assert_drops(&[(Reason::ProxyHeader, 1)]);
    assert_eq!(backend.requests().len(), 0);
}

/// What was written, for the test to read.
#[derive(Clone, Default)]
struct Lines(Arc<Mutex<Vec<u8>>>);

impl Write for Lines {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.lock().expect("no writer panics").write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl Lines {
    fn text(&self) -> String {
        String::from_utf8(self.0.lock().expect("no writer panics").clone()).expect("it is text")
    }
}

fn each_request_has_a_line_in_the_access_log(mode: Upstream) {
    let (backend, lines) = (HttpBackend::named("a"), Lines::default());
    let plan = Plan::new(mode, &[backend.address()]).access_log(lines.clone());
    let proxy = plan.front(|front| front.access_log = 1.0).start();
    let mut client = proxy.connect();
    client.ask(get("/one?x=\"y")).expect("an answer");
    client.ask(get("/two")).expect("an answer");
    drop(client);
    assert!(eventually(|| lines.text().lines().count() == 2), "{}", lines.text());
    let text = lines.text();
    let wanted = [r#"request="GET /one?x=\"y" status=200"#, r#"request="GET /two" status=200"#];
    for (line, wanted) in text.lines().zip(wanted) {
        assert!(line.contains(wanted), "{line}");
        assert!(line.contains(&format!("backend=\"{}\"", backend.address())), "{line}");
    }
}
