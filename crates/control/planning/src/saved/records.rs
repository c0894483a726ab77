//! Records of earlier versions: `elastic-POOL.json` for each pool, and a copy, with the backends
//! that this machine's drivers had created.

use std::collections::BTreeMap;
use std::fs;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::time::Duration;

use equipoise_controller::{Edition, Entry, MadeState, Roster, Wanted};
use equipoise_driver::DriverOptions;
use serde::Deserialize;

use super::{BYTES_MAX, Saved};

#[derive(Deserialize)]
struct Record {
    pool: String,
    next_number: u64,
    /// `None`: the driver's backends ended with the process. Empty in the first layout.
    #[serde(default)]
    drivers: BTreeMap<u32, Option<DriverOptions>>,
    backends: Vec<Recorded>,
}

#[derive(Deserialize)]
struct Recorded {
    name: String,
    size: Option<String>,
    key: String,
    state: State,
    address: Option<SocketAddr>,
    id: Option<String>,
    #[serde(default)]
    maker: u32,
    #[serde(default)]
    replaces: Option<String>,
}

#[derive(Clone, Copy, PartialEq, Deserialize)]
#[serde(rename_all = "lowercase")]
enum State {
    Adding,
    Ready,
    Draining,
    Leaving,
}

/// Reads the records of a folder as rosters of this member; also returns their files.
pub(super) fn read(folder: &Path, own: &str) -> (Saved, Vec<PathBuf>) {
    let (mut saved, mut files) = (Saved::default(), Vec::new());
    let names = fs::read_dir(folder).into_iter().flatten().flatten();
    let names = names.filter_map(|entry| entry.file_name().into_string().ok());
    for name in names.filter(|name| name.starts_with("elastic-")) {
        // Possibly only the copy is left.
        let Some(stem) = name.strip_suffix(".json.copy").or_else(|| name.strip_suffix(".json"))
        else {
            continue;
        };
        let record = folder.join(format!("{stem}.json"));
        let both = [record.clone(), folder.join(format!("{stem}.json.copy"))];
        if files.contains(&record) {
            continue;
        }
        match both.iter().find_map(|path| parse(path)) {
            Some(record) => take(&mut saved, record, own),
            None => {
                tracing::error!(
                    "{} and its copy cannot be read: backends that they name and `equipoise plan` does not show must be removed \
                     by hand",
                    record.display()
                );
                continue;
            }
        }
        files.extend(both);
    }
    (saved, files)
}

fn parse(path: &Path) -> Option<Record> {
    serde_json::from_slice(&equipoise_basics::files::read(path, BYTES_MAX).ok()?).ok()
}

fn take(saved: &mut Saved, record: Record, own: &str) {
    let name = |maker: &u32| record.drivers.get(maker)?.as_ref()?.fingerprint();
    let entry = |one: &Recorded| Entry {
        key: one.key.clone(),
        size: one.size.clone(),
        executor: own.to_string(),
        since: Edition::default(),
        outlives: record.drivers.is_empty() || name(&one.maker).is_some(),
        driver: name(&one.maker),
        wanted: match one.state {
            State::Adding | State::Ready => Wanted::Serve,
            State::Draining => Wanted::Drain,
            State::Leaving => Wanted::Leave,
        },
        state: if one.state == State::Adding { MadeState::Starting } else { MadeState::Ready },
        address: one.address,
        id: one.id.clone(),
        problem: None,
        age: Duration::ZERO,
        draining_for: Duration::ZERO,
        replaces: one.replaces.clone(),
    };
    let backends = record.backends.iter().map(|one| (one.name.clone(), entry(one))).collect();
    let roster = Roster { next_number: record.next_number, backends, ..Roster::default() };
    let drivers = record.drivers.values().flatten();
    let drivers = drivers.filter_map(|it| Some((it.fingerprint()?, it.clone()))).collect();
    saved.drivers.insert(record.pool.clone(), drivers);
    saved.rosters.insert(record.pool, roster);
}

#[cfg(test)]
mod tests {
    use equipoise_testkit::Folder;

    use super::super::{load, place};
    use super::*;

    const RECORD: &str = r#"{"version": 2, "pool": "web", "next_number": 9, "maker": 1, "drivers":
        {"0": {"exec": {"add": ["a"], "remove": ["r"], "list": null, "environment": {}, "folder": null,
                        "timeout": {"secs": 9, "nanos": 0}}}, "1": null}, "backends": [
        {"name": "web-e3", "size": null, "key": "k3", "state": "ready", "address": "192.0.2.3:80", "id": "vm-3", "maker": 0,
         "ready_unix_ms": 1700000000000, "replaces": null},
        {"name": "web-e4", "size": "small", "key": "k4", "state": "adding", "address": null, "id": null, "maker": 1,
         "replaces": "web-e3"}]}"#;

    #[test]
    fn records_of_earlier_versions_are_taken_over_once() {
        for left in [&["elastic-web.json", "elastic-web.json.copy"][..], &["elastic-web.json.copy"]]
        {
            let scratch = Folder::new("saved");
            let folder = &scratch.path("state");
            fs::create_dir(folder).expect("the folder is ours");
            for name in left {
                fs::write(folder.join(name), RECORD).expect("the folder is ours");
            }
            let saved = load(folder, "a");
            let roster = &saved.rosters["web"];
            assert_eq!(roster.next_number, 9);
            let [three, four] = ["web-e3", "web-e4"].map(|name| &roster.backends[name]);
            assert_eq!((three.outlives, four.outlives), (true, false));
            assert_eq!(three.driver.as_ref(), saved.drivers["web"].keys().next());
            assert_eq!((three.key.as_str(), three.state), ("k3", MadeState::Ready));
            assert_eq!(three.id.as_deref(), Some("vm-3"));
            assert_eq!(
                (four.state, four.replaces.as_deref()),
                (MadeState::Starting, Some("web-e3"))
            );
            let there: Vec<_> = fs::read_dir(folder).expect("a folder").flatten().collect();
            assert_eq!(there.len(), 1, "{there:?}");
            assert!(place(folder).exists());
            assert_eq!(load(folder, "a"), saved);
        }
    }

    #[test]
    fn a_damaged_record_is_left_and_the_first_layout_knows_one_driver() {
        let scratch = Folder::new("saved");
        let folder = &scratch.path("state");
        fs::create_dir(folder).expect("the folder is ours");
        fs::write(folder.join("elastic-db.json"), "{").expect("the folder is ours");
        let first = r#"{"version": 1, "pool": "web", "next_number": 2, "backends": [{"name": "web-e1", "size": null,
            "key": "k", "state": "ready", "address": "192.0.2.3:80", "id": "i", "ready_unix_ms": null}]}"#;
        fs::write(folder.join("elastic-web.json"), first).expect("the folder is ours");
        let saved = load(folder, "a");
        let one = &saved.rosters["web"].backends["web-e1"];
        assert_eq!((one.outlives, &one.driver, saved.rosters.len()), (true, &None, 1));
        assert!(folder.join("elastic-db.json").exists());
        assert!(!folder.join("elastic-web.json").exists());
    }
}
