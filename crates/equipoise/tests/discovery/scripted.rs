//! A server with a body that changes, which answers as the documented protocols do: plain requests,
//! blocking queries of Consul, lists and watches of Kubernetes.

use std::sync::{Arc, Condvar, Mutex};

use equipoise_testkit::{Answer, Gate, HttpBackend, PATIENCE, Received, Request, Step};

#[derive(Default)]
struct State {
    /// Rises with each change; the index of Consul and the version of Kubernetes.
    version: u64,
    status: u16,
    body: String,
    /// Opens with the next change.
    next: Gate,
}

pub(crate) struct Scripted {
    state: Arc<(Mutex<State>, Condvar)>,
    server: HttpBackend,
}

impl Scripted {
    pub(crate) fn start(body: &str) -> Scripted {
        let state = State { version: 1, status: 200, body: body.into(), next: Gate::new() };
        let state = Arc::new((Mutex::new(state), Condvar::new()));
        let own = Arc::clone(&state);
        let server = HttpBackend::start(move |request| answer(&own, request));
        Scripted { state, server }
    }

    pub(crate) fn url(&self) -> String {
        format!("http://{}", self.server.address())
    }

    /// Answers with this status and body from now on.
    pub(crate) fn change(&self, status: u16, body: &str) {
        let mut state = self.state.0.lock().unwrap();
        (state.version, state.status, state.body) = (state.version + 1, status, body.into());
        std::mem::replace(&mut state.next, Gate::new()).open();
        self.state.1.notify_all();
    }

    /// Waits until a request fits.
    pub(crate) fn wait_for(&self, fits: impl Fn(&Received) -> bool) {
        assert!(self.server.wait(|all| all.iter().any(&fits)), "{:#?}", self.server.requests());
    }

    /// Requests so far that have this text in their target.
    pub(crate) fn count(&self, text: &str) -> usize {
        self.server.requests().iter().filter(|it| it.head.target().contains(text)).count()
    }
}

fn answer((state, changed): &(Mutex<State>, Condvar), request: &Request<'_>) -> Answer {
    let target = request.head.target();
    let parameter = |name: &str| {
        let query = target.split_once('?').map_or("", |(_, query)| query);
        query.split('&').find_map(|it| it.strip_prefix(name)?.strip_prefix('='))
    };
    let mut state = state.lock().unwrap();
    if parameter("watch").is_some() {
        let (status, gate) = (state.status, state.next.clone());
        if status != 200 {
            return Answer::sized(status, "");
        }
        let event = "{\"type\": \"MODIFIED\", \"object\": {}}\n";
        let head = "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n";
        let is_old = parameter("resourceVersion") != Some(&state.version.to_string());
        if !is_old {
            let chunk = format!("{:x}\r\n{event}\r\n", event.len());
            return Answer::raw(head)
                .then(Step::Wait(gate))
                .then(Step::Send(chunk.into()))
                .then(Step::Hang);
        }
        let gone = "{\"type\": \"ERROR\", \"object\": {\"code\": 410, \"reason\": \"Expired\"}}\n";
        return Answer::chunked(&[gone], &[]);
    }
    if let Some(index) = parameter("index").and_then(|it| it.parse::<u64>().ok()) {
        let same = |state: &mut State| state.version == index;
        state = changed.wait_timeout_while(state, PATIENCE, same).unwrap().0;
    }
    let body = state.body.replace("VERSION", &state.version.to_string());
    Answer::sized(state.status, body)
        .header_lines(&format!("X-Consul-Index: {}\r\n", state.version))
}
