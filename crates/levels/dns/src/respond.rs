//! The message path: bytes in, bytes out. No socket, no clock, no lock, no allocation.

mod additional;
mod exchange;

use std::net::IpAddr;
use std::sync::Arc;

use rand::rngs::SmallRng;
use rand::{RngExt, SeedableRng};

use crate::Reason;
use crate::loads::LoadTable;
use crate::message::code::{AAAA, ANY, AXFR, CLASS_CHAOS, DS, HEADER, OPT, TKEY, TXT, rcode};
use crate::message::edns::{Edns, Opt};
use crate::message::name::AskedName;
use crate::message::query::{Query, Read, read};
use crate::message::tail::{QUESTION_POINTER, Tail, Written};
use crate::now::Now;
use crate::snapshot::{Entry, Otherwise, Role, Snapshot};
use crate::spread::{Chosen, Group, Spread};
use crate::stats::{Shard, Transport};
use crate::top::{self, SAMPLE, TopResolvers};

use additional::Additional;
use exchange::{Exchange, KIND_ERROR};

/// Maximum size of a message over TCP, bytes.
pub const TCP_MESSAGE_MAX: usize = 65_535;

/// Published inputs of answers.
#[derive(Debug)]
pub struct Published {
    /// Zones, names and nodes.
    pub snapshot: Arc<Snapshot>,
    /// Known loads of resolvers.
    pub loads: Arc<LoadTable>,
}

/// Answers the queries of one thread.
pub struct Responder {
    thread: usize,
    name: AskedName,
    rng: SmallRng,
    asked: u64,
    pub(crate) top: TopResolvers,
    /// Whether `top` changed since it was last published.
    pub(crate) has_new_top: bool,
}

