//! The access log over syslog (RFC 5424): a datagram for each line.

use std::io::{self, Write};
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr, UdpSocket};
use std::os::unix::net::UnixDatagram;
use std::time::{SystemTime, UNIX_EPOCH};

use equipoise_config::SyslogTo;
use equipoise_core::Rfc3339;

/// Facility local0, severity informational.
const PRIORITY: u8 = 16 * 8 + 6;

/// A sender of messages.
pub(crate) struct Syslog {
    to: SyslogTo,
    /// `HOSTNAME`.
    host: String,
    socket: Option<Socket>,
    message: Vec<u8>,
}

enum Socket {
    Unix(UnixDatagram),
    Udp(UdpSocket),
}

impl Syslog {
    /// A sender. It connects with its first message, so that the server may start later.
    pub(crate) fn new(to: SyslogTo, host: String) -> Syslog {
        Syslog { to, host, socket: None, message: Vec::new() }
    }

    /// Sends a line. Waits while the server's socket is full.
    ///
    /// # Errors
    /// The line was not sent, even over a new connection.
    pub(crate) fn send(&mut self, line: &[u8]) -> io::Result<()> {
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        self.message.clear();
        // No byte order mark: lines are read by programs that expect none.
        write!(
            self.message,
            "<{PRIORITY}>1 {} {} equipoise {} access - ",
            Rfc3339(now),
            self.host,
            std::process::id()
        )?;
        self.message.extend_from_slice(line);
        // A server that was restarted has a new socket.
        if self.socket.as_ref().is_some_and(|socket| socket.send(&self.message).is_ok()) {
            return Ok(());
        }
        self.socket = None;
        let socket = Socket::open(&self.to)?;
        socket.send(&self.message)?;
        self.socket = Some(socket);
        Ok(())
    }
}

impl Socket {
    fn open(to: &SyslogTo) -> io::Result<Socket> {
        match to {
            SyslogTo::Unix(path) => {
                let socket = UnixDatagram::unbound()?;
                socket.connect(path)?;
                Ok(Socket::Unix(socket))
            }
            SyslogTo::Udp(server) => {
                let any: SocketAddr = match server {
                    SocketAddr::V4(_) => (Ipv4Addr::UNSPECIFIED, 0).into(),
                    SocketAddr::V6(_) => (Ipv6Addr::UNSPECIFIED, 0).into(),
                };
                let socket = UdpSocket::bind(any)?;
                socket.connect(server)?;
                Ok(Socket::Udp(socket))
            }
        }
    }

    fn send(&self, message: &[u8]) -> io::Result<usize> {
        match self {
            Socket::Unix(socket) => socket.send(message),
            Socket::Udp(socket) => socket.send(message),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn received(read: impl FnOnce(&mut [u8]) -> io::Result<usize>) -> String {
        let mut buffer = [0; 1024];
        let length = read(&mut buffer).unwrap();
        String::from_utf8(buffer[..length].to_vec()).unwrap()
    }

    #[track_caller]
    fn assert_message(message: &str, line: &str) {
        let words: Vec<_> = message.splitn(8, ' ').collect();
        let pid = std::process::id().to_string();
        assert_eq!(words[0], "<134>1");
        assert!(words[1].ends_with('Z') && words[1].len() == 24, "{message}");
        assert_eq!(words[2..], ["edge-1", "equipoise", &pid, "access", "-", line]);
    }

    #[test]
    fn a_line_is_a_message_and_a_restarted_server_gets_the_next() {
        let folder = std::env::temp_dir().join(format!("equipoise-syslog-{}", std::process::id()));
        std::fs::create_dir_all(&folder).unwrap();
        let path = folder.join("log");
        let mut syslog = Syslog::new(SyslogTo::Unix(path.clone()), "edge-1".into());
        syslog.send(b"early").unwrap_err();
        for line in ["status=200 path=\"/a\"", "after"] {
            let server = UnixDatagram::bind(&path).unwrap();
            syslog.send(line.as_bytes()).unwrap();
            assert_message(&received(|buffer| server.recv(buffer)), line);
            std::fs::remove_file(&path).unwrap();
        }
        syslog.send(b"lost").unwrap_err();
        std::fs::remove_dir_all(&folder).unwrap();
    }

    #[test]
    fn a_server_may_have_a_udp_address() {
        for address in ["127.0.0.1:0", "[::1]:0"] {
            let server = UdpSocket::bind(address).unwrap();
            let to = SyslogTo::Udp(server.local_addr().unwrap());
            Syslog::new(to, "edge-1".into()).send(b"{}").unwrap();
            assert_message(&received(|buffer| server.recv(buffer)), "{}");
        }
    }
}
