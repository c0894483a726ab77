//! New processes of upgrades that fail.

/// A program that takes over as a new process does, up to a step, and then dies or stands still. It
/// has to get more than so many sockets.
pub fn successor(until: &str, sockets: usize) -> String {
    let (step, end) = match until.split_once(' ') {
        Some((step, _)) => (step, "STOP"),
        None => (until, "KILL"),
    };
    format!(
        r#"#!/usr/bin/env python3
import json, os, signal, socket, struct
channel = socket.socket(fileno=os.dup(0))
def receive():
    header, fds, _, _ = socket.recv_fds(channel, 8, 253)
    text = channel.recv(struct.unpack("<Q", header)[0], socket.MSG_WAITALL)
    return json.loads(text), fds
def send(message):
    text = json.dumps(message).encode()
    channel.sendall(struct.pack("<Q", len(text)) + text)
sockets = 0
while True:
    message, fds = receive()
    sockets += len(fds)
    if "Prepare" in message:
        break
assert sockets > {sockets}, sockets
if "{step}" == "released":
    send("Prepared")
    assert "Released" in receive()[0]
os.kill(os.getpid(), signal.SIG{end})
"#
    )
}
