//! The exec driver, with real scripts.
#![allow(clippy::unwrap_used, reason = "a panic is how a test fails")]

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use equipoise_driver::{
    Ask, BackendState, Desired, DesiredState, Driver, DriverOptions, ExecDriver, ExecOptions,
    Limits, Scaler, ScalerOptions, WebhookOptions, Wish,
};

/// Keeps a file for each backend in its folder, with the request.
const ADD: &str = r#"#!/bin/sh
set -e
told=$(cat)
name=$(printf %s "$told" | sed 's/.*"name":"\([^"]*\)".*/\1/')
printf %s "$told" > "$PLACE/$name.json"
echo "made $name" >&2
printf '{"address": "10.0.0.7:8080", "id": "i-%s"}' "$name"
"#;
const REMOVE: &str = r#"#!/bin/sh
name=$(sed 's/.*"name":"\([^"]*\)".*/\1/')
rm -f "$PLACE/$name.json"
"#;
const LIST: &str = r#"#!/bin/sh
cd "$PLACE"
printf '{"backends": ['
comma=
for file in *.json; do
  [ -e "$file" ] || continue
  printf '%s{"name": "%s", "address": "10.0.0.7:8080"}' "$comma" "${file%.json}"
  comma=,
done
printf ']}'
"#;

/// Timeout for events that certainly happen, also on a busy machine.
const LONG: Duration = Duration::from_secs(60);

fn script(folder: &Path, name: &str, text: &str) -> Vec<String> {
    let path = folder.join(name);
    fs::write(&path, text).unwrap();
    fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).unwrap();
    vec![path.to_str().unwrap().to_string()]
}

fn options(folder: &Path) -> (ExecOptions, PathBuf) {
    let place = folder.join("place");
    fs::create_dir(&place).unwrap();
    let options = ExecOptions {
        add: script(folder, "add", ADD),
        remove: script(folder, "remove", REMOVE),
        list: Some(script(folder, "list", LIST)),
        environment: [("PLACE".to_string(), place.to_str().unwrap().to_string())].into(),
        timeout: LONG,
        ..ExecOptions::default()
    };
    (options, place)
}

fn ask(name: &str) -> Ask {
    Ask {
        pool: "web".to_string(),
        name: name.to_string(),
        size: Some("small".to_string()),
        key: format!("{name}-k"),
        attempt: 2,
        address: None,
        id: None,
    }
}

#[tokio::test]
async fn scripts_receive_the_request_as_json_and_return_backends() {
    let folder = tempfile::tempdir().unwrap();
    let (options, place) = options(folder.path());
    let driver = ExecDriver::new("web", options);
    let added = driver.add(&ask("web-e1")).await.unwrap();
    assert_eq!(
        (added.address.to_string().as_str(), added.id.as_str()),
        ("10.0.0.7:8080", "i-web-e1")
    );
    let told: serde_json::Value =
        serde_json::from_slice(&fs::read(place.join("web-e1.json")).unwrap()).unwrap();
    let expected = serde_json::json!({
        "action": "add", "pool": "web", "name": "web-e1", "size": "small", "key": "web-e1-k", "attempt": 2
    });
    assert_eq!(told, expected);
    let listed = driver.list().await.unwrap().unwrap();
    assert_eq!(listed.iter().map(|one| one.name.as_str()).collect::<Vec<_>>(), ["web-e1"]);
    driver.remove(&ask("web-e1")).await.unwrap();
    assert_eq!(driver.list().await.unwrap().unwrap(), []);
}

async fn failure(text: &str, timeout: Duration) -> String {
    let folder = tempfile::tempdir().unwrap();
    let add = script(folder.path(), "add", text);
    let driver = ExecDriver::new("web", ExecOptions { add, timeout, ..ExecOptions::default() });
    let error = driver.add(&ask("web-e1")).await.unwrap_err();
    let mut text = error.to_string();
    let mut cause = std::error::Error::source(&error);
    while let Some(error) = cause {
        text += &format!(": {error}");
        cause = error.source();
    }
    text
}

