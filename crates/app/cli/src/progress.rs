//! How far a command is: a bar on standard error, if that is a terminal.

use std::time::{Duration, Instant};

use indicatif::{ProgressBar, ProgressStyle};

/// Interval between two states of a bar that shows a time.
const TICK: Duration = Duration::from_millis(200);

/// A bar, which is removed when this is dropped.
pub(crate) struct Progress(ProgressBar);

impl Progress {
    /// Work that ends by itself, with an estimate of the time left.
    pub(crate) fn of_work(what: String, all: u64) -> Progress {
        let bar = "{msg} [{bar:24}] {pos} of {len} done, about {eta} left";
        Progress(ProgressBar::new(all).with_style(style(bar)).with_message(what))
    }

    /// Reports the work that is left, which may be more than at first.
    pub(crate) fn left(&self, left: u64) {
        let all = self.0.length().unwrap_or(0).max(left);
        self.0.set_length(all);
        self.0.set_position(all - left);
    }

    /// Waits for an answer, which comes within a time limit.
    pub(crate) async fn within<T>(
        what: &'static str,
        limit: Duration,
        answer: impl Future<Output = T>,
    ) -> T {
        let bar = "{msg} [{bar:24}] {elapsed} of at most {len} s";
        let bar = ProgressBar::new(limit.as_secs()).with_style(style(bar)).with_message(what);
        let bar = Progress(bar);
        let begin = Instant::now();
        tokio::pin!(answer);
        loop {
            tokio::select! {
                answer = &mut answer => return answer,
                () = tokio::time::sleep(TICK) => bar.0.set_position(begin.elapsed().as_secs()),
            }
        }
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        self.0.finish_and_clear();
    }
}

fn style(template: &str) -> ProgressStyle {
    let style = ProgressStyle::with_template(template).expect("a test renders each template");
    style.progress_chars("=> ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn work_that_grows_keeps_its_bar_in_bounds() {
        let progress = Progress::of_work("web/b1".into(), 10);
        for (left, all, done) in [(10, 10, 0), (4, 10, 6), (12, 12, 0), (0, 12, 12)] {
            progress.left(left);
            assert_eq!((progress.0.length(), progress.0.position()), (Some(all), done));
        }
    }

    #[tokio::test(start_paused = true)]
    async fn an_answer_ends_the_wait() {
        let answer = tokio::time::sleep(Duration::from_secs(3));
        Progress::within("it starts", Duration::from_secs(25), answer).await;
    }
}
