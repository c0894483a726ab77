use std::cmp::Ordering;
use std::time::Duration;

use equipoise_core::{AdminState, Health};
use serde::{Deserialize, Serialize};

use super::sizes::{Kind, Kinds, cheaper, cover, fastest};
use crate::demand::{Demand, PoolHistory};
use crate::elasticity::{Elasticity, Mode, Target};
use crate::history::History;
use crate::inventory::{BackendSpec, PoolSpec};

mod hold;

use hold::why_not_yet;

/// The decision about a pool's size, and its reason.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ScalingPlan {
    /// The action of the driver.
    pub action: Scaling,
    /// The reason, in words.
    pub reason: String,
    /// Expected demand over the capacity of the backends that serve: of their concurrency limits,
    /// or of what the target states for each; above 1 if requests wait. `None` if unknown.
    pub in_use: Option<f64>,
    /// Time since the pool last grew, not counting this plan's step; saturates.
    pub since_out: Duration,
    /// Time since the pool last shrank, likewise.
    pub since_in: Duration,
    /// Time for which a smaller pool would have been enough.
    pub low_for: Duration,
    /// The largest demand in `low_for`, in the unit of the target.
    #[serde(default)]
    pub peak: f64,
    /// Last known concurrency limit of a backend of speed 1; `None` if it was never known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub limit: Option<f64>,
    /// The pool's rate when a queue last stood while no limit was known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub full: Option<FullRate>,
}

/// How much backends did when a queue stood, which shows that they were full.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct FullRate {
    /// Answers a second of a backend of speed 1.
    pub rate: f64,
    /// How long ago that was.
    pub age: Duration,
}

/// A step in a pool's size.
///
/// The leader applies the step in the instructions of the same plan. So the next plan sees a new
/// backend with age zero, and a leaving one with admin state drain.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Scaling {
    /// Nothing.
    #[default]
    Hold,
    /// Add backends of a size.
    Out {
        /// The size; `None` if the pool's backends are all alike.
        size: Option<String>,
        /// Number of backends.
        count: u32,
    },
    /// Drain these, and remove them when they have nothing left.
    In {
        /// Their names.
        backends: Vec<String>,
    },
    /// Add one of a size, and drain the backend when the new one is warm.
    Replace {
        /// The size of the new backend.
        size: Option<String>,
        /// The backend that it replaces.
        backend: String,
    },
}

impl Scaling {
    fn in_words(&self) -> String {
        let size = |size: &Option<String>| {
            size.as_ref().map(|size| format!(" of size {size}")).unwrap_or_default()
        };
        match self {
            Scaling::Hold => "hold".to_string(),
            Scaling::Out { size: of, count } => format!("add {count}{}", size(of)),
            Scaling::In { backends } => format!("drain {}", backends.join(", ")),
            Scaling::Replace { size: of, backend } => {
                format!("add one{} and drain {backend}", size(of))
            }
        }
    }
}

/// A pool shrinks to at most this part of its target. Otherwise it would grow again at once.
const SHRINK_TO: f64 = 0.9;
/// Time for which the rate of full backends counts: requests may become cheaper or dearer.
const FULL_FOR: Duration = Duration::from_secs(3600);
/// A long time, for a pool that never changed.
const LONG_AGO: Duration = Duration::from_secs(365 * 24 * 3600);

