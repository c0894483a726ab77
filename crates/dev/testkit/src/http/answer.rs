use std::time::Duration;

use crate::Gate;

/// How the backend reads a request's body before it answers.
#[derive(Clone, Debug, Default)]
pub enum Intake {
    /// All of it, kept for [`Received::body`](crate::Received::body).
    #[default]
    Keep,
    /// All of it, compared with the pattern of this seed and not kept.
    Check(u64),
    /// All of it and kept, at most this many bytes at a time, with a pause after each.
    Slow(usize, Duration),
    /// Not before the answer; what follows the answer on the connection is then not read either.
    Ignore,
    /// Not before the gate opens, then as [`Intake::Keep`].
    After(Gate),
}

/// One thing that a backend does for a request.
#[derive(Clone, Debug)]
pub enum Step {
    /// Sends these bytes.
    Send(Vec<u8>),
    /// Sends these bytes unless the request was a HEAD.
    Body(Vec<u8>),
    /// Sends the first bytes of the pattern of a seed, unless the request was a HEAD.
    Pattern {
        /// The pattern's seed.
        seed: u64,
        /// Bytes in all.
        bytes: u64,
        /// Size of the chunks; `None`: not chunked.
        chunk: Option<usize>,
    },
    /// Sends a 200 with the received request, head and body, as its body.
    Echo,
    /// Waits for this long.
    Pause(Duration),
    /// Waits until the test opens the gate.
    Wait(Gate),
    /// Opens the gate, for a test that waits until the steps before were done.
    Open(Gate),
    /// Sends back whatever comes until the peer closes, then closes.
    EchoTunnel,
    /// Reads and ignores whatever comes until the peer closes, then closes.
    Hang,
    /// Closes.
    Close,
    /// Closes with a reset.
    Reset,
}

/// The response of a backend to one request.
#[derive(Clone, Debug, Default)]
pub struct Answer {
    /// Between the head and the body.
    pub before_body: Vec<Step>,
    /// How the body is read.
    pub intake: Intake,
    /// After the body, in order.
    pub steps: Vec<Step>,
}

impl Answer {
    /// These bytes and nothing else, as they are.
    pub fn raw(bytes: impl AsRef<[u8]>) -> Answer {
        Answer::default().then(Step::Send(bytes.as_ref().to_vec()))
    }

    fn with_head(status: u16, headers: &str) -> Answer {
        Answer::raw(format!("HTTP/1.1 {status} {}\r\n{headers}\r\n", phrase(status)))
    }

    /// A status and a body of known length.
    pub fn sized(status: u16, body: impl AsRef<[u8]>) -> Answer {
        let body = body.as_ref();
        let head = Answer::with_head(status, &format!("Content-Length: {}\r\n", body.len()));
        head.then(Step::Body(body.to_vec()))
    }

    /// 200 and a body of known length.
    pub fn ok(body: impl AsRef<[u8]>) -> Answer {
        Answer::sized(200, body)
    }

    /// A status with neither length nor body: 204, 304.
    pub fn bare(status: u16) -> Answer {
        Answer::with_head(status, "")
    }

    /// 200 and a chunk for each piece, then the trailers (`"Name: value"`).
    pub fn chunked(pieces: &[&str], trailers: &[&str]) -> Answer {
        let mut answer = Answer::with_head(200, "Transfer-Encoding: chunked\r\n");
        for piece in pieces {
            let chunk = format!("{:x}\r\n{piece}\r\n", piece.len());
            answer = answer.then(Step::Body(chunk.into_bytes()));
        }
        let end: String = trailers.iter().map(|t| format!("{t}\r\n")).collect();
        answer.then(Step::Body(format!("0\r\n{end}\r\n").into_bytes()))
    }

    /// 200 and a body that ends with the connection.
    pub fn to_close(body: impl AsRef<[u8]>) -> Answer {
        let head = Answer::with_head(200, "Connection: close\r\n");
        head.then(Step::Body(body.as_ref().to_vec())).then(Step::Close)
    }

    /// An HTTP/1.0 response with a body that ends with the connection.
    pub fn http10(body: impl AsRef<[u8]>) -> Answer {
        let head = Answer::raw("HTTP/1.0 200 OK\r\nContent-Type: text/plain\r\n\r\n");
        head.then(Step::Body(body.as_ref().to_vec())).then(Step::Close)
    }

    /// 200 and a generated body of known length.
    pub fn pattern(seed: u64, bytes: u64) -> Answer {
        let head = Answer::with_head(200, &format!("Content-Length: {bytes}\r\n"));
        head.then(Step::Pattern { seed, bytes, chunk: None })
    }

    /// 200 and a generated body in chunks.
    pub fn pattern_chunked(seed: u64, bytes: u64, chunk: usize) -> Answer {
        let head = Answer::with_head(200, "Transfer-Encoding: chunked\r\n");
        let body = Step::Pattern { seed, bytes, chunk: Some(chunk) };
        head.then(body).then(Step::Body(b"0\r\n\r\n".to_vec()))
    }

    /// A 200 with the received request as its body.
    pub fn echo() -> Answer {
        Answer::default().then(Step::Echo)
    }

    /// Switches to `protocol`, then sends back whatever comes.
    pub fn upgrade(protocol: &str) -> Answer {
        let headers = format!("Connection: Upgrade\r\nUpgrade: {protocol}\r\n");
        Answer::with_head(101, &headers).then(Step::EchoTunnel)
    }

    /// Takes the request and never answers.
    pub fn hang() -> Answer {
        Answer::default().then(Step::Hang)
    }

    /// Closes without an answer.
    pub fn close() -> Answer {
        Answer::default().then(Step::Close)
    }

    /// Resets without an answer.
    pub fn reset() -> Answer {
        Answer::default().then(Step::Reset)
    }

    /// Adds a step at the end.
    #[must_use]
    pub fn then(mut self, step: Step) -> Answer {
        self.steps.push(step);
        self
    }

    /// Adds a step at the start.
    #[must_use]
    pub fn first(mut self, step: Step) -> Answer {
        self.steps.insert(0, step);
        self
    }

    /// Adds a step between the request's head and the reading of its body.
    #[must_use]
    pub fn before_body(mut self, step: Step) -> Answer {
        self.before_body.push(step);
        self
    }

    /// Sends these bytes ahead of the answer: an interim response.
    #[must_use]
    pub fn after_interim(self, interim: impl AsRef<[u8]>) -> Answer {
        self.first(Step::Send(interim.as_ref().to_vec()))
    }

    /// Sets how the request's body is read.
    #[must_use]
    pub fn intake(mut self, intake: Intake) -> Answer {
        self.intake = intake;
        self
    }

    /// Puts `lines` (each ending in CRLF) behind the status line.
    ///
    /// # Panics
    /// If the answer does not begin with a head.
    #[must_use]
    pub fn header_lines(mut self, lines: &str) -> Answer {
        let Some(Step::Send(head)) = self.steps.first_mut() else {
            panic!("the answer does not begin with a head");
        };
        let end = head.windows(2).position(|w| w == b"\r\n").expect("a head has lines") + 2;
        head.splice(end..end, lines.bytes());
        self
    }
}

fn phrase(status: u16) -> &'static str {
    match status {
        101 => "Switching Protocols",
        200 => "OK",
        204 => "No Content",
        304 => "Not Modified",
        500 => "Internal Server Error",
        503 => "Service Unavailable",
        _ => "Status",
    }
}
