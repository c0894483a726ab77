//! `equipoise run` and the commands for it, through the real binary.

mod common;

use std::net::{SocketAddr, TcpListener};
use std::path::PathBuf;
use std::time::Duration;

use common::{Folder, Load, Process, equipoise, get, kill, reload, stderr, stdout, text};
use equipoise_testkit::{
    Answer, Client, Gate, HttpBackend, ReservedPort, Step, eventually, free_port,
};

/// A running equipoise with one HTTP front door.
struct Instance {
    process: Process,
    folder: Folder,
    file: PathBuf,
    socket: PathBuf,
    door: ReservedPort,
    api: ReservedPort,
}

impl Instance {
    /// Starts an instance. `pool` follows the pool's name in the file.
    fn start(test: &str, pool: &str) -> Instance {
        let (folder, door, api) = (Folder::new(test), free_port(), free_port());
        let socket = folder.path("api.sock");
        let head = head(&folder, &api);
        let file = folder.write("equipoise.toml", &config(&head, door.address(), pool));
        let process = Process::start(&["run", text(&file)]);
        process.wait_for_text(" ready ");
        Instance { process, folder, file, socket, door, api }
    }

    fn rewrite(&self, pool: &str) {
        let head = head(&self.folder, &self.api);
        self.folder.write("equipoise.toml", &config(&head, self.door.address(), pool));
    }

    /// Runs a command over the unix socket. Returns whether it succeeded, and its output.
    fn command(&self, args: &[&str]) -> (bool, String) {
        let args = [args, &["--api", text(&self.socket)]].concat();
        let output = equipoise(&args);
        (output.status.success(), stdout(&output) + &stderr(&output))
    }

    fn who(&self) -> String {
        get(self.door.address(), "/").text()
    }
}

fn head(folder: &Folder, api: &ReservedPort) -> String {
    format!(
        "[api]\nsocket = \"{}\"\nlisten = \"{}\"\n[instance]\nname = \"under-test\"\nthreads = 2\n",
        folder.path("api.sock").display(),
        api.address()
    )
}

fn config(head: &str, door: SocketAddr, pool: &str) -> String {
    format!(
        "{head}\n[[session]]\nlisten = \"{door}\"\nprotocol = \"http\"\npool = \"web\"\n\
         \n[[pool]]\nname = \"web\"\n{pool}\n"
    )
}

fn backends(all: &[(&str, &HttpBackend)]) -> String {
    let one = |(name, backend): &(&str, &HttpBackend)| {
        format!("{{ name = \"{name}\", address = \"{}\" }}", backend.address())
    };
    format!("backends = [{}]", all.iter().map(one).collect::<Vec<_>>().join(", "))
}

#[test]
fn a_backend_is_drained_weighted_disabled_and_enabled_by_command() {
    let (a, b) = (HttpBackend::named("a"), HttpBackend::named("b"));
    let instance = Instance::start("admin", &backends(&[("a", &a), ("b", &b)]));
    for (undo, action, state) in [
        ("undrain", "drain", "drained"),
        ("enable", "disable", "down"),
        ("weight", "weight", "drained"),
    ] {
        let arguments = |word: &'static str, number: &'static str| {
            let mut arguments = vec![word, "web/a"];
            if word == "weight" {
                arguments.push(number);
            }
            arguments
        };
        let (worked, said) = instance.command(&arguments(action, "0"));
        assert!(worked && said.contains(&format!("web/a: {state}")), "{said}");
        for _ in 0..10 {
            assert_eq!(instance.who(), "b");
        }
        let (worked, said) = instance.command(&arguments(undo, "1"));
        assert!(worked && said.contains("web/a: up, weight 1"), "{said}");
        assert!(eventually(|| instance.who() == "a"));
    }
    let (worked, said) = instance.command(&["drain", "web/c"]);
    assert!(!worked && said.contains("pool `web` has no backend `c`"), "{said}");
    let (worked, said) = instance.command(&["drain", "nothere"]);
    assert!(!worked && said.contains("a backend is named POOL/BACKEND"), "{said}");
}

