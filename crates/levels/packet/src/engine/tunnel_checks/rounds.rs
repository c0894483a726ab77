//! Schedule of the checks of each backend, and evaluation of the answers. Pure except for [`Way`].

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::hash::{BuildHasher, RandomState};
use std::time::{Duration, Instant};

use equipoise_core::Health;
use equipoise_health::{BackendHealth, Verdict};

use super::segment::{ACK, RST, SYN, Segment};
use super::{Notice, TunnelCheck, TunnelError, TunnelReport};
use crate::snapshot::{BackendId, VipId};

/// Maximum delay of a backend's first check.
const STAGGER_MAX: Duration = Duration::from_millis(100);
/// Maximum number of sequence numbers kept per backend. One belongs to the current check, the
/// others to earlier checks with connections that may still be half open: Linux repeats a SYN-ACK
/// for 63 s. A connection that answers is kept.
const SENT_KEPT: usize = 4;
/// First delay before a SYN is repeated, as a fraction (1/N) of the timeout. Each further delay is
/// twice as long, so that three SYNs are sent within the timeout.
const FIRST_PAUSE: u32 = 4;

/// Position of the mark in a sequence number.
pub(super) const MARK_SHIFT: u32 = 24;

pub(super) type Key = (VipId, BackendId);

/// A segment to send through the tunnel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Outgoing {
    Syn { sequence: u32 },
    Rst { sequence: u32 },
}

/// Sends segments to backends.
pub(super) trait Way {
    fn send(&mut self, check: &TunnelCheck, segment: Outgoing) -> Result<(), TunnelError>;
}

/// The checks of all backends.
#[derive(Debug, Default)]
pub(super) struct Rounds {
    rounds: BTreeMap<Key, Round>,
    /// Backends by the sequence number sent. It identifies the backend of an answer, and reveals
    /// forged answers.
    sent: HashMap<u32, Key>,
    draws: Draws,
}

#[derive(Debug)]
struct Round {
    check: TunnelCheck,
    /// Sequence numbers that the backend may still answer; the last one is the newest, or was
    /// answered last.
    sent: VecDeque<u32>,
    health: BackendHealth,
    last: Option<Result<(), TunnelError>>,
    phase: Phase,
}

#[derive(Debug)]
enum Phase {
    Waiting { until: Instant },
    Asking(Asking),
}

#[derive(Debug)]
struct Asking {
    sequence: u32,
    began: Instant,
    send_at: Instant,
    pause: Duration,
    /// Reason why no SYN has been sent yet.
    obstacle: Option<TunnelError>,
}

/// Unpredictable random numbers.
#[derive(Debug)]
struct Draws {
    keys: RandomState,
    drawn: u64,
    /// See [`Rounds::mark`].
    mark: u8,
}

impl Default for Draws {
    fn default() -> Draws {
        let mut draws = Draws { keys: RandomState::new(), drawn: 0, mark: 0 };
        draws.mark = draws.next() as u8;
        draws
    }
}

impl Draws {
    /// Draws a sequence number that is not in `sent`.
    fn sequence(&mut self, sent: &HashMap<u32, Key>) -> u32 {
        loop {
            let sequence = u32::from(self.mark) << MARK_SHIFT | self.next() as u32 >> 8;
            // An answer acknowledges the next number, which must also have the mark in its upper
            // bits.
            let has_mark = sequence.wrapping_add(1) >> MARK_SHIFT == u32::from(self.mark);
            if has_mark && !sent.contains_key(&sequence) {
                return sequence;
            }
        }
    }

    fn next(&mut self) -> u64 {
        self.drawn += 1;
        self.keys.hash_one(self.drawn)
    }

    /// Draws a number between 0 and 1.
    fn share(&mut self) -> f64 {
        (self.next() >> 32) as f64 / f64::from(u32::MAX)
    }
}

impl Rounds {
    /// Returns the upper bits of all numbers that answers acknowledge. The kernel discards forged
    /// answers by them, so that a flood does not fill the socket.
    pub(super) fn mark(&self) -> u8 {
        self.draws.mark
    }

