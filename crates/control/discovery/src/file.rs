//! A file of JSON or TOML. Its metadata are looked at twice a second; it is read when they changed
//! and then stayed the same for one look, so that a file which is being written is not used.

use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use equipoise_basics::files;
use tokio::time::sleep;

use crate::background::Background;
use crate::list::{self, BYTES_MAX};
use crate::source::{Read, Source, SourceError};

/// Interval between looks at the file.
const PERIOD: Duration = Duration::from_millis(500);

/// Device, inode, size and time of change of a file; `None` without a file.
type Stamp = Option<(u64, u64, u64, i64, i64)>;

/// A file with a list of backends.
pub(crate) struct FileSource {
    path: Arc<Path>,
    /// The stamp of the file before it was read.
    read: Stamp,
    background: Background<Look>,
}

struct Look {
    stamp: Stamp,
    content: Option<io::Result<String>>,
}

/// The file has no usable list.
#[derive(Debug, thiserror::Error)]
#[error("cannot be read")]
struct Unreadable(#[source] io::Error);

impl FileSource {
    pub(crate) fn new(path: PathBuf) -> FileSource {
        FileSource { path: path.into(), read: None, background: Background::new() }
    }

    /// Looks at the file, and reads it if `reads`.
    async fn look(&mut self, reads: bool) -> io::Result<Look> {
        let path = Arc::clone(&self.path);
        let look = move || {
            let stamp = std::fs::metadata(&path).ok();
            let stamp =
                stamp.map(|it| (it.dev(), it.ino(), it.size(), it.ctime(), it.ctime_nsec()));
            Look { stamp, content: reads.then(|| files::read_text(&path, BYTES_MAX)) }
        };
        self.background.run(look).await
    }
}

#[async_trait]
impl Source for FileSource {
    async fn read(&mut self) -> Result<Read, SourceError> {
        let Look { stamp, content } = self.look(true).await?;
        self.read = stamp;
        let text = content.transpose().map_err(Unreadable)?.unwrap_or_default();
        let is_toml = self.path.extension().is_some_and(|it| it.eq_ignore_ascii_case("toml"));
        let found = if is_toml { list::toml(&text) } else { list::json(text.as_bytes()) };
        Ok(found?.into())
    }

    async fn changed(&mut self) -> Result<(), SourceError> {
        let mut last = self.read;
        loop {
            sleep(PERIOD).await;
            let stamp = self.look(false).await?.stamp;
            if stamp != self.read && stamp == last {
                return Ok(());
            }
            last = stamp;
        }
    }

    /// The file is read again soon after it was repaired.
    fn retry_max(&self) -> Duration {
        Duration::from_secs(2)
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a panic is how a test fails")]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_file_is_read_again_after_it_changed_and_came_to_rest() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("web.json");
        let mut source = FileSource::new(path.clone());
        let missing = source.read().await.unwrap_err();
        assert!(
            equipoise_basics::with_causes(&*missing).starts_with("cannot be read: No such file")
        );
        std::fs::write(&path, "{\"backends\": [\"10.0.0.1:80\"]}").unwrap();
        assert_eq!(source.read().await.unwrap().backends.len(), 1);
        let next = folder.path().join("next");
        std::fs::write(&next, "{\"backends\": []}").unwrap();
        std::fs::rename(&next, &path).unwrap();
        source.changed().await.unwrap();
        assert_eq!(source.read().await.unwrap().backends.len(), 0);
        let unchanged = tokio::time::timeout(PERIOD * 3, source.changed()).await;
        assert!(unchanged.is_err(), "no change");
        std::fs::remove_file(&path).unwrap();
        source.changed().await.unwrap();
    }
}