#[tokio::test]
async fn a_failed_script_is_reported_with_its_cause() {
    let rows = [
        ("#!/bin/sh\necho 'quota exceeded' >&2; exit 4", "failed (exit status: 4): quota exceeded"),
        ("#!/bin/sh\nexit 1", "it wrote nothing to stderr"),
        ("#!/bin/sh\necho done", r#"is "done"; expected {"address": "IP:PORT", "id": "..."}"#),
        ("#!/bin/sh\nhead -c 3000000 /dev/zero", "wrote more than 1048576 bytes"),
        ("#!/bin/sh\nkill -9 $$", "signal: 9"),
        ("#!/no/such/shell\n", "cannot run"),
    ];
    for (text, expected) in rows {
        let found = failure(text, LONG).await;
        assert!(found.contains(expected), "{found:?} lacks {expected:?}");
    }
}

#[tokio::test]
async fn a_script_that_times_out_is_killed_with_its_child_processes() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("pid");
    let text = format!(
        "#!/bin/sh\necho 'waiting for the cloud' >&2\nsleep 600 &\necho $! > {}\nwait",
        path.display()
    );
    // On a busy machine the script may be killed before it begins. Then the timeout is raised.
    let mut timeout = Duration::from_millis(700);
    let pid = loop {
        let found = failure(&text, timeout).await;
        assert!(found.contains(&format!("killed after {timeout:?} (timeout)")), "{found}");
        match fs::read_to_string(&path) {
            Ok(pid) if pid.ends_with('\n') => {
                assert!(found.ends_with(": waiting for the cloud"), "{found}");
                break pid;
            }
            _ => timeout *= 2,
        }
        assert!(timeout < LONG, "it does not begin");
    };
    let until = Instant::now() + LONG;
    let stat = format!("/proc/{}/stat", pid.trim());
    while fs::read_to_string(&stat).is_ok_and(|text| !text.contains(") Z ")) {
        assert!(Instant::now() < until, "its child is still there");
        std::thread::sleep(Duration::from_millis(5));
    }
}

#[tokio::test]
async fn a_background_process_of_a_script_is_neither_awaited_nor_killed() {
    let folder = tempfile::tempdir().unwrap();
    // The background process keeps the script's stdout open.
    let text = r#"#!/bin/sh
sleep 600 &
printf '{"address": "10.0.0.7:80", "id": "%s"}' $!
"#;
    let add = script(folder.path(), "add", text);
    let options = ExecOptions { add, timeout: LONG, ..ExecOptions::default() };
    let driver = ExecDriver::new("web", options);
    let added = driver.add(&ask("web-e1")).await.expect("nobody waits for what it left");
    let stat = fs::read_to_string(format!("/proc/{}/stat", added.id)).expect("it is there");
    let pid = rustix::process::Pid::from_raw(added.id.parse().unwrap()).unwrap();
    rustix::process::kill_process(pid, rustix::process::Signal::KILL).unwrap();
    assert!(!stat.contains(") Z"), "it lives: {stat}");
}

/// The leader's roster with these numbers, and no addresses yet.
fn roster(numbers: &[u64], driver: &DriverOptions) -> DesiredState {
    let one = |number: &u64| Desired {
        name: format!("web-e{number}"),
        key: format!("key-{number}"),
        size: None,
        wish: Wish::Serve,
        added: None,
        driver: driver.fingerprint(),
        outlives: true,
        replaces: None,
    };
    let next_number = numbers.iter().max().map_or(1, |last| last + 1);
    let backends = numbers.iter().map(one).collect();
    DesiredState { backends, next_number, ..DesiredState::default() }
}

