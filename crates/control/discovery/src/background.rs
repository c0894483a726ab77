//! Work that may hang, such as reading a file, on another thread.

use std::io;

use tokio::sync::oneshot;

/// Runs work of one kind on another thread, one at a time: a thread that hangs is waited for, and
/// no second one is started. The process does not wait for it at its end.
pub(crate) struct Background<T>(Option<oneshot::Receiver<T>>);

impl<T: Send + 'static> Background<T> {
    pub(crate) fn new() -> Background<T> {
        Background(None)
    }

    /// Runs `work`, and waits for its result. The result of work that was cancelled earlier is
    /// discarded.
    ///
    /// # Errors
    /// There is no thread, or it panicked.
    pub(crate) async fn run(&mut self, work: impl FnOnce() -> T + Send + 'static) -> io::Result<T> {
        if let Some(earlier) = &mut self.0 {
            drop(earlier.await);
        }
        let (done, result) = oneshot::channel();
        // The receiver is gone if the pool is.
        let work = move || drop(done.send(work()));
        std::thread::Builder::new().name("discovery-file".into()).spawn(work)?;
        let result = self.0.insert(result).await;
        self.0 = None;
        result.map_err(|_| io::Error::other("the thread that read a file failed"))
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a panic is how a test fails")]
mod tests {
    use std::sync::mpsc;
    use std::time::Duration;

    use super::*;

    #[tokio::test]
    async fn work_that_hangs_is_waited_for_and_its_result_is_not_taken_for_another() {
        let (open, gate) = mpsc::channel::<()>();
        let mut background = Background::new();
        let hanging = background.run(move || {
            let _ = gate.recv();
            1
        });
        assert!(tokio::time::timeout(Duration::from_millis(20), hanging).await.is_err());
        let second = tokio::time::timeout(Duration::from_millis(20), background.run(|| 2)).await;
        assert!(second.is_err(), "the first still runs");
        drop(open);
        assert_eq!(background.run(|| 3).await.unwrap(), 3);
    }
}
