use std::fs::{self, File, OpenOptions};
use std::io::{self, Read, Write};
use std::path::PathBuf;
use std::sync::{Arc, Mutex};
use std::time::SystemTime;

use equipoise_basics::lock;

use super::options::LogOptions;

/// The output of one backend, in files of bounded size and number.
#[derive(Debug)]
pub(super) struct RotatedLog {
    path: PathBuf,
    bytes_max: u64,
    files: u32,
    file: Option<File>,
    bytes: u64,
}

impl RotatedLog {
    /// Opens the log and appends to an existing file. Removes the oldest logs of backends that no
    /// longer exist.
    pub(super) fn open(
        options: &LogOptions,
        pool: &str,
        name: &str,
        is_running: impl Fn(&str) -> bool,
    ) -> io::Result<RotatedLog> {
        prune(options, pool, is_running)?;
        let path = options.folder.join(format!("{name}.log"));
        let file = OpenOptions::new().create(true).append(true).open(&path)?;
        let bytes = file.metadata()?.len();
        let (bytes_max, files) = (options.bytes_max, options.files);
        Ok(RotatedLog { path, bytes_max, files, file: Some(file), bytes })
    }

    /// Writes as much as possible. A full disk or an unwritable file does not stop the process.
    pub(super) fn write(&mut self, bytes: &[u8]) {
        if self.bytes > 0 && self.bytes + bytes.len() as u64 > self.bytes_max {
            self.rotate();
        }
        let room =
            usize::try_from(self.bytes_max - self.bytes.min(self.bytes_max)).unwrap_or(usize::MAX);
        let bytes = &bytes[bytes.len() - bytes.len().min(room)..];
        if let Some(file) = &mut self.file
            && file.write_all(bytes).is_ok()
        {
            self.bytes += bytes.len() as u64;
        }
    }

    fn rotate(&mut self) {
        let numbered = |number: u32| {
            let mut path = self.path.clone().into_os_string();
            path.push(format!(".{number}"));
            PathBuf::from(path)
        };
        for number in (1..self.files.saturating_sub(1)).rev() {
            let _ = fs::rename(numbered(number), numbered(number + 1));
        }
        if self.files > 1 {
            let _ = fs::rename(&self.path, numbered(1));
        }
        let fresh = OpenOptions::new().create(true).write(true).truncate(true).open(&self.path);
        (self.file, self.bytes) = (fresh.ok(), 0);
    }
}

/// Removes log files of the pool's backends. Files of running backends stay, and so do those of the
/// `gone_kept` other backends that wrote last.
fn prune(options: &LogOptions, pool: &str, is_running: impl Fn(&str) -> bool) -> io::Result<()> {
    let prefix = format!("{pool}-e");
    let mut backends: Vec<(SystemTime, String)> = Vec::new();
    let mut files: Vec<(String, PathBuf)> = Vec::new();
    for entry in fs::read_dir(&options.folder)? {
        let entry = entry?;
        let file_name = entry.file_name().to_string_lossy().into_owned();
        let Some((name, _)) = file_name.split_once(".log") else { continue };
        let number = name.strip_prefix(&prefix).unwrap_or_default();
        if number.is_empty()
            || !number.bytes().all(|byte| byte.is_ascii_digit())
            || is_running(name)
        {
            continue;
        }
        let written = entry.metadata()?.modified()?;
        match backends.iter_mut().find(|(_, known)| known == name) {
            Some((at, _)) => *at = written.max(*at),
            None => backends.push((written, name.to_string())),
        }
        files.push((name.to_string(), entry.path()));
    }
    backends.sort();
    let gone = backends.len().saturating_sub(options.gone_kept as usize);
    for (_, name) in &backends[..gone] {
        for (_, path) in files.iter().filter(|(of, _)| of == name) {
            let _ = fs::remove_file(path);
        }
    }
    Ok(())
}

/// Number of bytes of a process's last output that are kept for errors.
const TAIL_BYTES: usize = 2048;

/// The last output of a process.
#[derive(Clone, Debug, Default)]
pub(super) struct LastOutput(Arc<Mutex<Vec<u8>>>);

impl LastOutput {
    fn push(&self, bytes: &[u8]) {
        let mut tail = lock(&self.0);
        tail.extend_from_slice(&bytes[bytes.len() - bytes.len().min(TAIL_BYTES)..]);
        let over = tail.len().saturating_sub(TAIL_BYTES);
        tail.drain(..over);
    }

