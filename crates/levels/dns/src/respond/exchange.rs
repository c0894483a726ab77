//! Envelope of an answer: size limit, OPT, rate limit, header.

use std::net::IpAddr;

use equipoise_core::SourcePrefix;
use rand::RngExt;
use rand::rngs::SmallRng;

use super::{Published, TCP_MESSAGE_MAX};
use crate::Reason;
use crate::config::UDP_PAYLOAD_MAX;
use crate::loads::Source;
use crate::message::code::{AA, HEADER, QR, RD, TC, rcode};
use crate::message::edns::{Edns, OPT_BYTES, Opt, Subnet};
use crate::message::query::Query;
use crate::message::tail::Written;
use crate::message::tsig::Signature;
use crate::now::Now;
use crate::stats::{Shard, Transport};

/// Maximum response size for a client without EDNS (RFC 1035, 4.2.1).
const PLAIN_PAYLOAD: usize = 512;

/// Base of the rate limiter's kinds for errors; the response code is added.
pub(super) const KIND_ERROR: u64 = 1;

/// Inputs and output buffer of the current query.
pub(super) struct Exchange<'e> {
    pub(super) published: &'e Published,
    pub(super) stats: &'e Shard,
    pub(super) client: IpAddr,
    pub(super) transport: Transport,
    pub(super) now: Now,
    pub(super) query: &'e [u8],
    pub(super) out: &'e mut [u8],
}

impl<'e> Exchange<'e> {
    /// Maximum size of the response, bytes.
    #[inline]
    pub(super) fn limit(&self, edns: Option<&Edns>) -> usize {
        match (self.transport, edns) {
            (Transport::Tcp, _) => self.out.len().min(TCP_MESSAGE_MAX),
            (Transport::Udp, None) => PLAIN_PAYLOAD,
            // RFC 6891, 6.2.3: values below 512 count as 512.
            (Transport::Udp, Some(edns)) => {
                usize::from(edns.payload.min(UDP_PAYLOAD_MAX)).max(PLAIN_PAYLOAD)
            }
        }
    }

    /// Returns the response's OPT record, and whether a cookie proves the client's address.
    #[inline]
    pub(super) fn opt(&self, edns: Option<&Edns>) -> (Option<Opt<'e>>, bool) {
        let Some(edns) = edns else { return (None, false) };
        let snapshot = &*self.published.snapshot;
        let mut opt = Opt { payload: UDP_PAYLOAD_MAX, dnssec_ok: edns.dnssec_ok, ..Opt::default() };
        if edns.version > 0 {
            return (Some(opt), false);
        }
        if edns.nsid {
            opt.nsid = snapshot.identity.as_deref();
        }
        opt.subnet = edns.subnet.map(|subnet| (subnet, 0));
        if edns.keepalive && self.transport == Transport::Tcp {
            opt.keepalive = Some(snapshot.keepalive_tenths);
        }
        let mut proven = false;
        if let (Some(cookie), Some(secrets)) = (&edns.cookie, &snapshot.cookies) {
            let (answer, valid) = secrets.answer(cookie, self.client, self.now.unix_seconds);
            opt.cookie = Some(answer);
            proven = valid;
            self.stats.cookies_valid.add(u64::from(valid));
        }
        (Some(opt), proven)
    }

    /// Returns the entry of the source of load, and the scope of the answer (RFC 7871).
    #[inline]
    pub(super) fn source(&self, subnet: Option<Subnet>) -> (Option<usize>, u8) {
        let loads = &self.published.loads;
        if let Some(Subnet { address: Some(address), length }) = subnet {
            let bits = match address {
                IpAddr::V4(_) => SourcePrefix::BITS4,
                IpAddr::V6(_) => SourcePrefix::BITS6,
            };
            if length >= bits {
                return (loads.find(Source::subnet(address)), bits);
            }
        }
        (loads.find_client(self.client), 0)
    }

