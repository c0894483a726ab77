//! Exchanges certificates when their files change: those of front doors, of the API, and those for
//! backends.
//! Warns before they expire.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::fs::Metadata;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant, SystemTime};

use async_trait::async_trait;
use equipoise_acme::TextRecords;
use equipoise_basics::lock;
use equipoise_config::FileKind;
use equipoise_planes::DnsPlane;
use equipoise_session::config::{
    Certificate, CertificateFiles, ClientTls, PoolConfig, ServerTls, UpstreamTls,
};
use equipoise_status::tls::{CertificateProblems, CertificateStates};
use tokio::sync::oneshot;

use crate::run::control::Control;

/// Interval between looks at the files.
const PERIOD: Duration = Duration::from_secs(2);

/// Interval between warnings about a certificate that expires soon.
const WARN_AGAIN: Duration = Duration::from_secs(86_400);

/// The state of a file, by which a change is noticed; `None` if there is no file.
type Stamp = Option<(u64, u64, u64, i64, i64)>;

/// The outcome of reading certificates again.
type Read = HashMap<CertificateFiles, Result<Certificate, String>>;

/// Looks at the files. Decides when to read them.
#[derive(Debug, Default)]
struct Looks {
    last: BTreeMap<PathBuf, Stamp>,
    read: BTreeMap<PathBuf, Stamp>,
}

impl Looks {
    /// Whether to read the files: they differ from those that were read last, and did not change
    /// between two looks. So a chain and its key are not read while they are being replaced.
    fn is_time_to_read(&mut self, now: BTreeMap<PathBuf, Stamp>) -> bool {
        let is_due = now == self.last && now != self.read;
        if is_due {
            self.read.clone_from(&now);
        }
        self.last = now;
        is_due
    }
}

/// The DNS level, as it answers an ACME directory.
pub(super) struct Names(pub(super) Arc<DnsPlane>);

#[async_trait]
impl TextRecords for Names {
    async fn publish(&self) {
        self.0.answer_challenges().await;
    }
}

impl Control {
    /// Follows the files of certificates, until the process stops.
    pub(crate) async fn follow_certificates(self: Arc<Self>) {
        let mut ticks = tokio::time::interval(PERIOD);
        ticks.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
        let mut issued = self.levels.orders.issued();
        // The load of the file has warned.
        let (mut looks, mut warned) = (Looks::default(), Instant::now());
        let mut not_stapled = BTreeSet::new();
        loop {
            let is_issued = tokio::select! {
                _ = ticks.tick() => false,
                Ok(()) = issued.changed() => true,
            };
            if self.is_ending() {
                return;
            }
            let all = self.certificates().await;
            if warned.elapsed() >= WARN_AGAIN {
                warned = Instant::now();
                warn(all.values().flatten());
            }
            warn_of_staples(all.values().flatten(), &mut not_stapled);
            let files: Vec<CertificateFiles> = all.into_keys().collect();
            // A file system may hang. Then the thread does, and nothing else.
            let look = {
                let files = files.clone();
                move || stamps(&files)
            };
            let Some(seen) = on_thread(look).await else { continue };
            if (looks.is_time_to_read(seen) || is_issued)
                && let Some(read) = on_thread(move || read_all(files)).await
            {
                self.exchange(read).await;
            }
        }
    }

    /// Problems of files, and states of automatic names.
    pub(super) fn certificate_states(&self) -> CertificateStates {
        let problems = lock(&self.certificate_problems).clone();
        CertificateStates { problems, names: self.levels.orders.status() }
    }

    /// The certificates of all front doors, of the API and of pools; `None`: the first one is
    /// awaited.
    async fn certificates(&self) -> HashMap<CertificateFiles, Option<Certificate>> {
        let running = self.config.lock().await;
        let doors = || {
            let doors = running.session.front_doors.iter().filter_map(|door| door.tls.as_ref());
            doors.chain(&running.operations.api_tls)
        };
        let awaited = doors().flat_map(ServerTls::awaited).map(|it| (it.files.clone(), None));
        let of_pools =
            running.session.pools.iter().filter_map(|pool| server_tls(pool)?.certificate());
        let all = doors().flat_map(|tls| tls.certificates()).chain(of_pools);
        let present = all.filter_map(|it| Some((it.files()?.clone(), Some(it.clone()))));
        awaited.chain(present).collect()
    }

    /// Presents the certificates that were read. A wrong one leaves the previous one in use.
    async fn exchange(&self, read: Read) {
        let mut running = self.config.lock().await;
        let mut session = running.session.clone();
        let mut problems = CertificateProblems::new();
        let mut exchanged: Vec<Certificate> = Vec::new();
        for tls in session.front_doors.iter_mut().filter_map(|door| door.tls.as_mut()) {
            exchanged.extend(renew(tls, &read, &mut problems));
        }
        if let Some(tls) = &mut running.operations.api_tls {
            exchanged.extend(renew(tls, &read, &mut problems));
            self.entrance.tls.set(Some(tls.clone()));
        }
        for pool in &mut session.pools {
            let Some(tls) = server_tls(pool) else { continue };
            let Some(old) = tls.certificate() else { continue };
            let new = newest(old, &read, &mut problems);
            if *old == new {
                continue;
            }
            match tls.with_certificate(new.clone()) {
                Ok(tls) => show(pool, tls),
                Err(error) => tracing::error!("a certificate cannot be used: it has {error}"),
            }
            exchanged.push(new);
        }
        for problem in problems.values() {
            tracing::error!(
                event = "certificate.unusable",
                "{problem}; the previous certificate stays in use"
            );
        }
        *lock(&self.certificate_problems) = problems;
        if exchanged.is_empty() {
            return;
        }
        match self.levels.registry.apply(self.session(&session, &running.discovery)).await {
            Ok(_) => {
                running.session = session;
                let mut names: Vec<_> = exchanged.iter().map(Certificate::subject).collect();
                names.dedup();
                tracing::info!(
                    event = "certificate.exchanged",
                    certificates = names.join(", "),
                    "certificates exchanged"
                );
                warn(exchanged.iter());
            }
            Err(error) => tracing::error!(
                event = "certificate.unusable",
                "certificates could not be exchanged: {error}"
            ),
        }
    }
}

