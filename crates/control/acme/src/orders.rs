//! The task that orders and renews certificates, one after the other.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::time::{Duration, SystemTime};

use equipoise_basics::{lock, rough};
use equipoise_tls::{Certificate, Challenges};
use instant_acme::Account;
use tokio::sync::watch;

use crate::account;
use crate::client::Client;
use crate::folder::AcmeFolder;
use crate::options::{Acme, OrderedName};
use crate::order::{OrderError, order};
use crate::pace::{Fault, next_try, renewal};
use crate::thread::on_thread;

/// Longest sleep between looks at the clock, which may be set.
const LOOK: Duration = Duration::from_secs(60);

/// The stage of a name.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Stage {
    /// No certificate yet; the next attempt is due later.
    #[default]
    Waiting,
    /// An order is under way.
    Ordering,
    /// There is a certificate.
    Issued,
}

impl Stage {
    /// The name in status.
    pub const fn name(self) -> &'static str {
        match self {
            Stage::Waiting => "waiting",
            Stage::Ordering => "ordering",
            Stage::Issued => "issued",
        }
    }
}

/// The state of one name.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct OrderState {
    /// Its stage.
    pub stage: Stage,
    /// Failed attempts since the last success.
    pub failures: u32,
    /// The error of the last attempt; `None` after a success.
    pub last_error: Option<String>,
    /// The time of the next attempt, renewals included.
    pub next_try: Option<SystemTime>,
}

/// The handle of the task. Dropping it ends the task.
#[derive(Debug)]
pub struct Orders {
    options: watch::Sender<Option<Acme>>,
    issued: watch::Receiver<u64>,
    names: Arc<Names>,
}

/// States by name. A reload keeps them, so that it does not shorten a wait.
#[derive(Debug, Default)]
struct Names(Mutex<BTreeMap<String, NameState>>);

#[derive(Debug)]
struct NameState {
    /// The folder that the state is of.
    folder: AcmeFolder,
    status: OrderState,
    /// Position of the method to use. It moves on when the directory could not verify the name.
    method: usize,
    /// The kind of the last failure, and how many of that kind there were in a row.
    kind: Option<(Fault, u32)>,
}

impl NameState {
    fn new(folder: &AcmeFolder) -> NameState {
        NameState { folder: folder.clone(), status: OrderState::default(), method: 0, kind: None }
    }
}

impl Orders {
    /// Starts the task, which has nothing to do before [`Orders::follow`].
    pub fn start(challenges: Challenges) -> Orders {
        let (options, receiver) = watch::channel(None);
        let (sender, issued) = watch::channel(0);
        let names = Arc::<Names>::default();
        let task = Task { challenges, names: Arc::clone(&names), issued: sender };
        tokio::spawn(task.run(receiver));
        Orders { options, issued, names }
    }

    /// Orders for these names from now on; `None`: for none. An order under way is abandoned if the
    /// options differ.
    pub fn follow(&self, options: Option<Acme>) {
        self.options.send_if_modified(|now| {
            let differs = *now != options;
            *now = options;
            differs
        });
    }

    /// Counts the certificates that were written.
    pub fn issued(&self) -> watch::Receiver<u64> {
        self.issued.clone()
    }

    /// The state of each name that was ever ordered.
    pub fn status(&self) -> BTreeMap<String, OrderState> {
        let names = lock(&self.names.0);
        names.iter().map(|(name, state)| (name.clone(), state.status.clone())).collect()
    }
}

impl Names {
    fn set<T>(
        &self,
        folder: &AcmeFolder,
        name: &str,
        change: impl FnOnce(&mut OrderState) -> T,
    ) -> T {
        self.state(folder, name, |state| change(&mut state.status))
    }

    fn state<T>(
        &self,
        folder: &AcmeFolder,
        name: &str,
        change: impl FnOnce(&mut NameState) -> T,
    ) -> T {
        let mut names = lock(&self.0);
        let state = names.entry(name.into()).or_insert_with(|| NameState::new(folder));
        if state.folder != *folder {
            *state = NameState::new(folder);
        }
        change(state)
    }
}