/// Source of the answer section and of the sections after it.
enum Answer<'s> {
    Tail(&'s Tail),
    /// A balanced name. `lead` is the tail of aliases that leads to it, and the pointer to its
    /// owner's name.
    Spread {
        spread: &'s Spread,
        group: &'s Group,
        lead: Option<(&'s Tail, u16)>,
    },
    /// A response code without records.
    Code(u16),
}

impl Responder {
    /// Makes the responder of data thread `thread`.
    pub fn new(thread: usize, seed: u64) -> Responder {
        Responder {
            thread,
            name: AskedName::new(),
            rng: SmallRng::seed_from_u64(seed),
            asked: 0,
            top: TopResolvers::default(),
            has_new_top: false,
        }
    }

    /// Decides at random whether the next answer is logged.
    #[inline]
    pub(crate) fn is_logged(&mut self, published: &Published) -> bool {
        let share = published.snapshot.query_log;
        share > 0.0 && self.rng.random::<f64>() < share
    }

    /// Writes the answer to `query` from `client` to the start of `out`. Returns its length.
    ///
    /// `out` must have at least [`crate::config::UDP_PAYLOAD_MAX`] bytes, and [`TCP_MESSAGE_MAX`]
    /// over TCP.
    ///
    /// # Errors
    /// The [`Reason`] why there is no answer; it is already counted.
    #[inline]
    pub fn respond(
        &mut self,
        published: &Published,
        stats: &Shard,
        (client, transport): (IpAddr, Transport),
        now: Now,
        query: &[u8],
        out: &mut [u8],
    ) -> Result<usize, Reason> {
        let mut exchange = Exchange { published, stats, client, transport, now, query, out };
        self.asked += 1;
        if self.asked.is_multiple_of(SAMPLE) {
            self.top.count(client, top::epoch(now.ticks));
            self.has_new_top = true;
        }
        let length = match read(query, &mut self.name) {
            Read::Query(query) => self.answer(&mut exchange, &query),
            Read::TooShort => Err(Reason::TooShort),
            Read::Response => Err(Reason::NotAQuery),
            Read::CookieOnly(edns) => {
                exchange.bare(rcode::NOERROR, HEADER, Some(&edns), &mut self.rng)
            }
            Read::NotImplemented => exchange.bare(rcode::NOTIMP, HEADER, None, &mut self.rng),
            Read::Malformed(end) => {
                exchange.bare(rcode::FORMERR, end.unwrap_or(HEADER), None, &mut self.rng)
            }
        };
        length.inspect_err(|reason| stats.dropped(*reason, 1))
    }

    #[inline]
    fn answer(&mut self, exchange: &mut Exchange<'_>, query: &Query) -> Result<usize, Reason> {
        exchange.stats.query(exchange.transport, query.rtype);
        let published = exchange.published;
        let snapshot = &*published.snapshot;
        let (answer, kind) = self.find(snapshot, query);
        let (mut opt, proven) = exchange.opt(query.edns.as_ref());
        if exchange.transport == Transport::Udp
            && !proven
            && !snapshot.limiter.allows(exchange.client, kind, exchange.now.ticks)
        {
            return exchange.limited(query, opt.as_mut(), &mut self.rng);
        }
        let (code, authoritative) = match &answer {
            Answer::Tail(tail) => (tail.rcode, tail.authoritative),
            Answer::Spread { .. } => (rcode::NOERROR, true),
            Answer::Code(code) => (*code, false),
        };
        let opt_len = opt.as_ref().map_or(0, Opt::len);
        let room = exchange.limit(query.edns.as_ref());
        let end = query.question_end;
        // Both fit: a question has at most 259 bytes and an OPT record less than 200, with the
        // longest identity.
        let room = room.saturating_sub(opt_len).max(end);
        exchange.out[..end].copy_from_slice(&exchange.query[..end]);
        let written = match answer {
            Answer::Tail(tail) => self.tail(snapshot, tail, &mut exchange.out[end..room]),
            Answer::Spread { spread, group, lead } => {
                exchange.stats.mode(spread.mode);
                let (chosen, ttl, scoped) =
                    self.choose(exchange, spread, group, query.edns.as_ref());
                if let Some((_, scope)) = opt.as_mut().and_then(|opt| opt.subnet.as_mut()) {
                    *scope = scoped;
                }
                let out = &mut exchange.out[..room];
                self.spread(snapshot, group, &chosen, ttl, lead, (out, end))
            }
            Answer::Code(_) => Written::default(),
        };
        if let Some(opt) = &mut opt {
            opt.rcode = code;
        }
        let signature = query.signature.filter(|_| code == rcode::NOTAUTH);
        let length = exchange.finish(code, authoritative, end, written, opt.as_ref());
        Ok(signature.map_or(length, |signature| exchange.unknown_key(signature, length)))
    }

    /// Finds the answer, and the kind of response for the rate limiter.
    #[inline]
    fn find<'s>(&self, snapshot: &'s Snapshot, query: &Query) -> (Answer<'s>, u64) {
        let error = |code: u16| (Answer::Code(code), KIND_ERROR + u64::from(code));
        if query.edns.is_some_and(|edns| edns.version > 0) {
            return error(rcode::BADVERS);
        }
        if query.signature.is_some() {
            // The server has no keys, so every key is unknown (RFC 8945, 5.2.1).
            return error(rcode::NOTAUTH);
        }
        if !query.is_internet() {
            return match self.chaos(snapshot, query) {
                Some(tail) => (Answer::Tail(tail), KIND_ERROR),
                None => error(rcode::REFUSED),
            };
        }
        match query.rtype {
            OPT => return error(rcode::FORMERR),
            // Keys, signatures and transfers do not ask for records.
            TKEY..=AXFR => return error(rcode::REFUSED),
            _ => {}
        }
        let names = &snapshot.fixed.names;
        let Some((index, exact)) = names.closest(&self.name) else { return error(rcode::REFUSED) };
        let mut entry = &names.entries[index];
        // The parent answers a query for DS at the cut (RFC 4035, 3.1.4.1), but not below it.
        let ours =
            entry.role == Role::Ours || exact && entry.role == Role::Cut && query.rtype == DS;
        if let Role::BelowCut(cut) = entry.role {
            entry = &names.entries[cut];
        }
        if let (false, Otherwise::Referral(referral)) = (ours, &entry.otherwise) {
            return (Answer::Tail(referral), entry.hash);
        }
        if !exact {
            let zone = &snapshot.fixed.zones[entry.zone];
            let Some(wildcard) = entry.wildcard else {
                // NXDOMAIN is one kind for the whole zone: a flood never repeats a name that does
                // not exist.
                return (Answer::Tail(&zone.no_such_name), zone.seed);
            };
            entry = &names.entries[wildcard];
        }
        (of_type(snapshot, entry, query.rtype), entry.hash)
    }

    fn chaos<'s>(&self, snapshot: &'s Snapshot, query: &Query) -> Option<&'s Tail> {
        let asked = query.class == CLASS_CHAOS && matches!(query.rtype, TXT | ANY);
        let (name, _) = self.name.suffix(0);
        snapshot.chaos.iter().find(|(known, _)| asked && known == name).map(|(_, tail)| tail)
    }

    /// Returns the chosen members, the TTL and the scope of the answer.
    #[inline]
    fn choose(
        &mut self,
        exchange: &Exchange<'_>,
        spread: &Spread,
        group: &Group,
        edns: Option<&Edns>,
    ) -> (Chosen, u32, u8) {
        if group.fail_open {
            exchange.stats.fail_open.add(1);
        }
        let loads = &exchange.published.loads;
        // An answer that does not depend on the client has scope 0, so that resolvers may cache it
        // for all clients.
        if loads.is_empty() || group.mode.gives_all() {
            return (group.draw(&mut self.rng), spread.ttl, 0);
        }
        let subnet = edns.and_then(|edns| edns.subnet);
        let subnet = subnet.filter(|_| exchange.published.snapshot.client_subnet);
        let (found, scope) = exchange.source(subnet);
        if let Some(index) = found {
            let ttl = if loads.is_heavy(index) { spread.ttl_heavy } else { spread.ttl };
            let family = usize::from(group.rtype == AAAA);
            if let Some(chosen) =
                loads.assign(spread.account, family, index, group, (exchange.now, ttl))
            {
                exchange.stats.by_deficit.add(1);
                return (chosen, ttl, scope);
            }
        }
        (group.draw(&mut self.rng), spread.ttl, scope)
    }

    #[inline]
    fn tail(&mut self, snapshot: &Snapshot, tail: &Tail, body: &mut [u8]) -> Written {
        let name_len = self.name.len();
        let mut written = tail.write(body, name_len);
        if !tail.targets.is_empty() && !written.truncated {
            let mut additional = Additional { snapshot, out: body, written: &mut written };
            additional.of_tail(tail, name_len, &mut self.rng);
        }
        written
    }

    /// Writes the records of chosen members to `out` from `end`, the offset after the question.
    #[inline]
    fn spread(
        &mut self,
        snapshot: &Snapshot,
        group: &Group,
        chosen: &Chosen,
        ttl: u32,
        lead: Option<(&Tail, u16)>,
        (out, end): (&mut [u8], usize),
    ) -> Written {
        let (mut written, owner) = match lead {
            Some((tail, owner)) => (tail.write(&mut out[end..], self.name.len()), owner),
            None => (Written::default(), QUESTION_POINTER),
        };
        if written.truncated {
            return written;
        }
        let start = end + written.bytes;
        let tally = |node| snapshot.tallies.count(self.thread, node);
        let rest = group.write(chosen, (ttl, owner), &mut out[start..], tally);
        written.bytes += rest.bytes;
        written.counts[0] += rest.counts[0];
        written.truncated = rest.truncated;
        if group.has_hosts && !written.truncated {
            let mut additional =
                Additional { snapshot, out: &mut out[end..], written: &mut written };
            additional.of_members(group, chosen, (ttl, start, rest.counts[0]), &mut self.rng);
        }
        written
    }
}