#[test]
fn status_shows_what_runs_as_a_table_and_as_json() {
    let a = HttpBackend::named("a");
    let instance = Instance::start("status", &backends(&[("a", &a)]));
    assert_eq!(instance.who(), "a");
    let (worked, table) = instance.command(&["status"]);
    assert!(worked && table.starts_with("under-test · equipoise "), "{table}");
    assert!(
        table.contains(&instance.door.address().to_string()) && table.contains("web/a"),
        "{table}"
    );
    assert!(!table.contains('\x1b'), "there is no terminal to show colour");
    let (worked, json) = instance.command(&["status", "--json"]);
    let json: serde_json::Value = serde_json::from_str(&json).expect("it is JSON");
    assert!(worked);
    assert_eq!(json["pools"][0]["backends"][0]["name"], "a");
    assert_eq!(json["front_doors"][0]["requests_total"], 1);
    let metrics = || get(instance.api.address(), "/metrics").text();
    let line = format!(
        "equipoise_requests_total{{front_door=\"http:{}\",pool=\"web\",code=\"2xx\"}} 1",
        instance.door.address()
    );
    // A client may receive its answer just before the request counts as done.
    assert!(eventually(|| metrics().contains(&line)), "{}", metrics());
}

#[test]
fn status_watch_goes_on_when_the_process_has_restarted() {
    let a = HttpBackend::named("a");
    let mut instance = Instance::start("watch", &backends(&[("a", &a)]));
    let watch = Process::start(&["status", "--watch", "--api", text(&instance.socket)]);
    let pages = |pid: u32| watch.printed().matches(&format!(" · pid {pid} · ")).count();
    assert!(eventually(|| pages(instance.process.pid()) > 0), "{}", watch.printed());
    instance.process.signal(libc::SIGKILL);
    instance.process.ended();
    watch.wait_for_text("no answer since ");
    instance.process = Process::start(&["run", text(&instance.file)]);
    instance.process.wait_for_text(" ready ");
    assert!(eventually(|| pages(instance.process.pid()) > 1), "{}", watch.printed());
    // Each time without an answer is reported once. A busy machine has several.
    let printed = watch.printed();
    let notes = |between: &str| between.matches("no answer since ").count();
    assert!(printed.split(" · pid ").all(|between| notes(between) <= 1), "{printed}");
}

#[test]
fn status_watch_of_a_process_that_never_answered_is_an_error() {
    let folder = Folder::new("watch-none");
    let output = equipoise(&["status", "--watch", "--api", text(&folder.path("none.sock"))]);
    assert!(!output.status.success());
    assert!(stderr(&output).contains("no equipoise answers at "), "{}", stderr(&output));
}

#[test]
fn status_fits_the_terminal_that_it_is_shown_in() {
    let a = HttpBackend::named("a");
    let instance = Instance::start("narrow", &backends(&[("a", &a)]));
    let (worked, everything) = instance.command(&["status"]);
    let widest = |page: &str| page.lines().map(|line| line.chars().count()).max();
    assert!(worked && widest(&everything) > Some(80), "{everything}");
    let command = [common::EQUIPOISE, "status", "--api", text(&instance.socket)];
    let narrow = common::in_terminal(80, &command);
    assert!(narrow.contains("web/a") && !narrow.contains("REUSED"), "{narrow}");
    // Words stay whole, and a path is one word.
    let spaced = narrow.lines().filter(|line| line.trim().contains(' '));
    assert!(spaced.clone().count() > 3, "{narrow}");
    assert!(spaced.clone().all(|line| line.chars().count() <= 80), "{narrow}");
    let wide = common::in_terminal(400, &command);
    assert!(wide.contains("REUSED"), "{wide}");
}

