//! Sharing of flows with the other balancers of a fleet.

use std::net::SocketAddr;
use std::sync::mpsc::{self, Sender};
use std::time::Instant;

use super::super::{Input, Notice, SharingStatus};
use super::Worker;
use crate::control::Control;
use crate::fleet::{Exchange, PeerState, Tables};

/// The control side, for the threads of the exchange.
#[derive(Clone)]
struct Handle(Sender<Input>);

impl Tables for Handle {
    fn ask<R: Send + 'static>(
        &self,
        question: impl FnOnce(&mut Control) -> R + Send + 'static,
    ) -> Option<R> {
        let (reply, answer) = mpsc::channel();
        let ask = move |worker: &mut Worker| drop(reply.send(question(&mut worker.control)));
        self.0.send(Input::Ask(Box::new(ask))).ok()?;
        answer.recv().ok()
    }

    fn report(&self, peer: SocketAddr, state: &PeerState) {
        Notice::Peer { peer, state: state.clone() }.log();
    }
}

impl Worker {
    /// Shares flows as configured. If the configuration changed, everything is exchanged again.
    pub(super) fn follow_fleet(&mut self) {
        let running = self.exchange.as_ref().map(Exchange::config);
        if running == self.wanted.fleet.as_ref() {
            return;
        }
        self.exchange = None;
        let (Some(config), Some(secret)) = (self.wanted.fleet.clone(), self.secret.clone()) else {
            self.control.share_no_more();
            return;
        };
        self.control.share(Instant::now());
        match Exchange::start(config, secret, Handle(self.inputs.clone())) {
            Ok(exchange) => self.exchange = Some(exchange),
            Err(error) => {
                self.control.share_no_more();
                Notice::NotSharing { error: error.to_string() }.log();
            }
        }
    }

    /// Wakes the threads of the exchange if there is something to send.
    pub(super) fn tell_peers(&self) {
        if let Some(exchange) = &self.exchange {
            exchange.ring(self.control.fleet_news());
        }
    }

    pub(super) fn fleet_status(&self) -> Option<SharingStatus> {
        let exchange = self.exchange.as_ref()?.status(self.control.fleet_asks());
        Some(SharingStatus { exchange, totals: self.control.fleet_totals() })
    }
}