    /// Writes a response without records. It copies the first `end` bytes of the query, including
    /// the header.
    #[cold]
    pub(super) fn bare(
        &mut self,
        code: u16,
        end: usize,
        edns: Option<&Edns>,
        rng: &mut SmallRng,
    ) -> Result<usize, Reason> {
        let (mut opt, proven) = self.opt(edns);
        let kind = KIND_ERROR + u64::from(code);
        let limiter = &self.published.snapshot.limiter;
        if self.transport == Transport::Udp
            && !proven
            && !limiter.allows(self.client, kind, self.now.ticks)
        {
            self.slips(rng)?;
        }
        if let Some(opt) = &mut opt {
            opt.rcode = code;
        }
        let opt = opt;
        let opcode = self.query[2] & 0x78;
        let (query, opt_len) = (self.query, opt.as_ref().map_or(0, Opt::len));
        let mut bytes = [0; OPT_BYTES * 32];
        if let Some(opt) = &opt {
            opt.write(&mut bytes);
        }
        let has_opt = opt.is_some();
        self.out[..end].copy_from_slice(&query[..end]);
        self.header(code, 0, end > HEADER, [0, 0, u16::from(has_opt)]);
        self.out[2] |= opcode;
        self.out[end..end + opt_len].copy_from_slice(&bytes[..opt_len]);
        Ok(end + opt_len)
    }

    /// Decides whether a limited response is sent short instead of being dropped.
    #[cold]
    pub(super) fn slips(&self, rng: &mut SmallRng) -> Result<(), Reason> {
        let slip = self.published.snapshot.limiter.slip();
        if slip == 0 || !rng.random_range(0..slip).eq(&0) {
            return Err(Reason::RateLimited);
        }
        self.stats.slipped.add(1);
        Ok(())
    }

    /// Answers a client of a limited prefix, or drops the query: BADCOOKIE for a client with
    /// cookies (RFC 7873, 5.2.3), otherwise TC.
    #[cold]
    pub(super) fn limited(
        &mut self,
        query: &Query,
        opt: Option<&mut Opt<'_>>,
        rng: &mut SmallRng,
    ) -> Result<usize, Reason> {
        self.slips(rng)?;
        let mut short = opt.map(|opt| *opt).map(|opt| Opt { nsid: None, ..opt });
        let mut code = rcode::NOERROR;
        if let Some(opt) = &mut short
            && opt.cookie.is_some()
        {
            code = rcode::BADCOOKIE;
            opt.rcode = code;
        }
        let end = query.question_end;
        let mut bytes = [0; OPT_BYTES * 32];
        let opt_len = short.as_ref().map_or(0, |opt| opt.write(&mut bytes));
        self.out[..end].copy_from_slice(&self.query[..end]);
        let truncated = if code == rcode::NOERROR { TC } else { 0 };
        self.header(code, truncated, true, [0, 0, u16::from(opt_len > 0)]);
        self.out[end..end + opt_len].copy_from_slice(&bytes[..opt_len]);
        Ok(end + opt_len)
    }

    #[inline]
    pub(super) fn finish(
        &mut self,
        code: u16,
        authoritative: bool,
        end: usize,
        written: Written,
        opt: Option<&Opt<'_>>,
    ) -> usize {
        let mut length = end + written.bytes;
        let mut counts = written.counts;
        if let Some(opt) = opt {
            length += opt.write(&mut self.out[length..]);
            counts[2] += 1;
        }
        let mut flags = if authoritative { AA } else { 0 };
        if written.truncated {
            flags |= TC;
            if self.transport == Transport::Udp {
                self.stats.truncated.add(1);
            }
        }
        self.header(code, flags, true, counts);
        length
    }

    /// Adds the TSIG record of an unknown key to a response of `length` bytes. Returns the new
    /// length.
    #[cold]
    pub(super) fn unknown_key(&mut self, signature: Signature, length: usize) -> usize {
        let most = match self.transport {
            Transport::Tcp => TCP_MESSAGE_MAX,
            Transport::Udp => PLAIN_PAYLOAD,
        };
        let room = self.out.len().min(most);
        let Some(out) = self.out.get_mut(length..room) else { return length };
        let Some(bytes) = signature.write_unknown_key(self.query, out) else { return length };
        let count = u16::from_be_bytes([self.out[10], self.out[11]]) + 1;
        self.out[10..12].copy_from_slice(&count.to_be_bytes());
        length + bytes
    }

    /// Turns the query's header, already in `out`, into the response's.
    #[inline]
    pub(super) fn header(&mut self, code: u16, flags: u8, question: bool, counts: [u16; 3]) {
        self.out[2] = QR | flags | self.query[2] & RD;
        self.out[3] = (code & 0x0f) as u8;
        self.out[4..6].copy_from_slice(&u16::from(question).to_be_bytes());
        for (place, count) in counts.into_iter().enumerate() {
            self.out[6 + 2 * place..8 + 2 * place].copy_from_slice(&count.to_be_bytes());
        }
        self.stats.response(code);
    }
}
