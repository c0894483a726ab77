//! Which nodes an answer has: weighted picks over tables that a snapshot carries.
//!
//! An ordered list keeps its weights only for who asks directly: resolvers shuffle it. What stands in the answer
//! at all is what they cannot change. Therefore `pair` is drawn so that each node stands in a share of answers
//! of twice its weight: a client that takes either address with the same probability then takes each node by weight.
//!
//! # Source
//! Systematic sampling with probability proportional to size: Madow, Annals of Mathematical Statistics 20, 1949. A node
//! of more than half of the weight is drawn twice at times: then the answer has it alone, which keeps shares exact.

use rand::{Rng, RngExt};

use crate::Mode;
use crate::config::LISTED_NODES_MAX;
use crate::message::code::{CLASS_IN, HTTPS};
use crate::message::tail::{QUESTION_POINTER, Written};

/// Orders of the nodes of which a pair's is drawn: neighbours stand together in answers, and a node that fails
/// should not burden the same neighbour every time.
const ORDERS: usize = 8;

/// A name that is spread over nodes, with what an answer takes.
#[derive(Debug)]
pub(crate) struct Spread {
    pub(crate) mode: Mode,
    pub(crate) ttl: u32,
    pub(crate) ttl_heavy: u32,
    /// The name's place in the accounts of load.
    pub(crate) account: usize,
    pub(crate) groups: Vec<Group>,
}

impl Spread {
    #[inline]
    pub(crate) fn group(&self, rtype: u16) -> Option<&Group> {
        self.groups.iter().find(|group| group.rtype == rtype)
    }
}

/// The nodes that have records of one type.
#[derive(Debug)]
pub(crate) struct Group {
    pub(crate) rtype: u16,
    /// How an answer of this type is put together.
    pub(crate) mode: Mode,
    pub(crate) members: Vec<Member>,
    /// None of the nodes with such records serves, so others are given.
    pub(crate) fail_open: bool,
    /// Some members point to names of the zone.
    pub(crate) has_hosts: bool,
    orders: Vec<Order>,
}

/// A node's part of a group.
#[derive(Debug)]
pub(crate) struct Member {
    /// Its place in the zone's nodes, for counting.
    pub(crate) node: usize,
    /// Its place in the name's account.
    pub(crate) place: usize,
    /// Of the group's answers; all members' sum to 1.
    pub(crate) share: f64,
    /// Whole records, each with a pointer to the question's name for owner.
    pub(crate) records: Box<[u8]>,
    pub(crate) count: u16,
    /// The entry of the name that its record points to.
    pub(crate) host: Option<usize>,
}

/// Members in some order, with running sums of their shares, of 2^32.
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
        // Rounding may leave a gap behind the last.
        if let Some(last) = entries.last_mut() {
            last.0 = 1 << 32;
        }
        Order(entries.into())
    }

    #[inline]
    fn at(&self, point: u64) -> usize {
        // Without branches that nobody can predict, as long as there are few.
        let place = match self.0.len() {
            0..=16 => self.0.iter().map(|(end, _)| usize::from(*end <= point)).sum(),
            _ => self.0.partition_point(|(end, _)| *end <= point),
        };
        usize::from(self.0[place.min(self.0.len() - 1)].1)
    }
}

/// The members of an answer, in its order.
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
    /// `members` have shares that sum to 1, and are at most [`LISTED_NODES_MAX`] if `mode` gives all.
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

    /// Draws an answer by shares.
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

    /// All of them: each next one is drawn by share among those left.
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

    /// Writes the chosen members' records to the start of `out`, whole members only; `owner` is a pointer to
    /// their owner's name; `given` is called with each node that was written.
    ///
    /// What does not fit is no part of a weighted answer, which is not truncated as long as there is somebody in it. SRV clients
    /// choose by the weights of all: without one of them it is truncated, and TCP has the rest.
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
                    // RFC 9460, 2.4.1: clients shuffle those of one priority, so that each has its own.
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

/// Pointer, type, class, TTL, length.
pub(crate) const RECORD_HEAD: usize = 12;

/// A record owned by the question's name.
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
