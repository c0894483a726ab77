//! A process with one pool that has a source.

use std::path::PathBuf;

use equipoise_testkit::{ReservedPort, eventually, free_port};
use serde_json::Value;

use crate::common::{Folder, Process, equipoise, get, stderr, stdout, text};

pub(crate) struct Instance {
    pub(crate) process: Process,
    pub(crate) folder: Folder,
    pub(crate) file: PathBuf,
    pub(crate) door: ReservedPort,
}

impl Instance {
    /// Starts it with these lines of the pool. `{folder}` stands for its folder.
    pub(crate) fn start(test: &str, folder: Folder, pool: &str) -> Instance {
        let door = free_port();
        let pool = pool.replace("{folder}", text(folder.root()));
        let file = folder.write(
            "equipoise.toml",
            &format!(
                "[instance]\nname = '{test}'\nthreads = 2\n[api]\nsocket = '{}'\nlisten = 'off'\n\
                 [controller]\nstate = '{}'\n\
                 [[session]]\nlisten = '{}'\nprotocol = 'http'\npool = 'web'\n\
                 [[pool]]\nname = 'web'\n{pool}\n",
                folder.path("api.sock").display(),
                folder.path("state").display(),
                door.address()
            ),
        );
        let process = Process::start(&["run", text(&file)]);
        process.wait_for_text(" ready ");
        Instance { process, folder, file, door }
    }

    pub(crate) fn command(&self, args: &[&str]) -> (bool, String) {
        let socket = self.folder.path("api.sock");
        let output = equipoise(&[args, &["--api", text(&socket)]].concat());
        (output.status.success(), stdout(&output) + &stderr(&output))
    }

    pub(crate) fn done(&self, args: &[&str]) -> String {
        let (worked, said) = self.command(args);
        assert!(worked, "{args:?}: {said}");
        said
    }

    /// The pool in `status`.
    pub(crate) fn pool(&self) -> Value {
        let status: Value = serde_json::from_str(&self.done(&["status", "--json"])).unwrap();
        status["pools"][0].clone()
    }

    /// Addresses of the pool's backends, sorted.
    pub(crate) fn addresses(&self) -> Vec<String> {
        let pool = self.pool();
        let address = |it: &Value| it["address"].as_str().unwrap().to_string();
        let mut all: Vec<_> = pool["backends"].as_array().unwrap().iter().map(address).collect();
        all.sort();
        all
    }

    pub(crate) fn problem(&self) -> String {
        self.pool()["source"]["problem"].as_str().unwrap_or_default().to_string()
    }

    pub(crate) fn has(&self, addresses: &[&str]) {
        let mut wanted = addresses.to_vec();
        wanted.sort_unstable();
        let has = eventually(|| self.addresses() == wanted);
        assert!(has, "{wanted:?} are awaited: {:#}\n{}", self.pool(), self.process.printed());
    }

    pub(crate) fn has_problem(&self, part: &str) {
        let has = eventually(|| self.problem().contains(part));
        assert!(has, "{part}: {:#}\n{}", self.pool(), self.process.printed());
    }

    pub(crate) fn has_no_problem(&self) {
        let has = eventually(|| self.pool()["source"]["problem"].is_null());
        assert!(has, "{:#}\n{}", self.pool(), self.process.printed());
    }

    pub(crate) fn ask(&self) -> (u16, String) {
        let response = get(self.door.address(), "/");
        (response.status(), response.text())
    }
}