#[test]
fn a_reload_by_command_or_signal_takes_the_file_and_a_broken_one_changes_nothing() {
    let (a, b) = (HttpBackend::named("a"), HttpBackend::named("b"));
    let instance = Instance::start("reload", &backends(&[("a", &a)]));
    assert_eq!(instance.who(), "a");
    instance.rewrite(&backends(&[("b", &b)]));
    let (worked, said) = instance.command(&["reload"]);
    assert!(worked && said.contains("front doors: 1, VIPs: 0, pools: 1, backends: 1"), "{said}");
    assert_eq!(instance.who(), "b");

    instance.rewrite("backends = [\"nonsense\"]\nscheduler = \"rond-robin\"");
    let (worked, said) = instance.command(&["reload"]);
    assert!(!worked, "{said}");
    for part in ["the running configuration stays", "equipoise.toml:", "nonsense", "rond-robin"] {
        assert!(said.contains(part), "{part} is not in: {said}");
    }
    assert_eq!(instance.who(), "b");
    let (_, status) = instance.command(&["status"]);
    assert!(status.contains("the last reload failed"), "{status}");

    instance.folder.write("equipoise.toml", "# A template that failed.\n");
    let (worked, said) = instance.command(&["reload"]);
    assert!(
        !worked && said.contains("would remove everything that runs") && said.contains("SIGTERM"),
        "{said}"
    );
    assert_eq!(instance.who(), "b");

    instance.rewrite(&backends(&[("a", &a)]));
    instance.process.signal(libc::SIGHUP);
    assert!(eventually(|| instance.who() == "a"));
    let (_, status) = instance.command(&["status"]);
    assert!(!status.contains("the last reload failed"), "{status}");
}

#[test]
fn a_reload_changes_concurrency_and_serves_those_that_wait() {
    let gate = Gate::new();
    let held = Answer::ok("held").first(Step::Wait(gate.clone()));
    let backend = HttpBackend::start(move |request| match request.head.target() {
        "/held" => held.clone(),
        _ => Answer::ok("short"),
    });
    let with = |concurrency: &str| {
        let queue = "queue = { wait = \"5m\" }";
        format!("{}\nconcurrency = {concurrency}\n{queue}", backends(&[("a", &backend)]))
    };
    let instance = Instance::start("concurrency", &with("1"));
    let pool = || {
        let (_, json) = instance.command(&["status", "--json"]);
        let json: serde_json::Value = serde_json::from_str(&json).expect("it is JSON");
        json["pools"][0].clone()
    };
    let asking = |path: &str| {
        let mut client = Client::connect(instance.door.address());
        client.send(format!("GET {path} HTTP/1.1\r\nHost: a.example\r\n\r\n"));
        client
    };
    let mut first = asking("/held");
    assert!(backend.wait(|requests| requests.len() == 1));
    for (concurrency, limit) in [("\"none\"", None), ("1", Some(1)), ("\"learnt\"", Some(4))] {
        if concurrency != "1" {
            let mut waiting = asking("/");
            assert!(eventually(|| pool()["queued"] == 1), "{}", pool());
            instance.rewrite(&with(concurrency));
            assert!(instance.command(&["reload"]).0);
            assert_eq!(waiting.response().map(|it| it.text()), Ok("short".to_owned()));
        } else {
            instance.rewrite(&with(concurrency));
            assert!(instance.command(&["reload"]).0);
        }
        assert_eq!(pool()["backends"][0]["limit"].as_u64(), limit);
    }
    gate.open();
    assert_eq!(first.response().map(|it| it.text()), Ok("held".to_owned()));
}

#[test]
fn status_shows_region_and_times_of_a_backend_with_a_stated_limit() {
    const SERVICE: Duration = Duration::from_millis(20);
    let backend = HttpBackend::start(|request| match request.head.target() {
        "/work" => Answer::ok("worked").first(Step::Pause(SERVICE)),
        _ => Answer::ok("short"),
    });
    let pool = format!("{}\nconcurrency = 1", backends(&[("a", &backend)]));
    let instance = Instance::start("stated_limit", &pool);
    let shown = || {
        let (_, json) = instance.command(&["status", "--json"]);
        let json: serde_json::Value = serde_json::from_str(&json).expect("it is JSON");
        json["pools"][0]["backends"][0].clone()
    };
    assert_eq!(shown()["region"], "under-used", "{}", shown());
    let are_shown = eventually(|| {
        // The second waits for the first.
        let mut clients = [(), ()].map(|()| Client::connect(instance.door.address()));
        for client in &mut clients {
            client.send("GET /work HTTP/1.1\r\nHost: a.example\r\n\r\n");
        }
        for client in &mut clients {
            assert_eq!(client.response().map(|it| it.status()), Ok(200));
        }
        let backend = shown();
        let seconds = |field: &str| backend[field].as_f64().unwrap_or_default();
        seconds("service_seconds") >= SERVICE.as_secs_f64() && seconds("queue_seconds") > 0.0
    });
    assert!(are_shown, "{}", shown());
    let (_, table) = instance.command(&["status"]);
    assert!(table.contains("SERVICE") && table.contains(" ms"), "{table}");
}

