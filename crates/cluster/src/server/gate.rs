//! How many connections there are, by whom.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::sync::{Arc, Mutex, PoisonError};

use super::ServerLimits;
use crate::Name;

/// Counts connections: all, those without a certificate (by address, too), and those of each member.
#[derive(Clone, Debug)]
pub(crate) struct Gate {
    limits: ServerLimits,
    inside: Arc<Mutex<Inside>>,
}

#[derive(Debug, Default)]
struct Inside {
    all: usize,
    unproven: usize,
    by_address: BTreeMap<IpAddr, usize>,
    by_member: BTreeMap<Name, usize>,
}

/// A connection that is counted until this is dropped.
#[derive(Debug)]
pub(crate) struct Pass {
    gate: Gate,
    who: Who,
}

#[derive(Debug)]
enum Who {
    Unproven(IpAddr),
    Member(Name),
}

impl Gate {
    pub(crate) fn new(limits: ServerLimits) -> Gate {
        Gate { limits, inside: Arc::default() }
    }

    fn inside(&self) -> std::sync::MutexGuard<'_, Inside> {
        self.inside.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Lets a connection in that has shown nothing yet.
    ///
    /// # Errors
    /// Why not: the counter's name.
    pub(crate) fn enter(&self, from: IpAddr) -> Result<Pass, &'static str> {
        let mut inside = self.inside();
        let from = from.to_canonical();
        if inside.all >= self.limits.connections_max {
            return Err("dropped_connections_max");
        }
        if inside.unproven >= self.limits.unproven_max {
            return Err("dropped_unproven_max");
        }
        let here = inside.by_address.get(&from).copied().unwrap_or(0);
        if here >= self.limits.unproven_by_address_max {
            return Err("dropped_unproven_by_address_max");
        }
        inside.all += 1;
        inside.unproven += 1;
        inside.by_address.insert(from, here + 1);
        Ok(Pass { gate: self.clone(), who: Who::Unproven(from) })
    }
}

impl Pass {
    /// It has shown that it is this member.
    ///
    /// # Errors
    /// Why it may not stay: the counter's name.
    pub(crate) fn prove(&mut self, member: &Name) -> Result<(), &'static str> {
        let mut inside = self.gate.inside();
        let here = inside.by_member.get(member).copied().unwrap_or(0);
        if here >= self.gate.limits.by_member_max {
            return Err("dropped_by_member_max");
        }
        inside.leave(&self.who);
        inside.all += 1;
        inside.by_member.insert(member.clone(), here + 1);
        self.who = Who::Member(member.clone());
        Ok(())
    }
}

impl Inside {
    fn leave(&mut self, who: &Who) {
        self.all -= 1;
        match who {
            Who::Unproven(from) => {
                self.unproven -= 1;
                decrease(&mut self.by_address, from);
            }
            Who::Member(name) => decrease(&mut self.by_member, name),
        }
    }
}

fn decrease<K: Ord>(counts: &mut BTreeMap<K, usize>, of: &K) {
    if let Some(count) = counts.get_mut(of) {
        *count -= 1;
        if *count == 0 {
            counts.remove(of);
        }
    }
}

impl Drop for Pass {
    fn drop(&mut self) {
        self.gate.inside().leave(&self.who);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn gate() -> Gate {
        Gate::new(ServerLimits {
            connections_max: 5,
            unproven_max: 3,
            unproven_by_address_max: 2,
            by_member_max: 2,
            ..ServerLimits::default()
        })
    }

    fn address(last: u8) -> IpAddr {
        [192, 0, 2, last].into()
    }

    #[test]
    fn who_has_shown_nothing_is_few_and_fewer_from_one_place() {
        let gate = gate();
        let _held = [gate.enter(address(1)).unwrap(), gate.enter(address(1)).unwrap()];
        assert_eq!(gate.enter(address(1)).unwrap_err(), "dropped_unproven_by_address_max");
        let third = gate.enter(address(2)).unwrap();
        assert_eq!(gate.enter(address(3)).unwrap_err(), "dropped_unproven_max");
        drop(third);
        assert!(gate.enter(address(3)).is_ok());
    }

    #[test]
    fn a_member_makes_room_for_the_unproven_but_is_few_itself() {
        let gate = gate();
        let name: Name = "a".parse().unwrap();
        let mut held = Vec::new();
        for _ in 0..2 {
            let mut pass = gate.enter(address(1)).unwrap();
            pass.prove(&name).unwrap();
            held.push(pass);
        }
        let mut third = gate.enter(address(1)).unwrap();
        assert_eq!(third.prove(&name), Err("dropped_by_member_max"));
        drop(third);
        held.extend((1..3).map(|n| gate.enter(address(n)).unwrap()));
        held.push(gate.enter(address(2)).unwrap());
        assert_eq!(gate.enter(address(4)).unwrap_err(), "dropped_connections_max");
        held.clear();
        let inside = gate.inside();
        assert_eq!((inside.all, inside.unproven), (0, 0));
        assert!(inside.by_address.is_empty() && inside.by_member.is_empty(), "{inside:?}");
    }
}
