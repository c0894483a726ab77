//! A client's socket as `h2` reads and writes it.

use std::io;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll, ready};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

use crate::buffer::Buffer;
use crate::socket::Socket;

pub(super) struct Transport {
    client: Rc<Socket>,
    /// Bytes that were read already.
    input: Option<Buffer>,
}

impl Transport {
    pub(super) fn new(client: Rc<Socket>, input: Option<Buffer>) -> Transport {
        Transport { client, input }
    }
}

impl AsyncRead for Transport {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        into: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        if let Some(input) = &mut self.input {
            let count = input.len().min(into.remaining());
            into.put_slice(&input[..count]);
            input.consume(count);
            if input.is_empty() {
                self.input = None;
            }
            return Poll::Ready(Ok(()));
        }
        let count = ready!(self.client.poll_read(cx, into.initialize_unfilled()))?;
        into.advance(count);
        Poll::Ready(Ok(()))
    }
}

impl AsyncWrite for Transport {
    fn poll_write(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        self.client.poll_write(cx, bytes)
    }

    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.client.poll_shutdown(cx).map(Ok)
    }
}
