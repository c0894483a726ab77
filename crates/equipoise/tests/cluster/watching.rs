//! Reads the status of a process over its unix socket continuously.

use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::thread::{self, JoinHandle};
use std::time::Duration;

/// A machine's status over its unix socket.
pub(crate) fn status(socket: &Path) -> Option<serde_json::Value> {
    ask(socket, "/v1/status")
}

/// The answer of its API to a GET, as JSON.
pub(crate) fn ask(socket: &Path, path: &str) -> Option<serde_json::Value> {
    let mut stream = UnixStream::connect(socket).ok()?;
    stream.set_read_timeout(Some(Duration::from_secs(60))).ok()?;
    let request = format!("GET {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n");
    stream.write_all(request.as_bytes()).ok()?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer).ok()?;
    serde_json::from_str(answer.split_once("\r\n\r\n")?.1).ok()
}

/// Reads the instructions that a node follows continuously, and panics if they go back. Returns the
/// number of readings and of terms.
pub(crate) fn watch(socket: PathBuf, stop: &Arc<AtomicBool>) -> JoinHandle<(usize, u64)> {
    let stop = Arc::clone(stop);
    thread::spawn(move || {
        let (mut last, mut looks, mut terms) = ((0, 0), 0, 0);
        while !stop.load(Relaxed) {
            if let Some(now) = status(&socket) {
                let cluster = &now["cluster"];
                let number = |what: &str| cluster[what].as_u64().unwrap_or(0);
                let edition = (number("term"), number("generation"));
                assert!(edition >= last, "from {last:?} back to {edition:?}");
                terms += u64::from(edition.0 > last.0);
                last = edition;
                looks += 1;
            }
            thread::sleep(Duration::from_millis(20));
        }
        (looks, terms)
    })
}
