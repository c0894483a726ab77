//! Saves the last installed instructions, so that a node that restarts without a reachable
//! controller continues with them.
//!
//! The whole instructions are written when an urgent part has changed (leader, members, elastic
//! backends, the secret), and otherwise every ten seconds. Their edition is written each time, in
//! place, so that older instructions stay refused.

use std::fs::File;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use equipoise_basics::with_causes;
use equipoise_controller::{Edition, Instructions};
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject;
use serde::{Deserialize, Serialize};
use tokio::time::{Instant, sleep_until};

use super::Inner;
use crate::fingerprint::sha256;
use crate::folder::{FolderError, StateFile, StateFolder};
use crate::{Certified, Fingerprint, Name};

/// Older saved instructions are ignored: addresses of elastic backends may belong to other
/// programs.
const AGE_MAX: Duration = Duration::from_secs(86_400);

/// Interval between writes without an urgent change.
const WRITE_EVERY: Duration = Duration::from_secs(10);

/// The file's first line; instructions are the second.
#[derive(Debug, Serialize, Deserialize)]
struct Head {
    form: u32,
    node: Name,
    /// Fingerprint of the cluster's authority: another cluster's instructions are invalid here.
    authority: Fingerprint,
    received_at_unix_ms: u64,
    /// SHA-256 of the second line, in hexadecimal.
    sha256: String,
}

const FORM: u32 = 1;

/// The state that an earlier process left.
#[derive(Clone, Debug, Default)]
pub(crate) struct Kept {
    pub(crate) instructions: Arc<Instructions>,
    /// Their age when they were read.
    pub(crate) age: Duration,
    /// The last installed edition, which may be newer than the saved instructions.
    pub(crate) floor: Edition,
}

/// The reason why saved instructions are not used.
#[derive(Debug, thiserror::Error)]
enum NotKept {
    #[error(transparent)]
    Folder(#[from] FolderError),
    #[error("the file is damaged ({0})")]
    Damaged(String),
    #[error("the file has format {0} of another version")]
    Form(u32),
    #[error("the file is of node {0}")]
    Node(Name),
    #[error("the file is of another cluster")]
    Cluster,
    #[error("the saved instructions are {} h old, which is too old", .0.as_secs() / 3600)]
    Old(Duration),
}

impl NotKept {
    /// True if no process can use the file.
    fn is_damage(&self) -> bool {
        matches!(
            self,
            NotKept::Damaged(_) | NotKept::Form(_) | NotKept::Folder(FolderError::TooLarge { .. })
        )
    }
}

/// The instructions of an earlier process of this node; `None` if there are none or they cannot be
/// used, which is logged.
pub(crate) fn load(folder: &StateFolder, name: &Name) -> Option<Kept> {
    let file = StateFile::Instructions;
    let path = folder.path_of(file);
    match read(folder, name, unix_ms()) {
        Ok(kept) => {
            let (edition, age) = (kept.instructions.edition(), kept.age);
            tracing::info!(%edition, ?age, file = %path.display(), "continuing with saved instructions until newer ones arrive");
            Some(kept)
        }
        Err(NotKept::Folder(FolderError::Missing { .. })) => None,
        Err(error) if error.is_damage() => {
            let aside = match folder.set_aside(file) {
                Ok(aside) => format!("it was renamed to {}", aside.display()),
                Err(error) => with_causes(&error),
            };
            tracing::warn!(
                file = %path.display(),
                "cannot use saved instructions: {error}; {aside}. Until it reaches a controller, this node follows only its \
                 configuration"
            );
            None
        }
        Err(error) => {
            tracing::warn!(file = %path.display(), "ignoring saved instructions: {}", with_causes(&error));
            None
        }
    }
}

fn read(folder: &StateFolder, name: &Name, now_unix_ms: u64) -> Result<Kept, NotKept> {
    let text = folder.read(StateFile::Instructions).map_err(|error| match error {
        FolderError::File { source, .. } if source.kind() == std::io::ErrorKind::InvalidData => {
            NotKept::Damaged("not a text".to_string())
        }
        other => NotKept::Folder(other),
    })?;
    let damaged = |error: serde_json::Error| NotKept::Damaged(error.to_string());
    let (head, body) = text.split_once('\n').ok_or(NotKept::Damaged("cut short".to_string()))?;
    let head: Head = serde_json::from_str(head).map_err(damaged)?;
    if head.form != FORM {
        return Err(NotKept::Form(head.form));
    }
    if head.sha256 != hex(body) {
        return Err(NotKept::Damaged("its checksum differs".to_string()));
    }
    if head.node != *name {
        return Err(NotKept::Node(head.node));
    }
    if Some(head.authority) != authority(folder) {
        return Err(NotKept::Cluster);
    }
    let age = Duration::from_millis(now_unix_ms.saturating_sub(head.received_at_unix_ms));
    if age > AGE_MAX {
        return Err(NotKept::Old(age));
    }
    let instructions: Instructions = serde_json::from_str(body).map_err(damaged)?;
    let floor = folder.read(StateFile::Edition).ok();
    let floor = floor.and_then(|text| crate::server::edition(text.trim())).unwrap_or_default();
    let floor = floor.max(instructions.edition());
    Ok(Kept { instructions: Arc::new(instructions), age, floor })
}

/// The authority of the cluster that this node has joined.
fn authority(folder: &StateFolder) -> Option<Fingerprint> {
    let text = folder.read(StateFile::AuthorityCertificate).ok()?;
    let certificate = CertificateDer::from_pem_slice(text.as_bytes()).ok()?;
    Some(Certified::of(&certificate).ok()?.key)
}

fn hex(text: &str) -> String {
    sha256(text.as_bytes()).iter().map(|byte| format!("{byte:02x}")).collect()
}

fn unix_ms() -> u64 {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(now.as_millis()).unwrap_or(u64::MAX)
}

/// Whether a change must be saved as soon as it is installed.
fn matters_at_once(before: &Instructions, now: &Instructions) -> bool {
    before.term != now.term
        || before.rosters != now.rosters
        || before.members != now.members
        || before.dispatch_secret != now.dispatch_secret
}

/// Saves the installed instructions, for the life of the node.
pub(crate) async fn keep(inner: Arc<Inner>) {
    let mut instructions = inner.instructions.subscribe();
    instructions.mark_unchanged();
    let mut keeper = Keeper { inner, edition: None, written: None, has_failed: false };
    let mut unwritten = false;
    loop {
        let due = keeper.next_write();
        tokio::select! {
            changed = instructions.changed() => if changed.is_err() { return },
            () = sleep_until(due), if unwritten => {}
        }
        let now = Arc::clone(&instructions.borrow_and_update());
        keeper.note(now.edition()).await;
        unwritten = !keeper.is_due(&now);
        if !unwritten {
            keeper.write(now).await;
        }
    }
}

struct Keeper {
    inner: Arc<Inner>,
    edition: Option<Arc<File>>,
    written: Option<(Arc<Instructions>, Instant)>,
    has_failed: bool,
}

impl Keeper {
    fn next_write(&self) -> Instant {
        self.written.as_ref().map_or_else(Instant::now, |(_, at)| *at + WRITE_EVERY)
    }

