//! Sample backends that outlive equipoise, added and removed by a script like an operator's.

use std::collections::BTreeMap;
use std::path::PathBuf;

use super::{EQUIPOISE, Folder, kill, text};

/// A fleet of backends. Its folder has a file for each backend with process id, address and key,
/// and a log of the script's calls.
pub struct Fleet {
    folder: PathBuf,
    script: PathBuf,
    /// The program to run in place of a sample backend.
    server: Option<PathBuf>,
}

/// A server that processes several requests at a time, each in 50 ms; further requests wait. Its
/// arguments are that number and its port (optional).
const SERVER: &str = r#"
import sys, threading, time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
workers = threading.BoundedSemaphore(int(sys.argv[1]))
class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    def do_GET(self):
        with workers:
            time.sleep(0.05)
        self.send_response(200)
        self.send_header("Content-Length", "0")
        self.end_headers()
    def log_message(self, *_):
        pass
class Server(ThreadingHTTPServer):
    request_queue_size = 64
    daemon_threads = True
server = Server(("127.0.0.1", int(sys.argv[2]) if len(sys.argv) > 2 else 0), Handler)
print("ready http=%d" % server.server_port, flush=True)
server.serve_forever()
"#;

/// The operator's script. Asked to add an existing backend, it returns its address, because the
/// first answer may have been lost.
const SCRIPT: &str = r#"
import fcntl, json, os, subprocess, sys
folder, program, server, verb = sys.argv[1:5]
workers = {"small": "1", "large": "4"}
ask = json.load(sys.stdin) if verb != "list" else {}
lock = open(os.path.join(folder, "lock"), "w")
fcntl.flock(lock, fcntl.LOCK_EX)
def note(line):
    with open(os.path.join(folder, "log"), "a") as log:
        log.write(line + "\n")
def known():
    there = {}
    for name in os.listdir(folder):
        if name.endswith(".backend"):
            with open(os.path.join(folder, name)) as file:
                there[name[:-8]] = json.load(file)
    return there
if verb == "list":
    print(json.dumps({"backends": [dict(name=n, address=b["address"], id=str(b["pid"])) for n, b in known().items()]}))
    sys.exit(0)
name = ask["name"]
path = os.path.join(folder, name + ".backend")
if verb == "add":
    there = known().get(name)
    if there is None:
        words = [program, "sample-backend", "--name", name]
        if server:
            words = ["python3", server, workers[ask["size"]]]
        child = subprocess.Popen(words, stdin=subprocess.DEVNULL,
                                 stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, start_new_session=True)
        ready = child.stdout.readline().decode()
        address = "127.0.0.1:" + [word for word in ready.split() if word.startswith("http=")][0][5:]
        there = dict(pid=child.pid, address=address, key=ask["key"], size=ask.get("size"))
        with open(path + ".part", "w") as file:
            json.dump(there, file)
        os.rename(path + ".part", path)
        note(" ".join(["made", name] + [size for size in [ask.get("size")] if size]))
    elif there["key"] != ask["key"]:
        note("doubled " + name)
        sys.exit("another key")
    print(json.dumps(dict(address=there["address"], id=str(there["pid"]))))
else:
    there = known().get(name)
    if there is not None:
        os.kill(there["pid"], 9)
        os.unlink(path)
        note("removed " + name)
    print("{}")
"#;

/// A server with one thread and without persistent connections, which sleeps or computes for each
/// request.
const ONE_THREAD: &str = r#"
import sys, time
from http.server import BaseHTTPRequestHandler, HTTPServer
how, port = sys.argv[1], int(sys.argv[2])
class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.0"
    def do_GET(self):
        if how == "sleeps":
            time.sleep(0.025)
        else:
            until = time.process_time() + 0.02
            while time.process_time() < until:
                pass
        self.send_response(200)
        self.send_header("Content-Length", "0")
        self.end_headers()
    def log_message(self, *_):
        pass
class Server(HTTPServer):
    request_queue_size = 64