/// Decides on a pool's size; `passed` is the time since the decision before.
///
/// The pool grows when demand exceeds the target's part of the capacity. Backends that are starting
/// count as serving, so that it does not grow twice for one reason. A step multiplies capacity by
/// at most [`Elasticity::growth_max`], and steps are a cool-down apart; when a queue stands and no
/// backend is starting, the pool grows at once. It shrinks when fewer backends would have been
/// below the target for a whole cool-down, by those with the least capacity for their price. If one
/// fewer would not do, the most expensive is replaced by a cheaper one that would (vertical
/// scaling). At the largest size the slowest is replaced by a faster one if there is one (diagonal
/// scaling). A pool without a backend adds one as soon as a request waits.
///
/// Where no limit is known yet, in use is what a guess makes of it. A queue that stood then says
/// how many requests a second fill a backend, and for an hour the pool shrinks by that, too.
///
/// If requests bypass the balancers, a pool's counters show too little and are not used:
/// only an operator or its bounds change its size.
pub(crate) fn decide(
    elastic: &Elasticity,
    pool: &PoolSpec,
    history: &History,
    name: &str,
    was: Option<&ScalingPlan>,
    passed: Duration,
) -> ScalingPlan {
    let limit = was.and_then(|was| was.limit);
    let past = history.pool(name).filter(|_| !pool.is_forwarded);
    let full = was.and_then(|was| was.full);
    let full = full.map(|full| FullRate { age: full.age.saturating_add(passed), ..full });
    let state = State::of(elastic, pool, past, limit).with_full(past, full);
    let ago =
        |last: Option<Duration>| last.unwrap_or(LONG_AGO).saturating_add(passed).min(LONG_AGO);
    let was = was.map(Times::after);
    let mut plan = ScalingPlan {
        action: Scaling::Hold,
        reason: String::new(),
        in_use: state.in_use(),
        since_out: ago(was.as_ref().map(|was| was.since_out)),
        since_in: ago(was.as_ref().map(|was| was.since_in)),
        low_for: Duration::ZERO,
        peak: state.expected().unwrap_or_default(),
        limit: state.remembered,
        full: state.full,
    };
    if state.less(elastic).is_some() {
        let (low_for, peak) = was.map_or((Duration::ZERO, 0.0), |was| (was.low_for, was.peak));
        plan.low_for = low_for.saturating_add(passed);
        plan.peak = plan.peak.max(peak);
    }
    let (action, reason) = match elastic.mode {
        Mode::Pinned(count) => state.towards(count, format!("pinned at {count}")),
        Mode::Auto => state.judge(elastic, &plan),
        Mode::Paused => {
            let (would, reason) = state.judge(elastic, &plan);
            (Scaling::Hold, format!("paused; it would {}: {reason}", would.in_words()))
        }
    };
    let reason = match action {
        Scaling::Hold => reason + &hold::beside(&state, pool),
        _ => reason,
    };
    ScalingPlan { action, reason, ..plan }
}

/// Times as they will be after the plan has been applied.
struct Times {
    since_out: Duration,
    since_in: Duration,
    low_for: Duration,
    peak: f64,
}

impl Times {
    fn after(was: &ScalingPlan) -> Times {
        let ScalingPlan { since_out, since_in, low_for, peak, .. } = *was;
        let times = Times { since_out, since_in, low_for, peak };
        match was.action {
            Scaling::Hold => times,
            Scaling::Out { .. } | Scaling::Replace { .. } => {
                Times { since_out: Duration::ZERO, ..times }
            }
            Scaling::In { .. } => {
                Times { since_in: Duration::ZERO, low_for: Duration::ZERO, peak: 0.0, ..times }
            }
        }
    }
}

/// A backend that is wanted up.
struct Backend<'a> {
    name: &'a str,
    spec: &'a BackendSpec,
    /// Its concurrency limit, or the capacity that the target states.
    capacity: f64,
    efficiency: f64,
    /// It passes its checks, or has not failed them yet.
    is_healthy: bool,
    /// It is healthy, and balancers have it.
    serves: bool,
    /// It serves, and is no longer new.
    is_warm: bool,
}

impl Backend<'_> {
    /// Order in which two leave: one that fails, one that is new, the one with the least capacity
    /// for its price, the younger one.
    fn leaves_before(&self, other: &Backend<'_>) -> Ordering {
        let by_state = self.is_healthy.cmp(&other.is_healthy);
        by_state
            .then(self.is_warm.cmp(&other.is_warm))
            .then(self.efficiency.total_cmp(&other.efficiency))
            .then(self.spec.age.cmp(&other.spec.age))
    }
}