    /// Replaces the set of checks. A backend that stays keeps its verdict.
    pub(super) fn follow(&mut self, checks: &[TunnelCheck], now: Instant) {
        let mut before = std::mem::take(&mut self.rounds);
        for check in checks {
            let key = (check.vip, check.backend);
            let is_kept = before.get(&key).is_some_and(|round| is_same(&round.check, check));
            let round = match before.remove(&key).filter(|_| is_kept) {
                Some(round) => Round { check: check.clone(), ..round },
                None => {
                    let stagger = STAGGER_MAX.min(check.rules.interval / 10);
                    let until = now + stagger.mul_f64(self.draws.share());
                    Round {
                        check: check.clone(),
                        sent: VecDeque::new(),
                        health: BackendHealth::default(),
                        last: None,
                        phase: Phase::Waiting { until },
                    }
                }
            };
            self.rounds.insert(key, round);
        }
        let rounds = &self.rounds;
        self.sent.retain(|sequence, key| {
            rounds.get(key).is_some_and(|round| round.sent.contains(sequence))
        });
    }

    /// Returns the reports of backends with the same checks as these.
    pub(super) fn reports_of(&self, checks: &[TunnelCheck]) -> BTreeMap<Key, TunnelReport> {
        let report = |check: &TunnelCheck| {
            let key = (check.vip, check.backend);
            let round = self.rounds.get(&key).filter(|round| is_same(&round.check, check))?;
            Some((key, round.report()))
        };
        checks.iter().filter_map(report).collect()
    }

    /// Returns the reports of all backends.
    pub(super) fn reports(&self) -> BTreeMap<Key, TunnelReport> {
        self.rounds.iter().map(|(key, round)| (*key, round.report())).collect()
    }

    /// Returns the time of the next call of [`Rounds::tick`].
    pub(super) fn next_tick(&self) -> Option<Instant> {
        self.rounds.values().map(Round::due).min()
    }

    /// Does everything that is due.
    pub(super) fn tick(&mut self, now: Instant, way: &mut impl Way) -> Vec<Notice> {
        let mut notices = Vec::new();
        for (key, round) in &mut self.rounds {
            if round.due() > now {
                continue;
            }
            let asking = match &mut round.phase {
                Phase::Asking(asking) if asking.began + round.check.rules.timeout <= now => {
                    let failed = asking.failed(&round.check, way);
                    notices.extend(round.finish(Err(failed), now, &mut self.draws));
                    continue;
                }
                Phase::Asking(asking) => asking,
                Phase::Waiting { .. } => {
                    let sequence = self.draws.sequence(&self.sent);
                    self.sent.insert(sequence, *key);
                    round.sent.push_back(sequence);
                    if round.sent.len() > SENT_KEPT
                        && let Some(old) = round.sent.pop_front()
                    {
                        self.sent.remove(&old);
                    }
                    round.phase = Phase::Asking(Asking::new(sequence, &round.check, now));
                    let Phase::Asking(asking) = &mut round.phase else { continue };
                    asking
                }
            };
            asking.send(&round.check, now, way);
        }
        notices
    }

    /// Processes a received segment.
    pub(super) fn hear(
        &mut self,
        segment: &Segment,
        now: Instant,
        way: &mut impl Way,
    ) -> Option<Notice> {
        let answered = segment.acknowledged.wrapping_sub(1);
        let key = self.sent.get(&answered)?;
        let round = self.rounds.get_mut(key)?;
        let is_from_vip =
            segment.from.ip() == round.check.vip.address && segment.from.port() == round.check.port;
        if !is_from_vip || segment.flags & ACK == 0 {
            return None;
        }
        let is_rst = segment.flags & RST != 0;
        match &mut round.phase {
            Phase::Asking(asking) if asking.sequence == answered => {
                if is_rst {
                    return round.finish(Err(TunnelError::Refused), now, &mut self.draws);
                }
                if segment.flags & SYN == 0 {
                    return None;
                }
                // Ends the half-open connection of the backend.
                let _ = way.send(&round.check, Outgoing::Rst { sequence: segment.acknowledged });
                round.finish(Ok(()), now, &mut self.draws)
            }
            // A connection of an earlier check is still half open, because its RST was lost. It
            // would also answer the new check, so it is reset, and the SYN is sent again.
            phase if !is_rst => {
                let _ = way.send(&round.check, Outgoing::Rst { sequence: segment.acknowledged });
                if let Phase::Asking(asking) = phase {
                    asking.send_at = now;
                }
                // That RST may be lost, too.
                round.sent.retain(|sequence| *sequence != answered);
                round.sent.push_back(answered);
                None
            }
            _ => None,
        }
    }
}