struct Task {
    challenges: Challenges,
    names: Arc<Names>,
    issued: watch::Sender<u64>,
}

impl Task {
    async fn run(self, mut options: watch::Receiver<Option<Acme>>) {
        loop {
            let now = options.borrow_and_update().clone();
            tokio::select! {
                () = self.serve(now.as_ref()) => {}
                changed = options.changed() => match changed {
                    Ok(()) => {}
                    Err(_) => return,
                },
            }
        }
    }

    /// Orders and renews; never ends.
    async fn serve(&self, options: Option<&Acme>) {
        let Some(options) = options.filter(|it| !it.names.is_empty()) else {
            return std::future::pending().await;
        };
        for name in &options.names {
            self.look(&options.folder, &name.name).await;
        }
        let mut connection = Connection::default();
        loop {
            let next = options.names.iter().min_by_key(|name| self.due(options, name));
            let Some(name) = next else { return std::future::pending().await };
            match self.due(options, name).duration_since(SystemTime::now()) {
                Ok(wait) if !wait.is_zero() => tokio::time::sleep(wait.min(LOOK)).await,
                _ => self.attempt(options, name, &mut connection).await,
            }
        }
    }

    fn due(&self, options: &Acme, name: &OrderedName) -> SystemTime {
        let due = self.names.set(&options.folder, &name.name, |it| it.next_try);
        due.unwrap_or(SystemTime::UNIX_EPOCH)
    }

    /// Finds the certificate of an earlier process.
    async fn look(&self, folder: &AcmeFolder, name: &str) {
        let read = {
            let (folder, name) = (folder.clone(), name.to_string());
            on_thread(move || folder.load(&name)).await
        };
        let certificate = match read {
            Ok(Ok(certificate)) => certificate.filter(|it| is_for(it, name)),
            Ok(Err(error)) => {
                tracing::warn!("{error}; ordering another certificate");
                None
            }
            Err(error) => {
                tracing::warn!("\"{name}\": {error}; ordering another certificate");
                None
            }
        };
        self.names.set(folder, name, |status| match certificate {
            // A reload keeps the time of a renewal and the wait after a failure.
            Some(_) if status.next_try.is_some() => status.stage = Stage::Issued,
            Some(certificate) => {
                status.stage = Stage::Issued;
                status.next_try = Some(renewal_of(&certificate));
            }
            None => {
                status.stage = Stage::Waiting;
                // The wait after a failure remains.
                if status.failures == 0 {
                    status.next_try = None;
                }
            }
        });
    }

    async fn attempt(&self, options: &Acme, name: &OrderedName, connection: &mut Connection) {
        let before = self.names.set(&options.folder, &name.name, |status| {
            std::mem::replace(&mut status.stage, Stage::Ordering)
        });
        // An attempt that is abandoned leaves the stage as it was, too.
        let restored = Restored { task: self, folder: &options.folder, name: &name.name, before };
        let outcome = self.obtain(options, name, connection).await;
        drop(restored);
        match outcome {
            Ok(certificate) => {
                let next = renewal_of(&certificate);
                self.names.state(&options.folder, &name.name, |state| {
                    state.kind = None;
                    state.status = OrderState {
                        stage: Stage::Issued,
                        next_try: Some(next),
                        ..OrderState::default()
                    };
                });
                let left = certificate.valid_until().duration_since(SystemTime::now());
                let left = rough(left.unwrap_or_default().as_secs());
                tracing::info!(
                    event = "certificate.issued",
                    subject = name.name,
                    name = name.name,
                    "certificate issued, valid for {left}"
                );
                self.issued.send_modify(|count| *count += 1);
            }
            Err(error) => {
                // The directory may have changed.
                connection.account = None;
                let not_before = connection.client.as_ref().and_then(Client::take_not_before);
                self.failed(options, name, before, &error, not_before);
            }
        }
    }