    /// Returns the last lines written since the previous call.
    pub(super) fn take(&self) -> String {
        let tail = std::mem::take(&mut *lock(&self.0));
        let text = String::from_utf8_lossy(&tail);
        let lines: Vec<&str> = text.lines().filter(|line| !line.trim().is_empty()).collect();
        lines[lines.len().saturating_sub(5)..].join(" | ")
    }
}

/// Reads a process's output until its end. The process never waits for this thread; output that
/// cannot be written is dropped.
pub(super) fn copy(mut from: impl Read, log: &Mutex<Option<RotatedLog>>, last: &LastOutput) {
    let mut buffer = [0; 16 << 10];
    loop {
        match from.read(&mut buffer) {
            Ok(0) => return,
            Ok(count) => {
                last.push(&buffer[..count]);
                if let Some(log) = &mut *lock(log) {
                    log.write(&buffer[..count]);
                }
            }
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(_) => return,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn options(folder: &std::path::Path) -> LogOptions {
        LogOptions { folder: folder.to_path_buf(), bytes_max: 10, files: 3, gone_kept: 2 }
    }

    #[test]
    fn files_are_bounded_in_size_and_number() {
        let folder = tempfile::tempdir().unwrap();
        let mut log =
            RotatedLog::open(&options(folder.path()), "web", "web-e1", |_| false).unwrap();
        for part in ["aaaaaa", "bbbbbb", "cccccc", "dddddd", "eee", "0123456789abcdef"] {
            log.write(part.as_bytes());
        }
        let read = |name: &str| fs::read_to_string(folder.path().join(name)).unwrap_or_default();
        let files = ["web-e1.log", "web-e1.log.1", "web-e1.log.2", "web-e1.log.3"].map(read);
        assert_eq!(files, ["6789abcdef", "ddddddeee", "cccccc", ""]);
    }

    #[test]
    fn a_reopened_log_is_appended_to_and_rotates_at_its_size_limit() {
        let folder = tempfile::tempdir().unwrap();
        for part in ["aaaa", "bbbb", "cccc"] {
            RotatedLog::open(&options(folder.path()), "web", "web-e1", |_| false)
                .unwrap()
                .write(part.as_bytes());
        }
        let read = |name: &str| fs::read_to_string(folder.path().join(name)).ok();
        assert_eq!(read("web-e1.log").as_deref(), Some("cccc"));
        assert_eq!(read("web-e1.log.1").as_deref(), Some("aaaabbbb"), "it was appended to");
        assert_eq!(read("web-e1.log.2"), None);
    }

    #[test]
    fn only_the_oldest_logs_of_removed_backends_are_deleted() {
        let folder = tempfile::tempdir().unwrap();
        let path = |name: &str| folder.path().join(name);
        for (age_s, name) in [
            (99, "web-e0.log"),
            (9, "web-e1.log"),
            (8, "web-e1.log.1"),
            (5, "web-e2.log"),
            (3, "web-e3.log"),
        ] {
            let file = File::create(path(name)).unwrap();
            let at = SystemTime::now() - std::time::Duration::from_secs(age_s);
            file.set_modified(at).unwrap();
        }
        for name in ["web-eye.log", "other-e1.log", "notes"] {
            fs::write(path(name), "").unwrap();
        }
        RotatedLog::open(&options(folder.path()), "web", "web-e4", |name| name == "web-e0")
            .unwrap();
        let mut left: Vec<String> = fs::read_dir(folder.path())
            .unwrap()
            .map(|entry| entry.unwrap().file_name().into_string().unwrap())
            .collect();
        left.sort();
        let expected = [
            "notes",
            "other-e1.log",
            "web-e0.log",
            "web-e2.log",
            "web-e3.log",
            "web-e4.log",
            "web-eye.log",
        ];
        assert_eq!(left, expected);
    }

    #[test]
    fn the_last_lines_are_kept_for_errors() {
        let (last, log) = (LastOutput::default(), Mutex::new(None));
        let mut text = "x".repeat(5000);
        text += "\n1\n2\n\n3\n4\n5\n6\n";
        copy(text.as_bytes(), &log, &last);
        assert_eq!(last.take(), "2 | 3 | 4 | 5 | 6");
        assert_eq!(last.take(), "");
    }
}
