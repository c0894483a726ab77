//! Instructions as server-sent events.

use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use axum::body::Body;
use axum::http::{HeaderValue, header};
use axum::response::Response;
use equipoise_controller::{Edition, Instructions};
use hyper::body::Bytes;
use tokio::sync::watch;
use tokio::time::{Interval, MissedTickBehavior, interval};

use super::Shared;
use super::connections::Peer;
use crate::wire::INSTRUCTIONS_EVENT;

/// One edition, written once for all nodes.
#[derive(Clone, Debug)]
pub(crate) struct Encoded {
    edition: Edition,
    event: Bytes,
}

/// A task that writes each edition as an event, and the newest.
pub(crate) fn encode(
    mut instructions: watch::Receiver<Arc<Instructions>>,
) -> (impl Future<Output = ()>, watch::Receiver<Option<Encoded>>) {
    let (tell, told) = watch::channel(None);
    let task = async move {
        instructions.mark_changed();
        while instructions.changed().await.is_ok() {
            let newest = Arc::clone(&instructions.borrow_and_update());
            if newest.is_blank() {
                continue;
            }
            match event(&newest) {
                Ok(event) => {
                    tell.send_replace(Some(Encoded { edition: newest.edition(), event }));
                }
                Err(error) => {
                    tracing::error!(edition = %newest.edition(), %error, "instructions cannot be written");
                }
            }
        }
        // Without a controller the streams stay open: nodes need not all move at its end.
        tell.closed().await;
    };
    (task, told)
}

fn event(instructions: &Instructions) -> serde_json::Result<Bytes> {
    let mut text = format!("event: {INSTRUCTIONS_EVENT}\nid: {}\ndata: ", instructions.edition());
    // JSON on one line: serde_json writes no line feed of its own, and escapes those in texts.
    text.push_str(&serde_json::to_string(instructions)?);
    text.push_str("\n\n");
    Ok(text.into())
}

/// `TERM.GENERATION`, as events' ids have it.
pub(crate) fn edition(text: &str) -> Option<Edition> {
    let (term, generation) = text.split_once('.')?;
    Some(Edition { term: term.parse().ok()?, generation: generation.parse().ok()? })
}

struct Stream {
    encoded: watch::Receiver<Option<Encoded>>,
    evictions: watch::Receiver<super::Evictions>,
    stopping: watch::Receiver<bool>,
    peer: Arc<Peer>,
    last: Edition,
    quiet: Interval,
    has_begun: bool,
}

/// All editions after `last`, the newest first of all; where a node is slow, those in between are left out.
pub(crate) fn respond(shared: &Shared, peer: Arc<Peer>, last: Option<Edition>) -> Response {
    let mut quiet = interval(shared.options.keep_alive.max(Duration::from_millis(10)));
    quiet.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let stream = Stream {
        encoded: shared.encoded.clone(),
        evictions: shared.evictions.clone(),
        stopping: shared.stopping.clone(),
        peer,
        last: last.unwrap_or_default(),
        quiet,
        has_begun: false,
    };
    let frames = futures_util::stream::unfold(stream, |mut stream| async {
        let frame = stream.next().await?;
        Some((Ok::<_, Infallible>(frame), stream))
    });
    let mut response = Response::new(Body::from_stream(frames));
    let headers = response.headers_mut();
    headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("text/event-stream"));
    headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-store"));
    response
}

impl Stream {
    async fn next(&mut self) -> Option<Bytes> {
        loop {
            let newest = self.encoded.borrow_and_update().clone();
            if let Some(newest) = newest.filter(|newest| newest.edition > self.last) {
                self.last = newest.edition;
                return Some(newest.event);
            }
            if !std::mem::replace(&mut self.has_begun, true) {
                self.quiet.reset();
                return Some(Bytes::from_static(b": here\n\n"));
            }
            tokio::select! {
                changed = self.encoded.changed() => changed.ok()?,
                _ = self.quiet.tick() => return Some(Bytes::from_static(b":\n\n")),
                _ = self.stopping.wait_for(|stopping| *stopping) => return None,
                changed = self.evictions.changed() => {
                    changed.ok()?;
                    let certified = self.peer.certified.as_ref()?;
                    if self.evictions.borrow_and_update().has(certified) {
                        return None;
                    }
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_editions_id_reads_back_and_nonsense_is_none() {
        let one = Edition { term: 3, generation: 14 };
        assert_eq!(edition(&one.to_string()), Some(one));
        for bad in ["", "3", "3.", ".4", "-1.2", "a.b", "1.2.3"] {
            assert_eq!(edition(bad), None, "{bad}");
        }
    }

    #[test]
    fn an_event_is_one_line_of_data_whatever_is_in_it() {
        let leader = "two\nlines\r\n\n".to_string();
        let sent = Instructions { term: 1, generation: 2, leader, ..Instructions::default() };
        let mut parser = crate::sse::Parser::new(1 << 20);
        let mut events = Vec::new();
        parser.feed(&event(&sent).unwrap(), |event| events.push(event)).unwrap();
        assert_eq!((events.len(), &*events[0].name, &*events[0].id), (1, "instructions", "1.2"));
        assert_eq!(serde_json::from_str::<Instructions>(&events[0].data).unwrap(), sent);
    }
}
