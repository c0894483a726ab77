//! Servers with one port at several addresses.

use std::io::{BufRead, BufReader, Write};
use std::net::{IpAddr, TcpListener, TcpStream};
use std::thread;

use equipoise_testkit::eventually;

/// Serves a connection and keeps it open, so that a change of address must close it.
pub fn serve(stream: TcpStream, name: &str) -> std::io::Result<()> {
    let mut reader = BufReader::new(stream);
    let mut line = String::new();
    while reader.read_line(&mut line)? > 0 {
        if line == "\r\n" {
            let length = name.len();
            let answer = format!("HTTP/1.1 200 OK\r\nContent-Length: {length}\r\n\r\n{name}");
            reader.get_mut().write_all(answer.as_bytes())?;
        }
        line.clear();
    }
    Ok(())
}

/// Listens at these addresses, all with the same port, which is returned too.
pub fn listen_at(addresses: &[&str]) -> (Vec<TcpListener>, u16) {
    let bind = |address: &str, port| {
        TcpListener::bind((address.parse::<IpAddr>().expect("a loopback address"), port))
    };
    let (mut listeners, mut port) = (Vec::new(), 0);
    let all_bound = eventually(|| {
        listeners.clear();
        port = 0;
        for address in addresses {
            let Ok(listener) = bind(address, port) else { return false };
            port = listener.local_addr().expect("a loopback address").port();
            listeners.push(listener);
        }
        true
    });
    assert!(all_bound, "no port is free at all of {addresses:?}");
    (listeners, port)
}

/// Starts servers at these addresses, all with the same port. Each answers every request with its
/// name.
pub fn serve_at(servers: &[(&str, &'static str)]) -> u16 {
    let addresses: Vec<_> = servers.iter().map(|(address, _)| *address).collect();
    let (listeners, port) = listen_at(&addresses);
    for (listener, (_, name)) in listeners.into_iter().zip(servers.iter().copied()) {
        thread::spawn(move || {
            for stream in listener.incoming() {
                thread::spawn(move || serve(stream?, name));
            }
        });
    }
    port
}
