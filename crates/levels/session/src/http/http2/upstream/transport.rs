//! A session as `h2` reads and writes it.

use std::io;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

use crate::http::http2::TURN_BYTES;
use crate::upstream::Session;

pub(super) struct Transport {
    session: Rc<Session>,
    /// Bytes that were read since the task has let others run.
    read: usize,
}

impl Transport {
    pub(super) fn new(session: Rc<Session>) -> Transport {
        Transport { session, read: 0 }
    }
}

impl AsyncRead for Transport {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        into: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        if self.read >= TURN_BYTES {
            self.read = 0;
            cx.waker().wake_by_ref();
            return Poll::Pending;
        }
        match self.session.socket.poll_read(cx, into.initialize_unfilled()) {
            Poll::Ready(read) => {
                let count = read?;
                self.read += count;
                into.advance(count);
                Poll::Ready(Ok(()))
            }
            Poll::Pending => {
                self.read = 0;
                Poll::Pending
            }
        }
    }
}

impl AsyncWrite for Transport {
    fn poll_write(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        self.session.socket.poll_write(cx, bytes)
    }

    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.session.socket.poll_shutdown(cx).map(Ok)
    }
}
