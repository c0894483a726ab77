//! Marks a connection while its complete request is being answered. Such a connection is evicted
//! last.

use std::pin::Pin;
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, ready};
use std::time::Duration;

use equipoise_admission::{Activity, Answering};
use equipoise_basics::lock;
use hyper::body::{Body, Bytes, Frame, Incoming, SizeHint};

/// The mark of one request.
#[derive(Debug)]
pub(crate) struct Mark {
    activity: Activity,
    within: Duration,
    held: Mutex<Option<Answering>>,
}

/// A request's body, which sets the mark once it is read.
pub(crate) struct Read {
    body: Incoming,
    mark: Arc<Mark>,
}

impl Mark {
    /// A mark that is not set yet. Once set, it holds for at most `within`.
    pub(crate) fn new(activity: Activity, within: Duration) -> Arc<Mark> {
        Arc::new(Mark { activity, within, held: Mutex::new(None) })
    }

    /// Wraps a request's body. A request without a body counts as read.
    pub(crate) fn body(self: &Arc<Mark>, body: Incoming) -> Read {
        if body.is_end_stream() {
            self.set();
        }
        Read { body, mark: Arc::clone(self) }
    }

    fn set(&self) {
        let mut held = lock(&self.held);
        held.get_or_insert_with(|| self.activity.answering(self.within));
    }

    /// Clears the mark: the answer is complete.
    pub(crate) fn clear(&self) {
        lock(&self.held).take();
    }
}

impl Body for Read {
    type Data = Bytes;
    type Error = hyper::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, hyper::Error>>> {
        let frame = ready!(Pin::new(&mut self.body).poll_frame(cx));
        if frame.is_none() || self.body.is_end_stream() {
            self.mark.set();
        }
        Poll::Ready(frame)
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}
