//! `equipoise status`.

use std::time::Duration;

use equipoise_testkit::{Answer, Client, HttpBackend, Step, eventually};

use crate::common::{self, Folder, Process, equipoise, get, stderr, text};
use crate::{Instance, backends};

#[test]
fn status_shows_pools_and_front_doors_as_table_and_json() {
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
fn status_watch_continues_after_the_process_restarts() {
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
