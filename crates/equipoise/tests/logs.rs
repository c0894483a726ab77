//! What `equipoise run` writes on standard error: events and the access log, in the format of `log.format`.

mod common;

use common::{Folder, Process, get, text};
use equipoise_testkit::{HttpBackend, eventually, free_port};
use serde_json::Value;

#[test]
fn access_log_lines_that_a_full_disk_does_not_take_are_counted() {
    let (folder, door, api) = (Folder::new("full-log"), free_port(), free_port());
    let backend = HttpBackend::named("a");
    let config = format!(
        "[api]\nsocket = \"{}\"\nlisten = \"{}\"\n[log]\naccess-log = \"/dev/full\"\n\
         [[session]]\nname = \"door\"\nlisten = \"{}\"\nprotocol = \"http\"\npool = \"web\"\naccess-log = 1.0\n\
         [[pool]]\nname = \"web\"\nbackends = [\"{}\"]\n",
        folder.path("api.sock").display(),
        api.address(),
        door.address(),
        backend.address(),
    );
    let file = folder.write("equipoise.toml", &config);
    let process = Process::start(&["run", text(&file)]);
    process.wait_for_text(" ready ");
    for _ in 0..7 {
        assert_eq!(get(door.address(), "/").text(), "a");
    }
    let counted = "equipoise_access_log_dropped_total{front_door=\"door\",pool=\"web\"} 7\n";
    let metrics = || get(api.address(), "/metrics").text();
    assert!(eventually(|| metrics().contains(counted)), "{}", metrics());
    process.wait_for_text("cannot write the access log");
}

#[test]
fn events_and_access_log_are_json_objects_with_pool_and_backend() {
    let (folder, door, dead) = (Folder::new("json-logs"), free_port(), free_port());
    let backend = HttpBackend::named("a");
    let config = format!(
        "[api]\nsocket = \"{}\"\nlisten = \"off\"\n[log]\nformat = \"json\"\n\
         [[session]]\nlisten = \"{}\"\nprotocol = \"http\"\npool = \"web\"\naccess-log = 1.0\n\
         [[pool]]\nname = \"web\"\nhealth = {{ tcp = true, interval = \"100ms\" }}\n\
         backends = [{{ name = \"a\", address = \"{}\" }}, {{ name = \"dead\", address = \"{}\" }}]\n",
        folder.path("api.sock").display(),
        door.address(),
        backend.address(),
        dead.address(),
    );
    let file = folder.write("equipoise.toml", &config);
    let process = Process::start(&["run", text(&file)]);
    process.wait_for_text("is unhealthy");
    assert_eq!(get(door.address(), "/path").text(), "a");
    let objects = || -> Vec<Value> {
        let printed = process.printed();
        printed.lines().filter_map(|line| serde_json::from_str(line).ok()).collect()
    };
    let find = |key: &str, value: &str| objects().into_iter().find(|it| it[key] == value);
    let both = || find("kind", "request").is_some() && find("backend", "dead").is_some();
    assert!(eventually(both), "{}", process.printed());

    let request = find("kind", "request").expect("it was found");
    assert_eq!((&request["path"], &request["backend"]), (&"/path".into(), &"a".into()));
    assert_eq!((&request["pool"], &request["status"]), (&"web".into(), &200.into()));
    let event = find("backend", "dead").expect("it was waited for");
    assert_eq!((&event["level"], &event["pool"]), (&"WARN".into(), &"web".into()), "{event}");
}
