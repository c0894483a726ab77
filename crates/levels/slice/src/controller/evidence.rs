//! Connections of workers: evidence of a death that is known at once.
//!
//! Each worker process keeps a connection to each controller candidate, and its kernel closes it
//! when the process ends. A connection that was never there says nothing: then the lease decides.
//! After a close the controller asks the worker by mail. A worker that lives answers within
//! milliseconds: something else, as a box on the way, has reset the connection. A worker that does
//! not answer within [`crate::Config::probe`] is lost.
//!
//! An answer names the question, since claims that were sent before a death may arrive after it.
//! Time that the controller itself stood still does not count: answers may wait to be read.
//!
//! Silence with an open connection is a *suspicion*: the process exists, and may be paused. Nothing
//! is taken from it before its lease is over.

use std::collections::BTreeMap;
use std::time::Duration;

use crate::controller::Controller;
use crate::ids::Life;
use crate::message::Message;

/// A worker's connection, as its controller knows it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Connection {
    /// It is open: the process exists.
    Open,
    /// It closed without notice, and the worker has still to answer.
    Closed,
    /// None is known: the lease alone decides.
    None,
}

#[derive(Debug, Clone, Copy)]
enum Line {
    Open,
    Closed {
        /// The number of the question.
        probe: u64,
        /// For how long the answer was waited for, while the controller ran.
        waited: Duration,
        asked: Duration,
    },
}

/// Connections, by life.
#[derive(Debug, Default)]
pub(super) struct Lines {
    lines: BTreeMap<Life, Line>,
    /// The number of the last question.
    probe: u64,
}

impl<T: Clone> Controller<T> {
    /// A connection of `life` is open.
    pub fn connected(&mut self, life: Life) {
        self.lines.lines.insert(life, Line::Open);
    }

    /// The last connection of `life` was closed by the other side.
    pub fn disconnected(&mut self, now: Duration, life: Life) {
        if self.members.is_lost(life) {
            self.lines.lines.remove(&life);
            return;
        }
        self.lines.probe += 1;
        let probe = self.lines.probe;
        self.lines.lines.insert(life, Line::Closed { probe, waited: Duration::ZERO, asked: now });
        self.send(life, Message::Probe { number: probe });
    }

    /// There is no connection of `life` any more, which says nothing: the controller closed it, or
    /// the network failed.
    pub fn without_connection(&mut self, life: Life) {
        self.lines.lines.remove(&life);
    }

    /// The connection of `life`.
    pub fn connection(&self, life: Life) -> Connection {
        match self.lines.lines.get(&life) {
            Some(Line::Open) => Connection::Open,
            Some(Line::Closed { .. }) => Connection::Closed,
            None => Connection::None,
        }
    }

    /// A worker answered: it lives, and has no connection until it opens another.
    pub(super) fn alive(&mut self, from: Life, number: u64) {
        if let Some(Line::Closed { probe, .. }) = self.lines.lines.get(&from)
            && *probe == number
        {
            self.lines.lines.remove(&from);
        }
    }

    /// Gives those up that closed and did not answer. `passed`: since the last call.
    pub(super) fn tick_evidence(&mut self, now: Duration, passed: Duration) {
        if self.lines.lines.is_empty() {
            return;
        }
        let (resend, patience) = (self.config.resend, self.config.probe);
        #[cfg(test)]
        let patience = match self.sabotage {
            crate::worker::Sabotage::TrustClose => Duration::ZERO,
            _ => patience,
        };
        let (mut over, mut again) = (Vec::new(), Vec::new());
        for (life, line) in &mut self.lines.lines {
            let Line::Closed { probe, waited, asked } = line else { continue };
            *waited += passed.min(resend);
            if *waited >= patience {
                over.push(*life);
            } else if now.saturating_sub(*asked) >= resend {
                *asked = now;
                again.push((*life, *probe));
            }
        }
        for (life, number) in again {
            self.send(life, Message::Probe { number });
        }
        for life in over {
            self.lines.lines.remove(&life);
            if self.members.give_up_closed(life) {
                self.lost(now, life);
            }
        }
    }
}