#[test]
fn an_applications_errors_eject_no_backend_that_its_checks_find_well() {
    let failing_if_asked = || {
        HttpBackend::start(|request| match request.head.target() {
            "/?c=503" => Answer::sized(503, ""),
            _ => Answer::ok("well"),
        })
    };
    let (a, b) = (failing_if_asked(), failing_if_asked());
    let pool = backends(&[("a", &a), ("b", &b)])
        + "\nscheduler = \"round-robin\"\nhealth = { http = \"/\", interval = \"100ms\", timeout = \"1m\" }";
    let instance = Instance::start("errors", &pool);
    let status_of = |path| get(instance.door.address(), path).status();
    for _ in 0..40 {
        assert_eq!(status_of("/?c=503"), 503);
    }
    let states = || {
        let (_, json) = instance.command(&["status", "--json"]);
        let json: serde_json::Value = serde_json::from_str(&json).expect("it is JSON");
        [0, 1].map(|at| json["pools"][0]["backends"][at]["state"].as_str() == Some("up"))
    };
    assert_eq!(states(), [true; 2]);
    assert!(!instance.process.printed().contains("is ejected"), "{}", instance.process.printed());

    // If listed, these statuses eject; passing checks end the ejection long before its own time.
    instance.rewrite(&(pool + "\npassive = { statuses = \"500-503\", ejection = \"5m\" }"));
    assert!(instance.command(&["reload"]).0);
    let printed = |text| instance.process.printed().contains(text);
    assert!(eventually(|| {
        status_of("/?c=503");
        printed("is ejected for 300s: it failed 5 times in a row, the last time with backend_error")
    }));
    instance.process.wait_for_text("is back before its ejection is over: its active check passed");
    assert!(eventually(|| states() == [true; 2]));
}

#[test]
fn a_backend_that_answers_head_with_a_body_loses_multiplexing_until_it_is_undrained() {
    let other = "HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\nEVIL";
    let with_body = format!("HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n{other}", other.len());
    let backend = HttpBackend::start(move |request| match request.head.method() {
        "HEAD" => Answer::raw(&with_body),
        _ => Answer::ok("mine"),
    });
    let pool = backends(&[("a", &backend)]) + "\nupstream = \"multiplexed\"";
    let instance = Instance::start("surplus", &pool);
    let status = || instance.command(&["status"]).1;
    let lost = "web/a: not multiplexed after 1 responses with ambiguous framing";
    assert!(instance.who() == "mine" && !status().contains("not multiplexed"), "{}", status());
    let head = Client::exchange(instance.door.address(), "HEAD / HTTP/1.1\r\nHost: a\r\n\r\n");
    assert_eq!(head.map(|response| response.status()), Ok(200));
    assert!(eventually(|| status().contains(lost)), "{}", status());
    for _ in 0..20 {
        assert_eq!(instance.who(), "mine");
    }
    assert!(instance.command(&["undrain", "web/a"]).0);
    assert!(!status().contains("not multiplexed"), "{}", status());
    let metrics = get(instance.api.address(), "/metrics").text();
    let counted = "equipoise_backend_multiplex_faults_total{pool=\"web\",backend=\"a\"} 1\n";
    assert!(metrics.contains(counted), "{metrics}");
}

#[test]
fn a_backup_serves_only_while_the_other_backend_does_not() {
    let (a, b) = (HttpBackend::named("a"), HttpBackend::named("b"));
    let backup = format!("{{ name = \"b\", address = \"{}\", backup = true }}", b.address());
    let pool = backends(&[("a", &a)]).replace(']', &format!(", {backup}]"));
    let instance = Instance::start("backup", &pool);
    let state_of_b = || {
        let (_, json) = instance.command(&["status", "--json"]);
        let json: serde_json::Value = serde_json::from_str(&json).expect("it is JSON");
        json["pools"][0]["backends"][1]["state"].as_str().map(str::to_owned)
    };
    for (wish, serves, state) in [
        ("enable", "a", "standby"),
        ("drain", "b", "up"),
        ("undrain", "a", "standby"),
        ("disable", "b", "up"),
    ] {
        assert!(instance.command(&[wish, "web/a"]).0, "{wish}");
        for _ in 0..10 {
            assert_eq!(instance.who(), serves, "{wish}");
        }
        assert_eq!(state_of_b().as_deref(), Some(state), "{wish}");
    }
}

