//! Instructions as server-sent events.

use std::convert::Infallible;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use axum::body::Body;
use axum::http::{HeaderValue, header};
use axum::response::Response;
use equipoise_controller::{Edition, Instructions};
use hyper::body::Bytes;
use serde::Deserialize;
use tokio::sync::watch;
use tokio::time::{Interval, MissedTickBehavior, interval};

use super::Shared;
use super::connections::Peer;
use crate::changes::Telling;
use crate::evicted::Evictions;
use crate::wire::{EVICTED_EVENT, INSTRUCTIONS_EVENT, TOLD_EVENT};

/// One edition, encoded once for all nodes.
#[derive(Debug)]
pub(crate) struct Edited {
    instructions: Arc<Instructions>,
    /// For older clients; encoded when the first one subscribes.
    whole: OnceLock<Option<Bytes>>,
    plain: Telling,
    with_names: Telling,
}

pub(crate) type Encoded = Arc<Edited>;

/// Parameters of a node's subscription.
#[derive(Clone, Copy, Debug, Default, Deserialize)]
pub(crate) struct Wish {
    /// 1: the part that concerns the node, and then only changes.
    #[serde(default)]
    changes: u8,
    /// 1: names, too.
    #[serde(default)]
    names: u8,
}

/// A task that encodes each edition as an event, and the newest event.
pub(crate) fn encode(
    mut instructions: watch::Receiver<Arc<Instructions>>,
) -> (impl Future<Output = ()>, watch::Receiver<Option<Encoded>>) {
    let (tell, told) = watch::channel(None::<Encoded>);
    let task = async move {
        instructions.mark_changed();
        while instructions.changed().await.is_ok() {
            let newest = Arc::clone(&instructions.borrow_and_update());
            if newest.is_blank() {
                continue;
            }
            let edited = Edited::new(Arc::clone(&newest), tell.borrow().as_deref());
            match edited {
                Ok(edited) => drop(tell.send_replace(Some(Arc::new(edited)))),
                Err(error) => {
                    tracing::error!(edition = %newest.edition(), %error, "cannot encode instructions");
                }
            }
        }
        // Without a controller the streams stay open, so that nodes do not all move when it ends.
        tell.closed().await;
    };
    (task, told)
}

impl Edited {
    fn new(instructions: Arc<Instructions>, before: Option<&Edited>) -> serde_json::Result<Edited> {
        let from = |of: fn(&Edited) -> &Telling| {
            before.map(|before| (before.instructions.edition(), of(before)))
        };
        let plain = Telling::new(&instructions, false, from(|it| &it.plain))?;
        let with_names = Telling::new(&instructions, true, from(|it| &it.with_names))?;
        Ok(Edited { instructions, whole: OnceLock::new(), plain, with_names })
    }

    fn edition(&self) -> Edition {
        self.instructions.edition()
    }

    /// The event for the node `own`, which received `last` in this stream.
    fn event(&self, wish: Wish, last: Option<Edition>, own: Option<&str>) -> Option<Bytes> {
        if wish.changes == 0 {
            let whole = || serde_json::to_string(&*self.instructions).ok();
            let written = || Some(event(INSTRUCTIONS_EVENT, self.edition(), &whole()?));
            return self.whole.get_or_init(written).clone();
        }
        let telling = if wish.names == 0 { &self.plain } else { &self.with_names };
        let own = own.and_then(|own| self.instructions.plan.nodes.get(own));
        let data = telling.data(last, own).ok()?;
        Some(event(TOLD_EVENT, self.edition(), &data))
    }
}

/// `data` is JSON on one line, because serde_json writes no line feeds and escapes those in texts.
fn event(name: &str, edition: Edition, data: &str) -> Bytes {
    format!("event: {name}\nid: {edition}\ndata: {data}\n\n").into()
}

/// This event has no id, because ids are editions.
fn evicted_event(evicted: &Evictions) -> Option<Bytes> {
    let data = serde_json::to_string(evicted.by_node()).ok()?;
    Some(format!("event: {EVICTED_EVENT}\ndata: {data}\n\n").into())
}

