use rand::{Rng, RngExt};

use super::{PerClass, RequestClass};
use crate::scheduler::{FAILURE_AS_IN_FLIGHT, Loads};

/// Where a request is done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Choice {
    /// At the node that it came to.
    Here,
    /// At this peer: an index into the weights of the table.
    Peer(usize),
}

/// What a node knows of where requests wait, by its own counts alone.
pub struct Underway<'a> {
    /// Requests of the class that its clients brought and that it does itself.
    pub here: u32,
    /// Recent failures of its own application, decayed.
    pub here_failures: u32,
    /// Requests of the class that its clients brought and that peers do.
    pub there: u32,
    /// What it has in flight at each peer, of all classes, and the peers' recent failures.
    pub peers: &'a dyn Loads,
}

/// A node's dispatch instructions, ready for the hot path.
///
/// Each place is drawn twice by the instructions, and the request goes to that of the two where less waits for its part of them; first
/// between here and the peers, then between two peers. What is in flight for each part is the response time there (Little's law), so that
/// requests flow to where they are answered sooner, within bounds: a place of part `p` gets `p * p` at least, `2 * p - p * p` at most, and
/// `p` where all wait alike or nothing waits. For the part that is kept this is a quarter off at the most, the largest step of a plan; with
/// that the plan's loads stay the plan's, while what it cannot see in a period (a part that is a few per cent off, a taker that is faster
/// than it was) does not leave one node idle while requests wait at another. A recent failure counts as several in flight, as schedulers
/// count it: who fails at once attracts nothing.
///
/// # Source
/// TLLB ("Two-Layer Load Balancing for the Onedata system"): a node that is not overloaded does everything itself, an
/// overloaded one delegates a share by weighted random choice. Deviates: the share differs by class, and of two random choices the less
/// loaded is taken (Mitzenmacher, "The power of two choices in randomized load balancing", IEEE TPDS 12(10), 2001). With one choice,
/// clients that wait for their answers leave a node idle for `1 - (1 - p) / p` of the time where `p > 1/2` is the other's part (a closed
/// network of two stations): 25 % at 0.57. Drawn with replacement, other than in [`crate::SchedulerKind::PowerOfTwo`], for the bounds.
#[derive(Clone, Debug, PartialEq)]
pub struct DispatchTable {
    keep: PerClass<f64>,
    refuse: PerClass<f64>,
    /// Ascending; the last is the sum.
    cumulative: Vec<f64>,
}

impl DispatchTable {
    /// A table that keeps everything.
    pub fn keep_all() -> DispatchTable {
        let (keep, refuse) = (PerClass::from_fn(|_| 1.0), PerClass::default());
        DispatchTable { keep, refuse, cumulative: Vec::new() }
    }

    /// Keeps the part `keep` (0..=1) of each class; the rest goes to peers in proportion to `weights`. Weights below
    /// zero and NaN count as zero; if all do, everything is kept.
    pub fn new(keep: PerClass<f64>, weights: impl IntoIterator<Item = f64>) -> DispatchTable {
        let mut sum = 0.0;
        let add = |weight: f64| {
            sum += if weight.is_finite() { weight.max(0.0) } else { 0.0 };
            sum
        };
        let cumulative: Vec<f64> = weights.into_iter().map(add).collect();
        let table = DispatchTable::keep_all();
        if sum > 0.0 { DispatchTable { keep, cumulative, ..table } } else { table }
    }

    /// The same, refusing the part `refuse` (0..=1) of each class that clients bring.
    #[must_use]
    pub fn refusing(self, refuse: PerClass<f64>) -> DispatchTable {
        DispatchTable { refuse, ..self }
    }

    /// Whether a request of a client is let in. No allocation.
    pub fn admits(&self, class: RequestClass, rng: &mut dyn Rng) -> bool {
        let refuse = self.refuse[class];
        refuse <= 0.0 || rng.random::<f64>() >= refuse
    }

    /// The part of a class that is kept.
    pub fn keep(&self, class: RequestClass) -> f64 {
        self.keep[class]
    }

    /// Peers that [`Self::choose`] may ask about and return; none if all is kept.
    pub fn peers(&self) -> usize {
        self.cumulative.len()
    }

    /// Where to do a request. O(log peers), no allocation.
    pub fn choose(
        &self,
        class: RequestClass,
        underway: &Underway<'_>,
        rng: &mut dyn Rng,
    ) -> Choice {
        let keep = self.keep[class];
        if keep >= 1.0 || self.cumulative.is_empty() {
            return Choice::Here;
        }
        let [first, second] = [(); 2].map(|()| rng.random::<f64>() < keep);
        if first && second {
            return Choice::Here;
        }
        let peer = self.peer(underway.peers, rng);
        if first == second {
            return Choice::Peer(peer);
        }
        let there = load(underway.there, underway.peers.recent_failures(peer)) * keep;
        let here = load(underway.here, underway.here_failures) * (1.0 - keep);
        let stays = if here == there { first } else { here < there };
        if stays { Choice::Here } else { Choice::Peer(peer) }
    }

    /// Of two peers drawn by weight the one with less in flight for it; of equals the first.
    fn peer(&self, loads: &dyn Loads, rng: &mut dyn Rng) -> usize {
        let [first, second] = [(); 2].map(|()| self.draw(rng));
        let of = |peer| load(loads.in_flight(peer), loads.recent_failures(peer));
        let is_less =
            first != second && of(second) * self.weight(first) < of(first) * self.weight(second);
        if is_less { second } else { first }
    }

    /// A peer by weight, of which there is one.
    fn draw(&self, rng: &mut dyn Rng) -> usize {
        // Below the sum also after rounding: a draw is at most 1 - 2^-53.
        let sum = self.cumulative.last().copied().unwrap_or_default();
        let point = rng.random::<f64>() * sum;
        self.cumulative.partition_point(|upto| *upto <= point)
    }

    fn weight(&self, peer: usize) -> f64 {
        let before = peer.checked_sub(1).map_or(0.0, |before| self.cumulative[before]);
        self.cumulative[peer] - before
    }
}

fn load(in_flight: u32, failures: u32) -> f64 {
    f64::from(in_flight) + f64::from(failures) * f64::from(FAILURE_AS_IN_FLIGHT)
}

#[cfg(test)]
mod tests;
