//! The slow part of the upstream: nginx, which cannot wait, passes some requests on to it.

use std::io::{self, Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::thread;
use std::time::Duration;

const DELAY: Duration = Duration::from_millis(50);

/// Answers every request with `body` after [`DELAY`], in threads that end with the process.
pub(crate) fn serve(body: &[u8]) -> io::Result<SocketAddr> {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?;
    let address = listener.local_addr()?;
    let head = format!("HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n", body.len());
    let response = [head.as_bytes(), body].concat();
    thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            let response = response.clone();
            thread::spawn(move || answer(stream, &response));
        }
    });
    Ok(address)
}

/// Until nginx closes. It sends its requests one by one, each in one piece.
fn answer(mut stream: TcpStream, response: &[u8]) -> io::Result<()> {
    let mut request = [0; 4096];
    while stream.read(&mut request)? > 0 {
        thread::sleep(DELAY);
        stream.write_all(response)?;
    }
    Ok(())
}
