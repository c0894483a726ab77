//! `openssl s_client` as a client that resumes sessions.

use std::io::Write;
use std::net::SocketAddr;
use std::process::{Command, Stdio};

use super::{stderr, stdout};

/// Asks an https front door for `/` with these arguments of `openssl s_client`, and returns what it
/// prints: `Reused, TLSv1.3` if a session was resumed. Waits for the end of the connection, and so
/// for tickets.
pub fn s_client(door: SocketAddr, name: &str, args: &[&str]) -> String {
    let mut client = Command::new("openssl")
        .args(["s_client", "-connect", &door.to_string(), "-servername", name, "-ign_eof"])
        .args(args)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("openssl runs; `make test-setup` installs it");
    let request = format!("GET / HTTP/1.1\r\nHost: {name}\r\nConnection: close\r\n\r\n");
    // A refused client takes nothing.
    let _ = client.stdin.take().expect("a pipe").write_all(request.as_bytes());
    let output = client.wait_with_output().expect("it ends");
    stdout(&output) + &stderr(&output)
}