/// A way to reduce the cost of a pool.
enum Less<'s, 'a> {
    /// Fewer backends.
    Without(Vec<&'s Backend<'a>>),
    /// A cheaper backend in the place of one.
    Cheaper(&'s Kind, &'s Backend<'a>),
}

struct State<'a> {
    backends: Vec<Backend<'a>>,
    kinds: Vec<Kind>,
    target: Target,
    /// `None` before the pool was seen.
    demand: Option<Demand>,
    /// Concurrency limit of a backend of speed 1, if it is known.
    limit: Option<f64>,
    /// The same, if it was configured or learnt.
    remembered: Option<f64>,
    /// Capacity of backends that serve, and of those that serve or are coming.
    serving: f64,
    capacity: f64,
    queued: f64,
    is_standing: bool,
    is_shrinking: bool,
    is_quiet: bool,
    /// Tunnels and other requests without a permit.
    open: u64,
    /// A balancer of the pool does not report, so that the demand may be larger.
    is_partial: bool,
    /// No balancer counts its requests.
    is_forwarded: bool,
    /// Requests a second that are expected.
    rate: f64,
    /// `None` if a limit is known or stated, or if no queue has stood.
    full: Option<FullRate>,
}

impl<'a> State<'a> {
    fn of(
        elastic: &Elasticity,
        pool: &'a PoolSpec,
        past: Option<&PoolHistory>,
        known: Option<f64>,
    ) -> State<'a> {
        let target = elastic.target;
        let Kinds { kinds, unit, limit, remembered } = Kinds::of(elastic, pool, past, known);
        let up = pool.backends.iter().filter(|(_, spec)| spec.admin == AdminState::Up);
        let backend = |(name, spec): (&'a String, &'a BackendSpec)| {
            let is_healthy = spec.health != Health::Unhealthy;
            let serves = is_healthy && past.is_some_and(|past| past.has(name));
            let kind = kinds.iter().find(|kind| kind.name == spec.size);
            // A backend that the operator listed without a size counts as speed 1.
            let of_kind = kind.map_or(unit, |kind| kind.speed);
            let own = past.and_then(|past| past.limit(name)).filter(|_| target.stated().is_none());
            let capacity = own.unwrap_or(of_kind);
            Backend {
                name,
                spec,
                capacity,
                efficiency: capacity / kind.map_or(1.0, |kind| kind.price),
                is_healthy,
                serves,
                is_warm: serves && spec.age >= elastic.warm_up,
            }
        };
        let backends: Vec<Backend> = up.map(backend).collect();
        let sum = |of: &mut dyn Iterator<Item = &Backend>| of.map(|one| one.capacity).sum();
        State {
            target,
            demand: past.map(|past| past.demand(target)),
            limit,
            remembered,
            serving: sum(&mut backends.iter().filter(|one| one.serves)),
            capacity: sum(&mut backends.iter().filter(|one| one.is_healthy)),
            queued: past.map_or(0.0, PoolHistory::queued),
            is_standing: past.is_some_and(PoolHistory::is_standing),
            is_shrinking: past.is_some_and(PoolHistory::is_shrinking),
            is_quiet: past.is_some_and(PoolHistory::is_quiet),
            open: past.map_or(0, PoolHistory::open),
            is_partial: past.is_some_and(PoolHistory::is_partial),
            is_forwarded: pool.is_forwarded,
            rate: past.map_or(0.0, |past| past.demand(Target::Requests(1.0)).coming),
            full: None,
            backends,
            kinds,
        }
    }

    /// Adds what backends do when they are full, if it is needed.
    fn with_full(self, past: Option<&PoolHistory>, was: Option<FullRate>) -> State<'a> {
        if self.remembered.is_some() || self.target.stated().is_some() {
            return self;
        }
        let was = was.filter(|was| was.age < FULL_FOR);
        let answers = past.filter(|_| self.is_standing).map_or(0.0, PoolHistory::answers);
        let rate = answers / self.speed(self.serving);
        // In the first period of a new backend all of them together do less for each.
        let is_more = rate.is_finite() && rate > 0.0 && was.is_none_or(|was| rate >= was.rate);
        let full = if is_more { Some(FullRate { rate, age: Duration::ZERO }) } else { was };
        State { full, ..self }
    }

    /// The number of backends of speed 1 with this capacity, if no limit is known.
    fn speed(&self, capacity: f64) -> f64 {
        capacity / self.limit.unwrap_or(1.0)
    }

    /// A queue stood at so much of the present rate for each backend.
    fn was_full(&self, capacity: f64) -> bool {
        let share = SHRINK_TO * self.target.share();
        self.full.is_some_and(|full| self.rate > share * full.rate * self.speed(capacity))
    }

    /// Demand in the coming period; `None` if it is unknown, or cannot be compared as no limit is
    /// known.
    fn expected(&self) -> Option<f64> {
        let coming = if self.is_quiet { 0.0 } else { self.demand?.coming };
        let is_comparable = self.is_quiet || self.target.stated().or(self.limit).is_some();
        is_comparable.then_some(coming)
    }

    fn in_use(&self) -> Option<f64> {
        self.expected().filter(|_| self.serving > 0.0).map(|demand| demand / self.serving)
    }

    fn count(&self) -> u32 {
        self.backends.len() as u32
    }

    /// Whether a backend does not serve yet.
    fn is_coming(&self) -> bool {
        self.backends.iter().any(|one| one.is_healthy && !one.serves)
    }

    /// Whether a backend does not serve yet, or has not served for long.
    fn is_warming(&self) -> bool {
        self.backends.iter().any(|one| one.is_healthy && !one.is_warm)
    }

    /// The elastic ones, in the order in which they leave.
    fn leavers(&self) -> Vec<&Backend<'a>> {
        let elastic = self.backends.iter().filter(|one| one.spec.is_elastic);
        let mut leavers: Vec<&Backend<'a>> = elastic.collect();
        leavers.sort_by(|a, b| a.leaves_before(b));
        leavers
    }

    /// Capacity without a backend.
    fn without(&self, one: &Backend) -> f64 {
        self.capacity - if one.is_healthy { one.capacity } else { 0.0 }
    }

    /// True if this capacity is below the target at this demand, with some spare capacity.
    fn is_enough(&self, capacity: f64, demand: f64) -> bool {
        match capacity > 0.0 {
            true => {
                demand <= SHRINK_TO * self.target.share() * capacity && !self.was_full(capacity)
            }
            // A pool with an occasional request is not idle, and the end of the last backend would
            // cut tunnels.
            false => self.is_quiet && self.open == 0 && demand == 0.0,
        }
    }

    /// Backends that may leave together: without them `demand` would be below the target.
    fn spare(&self, elastic: &Elasticity, demand: f64) -> Vec<&Backend<'a>> {
        if self.is_warming() {
            return Vec::new();
        }
        let most = (elastic.scale_in_rate * f64::from(self.count())).floor().max(1.0) as u32;
        let most = most.min(self.count().saturating_sub(elastic.min)) as usize;
        let mut left = self.capacity;
        let mut is_spare = |one: &&Backend| {
            left -= if one.is_healthy { one.capacity } else { 0.0 };
            // Sums of limits are not exact.
            left = if left < 1e-9 { 0.0 } else { left };
            self.is_enough(left, demand)
        };
        self.leavers().into_iter().take(most).take_while(&mut is_spare).collect()
    }

    /// How the pool could cost less and still be below its target.
    fn less(&self, elastic: &Elasticity) -> Option<Less<'_, 'a>> {
        if self.is_partial || self.is_standing {
            return None;
        }
        let spare = self.spare(elastic, self.expected()?);
        if spare.is_empty() { self.cheaper(elastic) } else { Some(Less::Without(spare)) }
    }

    /// The most expensive backend that a cheaper one could replace, and the kind of that one.
    fn cheaper(&self, elastic: &Elasticity) -> Option<Less<'_, 'a>> {
        let enough = self.expected()? / (SHRINK_TO * elastic.target.share());
        if self.is_warming() {
            return None;
        }
        let priced = |one| {
            let one: &Backend = one;
            let kind = self.kinds.iter().find(|kind| kind.name == one.spec.size)?;
            (one.spec.is_elastic && one.is_healthy).then_some(kind.price)
        };
        let found = self.backends.iter().filter_map(|one| {
            let (price, rest) = (priced(one)?, self.capacity - one.capacity);
            Some((price, cheaper(&self.kinds, price, enough - rest)?, one))
        });
        let (_, kind, one) = found.max_by(|a, b| a.0.total_cmp(&b.0))?;
        Some(Less::Cheaper(kind, one))
    }

    /// A step towards a count, whatever the load.
    fn towards(&self, count: u32, why: String) -> (Scaling, String) {
        let have = self.count();
        if have < count {
            let room = count - have;
            let cheapest = cover(&self.kinds, f64::MIN_POSITIVE, room);
            let size = cheapest.and_then(|(kind, _)| kind.name.clone());
            return (Scaling::Out { size, count: room }, format!("{why}, there are {have}"));
        }
        let leavers = self.leavers().into_iter().take((have - count) as usize);
        let backends: Vec<String> = leavers.map(|one| one.name.to_string()).collect();
        let reason = format!("{why}, there are {have}");
        match backends.is_empty() {
            true if have == count => (Scaling::Hold, reason),
            true => (Scaling::Hold, format!("{reason}, and its driver created none of them")),
            false => (Scaling::In { backends }, reason),
        }
    }

    fn judge(&self, elastic: &Elasticity, plan: &ScalingPlan) -> (Scaling, String) {
        let have = self.count();
        if have < elastic.min {
            return self.towards(elastic.min, format!("at least {} are wanted", elastic.min));
        }
        if have > elastic.max {
            return self.towards(elastic.max, format!("at most {} are wanted", elastic.max));
        }
        let is_asked_for = self.queued > 0.0 || self.demand.is_some_and(|it| it.now > 0.0);
        if have == 0 && is_asked_for {
            return self.towards(1, "requests wait for a first backend".to_string());
        }
        let Some(demand) = self.expected().filter(|_| self.capacity > 0.0) else {
            return (Scaling::Hold, self.why_unknown(elastic));
        };
        let is_urgent = self.is_standing && !self.is_coming();
        let now = self.demand.filter(|_| is_urgent).map_or(0.0, |demand| demand.now);
        let needed = demand.max(now) / self.target.share();
        // A queue stands although limits seem to have room: one balancer has reached its limit,
        // another not.
        let is_stuck = is_urgent && !self.is_shrinking;
        let least = if is_stuck { self.capacity + self.smallest() } else { 0.0 };
        if needed.max(least) > self.capacity {
            return self.grow(elastic, plan, needed.max(least), is_urgent);
        }
        self.shrink(elastic, plan)
    }

    /// Capacity of the smallest kind.
    fn smallest(&self) -> f64 {
        self.kinds.iter().map(|kind| kind.speed).fold(f64::MAX, f64::min).min(self.capacity)
    }

    /// The share of the capacity that is in use, in words.
    fn use_in_words(&self) -> String {
        let capacity = self.target.capacity_in_words();
        match self.in_use() {
            Some(in_use) => format!("{in_use:.2} of {capacity} is in use"),
            None => format!("the use of {capacity} is not known"),
        }
    }

    fn grow(
        &self,
        elastic: &Elasticity,
        plan: &ScalingPlan,
        needed: f64,
        is_urgent: bool,
    ) -> (Scaling, String) {
        let wanted = self.target.share();
        let why = match is_urgent {
            true => format!("{:.1} requests wait in a standing queue", self.queued),
            false => format!("{}, the target is {wanted:.2}", self.use_in_words()),
        };
        let (room, faster) = (elastic.max - self.count(), self.faster());
        let largest = format!("{why}; the pool is at its largest: max = {}", elastic.max);
        // Checked before the cool-down, because its end would change nothing.
        if room == 0 && faster.is_none() {
            return (Scaling::Hold, largest);
        }
        if plan.since_out < elastic.out_cool_down && !is_urgent {
            let left = elastic.out_cool_down - plan.since_out;
            return (
                Scaling::Hold,
                format!("{why}; the last step out is cooling down, {left:.0?} left"),
            );
        }
        let shortfall = (needed - self.capacity).min(self.capacity * (elastic.growth_max - 1.0));
        if room > 0 {
            let Some((kind, count)) = cover(&self.kinds, shortfall, room) else {
                return (Scaling::Hold, format!("{why}; no size can be added"));
            };
            let size = kind.name.clone();
            return (Scaling::Out { size, count }, why);
        }
        match (faster, self.why_not_warm(elastic)) {
            (Some((slow, fast)), None) => {
                let (size, backend) = (fast.name.clone(), slow.name.to_string());
                let why = format!("{why}; all {} exist, so the slowest is replaced", elastic.max);
                (Scaling::Replace { size, backend }, why)
            }
            (_, Some(cold)) => (Scaling::Hold, format!("{largest}, and {cold}")),
            (None, None) => (Scaling::Hold, largest),
        }
    }

    /// The slowest backend, if there is a faster size, and that one.
    fn faster(&self) -> Option<(&Backend<'a>, &Kind)> {
        let slowest = self.backends.iter().filter(|one| one.spec.is_elastic);
        let slowest = slowest.min_by(|a, b| a.capacity.total_cmp(&b.capacity))?;
        let is_other = |fast: &&Kind| fast.name != slowest.spec.size;
        let fast = fastest(&self.kinds).filter(is_other)?;
        (fast.speed > slowest.capacity).then_some((slowest, fast))
    }

    fn shrink(&self, elastic: &Elasticity, plan: &ScalingPlan) -> (Scaling, String) {
        let fine = self.use_in_words();
        let Some(less) = self.less(elastic) else {
            return (Scaling::Hold, format!("{fine}; {}", self.why_all_needed(elastic)));
        };
        let what = match less {
            Less::Without(_) => "one fewer",
            Less::Cheaper(..) => "a cheaper one",
        };
        if let Some(why) = why_not_yet(elastic, plan, what) {
            return (Scaling::Hold, format!("{fine}; {why}"));
        }
        let for_long = elastic.in_cool_down;
        match less {
            Less::Without(spare) => {
                // Backends that were unnecessary at every moment of the cool-down.
                let never_needed = self.spare(elastic, plan.peak);
                let leave = if never_needed.is_empty() { &spare[..1] } else { &never_needed };
                let backends: Vec<String> = leave.iter().map(|one| one.name.to_string()).collect();
                let what = match backends.len() {
                    1 => what.to_string(),
                    count => format!("{count} fewer"),
                };
                let reason = format!("{fine}, and {what} would have sufficed for {for_long:.0?}");
                (Scaling::In { backends }, reason)
            }
            Less::Cheaper(kind, dear) => {
                let reason = format!("{fine}, and {what} would have sufficed for {for_long:.0?}");
                let backend = dear.name.to_string();
                (Scaling::Replace { size: kind.name.clone(), backend }, reason)
            }
        }
    }
}

#[cfg(test)]
mod tests;