#[tokio::test]
async fn a_restarted_scaler_adopts_the_backends_that_scripts_list() {
    let folder = tempfile::tempdir().unwrap();
    let (options, place) = options(folder.path());
    let driver = DriverOptions::Exec(options);
    let start = async |roster: DesiredState| {
        let scaler = Scaler::start(ScalerOptions {
            pool: "web".to_string(),
            limits: Limits::default(),
            driver: driver.clone(),
            earlier: Default::default(),
            has: roster.backends,
            next_number: roster.next_number,
        });
        scaler.await.unwrap()
    };
    let scaler = start(DesiredState::default()).await;
    scaler.desire(roster(&[1, 2], &driver)).await.unwrap();
    let mut view = scaler.subscribe();
    let is_ready = |count| {
        move |view: &Arc<equipoise_driver::PoolView>| {
            let ready = view.backends.iter().filter(|one| one.state == BackendState::Ready);
            ready.count() == count
        }
    };
    view.wait_for(is_ready(2)).await.unwrap();
    scaler.stop().await;
    // One backend disappears, and another appears that no roster knows.
    fs::remove_file(place.join("web-e1.json")).unwrap();
    fs::write(place.join("web-e7.json"), "").unwrap();
    let mut was = roster(&[1, 2], &driver);
    for (one, port) in was.backends.iter_mut().zip(1..) {
        let address = ([10, 0, 0, 1], port).into();
        one.added = Some(equipoise_driver::Added { address, id: String::new() });
    }
    let scaler = start(was).await;
    let names = |scaler: &Scaler| -> Vec<String> {
        scaler.view().backends.iter().map(|one| one.name.clone()).collect()
    };
    assert_eq!(names(&scaler), ["web-e2", "web-e7"]);
    assert_eq!(scaler.view().next_number, 8);
    scaler.desire(roster(&[2, 7, 8], &driver)).await.unwrap();
    let mut view = scaler.subscribe();
    view.wait_for(is_ready(3)).await.unwrap();
    assert_eq!(names(&scaler), ["web-e2", "web-e7", "web-e8"]);
    scaler.desire(DesiredState { next_number: 9, ..DesiredState::default() }).await.unwrap();
    view.wait_for(|view| view.backends.is_empty()).await.unwrap();
    assert_eq!(fs::read_dir(&place).unwrap().count(), 0, "nothing is leaked");
}

#[tokio::test]
async fn an_unusable_earlier_driver_blocks_only_its_own_backends() {
    let folder = tempfile::tempdir().unwrap();
    let (options, _place) = options(folder.path());
    let driver = DriverOptions::Exec(options);
    let url = "https://127.0.0.1:1/".to_string();
    let earlier = DriverOptions::Webhook(WebhookOptions {
        add: url.clone(),
        remove: url,
        ca: Some(folder.path().join("gone.pem")),
        ..WebhookOptions::default()
    });
    let mut old = roster(&[1], &earlier).backends.remove(0);
    let address = ([10, 0, 0, 1], 1).into();
    old.added = Some(equipoise_driver::Added { address, id: String::new() });
    let scaler = Scaler::start(ScalerOptions {
        pool: "web".to_string(),
        limits: Limits::default(),
        driver: driver.clone(),
        earlier: [(earlier.fingerprint().unwrap(), earlier)].into(),
        has: vec![old.clone()],
        next_number: 2,
    });
    let scaler = scaler.await.unwrap();
    let mut view = scaler.subscribe();
    let mut both = roster(&[1, 2], &driver);
    both.backends[0] = old;
    scaler.desire(both.clone()).await.unwrap();
    let is_ready = |one: &equipoise_driver::ElasticBackend| one.state == BackendState::Ready;
    let are_ready = |view: &Arc<equipoise_driver::PoolView>| {
        view.backends.len() == 2 && view.backends.iter().all(is_ready)
    };
    view.wait_for(are_ready).await.unwrap();
    both.backends[0].wish = Wish::Leave;
    scaler.desire(both).await.unwrap();
    let says_why = |view: &Arc<equipoise_driver::PoolView>| {
        let problem = view.backends[0].problem.as_deref().unwrap_or_default();
        problem.contains("gone.pem")
    };
    let view = view.wait_for(says_why).await.unwrap();
    assert_eq!(view.backends[0].address, Some(address), "it is not forgotten");
}
