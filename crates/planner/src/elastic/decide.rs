use std::cmp::Ordering;
use std::time::Duration;

use equipoise_core::{AdminState, Health};
use serde::{Deserialize, Serialize};

use super::demand::PoolHistory;
use super::sizes::{Kind, cheaper, cover, fastest};
use super::{Elasticity, Learnt, Looks, Mode};
use crate::history::History;
use crate::inventory::{BackendSpec, PoolSpec};

mod hold;
mod probing;

/// What is done about a pool's size, and why.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ScalingPlan {
    /// What the driver is to do.
    pub action: Scaling,
    /// Why, in words.
    pub reason: String,
    /// Part of the speed shown that is expected to be in use; `None` if unknown.
    pub in_use: Option<f64>,
    /// How long ago the pool last grew, without this plan's step; saturates.
    pub since_out: Duration,
    /// How long ago the pool last shrank, likewise.
    pub since_in: Duration,
    /// How long a smaller pool would have been enough.
    pub low_for: Duration,
    /// The steps that the pool's driver had taken when this was planned ([`PoolSpec::steps`]): it takes this one only if
    /// it has taken none since.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub after: Option<u64>,
    /// What the planner remembers of the pool.
    #[serde(default, skip_serializing_if = "Learnt::is_empty")]
    pub learnt: Learnt,
}