#[inline]
fn of_type<'s>(snapshot: &'s Snapshot, entry: &'s Entry, rtype: u16) -> Answer<'s> {
    let spread = |entry: &Entry| entry.spread.and_then(|place| snapshot.spreads.get(place));
    if let Some(spread) = spread(entry)
        && let Some(group) = spread.group(rtype)
    {
        return Answer::Spread { spread, group, lead: None };
    }
    if let Some((_, tail)) = entry.sets.iter().find(|(known, _)| *known == rtype) {
        return Answer::Tail(tail);
    }
    if let (ANY, Some(tail)) = (rtype, &entry.any) {
        return Answer::Tail(tail);
    }
    match &entry.otherwise {
        Otherwise::Nothing(tail) | Otherwise::Referral(tail) => Answer::Tail(tail),
        Otherwise::Alias { plain, by_type, balanced } => {
            if let Some(lead) = balanced
                && let Some(spread) = spread(&snapshot.fixed.names.entries[lead.entry])
                && let Some(group) = spread.group(rtype)
            {
                return Answer::Spread { spread, group, lead: Some((&lead.tail, lead.owner)) };
            }
            let typed = by_type.iter().find(|(known, _)| *known == rtype);
            Answer::Tail(typed.map_or(plain, |(_, tail)| tail))
        }
    }
}

#[cfg(test)]
mod tests;