#[test]
fn a_front_door_listens_on_every_address_of_its_list() {
    let a = HttpBackend::named("a");
    let (instance, second) = (Instance::start("list", &backends(&[("a", &a)])), free_port());
    let head = head(&instance.folder, &instance.api);
    let one = config(&head, instance.door.address(), &backends(&[("a", &a)]));
    let first = format!("\"{}\"", instance.door.address());
    let list = format!("[{first}, \"{}\"]\nname = \"door\"", second.address());
    let mut before = Client::connect(instance.door.address());
    const REQUEST: &str = "GET / HTTP/1.1\r\nHost: localhost\r\n\r\n";
    assert_eq!(before.ask(REQUEST).map(|response| response.text()), Ok("a".to_owned()));
    instance.folder.write(
        "equipoise.toml",
        &one.replace(&format!("listen = {first}\nprotocol"), &format!("listen = {list}\nprotocol")),
    );
    let (worked, said) = instance.command(&["reload"]);
    assert!(worked && said.contains("front doors: 2"), "{said}");
    assert_eq!(get(second.address(), "/").text(), "a");
    assert_eq!(before.ask(REQUEST).map(|response| response.text()), Ok("a".to_owned()));
    let (_, status) = instance.command(&["status"]);
    for address in [instance.door.address(), second.address()] {
        assert!(status.contains(&format!("door:{address}")), "{status}");
    }
}

#[test]
fn a_star_listens_on_ipv4_and_ipv6() {
    let a = HttpBackend::named("a");
    let instance = Instance::start("star", &backends(&[("a", &a)]));
    // Both families of a port are certainly free only if the kernel has just assigned it.
    let reloaded = eventually(|| {
        let held = free_port();
        let port = held.address().port();
        let more = format!(
            "{}\n[[session]]\nlisten = \"*:{port}\"\nprotocol = \"http\"\npool = \"web\"",
            backends(&[("a", &a)])
        );
        instance.rewrite(&more);
        let (worked, said) = instance.command(&["reload"]);
        assert!(worked || said.contains("in use"), "{said}");
        let everywhere = || {
            ["127.0.0.1", "[::1]"]
                .map(|host| get(format!("{host}:{port}").parse().expect("an address"), "/").text())
        };
        worked && everywhere() == ["a", "a"]
    });
    assert!(reloaded);
}

#[test]
fn a_reload_turns_a_front_door_from_http_to_tcp_and_back_under_open_connections() {
    const REQUEST: &str = "GET / HTTP/1.1\r\nHost: localhost\r\n\r\n";
    let a = HttpBackend::echo();
    let instance = Instance::start("protocol", &backends(&[("a", &a)]));
    let door = instance.door.address();
    let as_http = config(&head(&instance.folder, &instance.api), door, &backends(&[("a", &a)]));
    let as_tcp = as_http.replace("protocol = \"http\"", "protocol = \"tcp\"");
    // Only HTTP tells the backend the client's address.
    let is_http = |client: &mut Client| {
        let seen = client.ask(REQUEST).expect("an answer").text();
        seen.to_ascii_lowercase().contains("x-forwarded-for")
    };
    let mut first = Client::connect(door);
    assert!(is_http(&mut first));
    for round in 0..3 {
        instance.folder.write("equipoise.toml", &as_tcp);
        let (worked, said) = instance.command(&["reload"]);
        assert!(worked, "{round}: {said}");
        assert!(eventually(|| !is_http(&mut Client::connect(door))), "{round}: new ones are TCP");
        assert!(is_http(&mut first), "{round}: an open connection lives on as it is");
        let mut tunnel = Client::connect(door);
        assert!(!is_http(&mut tunnel));

        instance.folder.write("equipoise.toml", &as_http);
        let (worked, said) = instance.command(&["reload"]);
        assert!(worked, "{round}: {said}");
        assert!(eventually(|| is_http(&mut Client::connect(door))), "{round}: new ones are HTTP");
        assert!(is_http(&mut first), "{round}: an open connection lives on as it is");
        assert!(!is_http(&mut tunnel), "{round}: an open connection lives on as it is");
    }
}