    /// Notes a failure, and plans the next attempt.
    fn failed(
        &self,
        options: &Acme,
        name: &OrderedName,
        before: Stage,
        error: &OrderError,
        not_before: Option<SystemTime>,
    ) {
        let is_unverified = matches!(error, OrderError::Unverified { .. });
        let wait = self.names.state(&options.folder, &name.name, |state| {
            state.method += usize::from(is_unverified);
            // Failures of another kind, such as an outage of the directory, lengthen no wait.
            let count = match state.kind {
                Some((kind, count)) if kind == error.fault() => count.saturating_add(1),
                _ => 1,
            };
            state.kind = Some((error.fault(), count));
            // The other way to verify it is tried soon, once.
            let fault = match is_unverified && count == 1 && name.methods.len() > 1 {
                true => Fault::Temporary,
                false => error.fault(),
            };
            let status = &mut state.status;
            status.failures = status.failures.saturating_add(1);
            let now = SystemTime::now();
            let next = next_try(now, fault, count, not_before, rand::random());
            status.last_error = Some(error.to_string());
            status.next_try = Some(next);
            next.duration_since(now).unwrap_or_default()
        });
        let what = match before {
            Stage::Issued => "the last certificate stays in use",
            Stage::Waiting | Stage::Ordering => "there is no certificate yet",
        };
        tracing::error!(
            event = "certificate.not-issued",
            subject = name.name,
            name = name.name,
            "could not obtain a certificate: {error}; {what}, and the next attempt is in {}",
            rough(wait.as_secs())
        );
    }

    async fn obtain(
        &self,
        options: &Acme,
        name: &OrderedName,
        connection: &mut Connection,
    ) -> Result<Certificate, OrderError> {
        let client = match connection.client.take() {
            Some(client) => client,
            None => {
                let ca = options.ca.clone();
                let client = on_thread(move || Client::new(ca.as_deref())).await;
                client.map_err(|it| it.to_string()).flatten().map_err(OrderError::Local)?
            }
        };
        connection.client = Some(client.clone());
        let account = match connection.account.take() {
            Some(account) => account,
            None => account::open(options, &client).await?,
        };
        let first = self.names.state(&options.folder, &name.name, |state| state.method);
        let mut methods = name.methods.clone();
        let count = methods.len().max(1);
        methods.rotate_left(first % count);
        tracing::debug!(name = name.name, ?methods, "ordering a certificate");
        let ordered = order(&account, &name.name, &methods, &self.challenges).await;
        let (account, pem) = match ordered {
            Err(error) if error.is_unknown_account() => {
                // A directory for tests may have lost it.
                let account = account::create(options, &client).await?;
                let pem = order(&account, &name.name, &methods, &self.challenges).await?;
                (account, pem)
            }
            ordered => (account, ordered?),
        };
        connection.account = Some(account);
        let certificate = Certificate::from_pem(&pem, &pem)
            .map_err(|error| OrderError::Certificate(error.to_string()))?;
        if !is_for(&certificate, &name.name) {
            return Err(OrderError::Certificate("it is for another name".into()));
        }
        let (folder, file) = (options.folder.clone(), name.name.clone());
        let saved = on_thread(move || folder.save(&file, &pem)).await.flatten();
        let path = options.folder.certificate(&name.name).chain;
        saved.map_err(|error| OrderError::file("written", &path, &error))?;
        Ok(certificate)
    }
}

/// The client and the account with one directory, kept between orders.
#[derive(Default)]
struct Connection {
    client: Option<Client>,
    account: Option<Account>,
}

/// Restores the stage of a name when it is dropped.
struct Restored<'t> {
    task: &'t Task,
    folder: &'t AcmeFolder,
    name: &'t str,
    before: Stage,
}

impl Drop for Restored<'_> {
    fn drop(&mut self) {
        self.task.names.set(self.folder, self.name, |status| status.stage = self.before);
    }
}

fn is_for(certificate: &Certificate, name: &str) -> bool {
    certificate.names().iter().any(|it| it == name)
}

fn renewal_of(certificate: &Certificate) -> SystemTime {
    renewal(certificate.valid_from(), certificate.valid_until(), rand::random())
}
