//! Streams that take the place of the kernel's socket: those of HTTP/2.

use std::io;
use std::task::{Context, Poll};

/// A stream of a connection to a backend, which takes the place of the kernel's socket.
pub(crate) trait BackendStream {
    /// Reads; 0 is the end of the stream.
    ///
    /// # Errors
    /// `InvalidData` for a malformed response; else the stream or its connection was lost.
    fn poll_read(&self, cx: &mut Context<'_>, into: &mut [u8]) -> Poll<io::Result<usize>>;

    /// Ready when a read would not wait.
    fn poll_readable(&self, cx: &mut Context<'_>) -> Poll<()>;

    /// Writes some of a request. The first bytes are a whole head, and what follows it.
    ///
    /// # Errors
    /// `InvalidInput` for a request that the stream cannot express; `Unsupported` for a tunnel that
    /// the backend does not permit; `BrokenPipe` if the backend takes no more of it, and then
    /// reading says why.
    fn poll_write(&self, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>>;

    /// Ends this side of a tunnel; ready when nothing of it is held back. Requests end with their
    /// body.
    fn poll_end_tunnel(&self, cx: &mut Context<'_>) -> Poll<()>;

    /// Whether the backend has said that it did nothing with the request.
    fn is_unprocessed(&self) -> bool;

    /// Takes received data out of `h2` while the client accepts no more. `h2` closes a connection
    /// that holds too many small frames. The stream's window bounds the data held here.
    fn read_ahead(&self, cx: &mut Context<'_>);
}

/// A stream of a client's connection, which takes the place of the kernel's socket.
pub(crate) trait ClientStream {
    /// Reads the request. 0 is the end, and comes when the response has ended: until then the
    /// client is there, whether or not its request has ended. That of an open tunnel comes when the
    /// client ends its side.
    ///
    /// # Errors
    /// The stream was reset, or its connection was lost.
    fn poll_read(&self, cx: &mut Context<'_>, into: &mut [u8]) -> Poll<io::Result<usize>>;

    /// Ready when a read would not wait.
    fn poll_readable(&self, cx: &mut Context<'_>) -> Poll<()>;

    /// Whether bytes of the request have come that were not read.
    fn holds_input(&self) -> bool;

    /// Writes some of a response. A head comes whole, with or without what follows it.
    ///
    /// # Errors
    /// `BrokenPipe` if the stream has ended.
    fn poll_write(&self, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>>;

    /// Writes some of a response, from a task other than that of the stream.
    fn try_write(&self, bytes: &[u8]) -> io::Result<usize>;

    /// Ends this side of a tunnel; responses end with their body.
    fn end_tunnel(&self, cx: &mut Context<'_>);

    /// Resets the stream.
    fn cut(&self);

    /// Whether the stream was reset, by either side.
    fn is_cut(&self) -> bool;
}
