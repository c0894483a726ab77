//! Picks the nodes of an answer: weighted draws from tables in the snapshot.
//!
//! The order of an answer reaches only clients without a resolver: resolvers shuffle records. They
//! cannot change the set of records. Therefore `pair` draws each node into a fraction of answers
//! that is twice its weight. A client that picks either address with equal probability then picks
//! each node by weight.
//!
//! # Source
//! Systematic sampling with probability proportional to size: Madow, Annals of Mathematical
//! Statistics 20, 1949. A node with more than half of the weight is sometimes drawn twice. The
//! answer then has this node only, which keeps shares exact.

use rand::{Rng, RngExt};

use crate::Mode;
use crate::config::LISTED_NODES_MAX;
use crate::message::code::{CLASS_IN, HTTPS};
use crate::message::tail::{QUESTION_POINTER, Written};

/// Number of random orders of the nodes for pairs. Neighbours in an order appear together in
/// answers; with several orders, the load of a failed node does not always move to the same
/// neighbour.
const ORDERS: usize = 8;

/// A balanced name, ready for draws.
#[derive(Debug)]
pub(crate) struct Spread {
    pub(crate) mode: Mode,
    pub(crate) ttl: u32,
    pub(crate) ttl_heavy: u32,
    /// Index of the name in the accounts of load.
    pub(crate) account: usize,
    pub(crate) groups: Vec<Group>,
}

impl Spread {
    #[inline]
    pub(crate) fn group(&self, rtype: u16) -> Option<&Group> {
        self.groups.iter().find(|group| group.rtype == rtype)
    }
}

/// The nodes with records of one type.
#[derive(Debug)]
pub(crate) struct Group {
    pub(crate) rtype: u16,
    /// Selects the members of an answer of this type.
    pub(crate) mode: Mode,
    pub(crate) members: Vec<Member>,
    /// No node with records of this type serves, so members are nodes that do not serve.
    pub(crate) fail_open: bool,
    /// Whether records of members point to names of the zone.
    pub(crate) has_hosts: bool,
    orders: Vec<Order>,
}

/// A node in a group.
#[derive(Debug)]
pub(crate) struct Member {
    /// Index in the zone's nodes, for counters.
    pub(crate) node: usize,
    /// Index in the name's account.
    pub(crate) place: usize,
    /// Fraction of the group's answers; the shares of all members sum to 1.
    pub(crate) share: f64,
    /// Complete records, with a pointer to the question's name as owner.
    pub(crate) records: Box<[u8]>,
    pub(crate) count: u16,
    /// Entry of the name that its record points to.
    pub(crate) host: Option<usize>,
}

/// Members in some order, with cumulative shares, scaled to 2^32.
#[derive(Debug)]
struct Order(Box<[(u64, u16)]>);

impl Order {
    fn of(shares: impl Iterator<Item = (u16, f64)>) -> Order {
        let mut sum = 0.0;
        let mut entries: Vec<_> = shares
            .map(|(member, share)| {
                sum += share;
                ((sum * (1u64 << 32) as f64) as u64, member)
            })
            .collect();
        // Rounding may leave a gap after the last member.
        if let Some(last) = entries.last_mut() {
            last.0 = 1 << 32;
        }
        Order(entries.into())
    }

    #[inline]
    fn at(&self, point: u64) -> usize {
        // A branchless count is faster for few members, because branches would be unpredictable.
        let place = match self.0.len() {
            0..=16 => self.0.iter().map(|(end, _)| usize::from(*end <= point)).sum(),
            _ => self.0.partition_point(|(end, _)| *end <= point),
        };
        usize::from(self.0[place.min(self.0.len() - 1)].1)
    }
}

/// The members of an answer, in order.
#[derive(Debug)]
pub(crate) struct Chosen {
    places: [u16; LISTED_NODES_MAX],
    count: usize,
}

impl Chosen {
    fn of(members: &[usize]) -> Chosen {
        let mut chosen = Chosen { places: [0; LISTED_NODES_MAX], count: 0 };
        for member in members {
            chosen.push(*member);
        }
        chosen
    }

    fn push(&mut self, member: usize) {
        self.places[self.count] = member as u16;
        self.count += 1;
    }

    pub(crate) fn pair(first: usize, second: usize) -> Chosen {
        if first == second { Chosen::of(&[first]) } else { Chosen::of(&[first, second]) }
    }

    pub(crate) fn members(&self) -> impl Iterator<Item = usize> + '_ {
        self.places[..self.count].iter().map(|place| usize::from(*place))
    }
}

