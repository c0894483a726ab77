use std::io::{self, BufRead, BufReader, Read};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal};

/// Output of a process on standard output and standard error.
type Printed = Arc<(Mutex<String>, Condvar)>;

/// A process that runs on a [`crate::Host`], with its output. Dropping it kills the process.
#[derive(Debug)]
pub struct Guest {
    child: Child,
    printed: Printed,
}

impl Guest {
    pub(crate) fn of(mut command: Command) -> io::Result<Guest> {
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn()?;
        let printed = Printed::default();
        if let Some(output) = child.stdout.take() {
            follow(output, &printed);
        }
        if let Some(output) = child.stderr.take() {
            follow(output, &printed);
        }
        Ok(Guest { child, printed })
    }

    /// Returns the process id.
    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Returns the output so far.
    pub fn printed(&self) -> String {
        self.lock().clone()
    }

    /// Waits until `found` returns a result for the output so far.
    ///
    /// # Errors
    /// The output so far, if there is no result within `patience`.
    pub fn wait_for<T>(
        &self,
        patience: Duration,
        found: impl Fn(&str) -> Option<T>,
    ) -> Result<T, String> {
        let end = Instant::now() + patience;
        let mut text = self.lock();
        loop {
            if let Some(found) = found(&text) {
                return Ok(found);
            }
            let left = end.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Err(text.clone());
            }
            let waited = self.printed.1.wait_timeout(text, left);
            text = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
    }

    /// Sends a signal. No effect if the process has ended.
    pub fn signal(&self, signal: Signal) {
        if let Some(pid) = i32::try_from(self.pid()).ok().and_then(Pid::from_raw) {
            // The process is not reaped yet, so the kernel has not reused its id.
            let _ = rustix::process::kill_process(pid, signal);
        }
    }

    /// Returns the exit status if the process has ended.
    ///
    /// # Errors
    /// The error of `waitpid`.
    pub fn ended(&mut self) -> io::Result<Option<ExitStatus>> {
        self.child.try_wait()
    }

    /// Waits until the process ends.
    ///
    /// # Errors
    /// The error of `waitpid`.
    pub fn wait(&mut self) -> io::Result<ExitStatus> {
        self.child.wait()
    }

    fn lock(&self) -> MutexGuard<'_, String> {
        self.printed.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Guest {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn follow(output: impl Read + Send + 'static, printed: &Printed) {
    let printed = Arc::clone(printed);
    thread::spawn(move || {
        let mut output = BufReader::new(output);
        let mut line = Vec::new();
        while output.read_until(b'\n', &mut line).is_ok_and(|read| read > 0) {
            let text = String::from_utf8_lossy(&line);
            printed.0.lock().unwrap_or_else(PoisonError::into_inner).push_str(&text);
            printed.1.notify_all();
            line.clear();
        }
    });
}
