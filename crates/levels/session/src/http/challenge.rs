//! HTTP-01: an ACME directory asks for the answer to its challenge (RFC 8555, section 8.3).

use std::time::Instant;

use super::connection::{After, ClientConnection};
use super::head::Framing;
use super::request::RequestHead;
use crate::config::Challenges;
use crate::stats::count_status;

/// The path of a challenge's answer, before the token.
pub(super) const PATH: &[u8] = b"/.well-known/acme-challenge/";

/// Whether a target asks for the answer to a challenge of this process.
pub(super) fn is_ours(target: &str, challenges: &Challenges) -> bool {
    let token = target.as_bytes().strip_prefix(PATH).and_then(|it| std::str::from_utf8(it).ok());
    token.is_some_and(|token| challenges.key_authorization(token).is_some())
}

/// The answer to this request, if it asks for one of this process.
pub(super) fn answer_of(upstream_head: &[u8], challenges: &Challenges) -> Option<String> {
    let rest = upstream_head.strip_prefix(b"GET ")?.strip_prefix(PATH)?;
    let token = &rest[..memchr::memchr(b' ', rest)?];
    challenges.key_authorization(std::str::from_utf8(token).ok()?)
}

impl ClientConnection {
    /// The answer, if `upstream_head` asks for one of this process. Other requests for such paths
    /// go to backends, which may have challenges of their own.
    pub(super) fn challenge_answer(&self, upstream_head: &[u8]) -> Option<String> {
        answer_of(upstream_head, &self.worker.shared.challenges)
    }

    /// Sends the answer.
    pub(super) async fn answer_challenge(
        &mut self,
        head: RequestHead,
        upstream_head: Vec<u8>,
        answer: String,
    ) -> After {
        let now = Instant::now();
        self.log_begin(&head, now);
        let mut out = upstream_head;
        out.clear();
        let close = !head.keep_alive || head.framing != Framing::EMPTY || self.is_closing();
        let connection = if close { "Connection: close\r\n" } else { "" };
        let length = answer.len();
        out.extend_from_slice(
            format!(
                "HTTP/1.1 200 OK\r\nContent-Type: application/octet-stream\r\nContent-Length: {length}\r\n\
                 Cache-Control: no-store\r\n{connection}\r\n{answer}"
            )
            .as_bytes(),
        );
        self.door.stats(|stats| {
            stats.requests.add(1);
            count_status(&stats.responses, 200);
        });
        self.deadline.set(now, self.door.view().config.timeouts.idle);
        let after = self.send_whole(&out, close).await;
        self.worker.give_vec(out);
        self.log_end(200, Instant::now());
        after.unwrap_or(After::Abort)
    }
}