Server(("127.0.0.1", port), Handler).serve_forever()
"#;

/// A script for python3 that adds 192.0.2.N as pool `web`'s Nth backend, and logs its calls to a
/// file.
pub const NUMBERED: &str = r#"
import json, sys
ask = json.load(sys.stdin)
with open(sys.argv[1], "a") as log:
    log.write(ask["action"] + " " + ask["name"] + "\n")
number = ask["name"].removeprefix("web-e")
print(json.dumps({"address": "192.0.2.%s:80" % number, "id": number}))
"#;

/// A program for python3. Its arguments are its work (`sleeps`, otherwise it computes) and its
/// port.
pub fn server_of_one_thread(folder: &Folder) -> PathBuf {
    folder.write("one-thread.py", ONE_THREAD)
}

/// A program for python3. Its arguments are the number of requests that it processes at a time, and
/// its port.
pub fn server_with_slots(folder: &Folder) -> PathBuf {
    folder.write("slots.py", SERVER)
}

impl Fleet {
    pub fn new(folder: &Folder) -> Fleet {
        Fleet::named(folder, "fleet")
    }

    /// A fleet with a name, if a test has several.
    pub fn named(folder: &Folder, name: &str) -> Fleet {
        let fleet = folder.path(name);
        std::fs::create_dir_all(&fleet).expect("the folder is ours");
        Fleet { folder: fleet, script: folder.write("fleet.py", SCRIPT), server: None }
    }

    /// A fleet with two sizes: `small` processes one request at a time, `large` four.
    pub fn sized(folder: &Folder) -> Fleet {
        let server = Some(folder.write("server.py", SERVER));
        let mut fleet = Fleet::new(folder);
        fleet.server = server;
        fleet
    }

    /// The table `[pool.elastic.exec]`.
    pub fn table(&self) -> String {
        let command = |verb: &str| {
            let server = self.server.as_deref().map_or("", text);
            let (script, folder) = (text(&self.script), text(&self.folder));
            let words = ["python3", script, folder, EQUIPOISE, server, verb];
            format!("{words:?}")
        };
        let (add, remove, list) = (command("add"), command("remove"), command("list"));
        format!("[pool.elastic.exec]\nadd = {add}\nremove = {remove}\nlist = {list}\n")
    }

    /// The same table without `list`.
    pub fn table_without_list(&self) -> String {
        let table = self.table();
        table
            .lines()
            .filter(|line| !line.starts_with("list"))
            .map(|line| format!("{line}\n"))
            .collect()
    }

    /// The existing backends: name and process id.
    pub fn there(&self) -> BTreeMap<String, u32> {
        let files = std::fs::read_dir(&self.folder).expect("it is there").flatten();
        let read = |file: std::fs::DirEntry| {
            let name = file.file_name().into_string().ok()?;
            let name = name.strip_suffix(".backend")?.to_string();
            let said = std::fs::read(file.path()).ok()?;
            let said: serde_json::Value = serde_json::from_slice(&said).ok()?;
            Some((name, said["pid"].as_u64()? as u32))
        };
        files.filter_map(read).collect()
    }

    /// The sizes of the existing backends.
    pub fn sizes(&self) -> Vec<String> {
        let log = self.log();
        let there = self.there();
        let made = |line: &String| {
            let words: Vec<&str> = line.split(' ').collect();
            match words[..] {
                ["made", name, size] if there.contains_key(name) => Some(size.to_string()),
                _ => None,
            }
        };
        log.iter().filter_map(made).collect()
    }

    /// The calls that had an effect, in order.
    pub fn log(&self) -> Vec<String> {
        let log = std::fs::read_to_string(self.folder.join("log")).unwrap_or_default();
        log.lines().map(str::to_string).collect()
    }
}

impl Drop for Fleet {
    fn drop(&mut self) {
        for pid in self.there().into_values() {
            if std::path::Path::new(&format!("/proc/{pid}")).exists() {
                kill(pid, libc::SIGKILL);
            }
        }
    }
}