/// Whether two checks of a backend are equivalent, so that the verdict holds for both.
fn is_same(one: &TunnelCheck, other: &TunnelCheck) -> bool {
    (one.forward, one.port) == (other.forward, other.port)
}

impl Round {
    fn report(&self) -> TunnelReport {
        let error = self.last.clone().and_then(Result::err);
        TunnelReport { health: self.health.verdict(), error }
    }

    fn due(&self) -> Instant {
        match &self.phase {
            Phase::Waiting { until } => *until,
            Phase::Asking(it) => it.send_at.min(it.began + self.check.rules.timeout),
        }
    }

    /// Ends a check.
    fn finish(
        &mut self,
        result: Result<(), TunnelError>,
        now: Instant,
        draws: &mut Draws,
    ) -> Option<Notice> {
        let rules = &self.check.rules;
        let began = match &self.phase {
            Phase::Asking(asking) => asking.began,
            Phase::Waiting { .. } => now,
        };
        // As for other health checks: jitter keeps a fleet from checking in step.
        let pause = rules.interval.mul_f64(0.9 + 0.2 * draws.share());
        self.phase = Phase::Waiting { until: now.max(began + pause) };
        let was_checked = self.last.as_ref().is_none_or(says_something);
        let verdict =
            says_something(&result).then(|| self.health.checked(result.is_ok(), rules)).flatten();
        let notice = match (&result, verdict) {
            (_, Some(verdict)) => self.turned(verdict, result.as_ref().err()),
            (Err(error), None) if was_checked && !says_something(&result) => {
                let (vip, backend) = (self.check.vip, self.check.backend);
                Some(Notice::NotCheckedThroughTunnel { vip, backend, why: error.clone() })
            }
            _ => None,
        };
        self.last = Some(result);
        notice
    }

    fn turned(&self, verdict: Verdict, why: Option<&TunnelError>) -> Option<Notice> {
        let (vip, backend) = (self.check.vip, self.check.backend);
        match (verdict.health, why) {
            (Health::Unhealthy, Some(why)) => {
                let checks = verdict.checks;
                Some(Notice::TunnelFailed { vip, backend, checks, why: why.clone() })
            }
            (Health::Healthy, _) if verdict.first => Some(Notice::TunnelFound { vip, backend }),
            (Health::Healthy, _) => Some(Notice::TunnelWorks { vip, backend }),
            _ => None,
        }
    }
}

/// Whether a result concerns the backend, not this machine.
fn says_something(result: &Result<(), TunnelError>) -> bool {
    result.as_ref().err().is_none_or(TunnelError::blames_backend)
}

impl Asking {
    fn new(sequence: u32, check: &TunnelCheck, now: Instant) -> Asking {
        let pause = check.rules.timeout / FIRST_PAUSE;
        let obstacle = Some(TunnelError::NoAnswer(check.rules.timeout));
        Asking { sequence, began: now, send_at: now, pause, obstacle }
    }

    fn send(&mut self, check: &TunnelCheck, now: Instant, way: &mut impl Way) {
        match way.send(check, Outgoing::Syn { sequence: self.sequence }) {
            Ok(()) => self.obstacle = None,
            Err(error) => self.obstacle = self.obstacle.is_some().then_some(error),
        }
        self.send_at = now + self.pause;
        self.pause *= 2;
    }

    /// Ends a check that timed out. An answer may have been lost, so a connection may be half open.
    fn failed(&mut self, check: &TunnelCheck, way: &mut impl Way) -> TunnelError {
        let _ = way.send(check, Outgoing::Rst { sequence: self.sequence.wrapping_add(1) });
        self.obstacle.take().unwrap_or(TunnelError::NoAnswer(check.rules.timeout))
    }
}

#[cfg(test)]
mod tests;