/// Presents the newest certificates, and those awaited ones that exist now. Returns the changed
/// ones.
fn renew(tls: &mut ServerTls, read: &Read, problems: &mut CertificateProblems) -> Vec<Certificate> {
    let mut new: Vec<_> = tls.certificates().iter().map(|it| newest(it, read, problems)).collect();
    new.extend(tls.awaited().filter_map(|it| read.get(&it.files)?.as_ref().ok().cloned()));
    let changed = new.iter().filter(|it| !tls.certificates().contains(it)).cloned().collect();
    let new = tls.with_certificates(new);
    if new != *tls {
        *tls = new;
    }
    changed
}

/// TLS to the backends of a pool.
fn server_tls(pool: &PoolConfig) -> Option<&ClientTls> {
    match pool.options.tls.as_ref()? {
        UpstreamTls::Server(tls) => Some(tls),
        UpstreamTls::Peer(_) => None,
    }
}

/// Changes the TLS to the backends of a pool.
fn show(pool: &mut PoolConfig, tls: ClientTls) {
    if let Some(health) = &mut pool.health {
        health.tls = Some(tls.clone());
    }
    pool.options.tls = Some(UpstreamTls::Server(tls));
}

/// The newest of a certificate. A wrong one leaves the previous one in use, and is noted.
fn newest(old: &Certificate, read: &Read, problems: &mut CertificateProblems) -> Certificate {
    match old.files().and_then(|files| Some((files, read.get(files)?))) {
        Some((_, Ok(new))) => new.clone(),
        Some((files, Err(problem))) => {
            problems.insert(files.clone(), problem.clone());
            old.clone()
        }
        None => old.clone(),
    }
}

fn warn<'c>(all: impl Iterator<Item = &'c Certificate>) {
    for certificate in all {
        if let Some(doubt) = certificate.doubt(SystemTime::now()) {
            let subject = certificate.subject();
            let chain = certificate.files().map(|files| files.chain.display().to_string());
            let chain = chain.unwrap_or_default();
            tracing::warn!(
                event = "certificate.doubtful",
                subject = subject,
                "\"{chain}\" has a certificate (`{subject}`) {doubt}"
            );
        }
    }
}

/// Warns once of each OCSP response that is not stapled, also of one that has just expired.
fn warn_of_staples<'c>(all: impl Iterator<Item = &'c Certificate>, known: &mut BTreeSet<String>) {
    let problems = all.filter_map(|it| Some((it.subject(), it.staple_problem(SystemTime::now())?)));
    let mut now = BTreeSet::new();
    for (subject, problem) in problems {
        if !known.contains(&problem) {
            tracing::warn!(
                event = "certificate.not-stapled",
                subject = subject,
                "the OCSP response {problem}; it is not stapled"
            );
        }
        now.insert(problem);
    }
    *known = now;
}

fn stamps(files: &[CertificateFiles]) -> BTreeMap<PathBuf, Stamp> {
    let stamp = |it: Metadata| (it.dev(), it.ino(), it.size(), it.ctime(), it.ctime_nsec());
    let look = |path: &Path| (path.to_owned(), std::fs::metadata(path).ok().map(stamp));
    files.iter().flat_map(CertificateFiles::paths).map(look).collect()
}

fn read_all(files: Vec<CertificateFiles>) -> Read {
    let read =
        |path: &Path| equipoise_basics::files::read_text(path, FileKind::Certificates.bytes_max());
    let response = |path: &Path| equipoise_basics::files::read(path, FileKind::Ocsp.bytes_max());
    let one = |files: CertificateFiles| {
        let loaded = files.load(read).map(|it| it.stapled(response));
        let outcome = loaded.map_err(|error| error.to_string());
        (files, outcome)
    };
    files.into_iter().map(one).collect()
}

/// Runs `work` on a thread of its own, for which the process does not wait at its end.
async fn on_thread<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> Option<T> {
    let (done, result) = oneshot::channel();
    let thread = thread::Builder::new().name("certificates".into());
    // The receiver is gone if the process ends.
    thread.spawn(move || drop(done.send(work()))).ok()?;
    result.await.ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_are_read_once_they_rest_and_again_only_after_a_change() {
        let mut looks = Looks::default();
        let of = |time: i64| BTreeMap::from([(PathBuf::from("/a"), Some((1, 2, 3, time, 0)))]);
        let gone = BTreeMap::from([(PathBuf::from("/a"), None)]);
        for (seen, is_read) in [
            (of(1), false),
            (of(1), true),
            (of(1), false),
            (of(2), false),
            (of(3), false),
            (of(3), true),
            (gone.clone(), false),
            (of(3), false),
            (of(3), false),
            (gone.clone(), false),
            (gone, true),
        ] {
            assert_eq!(looks.is_time_to_read(seen.clone()), is_read, "{seen:?}");
        }
    }
}