#[test]
fn a_front_door_that_cannot_be_opened_leaves_the_running_ones() {
    let a = HttpBackend::named("a");
    let instance = Instance::start("door", &backends(&[("a", &a)]));
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let taken = (taken.local_addr().unwrap(), taken);
    let more = format!(
        "{}\n[[session]]\nlisten = \"{}\"\nprotocol = \"http\"\npool = \"web\"",
        backends(&[("a", &a)]),
        taken.0
    );
    instance.rewrite(&more);
    let (worked, said) = instance.command(&["reload"]);
    assert!(!worked && said.contains(&taken.0.to_string()) && said.contains("`listen`"), "{said}");
    assert_eq!(instance.who(), "a");
}

#[test]
fn a_start_that_fails_says_why_and_exits_with_one() {
    let folder = Folder::new("start");
    let api = free_port();
    let broken = folder.write("broken.toml", "[[pool]]\nnam = \"web\"\n[api]\nlisten = 7\n");
    let output = equipoise(&["run", text(&broken)]);
    assert_eq!(output.status.code(), Some(1));
    let said = stderr(&output);
    assert!(said.contains("broken.toml:2:") && said.contains("broken.toml:4:"), "{said}");

    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = taken.local_addr().unwrap();
    let head = head(&folder, &api);
    let file = folder.write("taken.toml", &config(&head, address, "backends = [\"127.0.0.1:1\"]"));
    let output = equipoise(&["run", text(&file)]);
    assert_eq!(output.status.code(), Some(1));
    let said = stderr(&output);
    assert!(said.contains(&address.to_string()) && said.contains("`listen`"), "{said}");
    assert!(!folder.path("api.sock").exists(), "it leaves no socket behind");
}

#[test]
fn a_second_process_does_not_take_the_first_ones_socket() {
    let a = HttpBackend::named("a");
    let instance = Instance::start("second", &backends(&[("a", &a)]));
    let output = equipoise(&["run", text(&instance.file)]);
    assert_eq!(output.status.code(), Some(1));
    assert!(stderr(&output).contains("`api.socket`"), "{}", stderr(&output));
    assert_eq!(instance.who(), "a");
    assert!(instance.command(&["status"]).0);
}

#[test]
fn a_killed_process_leaves_nothing_that_keeps_the_next_from_starting() {
    let a = HttpBackend::named("a");
    let mut instance = Instance::start("stale", &backends(&[("a", &a)]));
    instance.process.signal(libc::SIGKILL);
    instance.process.ended();
    assert!(instance.socket.exists());
    let next = Process::start(&["run", text(&instance.file)]);
    next.wait_for_text(" ready ");
    assert_eq!(instance.who(), "a");
}

#[test]
fn disabling_a_backend_cuts_what_it_has_and_draining_does_not() {
    let gate = Gate::new();
    let slow = HttpBackend::start({
        let gate = gate.clone();
        move |_| Answer::ok("late").first(Step::Wait(gate.clone()))
    });
    let instance = Instance::start("disable", &backends(&[("slow", &slow)]));
    for round in 1..=5 {
        let mut client = Client::connect(instance.door.address());
        client.send("GET / HTTP/1.1\r\nHost: localhost\r\n\r\n");
        assert!(slow.wait(|requests| requests.len() == round));
        assert!(instance.command(&["disable", "web/slow"]).0);
        assert_eq!(client.response().expect("it gets a response").status(), 502);
        assert!(instance.command(&["enable", "web/slow"]).0);
    }
    let mut client = Client::connect(instance.door.address());
    client.send("GET / HTTP/1.1\r\nHost: localhost\r\n\r\n");
    assert!(slow.wait(|requests| requests.len() == 6));
    assert!(instance.command(&["drain", "web/slow"]).0);
    gate.open();
    assert_eq!(client.response().expect("it is answered").text(), "late");
}

