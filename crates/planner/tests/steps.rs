//! Plans and the driver that takes their steps, in any order: each step is taken once.

#![allow(clippy::unwrap_used, reason = "a panic is how a test fails")]

use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

use equipoise_planner::elastic::{Elasticity, Mode, Scaling, ScalingPlan};
use equipoise_planner::{BackendSpec, History, Inventory, Plan, Policy, PoolSpec, Tick, plan};
use proptest::prelude::*;

/// A driver as the planner may think of it: takes a step only if it was planned after the last one.
#[derive(Default)]
struct Driver {
    steps: u64,
    backends: Vec<String>,
    made: u32,
    gone: u32,
}

impl Driver {
    fn take(&mut self, scaling: &ScalingPlan) {
        if scaling.action == Scaling::Hold || scaling.after != Some(self.steps) {
            return;
        }
        self.steps += 1;
        match &scaling.action {
            Scaling::Out { count, .. } => {
                for _ in 0..*count {
                    self.made += 1;
                    self.backends.push(format!("e{:02}", self.made));
                }
            }
            Scaling::In { backends } => {
                let before = self.backends.len();
                self.backends.retain(|name| !backends.contains(name));
                self.gone += (before - self.backends.len()) as u32;
            }
            other => panic!("a pin asks for no {other:?}"),
        }
    }

    fn seen(&self, pinned: u32) -> PoolSpec {
        let one = BackendSpec { is_elastic: true, ..BackendSpec::default() };
        PoolSpec {
            backends: self.backends.iter().map(|name| (name.clone(), one.clone())).collect(),
            elastic: Some(Elasticity {
                max: 8,
                mode: Mode::Pinned(pinned),
                ..Elasticity::default()
            }),
            steps: Some(self.steps),
            ..PoolSpec::default()
        }
    }
}

/// A leader that plans from what it saw last, and its plans on their way to the driver.
struct Leader {
    seen: PoolSpec,
    plan: Option<Plan>,
    under_way: VecDeque<ScalingPlan>,
}

impl Leader {
    fn plan(&mut self) {
        let pools: BTreeMap<_, _> = [("web".to_string(), self.seen.clone())].into();
        let inventory = Inventory::new(BTreeMap::new(), BTreeMap::new(), pools).unwrap();
        let policy = Policy::default();
        let history = History::new(policy.smoothing, Duration::ZERO);
        let tick = Tick { now: Duration::ZERO, passed: Duration::ZERO };
        let next = plan(&policy, &inventory, &history, self.plan.as_ref(), tick);
        self.under_way.push_back(next.pools["web"].scaling.clone().unwrap());
        self.plan = Some(next);
    }
}

#[derive(Clone, Debug)]
enum Happens {
    /// The leader looks at what there is.
    Looks,
    Plans,
    /// The oldest plan on its way comes to the driver.
    Comes,
    /// It is lost: a later one was there before it was read.
    IsLost,
}

fn happens() -> impl Strategy<Value = Happens> {
    use Happens::{Comes, IsLost, Looks, Plans};
    prop_oneof![Just(Looks), Just(Plans), Just(Plans), Just(Comes), Just(IsLost)]
}

proptest! {
    #[test]
    fn however_plans_and_steps_follow_each_other_nothing_is_begun_twice(
        pins in prop::collection::vec(1..=8_u32, 1..4),
        all in prop::collection::vec(happens(), 0..60),
    ) {
        let mut driver = Driver::default();
        let mut leader =
            Leader { seen: driver.seen(pins[0]), plan: None, under_way: VecDeque::new() };
        for pinned in pins {
            let (made, gone, there) = (driver.made, driver.gone, driver.backends.len() as u32);
            leader.under_way.clear();
            leader.seen = driver.seen(pinned);
            for it in &all {
                match it {
                    Happens::Looks => leader.seen = driver.seen(pinned),
                    Happens::Plans => leader.plan(),
                    Happens::Comes => {
                        if let Some(scaling) = leader.under_way.pop_front() {
                            driver.take(&scaling);
                        }
                    }
                    Happens::IsLost => drop(leader.under_way.pop_front()),
                }
                let now = driver.backends.len() as u32;
                prop_assert!((pinned.min(there)..=pinned.max(there)).contains(&now));
            }
            leader.under_way.clear();
            leader.seen = driver.seen(pinned);
            leader.plan();
            driver.take(&leader.under_way.pop_front().unwrap());
            prop_assert_eq!(driver.backends.len() as u32, pinned);
            let steps = (driver.made - made, driver.gone - gone);
            prop_assert_eq!(steps, (pinned.saturating_sub(there), there.saturating_sub(pinned)));
        }
    }
}
