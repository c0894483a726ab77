//! Events as they happen.

use std::time::Duration;

use http_body_util::BodyExt;
use hyper::body::Incoming;

use super::{Client, ClientError};
use crate::routes::events::EVENTS;
use crate::wire::events::{Event, EventsQuestion};

/// Longest silence of a stream. The server writes a comment every 15 s.
const SILENCE_MAX: Duration = Duration::from_secs(45);

impl Client {
    /// [`EVENTS`] as a stream, which goes on with new events.
    ///
    /// # Errors
    /// [`ClientError`].
    pub async fn follow_events(
        &self,
        question: &EventsQuestion,
    ) -> Result<EventStream, ClientError> {
        let body = self.open_stream(EVENTS, question, "text/event-stream").await?;
        Ok(EventStream { body, buffer: Vec::new(), last: question.after.clone() })
    }
}

/// Events as they happen.
#[derive(Debug)]
pub struct EventStream {
    body: Incoming,
    /// Received bytes without a complete event.
    buffer: Vec<u8>,
    last: Option<String>,
}

impl EventStream {
    /// The next event; `None` at the end of the connection.
    pub async fn next(&mut self) -> Option<Event> {
        loop {
            while let Some(end) = self.buffer.windows(2).position(|pair| pair == b"\n\n") {
                let part: Vec<u8> = self.buffer.drain(..end + 2).collect();
                if let Some(event) = self.read(&String::from_utf8_lossy(&part)) {
                    return Some(event);
                }
            }
            let frame = tokio::time::timeout(SILENCE_MAX, self.body.frame()).await.ok()??.ok()?;
            if let Ok(data) = frame.into_data() {
                self.buffer.extend_from_slice(&data);
            }
        }
    }

    /// The id from which a later stream continues.
    pub fn last(&self) -> Option<&str> {
        self.last.as_deref()
    }

    /// The event of a part of the stream; a comment has none.
    fn read(&mut self, part: &str) -> Option<Event> {
        let field = |name: &str| part.lines().find_map(|line| line.strip_prefix(name));
        if let Some(id) = field("id: ") {
            self.last = Some(id.to_owned());
        }
        serde_json::from_str(field("data: ")?).ok()
    }
}