/// Parses `TERM.GENERATION`, as in the ids of events.
pub(crate) fn edition(text: &str) -> Option<Edition> {
    let (term, generation) = text.split_once('.')?;
    Some(Edition { term: term.parse().ok()?, generation: generation.parse().ok()? })
}

struct Stream {
    encoded: watch::Receiver<Option<Encoded>>,
    evictions: watch::Receiver<Evictions>,
    stopping: watch::Receiver<bool>,
    peer: Arc<Peer>,
    shared: Arc<Shared>,
    wish: Wish,
    /// The edition that the node had at the beginning.
    last: Edition,
    told: Option<Edition>,
    quiet: Interval,
    has_begun: bool,
    /// The evictions sent in this stream.
    told_evicted: Evictions,
}

/// Streams all editions after `last`, the newest first. For a slow node, editions in between are
/// skipped.
pub(crate) fn respond(
    shared: &Arc<Shared>,
    peer: Arc<Peer>,
    wish: Wish,
    last: Option<Edition>,
) -> Response {
    let mut quiet = interval(shared.options.keep_alive.max(Duration::from_millis(10)));
    quiet.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let stream = Stream {
        encoded: shared.encoded.clone(),
        evictions: shared.evictions.clone(),
        stopping: shared.stopping.clone(),
        peer,
        shared: Arc::clone(shared),
        wish,
        last: last.unwrap_or_default(),
        told: None,
        quiet,
        has_begun: false,
        told_evicted: Evictions::default(),
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
            let evicted = self.evictions.borrow_and_update().clone();
            if self.peer.certified.as_ref().is_some_and(|it| evicted.has(it)) {
                return None;
            }
            if evicted.is_known() && evicted != self.told_evicted {
                // Evictions are sent first, so that peers do not follow plans that name an evicted
                // node.
                let event = evicted_event(&evicted)?;
                self.told_evicted = evicted;
                self.shared.count_sent(event.len());
                return Some(event);
            }
            let newest = self.encoded.borrow_and_update().clone();
            if let Some(newest) = newest.filter(|newest| newest.edition() > self.last) {
                self.last = newest.edition();
                let own = self.peer.certified.as_ref().map(|it| it.identity.name.as_str());
                let event = newest.event(self.wish, self.told, own)?;
                self.told = Some(newest.edition());
                self.shared.count_sent(event.len());
                return Some(event);
            }
            if !std::mem::replace(&mut self.has_begun, true) {
                self.quiet.reset();
                return Some(Bytes::from_static(b": here\n\n"));
            }
            tokio::select! {
                changed = self.encoded.changed() => changed.ok()?,
                _ = self.quiet.tick() => return Some(Bytes::from_static(b":\n\n")),
                _ = self.stopping.wait_for(|stopping| *stopping) => return None,
                changed = self.evictions.changed() => changed.ok()?,
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_edition_parses_from_its_id_and_malformed_ids_are_rejected() {
        let one = Edition { term: 3, generation: 14 };
        assert_eq!(edition(&one.to_string()), Some(one));
        for bad in ["", "3", "3.", ".4", "-1.2", "a.b", "1.2.3"] {
            assert_eq!(edition(bad), None, "{bad}");
        }
    }

    #[test]
    fn instructions_with_line_breaks_are_sent_as_one_event() {
        let leader = "two\nlines\r\n\n".to_string();
        let sent = Instructions { term: 1, generation: 2, leader, ..Instructions::default() };
        let mut parser = crate::sse::Parser::new(1 << 20);
        let mut events = Vec::new();
        let edited = Edited::new(Arc::new(sent.clone()), None).unwrap();
        let bytes = edited.event(Wish::default(), None, None).unwrap();
        parser.feed(&bytes, |event| events.push(event)).unwrap();
        assert_eq!((events.len(), &*events[0].name, &*events[0].id), (1, "instructions", "1.2"));
        assert_eq!(serde_json::from_str::<Instructions>(&events[0].data).unwrap(), sent);
    }
}