#[test]
fn a_stop_lets_a_request_finish_and_a_second_signal_does_not_wait() {
    let gate = Gate::new();
    let slow = HttpBackend::start({
        let gate = gate.clone();
        move |_| Answer::ok("late").first(Step::Wait(gate.clone()))
    });
    let mut instance = Instance::start("stop", &backends(&[("slow", &slow)]));
    let mut client = Client::connect(instance.door.address());
    client.send("GET / HTTP/1.1\r\nHost: localhost\r\n\r\n");
    assert!(slow.wait(|requests| requests.len() == 1));
    instance.process.signal(libc::SIGTERM);
    instance.process.wait_for_text("finishing the work in flight");
    let (worked, status) = instance.command(&["status"]);
    assert!(worked && status.contains("STOPPING"), "{status}");
    assert_eq!(get(instance.api.address(), "/v1/health").status(), 503);
    let (worked, said) = instance.command(&["drain", "web/slow"]);
    assert!(!worked && said.contains("is stopping"), "{said}");
    gate.open();
    assert_eq!(client.response().expect("it is answered").text(), "late");
    assert_eq!(instance.process.ended().code(), Some(0), "{}", instance.process.printed());

    let stuck = HttpBackend::always(Answer::hang());
    let mut instance = Instance::start("stop-twice", &backends(&[("stuck", &stuck)]));
    let mut client = Client::connect(instance.door.address());
    client.send("GET / HTTP/1.1\r\nHost: localhost\r\n\r\n");
    assert!(stuck.wait(|requests| requests.len() == 1));
    instance.process.signal(libc::SIGTERM);
    instance.process.wait_for_text("finishing the work in flight");
    instance.process.signal(libc::SIGTERM);
    assert_eq!(instance.process.ended().code(), Some(1));
}

#[test]
fn two_hundred_reloads_under_load_fail_no_request() {
    let (a, b, c) = (HttpBackend::named("a"), HttpBackend::named("b"), HttpBackend::named("c"));
    let files = [
        backends(&[("a", &a), ("b", &b)]),
        backends(&[("b", &b), ("c", &c)]) + "\nscheduler = \"round-robin\"",
        backends(&[("c", &c), ("a", &a)]) + "\nretry-after = \"7s\"",
    ];
    let instance = Instance::start("reloads", &files[0]);
    let load = Load::start(instance.door.address(), 4);
    load.wait_for(20);
    for number in 0..200 {
        instance.rewrite(&files[number % files.len()]);
        let (status, answer) = reload(&instance.socket);
        assert_eq!(status, 200, "{answer}");
    }
    load.wait_for(20);
    let (good, bad) = load.finish();
    assert!(bad.is_empty(), "{} of {} failed: {bad:?}", bad.len(), good + bad.len());
    let metrics = get(instance.api.address(), "/metrics").text();
    assert!(
        metrics.contains("equipoise_config_reloads_total{result=\"success\"} 201\n"),
        "{metrics}"
    );
}

/// A sample backend as a separate process, on any port.
fn sample(name: &str) -> (Process, u16) {
    let process = Process::start(&["sample-backend", "--name", name]);
    let port = process.wait_for("its ports", |printed| {
        let (_, behind) = printed.split_once("ready http=")?;
        behind.split_once(' ')?.0.parse().ok()
    });
    (process, port)
}

#[test]
fn a_backend_that_is_killed_under_load_costs_no_more_than_it_had() {
    const CLIENTS: usize = 8;
    let ((stays, port_a), (dies, port_b)) = (sample("stays"), sample("dies"));
    let pool = format!("backends = [\"127.0.0.1:{port_a}\", \"127.0.0.1:{port_b}\"]");
    let instance = Instance::start("killed", &pool);
    let load = Load::start(instance.door.address(), CLIENTS);
    load.wait_for(200);
    kill(dies.pid(), libc::SIGKILL);
    load.wait_for(500);
    let (_, bad) = load.finish();
    assert!(bad.len() <= CLIENTS, "{} requests failed: {bad:?}", bad.len());
    // A client may receive its answer just before the request counts as done.
    let none_in_flight = || {
        let status = get(instance.api.address(), "/v1/status").text();
        let status: serde_json::Value = serde_json::from_str(&status).expect("it is JSON");
        status["front_doors"][0]["requests_in_flight"] == 0
    };
    assert!(eventually(none_in_flight));
    drop(stays);
}