    fn is_due(&self, now: &Instructions) -> bool {
        self.written.as_ref().is_none_or(|(before, _)| matters_at_once(before, now))
            || self.next_write() <= Instant::now()
    }

    /// Not flushed to the disk, because a killed process loses nothing by that.
    async fn note(&mut self, edition: Edition) {
        let folder = self.inner.options.folder.clone();
        let open = self.edition.clone();
        let noted = tokio::task::spawn_blocking(move || {
            let file = match open {
                Some(file) => file,
                None => Arc::new(
                    File::options()
                        .create(true)
                        .truncate(false)
                        .write(true)
                        .mode(0o600)
                        .open(folder.path_of(StateFile::Edition))?,
                ),
            };
            // The length is fixed, so that one write replaces the whole line.
            file.write_all_at(format!("{:<42}\n", edition.to_string()).as_bytes(), 0)?;
            Ok::<_, std::io::Error>(file)
        });
        self.edition = noted.await.ok().and_then(Result::ok);
    }

    async fn write(&mut self, now: Arc<Instructions>) {
        let (options, instructions) = (&self.inner.options, Arc::clone(&now));
        let (folder, node) = (options.folder.clone(), options.name.clone());
        let written = tokio::task::spawn_blocking(move || put(&folder, node, &instructions));
        let problem = match written.await {
            Ok(Ok(())) => None,
            Ok(Err(error)) => Some(error),
            Err(error) => Some(error.to_string()),
        };
        // The next attempt follows after a while, after a failure too.
        self.written = Some((now, Instant::now()));
        if let Some(problem) = problem.as_ref().filter(|_| !self.has_failed) {
            tracing::warn!("cannot save instructions for a restart: {problem}");
        }
        self.has_failed = problem.is_some();
        let problem = problem.map(|text| format!("cannot save instructions for a restart: {text}"));
        self.inner.note(|status| status.keep_problem = problem);
    }
}

fn put(folder: &StateFolder, node: Name, instructions: &Instructions) -> Result<(), String> {
    let authority = authority(folder).ok_or("the cluster's certificate cannot be read")?;
    let body = serde_json::to_string(instructions).map_err(|error| error.to_string())?;
    let (received_at_unix_ms, sha256) = (unix_ms(), hex(&body));
    let head = Head { form: FORM, node, authority, received_at_unix_ms, sha256 };
    let head = serde_json::to_string(&head).map_err(|error| error.to_string())?;
    let text = format!("{head}\n{body}");
    folder.replace(StateFile::Instructions, &text).map_err(|error| with_causes(&error))
}

#[cfg(test)]
mod tests;
