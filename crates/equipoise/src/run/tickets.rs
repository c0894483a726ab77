//! Keys of session tickets: of this process, of its predecessor, and of its cluster.

use std::sync::Arc;
use std::time::{Duration, SystemTime};

use anyhow::Context;
use equipoise_basics::with_causes;
use equipoise_handover::TicketKeysText;
use equipoise_session::config::{ServerTls, SessionConfig};
use equipoise_tickets::{TicketAnswer, TicketQuestion, Tickets, follow_store};

use crate::run::control::{Control, Levels};

/// Interval between rotations of the process's keys, and between questions of a node. Keys come
/// hours before their use.
const PERIOD: Duration = Duration::from_secs(10);

/// Wait after a question without an answer.
const AGAIN: Duration = Duration::from_secs(2);

/// Keys of this process, which the front doors of `config` use.
///
/// # Errors
/// There are no random numbers.
pub(super) fn of_process(config: &mut SessionConfig) -> anyhow::Result<Tickets> {
    let tickets = Tickets::new().context("there are no random numbers")?;
    with_tickets(&tickets, config);
    Ok(tickets)
}

/// Lets front doors take their keys from `tickets`.
pub(super) fn with_tickets(tickets: &Tickets, config: &mut SessionConfig) {
    for tls in config.front_doors.iter_mut().filter_map(|door| door.tls.as_mut()) {
        *tls = tls.with_tickets(tickets);
    }
}

/// Takes over the keys of a predecessor. One of an earlier version has none.
pub(super) fn inherit(tickets: &Tickets, text: &TicketKeysText) {
    if let Ok(keys) = serde_json::from_str(&text.0) {
        tickets.inherit(keys);
    }
}

impl Levels {
    /// The keys of this process, for its successor.
    pub(super) fn tickets_for_successor(&self) -> TicketKeysText {
        TicketKeysText(serde_json::to_string(&self.tickets.own()).unwrap_or_default())
    }
}

impl Control {
    /// Starts the tasks that rotate and share the keys of session tickets.
    pub(super) fn start_tickets(self: &Arc<Self>) {
        let Levels { tickets, planner, .. } = &self.levels;
        tokio::spawn(rotate(tickets.clone()));
        if let Some(stores) = planner.sealed() {
            tokio::spawn(follow_store(stores, tickets.clone()));
        } else if planner.certificate_questions().is_some() {
            tokio::spawn(Arc::clone(self).ask_for_tickets());
        }
    }

    /// Takes the keys for this node's front doors from the controllers, until the process stops.
    async fn ask_for_tickets(self: Arc<Self>) {
        let Some(mut controllers) = self.levels.planner.certificate_questions() else { return };
        while !self.is_ending() {
            let wait = match TicketQuestion::new(self.ticket_names().await) {
                None => PERIOD,
                Some(question) => match controllers.ask::<TicketAnswer>(&question).await {
                    Ok(answer) => {
                        let doors = question.use_answer(answer, &self.levels.tickets);
                        tracing::debug!(doors, "keys of session tickets from a controller");
                        PERIOD
                    }
                    Err(error) => {
                        let error = with_causes(&error);
                        tracing::debug!("no keys of session tickets: {error}");
                        AGAIN
                    }
                },
            };
            tokio::time::sleep(wait).await;
        }
    }

    /// The names of front doors that share their tickets.
    async fn ticket_names(&self) -> Vec<std::collections::BTreeSet<String>> {
        let running = self.config.lock().await;
        let doors = running.session.front_doors.iter();
        doors.filter_map(|door| door.tls.as_ref().and_then(ServerTls::ticket_names)).collect()
    }
}

async fn rotate(tickets: Tickets) {
    let mut ticks = tokio::time::interval(PERIOD);
    loop {
        ticks.tick().await;
        tickets.rotate(SystemTime::now());
    }
}
