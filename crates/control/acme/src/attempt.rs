//! One attempt to obtain a certificate: its order, its outcome, and the time of the next one.

use std::time::SystemTime;

use equipoise_basics::rough;
use equipoise_tls::Certificate;
use instant_acme::Account;

use crate::account;
use crate::client::Client;
use crate::folder::AcmeFolder;
use crate::home::Home;
use crate::names::{NameState, OrderState, Stage, is_for};
use crate::options::{Acme, OrderedName};
use crate::order::order;
use crate::order_error::OrderError;
use crate::pace::{Fault, next_try, renewal_of};
use crate::task::Task;
use crate::thread::on_thread;

impl Task {
    /// Makes one attempt, and plans the next one.
    pub(crate) async fn attempt(
        &self,
        options: &Acme,
        name: &OrderedName,
        connection: &mut Connection,
        home: &Home<'_>,
    ) {
        let before = self.names.set(&options.folder, &name.name, |status| {
            std::mem::replace(&mut status.stage, Stage::Ordering)
        });
        // An attempt that is abandoned leaves the stage as it was, too.
        let restored = Restored { task: self, folder: &options.folder, name: &name.name, before };
        let outcome = self.obtain(options, name, connection, home).await;
        drop(restored);
        // Its answer was withdrawn.
        self.text_records.publish().await;
        match outcome {
            Ok((certificate, state)) => {
                self.names.state(&options.folder, &name.name, |it| *it = state);
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
                let state = self.names.state(&options.folder, &name.name, |state| state.clone());
                if let Err(error) = home.save(&name.name, None, &state).await {
                    tracing::warn!("{error}; other members do not know of the failed attempt");
                }
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
            // The other ways to verify it are tried soon, once each.
            let fault = match is_unverified && (count as usize) < name.methods.len() {
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

    /// Orders a certificate and keeps it. Returns it with the new state of its name.
    async fn obtain(
        &self,
        options: &Acme,
        name: &OrderedName,
        connection: &mut Connection,
        home: &Home<'_>,
    ) -> Result<(Certificate, NameState), OrderError> {
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
            None => account::open(options, &client, home).await?,
        };
        let first = self.names.state(&options.folder, &name.name, |state| state.method);
        let mut methods = name.methods.clone();
        let count = methods.len().max(1);
        methods.rotate_left(first % count);
        tracing::debug!(name = name.name, ?methods, "ordering a certificate");
        let ordered = order(&account, &name.name, &methods, home).await;
        let (account, pem) = match ordered {
            Err(error) if error.is_unknown_account() => {
                // A directory for tests may have lost it.
                let account = account::create(options, &client, home).await?;
                let pem = order(&account, &name.name, &methods, home).await?;
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
        let next_try = Some(renewal_of(&certificate));
        let status = OrderState { stage: Stage::Issued, next_try, ..OrderState::default() };
        let method = self.names.state(&options.folder, &name.name, |state| state.method);
        let state = NameState { status, method, kind: None };
        home.save(&name.name, Some(&pem), &state).await?;
        Ok((certificate, state))
    }
}

/// The client and the account with one directory, kept between orders.
#[derive(Default)]
pub(crate) struct Connection {
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
