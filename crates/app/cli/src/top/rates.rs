//! Rates of counters, from two readings of the same process.

use std::collections::BTreeMap;
use std::time::Instant;

use equipoise_api::wire::Status;

/// Levels with refusals by reason.
pub(super) const REFUSING: [&str; 3] = ["session", "packet", "dns"];

/// Counters of one moment.
#[derive(Clone, Debug)]
pub(super) struct Sample {
    at: Instant,
    /// The process; its counters start at 0.
    pid: u32,
    /// Refusals by level and reason.
    refused: BTreeMap<(&'static str, String), u64>,
    /// Work by level.
    work: BTreeMap<&'static str, u64>,
}

impl Sample {
    pub(super) fn of(status: &Status, at: Instant) -> Sample {
        let mut sample =
            Sample { at, pid: status.pid, refused: BTreeMap::new(), work: BTreeMap::new() };
        for door in &status.front_doors {
            let is_http = door.protocol == "http";
            let work = if is_http { door.requests_total } else { door.connections_total };
            sample.add("session", work, &door.drops);
        }
        if let Some(dns) = &status.dns {
            sample.add("dns", dns.queries.values().sum(), &dns.drops);
        }
        if let Some(packet) = &status.packet {
            sample.add("packet", 0, &packet.drops);
            for vip in &packet.vips {
                sample.add("packet", vip.packets_total, &vip.drops);
            }
        }
        sample
    }

    fn add(&mut self, level: &'static str, work: u64, drops: &BTreeMap<String, u64>) {
        *self.work.entry(level).or_default() += work;
        for (reason, count) in drops {
            *self.refused.entry((level, reason.clone())).or_default() += count;
        }
    }
}

/// Rates per second.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Rates {
    /// Refusals by level and reason.
    refused: BTreeMap<(&'static str, String), f64>,
    work: BTreeMap<&'static str, f64>,
}

impl Rates {
    /// `None` if the samples cannot be compared: of two processes, or of one moment.
    pub(super) fn between(before: &Sample, after: &Sample) -> Option<Rates> {
        let time = after.at.saturating_duration_since(before.at);
        if before.pid != after.pid || time.is_zero() {
            return None;
        }
        // A sum falls when a front door or a backend leaves the configuration.
        let rate = |before: Option<&u64>, after: u64| {
            after.saturating_sub(before.copied().unwrap_or(0)) as f64 / time.as_secs_f64()
        };
        let refused = after.refused.iter();
        let work = after.work.iter();
        Some(Rates {
            refused: refused.map(|(k, n)| (k.clone(), rate(before.refused.get(k), *n))).collect(),
            work: work.map(|(k, n)| (*k, rate(before.work.get(k), *n))).collect(),
        })
    }

    /// Refusals by level and reason.
    #[cfg(test)]
    pub(super) fn of_refusals(rates: &[(&str, &str, f64)]) -> Rates {
        let level = |name: &str| REFUSING.into_iter().find(|level| *level == name).unwrap();
        let refused = rates.iter().map(|(of, reason, rate)| ((level(of), (*reason).into()), *rate));
        Rates { refused: refused.collect(), ..Rates::default() }
    }

    /// Refusals of a level by reason, the largest rate first.
    pub(super) fn refused(&self, level: &str) -> Vec<(&str, f64)> {
        let of_level = self.refused.iter().filter(|((of, _), rate)| *of == level && **rate > 0.0);
        let mut found: Vec<_> = of_level.map(|((_, reason), rate)| (&**reason, *rate)).collect();
        found.sort_by(|a, b| b.1.total_cmp(&a.1));
        found
    }

    /// Work of a level; `None` if the process does not have it.
    pub(super) fn work(&self, level: &str) -> Option<f64> {
        self.work.get(level).copied()
    }
}

/// Readings between the two that rates compare: a spike stays visible for five seconds.
const SPAN: usize = 5;

/// The last samples of one process.
#[derive(Clone, Debug, Default)]
pub(super) struct Samples(Vec<Sample>);

impl Samples {
    /// Adds a sample. Returns the rates since an earlier one.
    pub(super) fn add(&mut self, sample: Sample) -> Option<Rates> {
        if self.0.last().is_some_and(|last| last.pid != sample.pid) {
            self.0.clear();
        }
        let rates = self.0.first().and_then(|first| Rates::between(first, &sample));
        self.0.push(sample);
        if self.0.len() > SPAN {
            self.0.remove(0);
        }
        rates
    }
}
