//! Connections of workers: immediate evidence of the end of a process.
//!
//! Each worker process keeps a connection to each controller candidate, and its kernel closes it
//! when the process ends. A connection that never existed proves nothing: then the lease decides.
//! After a close the controller sends the worker a probe. A worker that lives answers within
//! milliseconds: then something else, such as a middlebox, has reset the connection. A worker that
//! does not answer within [`crate::Config::probe`] is lost.
//!
//! An answer names its probe, since claims that were sent before the end may arrive after it. Time
//! in which the controller itself was paused does not count: answers may wait to be read.
//!
//! Silence with an open connection is a *suspicion*: the process exists, and may be paused. It
//! keeps its slices until its lease expires.

use std::collections::BTreeMap;
use std::time::Duration;

use crate::controller::Controller;
use crate::ids::Incarnation;
use crate::message::Message;

/// The connection of a worker, as its controller knows it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Connection {
    /// It is open: the process exists.
    Open,
    /// It closed without notice, and the worker has not answered the probe yet.
    Closed,
    /// No connection is known: the lease alone decides.
    None,
}

#[derive(Debug, Clone, Copy)]
enum Line {
    Open,
    Closed {
        /// Number of the probe.
        probe: u64,
        /// Time waited for the answer while the controller ran.
        waited: Duration,
        asked: Duration,
    },
}

/// Connections, by incarnation.
#[derive(Debug, Default)]
pub(super) struct Lines {
    lines: BTreeMap<Incarnation, Line>,
    /// Number of the last probe.
    probe: u64,
}

impl<T: Clone> Controller<T> {
    /// A connection of `incarnation` is open.
    pub fn connected(&mut self, incarnation: Incarnation) {
        self.lines.lines.insert(incarnation, Line::Open);
    }

    /// The other side closed the last connection of `incarnation`.
    pub fn disconnected(&mut self, now: Duration, incarnation: Incarnation) {
        if self.members.is_lost(incarnation) {
            self.lines.lines.remove(&incarnation);
            return;
        }
        self.lines.probe += 1;
        let probe = self.lines.probe;
        self.lines
            .lines
            .insert(incarnation, Line::Closed { probe, waited: Duration::ZERO, asked: now });
        self.send(incarnation, Message::Probe { number: probe });
    }

    /// `incarnation` has no connection any more, which proves nothing: the controller closed it, or
    /// the network failed.
    pub fn without_connection(&mut self, incarnation: Incarnation) {
        self.lines.lines.remove(&incarnation);
    }

    /// The connection of `incarnation`.
    pub fn connection(&self, incarnation: Incarnation) -> Connection {
        match self.lines.lines.get(&incarnation) {
            Some(Line::Open) => Connection::Open,
            Some(Line::Closed { .. }) => Connection::Closed,
            None => Connection::None,
        }
    }

    /// A worker answered: it lives, and has no connection until it opens another.
    pub(super) fn alive(&mut self, from: Incarnation, number: u64) {
        if let Some(Line::Closed { probe, .. }) = self.lines.lines.get(&from)
            && *probe == number
        {
            self.lines.lines.remove(&from);
        }
    }

    /// Gives up workers whose connection closed and that did not answer. `passed`: since the last
    /// call.
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
        for (incarnation, line) in &mut self.lines.lines {
            let Line::Closed { probe, waited, asked } = line else { continue };
            *waited += passed.min(resend);
            if *waited >= patience {
                over.push(*incarnation);
            } else if now.saturating_sub(*asked) >= resend {
                *asked = now;
                again.push((*incarnation, *probe));
            }
        }
        for (incarnation, number) in again {
            self.send(incarnation, Message::Probe { number });
        }
        for incarnation in over {
            self.lines.lines.remove(&incarnation);
            if self.members.give_up_closed(incarnation) {
                self.lost(now, incarnation);
            }
        }
    }
}