/// A step in a pool's size.
///
/// The driver's work shows in the inventory as soon as it has taken the step: what it starts is there at once, with an age
/// of zero; what it drains is wanted drained. Until then the same step is planned again, and however many plans say it,
/// the driver takes one of them: each names the number of steps that it follows ([`ScalingPlan::after`]).
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Scaling {
    /// Nothing.
    #[default]
    Hold,
    /// Add so many of a size (`None`: the pool's backends are all alike).
    Out {
        /// Which.
        size: Option<String>,
        /// How many.
        count: u32,
    },
    /// Drain these, and remove them when they have nothing left.
    In {
        /// Their names.
        backends: Vec<String>,
    },
    /// Add one of a size, and drain the backend when the new one is warm.
    Replace {
        /// Which is added.
        size: Option<String>,
        /// Which goes.
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

/// A pool shrinks only to where this part of what may be in use is in use: else it would grow again at once.
const SHRINK_TO: f64 = 0.85;
/// Memory in use, per cent, from which a pool does not shrink: those that stay would get more.
const MEMORY_TIGHT: f64 = 90.0;
/// "Long ago", for a pool that never changed.
const LONG_AGO: Duration = Duration::from_secs(365 * 24 * 3600);

/// Decides on a pool's size; `passed` is the time since the decision before.
///
/// What is in use is weighed by speed: a half-used large backend counts as much as its size says. The pool grows when
/// less than the headroom is free, counting those that are warming up as there, so that it does not grow twice for
/// one reason; at most by [`Elasticity::growth_max`] in a step, with a cool-down. It shrinks by one, that with the
/// least speed for its price, when without it there would still be headroom and some to spare for the whole of a
/// cool-down; if one fewer would not do, the dearest is replaced by a cheaper one that would (vertical scaling). Of a pool that may be
/// full or not, as far as measurements can tell, one backend more shows which ([`super::Probe`]). At the most backends it replaces the slowest by a faster one if there is one (diagonal scaling).
pub(crate) fn decide(
    elastic: &Elasticity,
    pool: &PoolSpec,
    history: &History,
    name: &str,
    was: Option<&ScalingPlan>,
    passed: Duration,
) -> ScalingPlan {
    let past = history.pool(name);
    let state = State::of(elastic, pool, history, past);
    let ago =
        |last: Option<Duration>| last.unwrap_or(LONG_AGO).saturating_add(passed).min(LONG_AGO);
    let learnt = learnt(&state, past, was, pool.steps, passed);
    let was = was.map(|was| Times::after(was, pool.steps));
    let mut plan = ScalingPlan {
        action: Scaling::Hold,
        reason: String::new(),
        in_use: state.in_use,
        since_out: ago(was.as_ref().map(|was| was.since_out)),
        since_in: ago(was.as_ref().map(|was| was.since_in)),
        low_for: Duration::ZERO,
        after: pool.steps,
        learnt,
    };
    if state.less(elastic).is_some() {
        plan.low_for = was.map_or(Duration::ZERO, |was| was.low_for).saturating_add(passed);
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
    // Whatever it is added for: a backend more is compared with how it was before.
    if let Some(probe) = plan.learnt.probe.as_mut().filter(|probe| probe.is_prepared())
        && matches!(action, Scaling::Out { .. })
    {
        probe.after = Some(Looks::default());
        (probe.since, probe.settled) = (Duration::ZERO, Duration::ZERO);
    }
    ScalingPlan { action, reason, ..plan }
}

/// What is remembered of the pool after what was remembered in the plan before, the driver having taken so many steps.
fn learnt(
    state: &State<'_>,
    past: Option<&PoolHistory>,
    was: Option<&ScalingPlan>,
    steps: Option<u64>,
    passed: Duration,
) -> Learnt {
    let mut learnt = was.map(|was| was.learnt.clone()).unwrap_or_default();
    if let Some(probe) = &mut learnt.probe
        && was.is_some_and(|was| !is_taken(was, steps))
        && probe.since.is_zero()
    {
        probe.after = None;
    }
    learnt.refresh(past, passed);
    state.look(&mut learnt, past, passed);
    learnt
}

/// Whether a plan's step has been taken, when the driver has taken so many (`None`: it takes each at once).
fn is_taken(was: &ScalingPlan, steps: Option<u64>) -> bool {
    steps.is_none() || steps != was.after
}

/// How long ago things were when a plan had been followed, or not.
struct Times {
    since_out: Duration,
    since_in: Duration,
    low_for: Duration,
}

impl Times {
    /// After a plan, when the driver has taken so many steps. One that it has not taken has not been.
    fn after(was: &ScalingPlan, steps: Option<u64>) -> Times {
        let ScalingPlan { since_out, since_in, low_for, .. } = *was;
        let times = Times { since_out, since_in, low_for };
        if !is_taken(was, steps) {
            return times;
        }
        match was.action {
            Scaling::Hold => times,
            Scaling::Out { .. } | Scaling::Replace { .. } => {
                Times { since_out: Duration::ZERO, ..times }
            }
            Scaling::In { .. } => {
                Times { since_in: Duration::ZERO, low_for: Duration::ZERO, ..times }
            }
        }
    }
}

/// A backend that is wanted up.
struct Backend<'a> {
    name: &'a str,
    spec: &'a BackendSpec,
    speed: f64,
    efficiency: f64,
    /// Expected to be in use, 1 at its best; `None` if nothing is known, or it is warming up.
    in_use: Option<f64>,
    /// Whether that is more than a guess by response time.
    is_use_known: bool,
    is_serving: bool,
}

impl Backend<'_> {
    /// Which of two leaves first: one that fails, one of which nothing has been measured yet, the one with the least speed for
    /// its price, the younger one.
    fn leaves_before(&self, other: &Backend<'_>) -> Ordering {
        let is_warm = |one: &Backend<'_>| one.in_use.is_some();
        let by_state = self.is_serving.cmp(&other.is_serving);
        by_state
            .then(is_warm(self).cmp(&is_warm(other)))
            .then(self.efficiency.total_cmp(&other.efficiency))
            .then(self.spec.age.cmp(&other.spec.age))
    }
}

/// How a pool could cost less.
enum Less<'s, 'a> {
    /// One fewer.
    Without(&'s Backend<'a>),
    /// A cheaper one in its place.
    Cheaper(&'s Kind, &'s Backend<'a>),
}

struct State<'a> {
    backends: Vec<Backend<'a>>,
    kinds: Vec<Kind>,
    in_use: Option<f64>,
    /// Speed that serves or will when it is warm.
    speed: f64,
    memory: Option<f64>,
    queued: f64,
}

impl<'a> State<'a> {
    fn of(
        elastic: &Elasticity,
        pool: &'a PoolSpec,
        history: &History,
        past: Option<&PoolHistory>,
    ) -> State<'a> {
        let (kinds, unit) = kinds(elastic, past);
        let kind = |spec: &BackendSpec| kinds.iter().find(|kind| kind.name == spec.size);
        let up = pool.backends.iter().filter(|(_, spec)| spec.admin == AdminState::Up);
        let backend = |(name, spec): (&'a String, &'a BackendSpec)| {
            let is_serving = spec.health != Health::Unhealthy;
            let is_warm = is_serving && spec.age >= elastic.warm_up;
            let machine = spec.machine.as_ref().and_then(|machine| history.load(machine));
            let cpu = machine.map(|load| load.coming().cpu / 100.0);
            let shown = past.and_then(|past| past.in_use(name));
            let own_cpu = past.and_then(|past| past.cpu(name));
            let in_use =
                shown.into_iter().chain(cpu).chain(own_cpu).reduce(f64::max).filter(|_| is_warm);
            let kind = kind(spec);
            Backend {
                name,
                spec,
                // One that the operator listed beside the sizes counts as one of stated speed 1.
                speed: kind.map_or(unit, |kind| kind.speed),
                efficiency: kind.map_or(unit, Kind::efficiency),
                in_use,
                is_use_known: past.is_some_and(|it| it.is_use_known(name, spec.size.as_deref())),
                is_serving,
            }
        };
        let backends: Vec<Backend> = up.map(backend).collect();
        let known =
            || backends.iter().filter_map(|one| one.in_use.map(|in_use| (one.speed, in_use)));
        let (sum, of) = known()
            .fold((0.0, 0.0), |(sum, of), (speed, in_use)| (sum + speed * in_use, of + speed));
        let memory = backends.iter().filter_map(|one| history.load(one.spec.machine.as_ref()?));
        let memory = memory.map(|load| load.coming().memory).reduce(f64::max);
        State {
            in_use: (of > 0.0).then(|| sum / of),
            speed: backends.iter().filter(|one| one.is_serving).map(|one| one.speed).sum(),
            queued: past.map_or(0.0, PoolHistory::queued),
            backends,
            kinds,
            memory,
        }
    }

    fn count(&self) -> u32 {
        self.backends.len() as u32
    }

    fn is_warming(&self) -> bool {
        self.backends.iter().any(|one| one.is_serving && one.in_use.is_none())
    }

    /// Speed that those which are measured use, and what waits for them.
    fn used(&self) -> Option<f64> {
        let in_use = |one: &Backend| one.in_use.map_or(0.0, |in_use| one.speed * in_use);
        self.in_use.map(|_| self.backends.iter().map(in_use).sum())
    }

    /// Who would leave first, of the elastic ones.
    fn leaver(&self) -> Option<&Backend<'a>> {
        let elastic = self.backends.iter().filter(|one| one.spec.is_elastic);
        elastic.min_by(|a, b| a.leaves_before(b))
    }

    fn is_enough_without(&self, elastic: &Elasticity, leaver: &Backend) -> bool {
        let Some(used) = self.used() else { return false };
        let left = self.speed - if leaver.is_serving { leaver.speed } else { 0.0 };
        self.count() > elastic.min
            && self.queued == 0.0
            && !self.is_warming()
            && used <= SHRINK_TO * (1.0 - elastic.headroom) * left
    }

    /// How the pool could cost less and still have headroom, and some to spare.
    fn less(&self, elastic: &Elasticity) -> Option<Less<'_, 'a>> {
        let leaver = self.leaver().filter(|leaver| self.is_enough_without(elastic, leaver));
        leaver.map(Less::Without).or_else(|| self.cheaper(elastic))
    }

    /// The dearest backend for which a cheaper one would do, and that one's kind. A guess at what is in use is not enough:
    /// before its top was seen, a fast backend looks idle.
    fn cheaper(&self, elastic: &Elasticity) -> Option<Less<'_, 'a>> {
        let enough = self.used()? / (SHRINK_TO * (1.0 - elastic.headroom));
        let is_known = self.backends.iter().all(|one| one.is_use_known || !one.is_serving);
        if self.queued > 0.0 || self.is_warming() || !is_known {
            return None;
        }
        let priced = |one| {
            let one: &Backend = one;
            let kind = self.kinds.iter().find(|kind| kind.name == one.spec.size)?;
            (one.spec.is_elastic && one.is_serving).then_some(kind.price)
        };
        let found = self.backends.iter().filter_map(|one| {
            let (price, rest) = (priced(one)?, self.speed - one.speed);
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
        let mut leavers: Vec<&Backend> =
            self.backends.iter().filter(|one| one.spec.is_elastic).collect();
        leavers.sort_by(|a, b| a.leaves_before(b));
        let backends: Vec<String> =
            leavers.iter().take((have - count) as usize).map(|one| one.name.to_string()).collect();
        let reason = format!("{why}, there are {have}");
        match backends.is_empty() {
            true if have == count => (Scaling::Hold, reason),
            true => (Scaling::Hold, format!("{reason}, and its driver made none of them")),
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
        let (Some(used), Some(in_use)) = (self.used(), self.in_use) else {
            return (Scaling::Hold, self.why_unknown(elastic));
        };
        let wanted = 1.0 - elastic.headroom;
        let needed = used / wanted;
        if needed > self.speed {
            return self.grow(elastic, plan, needed, in_use);
        }
        if let Some(probe) = self.probe(elastic, plan) {
            return probe;
        }
        self.shrink(elastic, plan, in_use)
    }

    fn grow(
        &self,
        elastic: &Elasticity,
        plan: &ScalingPlan,
        needed: f64,
        in_use: f64,
    ) -> (Scaling, String) {
        let wanted = 1.0 - elastic.headroom;
        let why =
            format!("{in_use:.2} of the speed shown is in use, at most {wanted:.2} is wanted");
        let (room, faster) = (elastic.max - self.count(), self.faster());
        let largest = format!("{why}; the pool is at its largest: max = {}", elastic.max);
        // Before the cool-down: whoever waits for its end would wait in vain.
        if room == 0 && faster.is_none() {
            return (Scaling::Hold, largest);
        }
        if plan.since_out < elastic.out_cool_down {
            let left = elastic.out_cool_down - plan.since_out;
            return (
                Scaling::Hold,
                format!("{why}; the last step out is cooling down, {left:.0?} left"),
            );
        }
        let shortfall = (needed - self.speed).min(self.speed * (elastic.growth_max - 1.0));
        if room > 0 {
            let Some((kind, count)) = cover(&self.kinds, shortfall, room) else {
                return (Scaling::Hold, format!("{why}; there is no size to add"));
            };
            let size = kind.name.clone();
            return (Scaling::Out { size, count }, why);
        }
        match (faster, self.why_not_warm(elastic)) {
            (Some((slow, fast)), None) => {
                let (size, backend) = (fast.name.clone(), slow.name.to_string());
                let why =
                    format!("{why}; all {} are there, so the slowest is replaced", elastic.max);
                (Scaling::Replace { size, backend }, why)
            }
            (_, Some(cold)) => (Scaling::Hold, format!("{largest}, and {cold}")),
            (None, None) => (Scaling::Hold, largest),
        }
    }

    /// The slowest backend, if there is a faster size, and that one.
    fn faster(&self) -> Option<(&Backend<'a>, &Kind)> {
        let slowest = self.backends.iter().filter(|one| one.spec.is_elastic);
        let slowest = slowest.min_by(|a, b| a.speed.total_cmp(&b.speed))?;
        fastest(&self.kinds).filter(|fast| fast.speed > slowest.speed).map(|fast| (slowest, fast))
    }

    fn shrink(&self, elastic: &Elasticity, plan: &ScalingPlan, in_use: f64) -> (Scaling, String) {
        let fine = format!("{in_use:.2} of the speed shown is in use");
        let Some(less) = self.less(elastic) else {
            return (Scaling::Hold, format!("{fine}; {}", self.why_all_needed(elastic)));
        };
        let what = match less {
            Less::Without(_) => "one fewer",
            Less::Cheaper(..) => "a cheaper one",
        };
        if let Some(why) = self.why_not_yet(elastic, plan, what) {
            return (Scaling::Hold, format!("{fine}; {why}"));
        }
        let for_long = elastic.in_cool_down;
        let reason = format!("{fine}, and {what} would have done for {for_long:.0?}");
        let step = match less {
            Less::Without(leaver) => Scaling::In { backends: vec![leaver.name.to_string()] },
            Less::Cheaper(kind, dear) => {
                Scaling::Replace { size: kind.name.clone(), backend: dear.name.to_string() }
            }
        };
        (step, reason)
    }
}

/// The sizes with their speeds: as shown, where the top of one was seen; the others in the same unit by what is stated
/// of them. Then that unit: what a stated speed of 1 is.
fn kinds(elastic: &Elasticity, past: Option<&PoolHistory>) -> (Vec<Kind>, f64) {
    if elastic.sizes.is_empty() {
        return (vec![Kind { name: None, speed: 1.0, price: 1.0 }], 1.0);
    }
    let shown = |size: &str| {
        past?.profile(Some(size))?.best().filter(|best| best.is_topped).map(|best| best.speed)
    };
    let per_stated =
        elastic.sizes.iter().filter_map(|(name, size)| Some(shown(name)? / size.speed));
    let (sum, count) = per_stated.fold((0.0, 0.0), |(sum, count), one| (sum + one, count + 1.0));
    let unit = if count > 0.0 { sum / count } else { 1.0 };
    let kind = |(name, size): (&String, &super::Size)| Kind {
        name: Some(name.clone()),
        speed: shown(name).unwrap_or(size.speed * unit),
        price: size.price,
    };
    (elastic.sizes.iter().map(kind).collect(), unit)
}

#[cfg(test)]
mod tests;