impl Group {
    /// The shares of `members` must sum to 1. A mode that answers with all nodes takes at most
    /// [`LISTED_NODES_MAX`].
    pub(crate) fn new(rtype: u16, mode: Mode, members: Vec<Member>, rng: &mut dyn Rng) -> Group {
        let mut places: Vec<u16> = (0..members.len() as u16).collect();
        let orders = if mode == Mode::Pair && members.len() > 2 { ORDERS } else { 1 };
        let orders = (0..orders).map(|_| {
            for at in (1..places.len()).rev() {
                places.swap(at, rng.random_range(0..=at));
            }
            Order::of(places.iter().map(|place| (*place, members[usize::from(*place)].share)))
        });
        let has_hosts = members.iter().any(|member| member.host.is_some());
        Group { rtype, mode, orders: orders.collect(), members, fail_open: false, has_hosts }
    }

    /// Draws the members of an answer by share.
    #[inline]
    pub(crate) fn draw(&self, rng: &mut impl Rng) -> Chosen {
        match self.mode {
            Mode::Single => Chosen::of(&[self.orders[0].at(u64::from(rng.next_u32()))]),
            Mode::Pair => {
                let random = rng.next_u64();
                let order = &self.orders[(random >> 60) as usize % self.orders.len()];
                let point = random & 0x7fff_ffff;
                let [one, other] = [order.at(point), order.at(point + (1 << 31))];
                if random & 1 << 40 == 0 {
                    Chosen::pair(one, other)
                } else {
                    Chosen::pair(other, one)
                }
            }
            Mode::Ordered | Mode::Https => self.draw_all(rng),
            Mode::Srv => {
                let mut chosen = Chosen::of(&[]);
                (0..self.members.len()).for_each(|member| chosen.push(member));
                chosen
            }
        }
    }

    /// Draws all members: each next one by share among the remaining ones.
    fn draw_all(&self, rng: &mut impl Rng) -> Chosen {
        let mut left = [(0.0, 0u16); LISTED_NODES_MAX];
        let count = self.members.len().min(LISTED_NODES_MAX);
        let mut sum = 0.0;
        for (at, (slot, member)) in left.iter_mut().zip(&self.members).enumerate() {
            *slot = (member.share, at as u16);
            sum += member.share;
        }
        let mut chosen = Chosen::of(&[]);
        for remaining in (1..=count).rev() {
            let mut point = f64::from(rng.next_u32()) / 4_294_967_296.0 * sum;
            let mut at = 0;
            while at + 1 < remaining && point >= left[at].0 {
                point -= left[at].0;
                at += 1;
            }
            chosen.push(usize::from(left[at].1));
            sum -= left[at].0;
            left[at] = left[remaining - 1];
        }
        chosen
    }

    /// Writes the chosen members' records to the start of `out`, whole members only. `owner` is a
    /// pointer to the owner's name. Calls `given` with each node that was written.
    ///
    /// A weighted answer may omit members that do not fit: it is truncated (TC) only if no member
    /// fits. SRV clients choose by the weights of all members, so an SRV answer that omits one is
    /// truncated, and the client retries over TCP.
    #[inline]
    pub(crate) fn write(
        &self,
        chosen: &Chosen,
        (ttl, owner): (u32, u16),
        out: &mut [u8],
        mut given: impl FnMut(usize),
    ) -> Written {
        let mut written = Written::default();
        let ttl = ttl.to_be_bytes();
        for (rank, member) in chosen.members().enumerate() {
            let member = &self.members[member];
            let end = written.bytes + member.records.len();
            let Some(room) = out.get_mut(written.bytes..end) else {
                written.truncated = rank == 0 || self.mode == Mode::Srv;
                break;
            };
            room.copy_from_slice(&member.records);
            let mut at = 0;
            for _ in 0..member.count {
                let record = &mut room[at..];
                if owner != QUESTION_POINTER {
                    record[..2].copy_from_slice(&owner.to_be_bytes());
                }
                record[6..10].copy_from_slice(&ttl);
                if self.rtype == HTTPS {
                    // RFC 9460, 2.4.1: clients shuffle records of equal priority, so each record
                    // gets its own.
                    record[12..14].copy_from_slice(&(rank as u16 + 1).to_be_bytes());
                }
                at += RECORD_HEAD + usize::from(u16::from_be_bytes([record[10], record[11]]));
            }
            written.bytes = end;
            written.counts[0] += member.count;
            given(member.node);
        }
        written
    }
}

/// Size of pointer, type, class, TTL and length.
pub(crate) const RECORD_HEAD: usize = 12;

/// Makes a record owned by the question's name.
pub(crate) fn record(rtype: u16, body: &[u8]) -> Vec<u8> {
    let mut bytes = QUESTION_POINTER.to_be_bytes().to_vec();
    bytes.extend(rtype.to_be_bytes());
    bytes.extend(CLASS_IN.to_be_bytes());
    bytes.extend([0; 4]);
    bytes.extend((body.len() as u16).to_be_bytes());
    bytes.extend(body);
    bytes
}

#[cfg(test)]
mod tests;
