use rand::{Rng, RngExt};

use super::{PerClass, RequestClass};
use crate::scheduler::{FAILURE_AS_IN_FLIGHT, Loads};

/// The place at which a request is served.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Choice {
    /// The node at which it arrived.
    Here,
    /// This peer: an index into the weights of the table.
    Peer(usize),
}

/// A node's own counts of unfinished requests.
pub struct Underway<'a> {
    /// Requests of the class from its clients that it serves itself.
    pub here: u32,
    /// Recent failures of its own application, decayed.
    pub here_failures: u32,
    /// Requests of the class from its clients that peers serve.
    pub there: u32,
    /// Its requests in flight at each peer, of all classes, and the peers' recent failures.
    pub peers: &'a dyn Loads,
}

/// A node's dispatch instructions, prepared for the hot path.
///
/// Two places are drawn by the instructions, and the request goes to the one with fewer requests in
/// flight for its part: first between this node and the peers, then between two peers. Requests in
/// flight per part are proportional to the response time (Little's law), so requests flow to where
/// responses come sooner.
///
/// The choice is bounded. A place with part `p` gets at least `p * p`, at most `2 * p - p * p`, and
/// `p` where all have equal queues or none. The kept part therefore deviates by at most a quarter,
/// which is the largest step of a plan, so the plan's loads remain valid. Within these bounds, what
/// a plan cannot see in a period (a part that is a few per cent off, a peer that became faster)
/// does not leave one node idle while requests wait at another. A recent failure counts as several
/// requests in flight, as in schedulers, so a place that fails fast attracts nothing.
///
/// # Source
/// TLLB ("Two-Layer Load Balancing for the Onedata system"): a node that is not overloaded serves
/// everything itself, an overloaded one delegates a share by weighted random choice. Deviates: the
/// share differs by class, and of two random choices the less loaded is taken (Mitzenmacher, "The
/// power of two choices in randomized load balancing", IEEE TPDS 12(10), 2001). With one choice,
/// clients that wait for their responses leave a node idle for `1 - (1 - p) / p` of the time if
/// `p > 1/2` is the other's part (a closed network of two stations): 25 % at 0.57. Places are drawn
/// with replacement, unlike in [`crate::SchedulerKind::PowerOfTwo`], which gives the bounds.
#[derive(Clone, Debug, PartialEq)]
pub struct DispatchTable {
    keep: PerClass<f64>,
    refuse: PerClass<f64>,
    /// Running sums of the weights.
    cumulative: Vec<f64>,
}

impl DispatchTable {
    /// A table that keeps everything.
    pub fn keep_all() -> DispatchTable {
        let (keep, refuse) = (PerClass::from_fn(|_| 1.0), PerClass::default());
        DispatchTable { keep, refuse, cumulative: Vec::new() }
    }

    /// A table that keeps the part `keep` (0..=1) of each class. The rest goes to peers in
    /// proportion to `weights`. Negative and NaN weights count as zero; if all do, everything is
    /// kept.
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

    /// The table, refusing the part `refuse` (0..=1) of each class from clients.
    #[must_use]
    pub fn refusing(self, refuse: PerClass<f64>) -> DispatchTable {
        DispatchTable { refuse, ..self }
    }

    /// True if a request of a client is admitted. Does not allocate.
    pub fn admits(&self, class: RequestClass, rng: &mut dyn Rng) -> bool {
        let refuse = self.refuse[class];
        refuse <= 0.0 || rng.random::<f64>() >= refuse
    }

    /// The part of a class that is kept.
    pub fn keep(&self, class: RequestClass) -> f64 {
        self.keep[class]
    }

    /// The part of a class that is refused from clients.
    pub fn refuse(&self, class: RequestClass) -> f64 {
        self.refuse[class]
    }

    /// Number of peers that [`Self::choose`] may use; 0 if everything is kept.
    pub fn peers(&self) -> usize {
        self.cumulative.len()
    }

    /// The place for a request. O(log peers), does not allocate.
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

    /// Of two peers drawn by weight, the one with fewer requests in flight per weight; if equal,
    /// the first.
    fn peer(&self, loads: &dyn Loads, rng: &mut dyn Rng) -> usize {
        let [first, second] = [(); 2].map(|()| self.draw(rng));
        let of = |peer| load(loads.in_flight(peer), loads.recent_failures(peer));
        let is_less =
            first != second && of(second) * self.weight(first) < of(first) * self.weight(second);
        if is_less { second } else { first }
    }

    /// Draws a peer by weight. There is at least one.
    fn draw(&self, rng: &mut dyn Rng) -> usize {
        // Less than the sum even after rounding, because a draw is at most 1 - 2^-53.
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
