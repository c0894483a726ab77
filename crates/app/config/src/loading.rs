//! Loads a configuration on a separate thread, with a deadline.
//!
//! Reading a file may hang: no flag of `open(2)` limits that on a network file system. A thread
//! that hangs holds no lock. It is not a task of the runtime, because the runtime would wait for it
//! at shutdown. At most [`LOADS_MAX`] such threads exist.

use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, mpsc};
use std::thread;
use std::time::{Duration, Instant};

use equipoise_basics::lock;
use tokio::sync::oneshot;

use super::problem::{Problem, Severity};
use super::replacing::{self, Basis, Replacement};
use super::{ConfigErrors, FileKind, Loaded, Surroundings, files, parse};

/// Longest time to load a configuration. `equipoise reload` and the API wait for it.
const LOAD_WITHIN: Duration = Duration::from_secs(10);
/// Loads at a time, those that hang included.
const LOADS_MAX: usize = 8;
/// A load that takes longer than this is reported as hanging.
const SLOW_AFTER: Duration = Duration::from_secs(1);

/// Loads configurations and tracks the loads in progress.
#[derive(Clone, Debug, Default)]
pub struct Loader(Arc<Mutex<Vec<Underway>>>);

/// A load in progress.
#[derive(Debug)]
struct Underway {
    number: Arc<()>,
    since: Instant,
    /// The step in progress, with the file that it reads.
    step: String,
}

/// Reports the steps of one load. Dropping it ends the load.
struct Steps {
    loader: Loader,
    number: Arc<()>,
}

/// Reads and validates a file. Blocks for at most 10 seconds.
///
/// # Errors
/// [`ConfigErrors`] with every error of the file, or with the reason why it could not be read in
/// time.
pub fn load(file: &Path) -> Result<Loaded, ConfigErrors> {
    let (sender, outcome) = mpsc::channel();
    let loader = Loader::default();
    let number =
        loader.spawn(file, read_and_parse(file), move |outcome| drop(sender.send(outcome)))?;
    let outcome = outcome.recv_timeout(LOAD_WITHIN);
    outcome.unwrap_or_else(|_| Err(loader.too_slow(file, &number)))
}

impl Loader {
    /// Reads and validates a file.
    ///
    /// # Errors
    /// As [`load`].
    pub async fn load(&self, file: &Path) -> Result<Loaded, ConfigErrors> {
        self.within(file, LOAD_WITHIN, read_and_parse(file)).await
    }

    /// Validates a text. Problems name it `name`.
    ///
    /// # Errors
    /// As [`load`].
    pub async fn check(&self, name: &Path, text: String) -> Result<Loaded, ConfigErrors> {
        let called = name.to_owned();
        let work = move |steps: &Steps| parse_here(&text, &called, steps);
        self.within(name, LOAD_WITHIN, work).await
    }

    /// The step of the oldest slow load, for example the file that it reads. `None` if none is
    /// slow.
    pub fn hangs(&self) -> Option<String> {
        let all = lock(&self.0);
        let oldest = all.first().filter(|load| load.since.elapsed() > SLOW_AFTER)?;
        Some(format!("{} for {:.1} s", oldest.step, oldest.since.elapsed().as_secs_f64()))
    }

    /// Reads the text of a file, which need not be valid.
    ///
    /// # Errors
    /// [`ConfigErrors`] with the reason why it could not be read, or not in time.
    pub async fn text(&self, file: &Path) -> Result<String, ConfigErrors> {
        let path = file.to_owned();
        self.within(file, LOAD_WITHIN, move |_| read(&path)).await
    }

    /// Returns the text that the file had before its last replacement; `None` if there is none.
    ///
    /// # Errors
    /// As [`Loader::text`].
    pub async fn previous(&self, file: &Path) -> Result<Option<String>, ConfigErrors> {
        let path = file.to_owned();
        let work = move |_: &Steps| {
            replacing::previous(&path).map_err(|error| failed(&path, error.to_string()))
        };
        self.within(file, LOAD_WITHIN, work).await
    }

    /// Replaces the text of a file, and keeps its text as the previous one. `None`: the file, or
    /// its previous text, is not as `basis` says. Holds `lock` until the end of the replacement.
    ///
    /// # Errors
    /// [`ConfigErrors`] with the reason; the file keeps its text, or has it again before the end of
    /// `lock`.
    pub async fn replace(
        &self,
        file: &Path,
        text: String,
        basis: Basis,
        lock: impl Send + 'static,
    ) -> Result<Option<Replacement>, ConfigErrors> {
        let lock = Box::new(lock);
        let path = file.to_owned();
        let work = move |steps: &Steps| {
            steps.now(format!("writing {}", path.display()));
            let replaced = replacing::replace(&path, &text, &basis, lock);
            replaced.map_err(|error| failed(&path, error.to_string()))
        };
        self.within(file, LOAD_WITHIN, work).await
    }

    /// Restores the file and its previous text.
    ///
    /// # Errors
    /// [`ConfigErrors`] with the reason; the file keeps the new text.
    pub async fn take_back(&self, file: &Path, replaced: Replacement) -> Result<(), ConfigErrors> {
        let path = file.to_owned();
        let work = move |steps: &Steps| {
            steps.now(format!("writing {}", path.display()));
            replaced.take_back().map_err(|error| failed(&path, error.to_string()))
        };
        self.within(file, LOAD_WITHIN, work).await
    }

