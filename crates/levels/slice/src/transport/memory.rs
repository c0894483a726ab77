//! A transport within a process: everything arrives at once, in order.

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::convert::Infallible;
use std::rc::Rc;
use std::time::Duration;

use crate::ids::{Group, WorkerId};
use crate::message::{Address, Envelope, Item};
use crate::transport::{Arrival, Transport};

/// The network of all parties. Clones are the same network.
#[derive(Debug)]
pub struct Network<T>(Rc<RefCell<Wires<T>>>);

#[derive(Debug)]
struct Wires<T> {
    ports: BTreeMap<WorkerId, Port<T>>,
    to_controller: VecDeque<Envelope<T>>,
}

#[derive(Debug)]
struct Port<T> {
    groups: BTreeSet<Group>,
    arrivals: VecDeque<Arrival<T>>,
}

/// The connection of one worker.
#[derive(Debug)]
pub struct Connection<T> {
    network: Network<T>,
    worker: WorkerId,
}

impl<T> Clone for Network<T> {
    fn clone(&self) -> Self {
        Self(self.0.clone())
    }
}

impl<T> Default for Network<T> {
    fn default() -> Self {
        Self(Rc::new(RefCell::new(Wires {
            ports: BTreeMap::new(),
            to_controller: VecDeque::new(),
        })))
    }
}

impl<T: Clone> Network<T> {
    /// Connects a worker. An earlier one of the same name is disconnected.
    pub fn connect(&self, worker: WorkerId) -> Connection<T> {
        let port = Port { groups: BTreeSet::new(), arrivals: VecDeque::new() };
        self.0.borrow_mut().ports.insert(worker, port);
        Connection { network: self.clone(), worker }
    }

    /// Delivers an item to all readers of its group.
    pub fn publish(&self, item: &Item<T>) {
        for port in self.0.borrow_mut().ports.values_mut() {
            if port.groups.contains(&item.writer.group) {
                port.arrivals.push_back(Arrival::Item(item.clone()));
            }
        }
    }

    /// Delivers a message to its receiver.
    pub fn send(&self, envelope: &Envelope<T>) {
        let mut wires = self.0.borrow_mut();
        match envelope.to {
            Address::Controller => wires.to_controller.push_back(envelope.clone()),
            Address::Worker(incarnation) => {
                if let Some(port) = wires.ports.get_mut(&incarnation.worker) {
                    port.arrivals.push_back(Arrival::Control(envelope.clone()));
                }
            }
        }
    }

    /// The next message to the controller.
    pub fn for_controller(&self) -> Option<Envelope<T>> {
        self.0.borrow_mut().to_controller.pop_front()
    }
}

impl<T> Connection<T> {
    fn port<R>(&self, with: impl FnOnce(&mut Port<T>) -> R) -> Option<R> {
        self.network.0.borrow_mut().ports.get_mut(&self.worker).map(with)
    }
}

impl<T: Clone> Transport<T> for Connection<T> {
    type Error = Infallible;

    fn subscribe(&mut self, group: Group) -> Result<(), Infallible> {
        self.port(|port| {
            port.groups.insert(group);
            port.arrivals.extend([Arrival::Subscribed(group), Arrival::Settled(group)]);
        });
        Ok(())
    }

    fn unsubscribe(&mut self, group: Group) -> Result<(), Infallible> {
        self.port(|port| port.groups.remove(&group));
        Ok(())
    }

    fn send(&mut self, envelope: &Envelope<T>) -> Result<(), Infallible> {
        self.network.send(envelope);
        Ok(())
    }

    fn arrivals(
        &mut self,
        _now: Duration,
        arrivals: &mut Vec<Arrival<T>>,
    ) -> Result<(), Infallible> {
        self.port(|port| arrivals.extend(port.arrivals.drain(..)));
        Ok(())
    }
}
