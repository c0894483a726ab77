//! Work that may block for long, such as files of a file system that hangs.

use std::io;

use tokio::sync::oneshot;

/// Runs `work` on a thread of its own, for which the process does not wait at its end.
///
/// # Errors
/// There is no thread, or it panicked.
pub(crate) async fn on_thread<T: Send + 'static>(
    work: impl FnOnce() -> T + Send + 'static,
) -> io::Result<T> {
    let (done, result) = oneshot::channel();
    let thread = std::thread::Builder::new().name("acme-files".into());
    // The receiver is gone if the process ends.
    thread.spawn(move || drop(done.send(work())))?;
    result.await.map_err(|_| io::Error::other("the thread that used the file failed"))
}
