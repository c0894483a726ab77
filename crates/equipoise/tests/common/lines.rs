//! Backends that answer each line with their name, and connections that ask them.

use std::io::{self, BufRead, BufReader, Write};
use std::net::{TcpListener, TcpStream};

/// Serves as the backend with this number.
pub(crate) fn serve(listener: &TcpListener, number: usize) {
    for stream in listener.incoming().flatten() {
        std::thread::spawn(move || {
            let mut reader = BufReader::new(stream);
            let mut line = String::new();
            while reader.read_line(&mut line).is_ok_and(|bytes| bytes > 0) {
                if writeln!(reader.get_mut(), "backend-{number}").is_err() {
                    return;
                }
                line.clear();
            }
        });
    }
}

/// A connection of the client.
pub(crate) struct Session {
    pub(crate) stream: BufReader<TcpStream>,
    /// The backend that answered first.
    pub(crate) backend: String,
}

impl Session {
    /// Asks for the first time.
    pub(crate) fn of(stream: TcpStream) -> io::Result<Session> {
        let mut session = Session { stream: BufReader::new(stream), backend: String::new() };
        session.backend = session.asked()?;
        Ok(session)
    }

    /// The name of the backend that answers; empty if the connection has ended.
    pub(crate) fn asked(&mut self) -> io::Result<String> {
        self.stream.get_mut().write_all(b"who\n")?;
        let mut answer = String::new();
        self.stream.read_line(&mut answer)?;
        Ok(answer.trim().to_owned())
    }
}