    async fn within<T: Send + 'static>(
        &self,
        file: &Path,
        limit: Duration,
        work: impl FnOnce(&Steps) -> Result<T, ConfigErrors> + Send + 'static,
    ) -> Result<T, ConfigErrors> {
        let (sender, outcome) = oneshot::channel();
        let number = self.spawn(file, work, move |outcome| drop(sender.send(outcome)))?;
        match tokio::time::timeout(limit, outcome).await {
            Ok(Ok(outcome)) => outcome,
            // The thread panicked and dropped the sender without an outcome.
            Ok(Err(_)) => Err(failed(
                file,
                "could not be loaded because of a bug in equipoise; please report it".into(),
            )),
            Err(_) => Err(self.too_slow(file, &number)),
        }
    }

    /// Starts a load on a separate thread.
    fn spawn<T>(
        &self,
        file: &Path,
        work: impl FnOnce(&Steps) -> Result<T, ConfigErrors> + Send + 'static,
        deliver: impl FnOnce(Result<T, ConfigErrors>) + Send + 'static,
    ) -> Result<Arc<()>, ConfigErrors> {
        let number = Arc::new(());
        {
            let mut all = lock(&self.0);
            if let Some(oldest) = all.first().filter(|_| all.len() >= LOADS_MAX) {
                let text = format!(
                    "not read: {LOADS_MAX} earlier reads have not ended, the oldest {} for {:.1} s",
                    oldest.step,
                    oldest.since.elapsed().as_secs_f64()
                );
                return Err(failed(file, text));
            }
            let step = format!("reading {}", file.display());
            all.push(Underway { number: Arc::clone(&number), since: Instant::now(), step });
        }
        let steps = Steps { loader: self.clone(), number: Arc::clone(&number) };
        let thread = thread::Builder::new().name("config".into()).spawn(move || {
            let outcome = work(&steps);
            drop(steps);
            deliver(outcome);
        });
        thread
            .map(|_| number)
            .map_err(|error| failed(file, format!("not read: cannot start a thread: {error}")))
    }

    fn too_slow(&self, file: &Path, number: &Arc<()>) -> ConfigErrors {
        let all = lock(&self.0);
        let step = all.iter().find(|load| Arc::ptr_eq(&load.number, number));
        let step = step.map_or("it", |load| &load.step);
        let seconds = LOAD_WITHIN.as_secs();
        failed(file, format!("not loaded within {seconds} s: {step} has not ended"))
    }
}

impl Steps {
    fn now(&self, step: String) {
        let mut all = lock(&self.loader.0);
        let own = all.iter_mut().find(|load| Arc::ptr_eq(&load.number, &self.number));
        if let Some(own) = own {
            own.step = step;
        }
    }
}

impl Drop for Steps {
    fn drop(&mut self) {
        let mut all = lock(&self.loader.0);
        all.retain(|load| !Arc::ptr_eq(&load.number, &self.number));
    }
}

fn read_and_parse(
    file: &Path,
) -> impl FnOnce(&Steps) -> Result<Loaded, ConfigErrors> + Send + 'static {
    let file: PathBuf = file.to_owned();
    move |steps| parse_here(&read(&file)?, &file, steps)
}

fn read(file: &Path) -> Result<String, ConfigErrors> {
    let text = files::read(file, FileKind::Config);
    text.map_err(|error| failed(file, format!("cannot be read: {error}")))
}

/// Validates a text on this machine. Reading the files that it names may hang.
fn parse_here(text: &str, name: &Path, steps: &Steps) -> Result<Loaded, ConfigErrors> {
    let Surroundings { host_name, api_socket, read: open, mode } = Surroundings::here();
    let read = |file: &Path, kind: FileKind| {
        steps.now(format!("reading {}", file.display()));
        let text = open(file, kind);
        steps.now(format!("checking {}", name.display()));
        text
    };
    let around = Surroundings { host_name, api_socket, read: &read, mode };
    parse(text, name, &around)
}

/// An error of the file as a whole.
fn failed(file: &Path, text: String) -> ConfigErrors {
    let option = String::new();
    let problem = Problem { severity: Severity::Error, position: None, option, text };
    ConfigErrors { file: file.into(), problems: vec![problem] }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc::{Receiver, channel};

    use super::*;

    /// A load that waits until the sender of `gate` is dropped.
    fn hanging(gate: Receiver<()>) -> impl FnOnce(&Steps) -> Result<Loaded, ConfigErrors> + Send {
        move |steps| {
            steps.now("reading /net/zone".into());
            let _ = gate.recv();
            parse_here("", Path::new("f"), steps)
        }
    }

    #[tokio::test]
    async fn a_hanging_load_times_out_and_names_its_unfinished_step() {
        let loader = Loader::default();
        let (gate, waiting) = channel();
        let file = Path::new("f");
        let slow = loader.within(file, Duration::from_millis(50), hanging(waiting)).await;
        let said = slow.unwrap_err().to_string();
        assert!(said.contains("reading /net/zone has not ended"), "{said}");
        assert!(loader.check(file, String::new()).await.is_ok(), "others go on");
        loader.0.lock().unwrap()[0].since -= SLOW_AFTER;
        assert!(loader.hangs().unwrap().starts_with("reading /net/zone for "));
        drop(gate);
        while loader.hangs().is_some() {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    }

    #[tokio::test]
    async fn a_load_is_refused_while_the_maximum_number_of_loads_hangs() {
        let loader = Loader::default();
        let mut gates = Vec::new();
        for _ in 0..LOADS_MAX {
            let (gate, waiting) = channel();
            loader.spawn(Path::new("f"), hanging(waiting), drop).unwrap();
            gates.push(gate);
        }
        let refused = loader.check(Path::new("f"), String::new()).await.unwrap_err().to_string();
        assert!(refused.contains("8 earlier reads have not ended"), "{refused}");
    }
}
