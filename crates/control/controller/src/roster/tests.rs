//! A roster, and members that carry it out.

mod adoption;
mod any_events;
mod drivers;

use std::collections::BTreeSet;

use equipoise_planner::elastic::Elasticity;

use super::*;
use crate::Made;

const SECOND: Duration = Duration::from_secs(1);

/// A member with a driver.
#[derive(Clone, Debug, Default)]
struct Maker {
    making: Making,
    gone: Option<Gone>,
    leaves: bool,
}

/// A pool with its members and their reports.
struct Bed {
    roster: Roster,
    makers: BTreeMap<String, Maker>,
    spec: PoolSpec,
    drained: BTreeSet<String>,
    generation: u64,
}

impl Bed {
    fn new(outlives: bool, members: &[&str]) -> Bed {
        let elastic = Elasticity { max: 4, warm_up: 2 * SECOND, ..Elasticity::default() };
        let maker = |name: &&str| {
            let making = Making { outlives, ..Making::default() };
            ((*name).to_string(), Maker { making, ..Maker::default() })
        };
        Bed {
            roster: Roster { next_number: 1, ..Roster::default() },
            makers: members.iter().map(maker).collect(),
            spec: PoolSpec { elastic: Some(elastic), ..PoolSpec::default() },
            drained: BTreeSet::new(),
            generation: 0,
        }
    }

    fn edition(&self) -> Edition {
        Edition { term: 7, generation: self.generation }
    }

    /// One period: learns from reports, and takes a step.
    fn period(&mut self, step: &Scaling) -> Step {
        self.generation += 1;
        let makers = &self.makers;
        let gone = |name: &str| {
            makers.get(name).map_or(Gone::Surely, |maker| maker.gone.unwrap_or(Gone::No))
        };
        let is_fresh = |name: &str| gone(name) == Gone::No;
        let is_leaving = |name: &str| makers.get(name).is_some_and(|maker| maker.leaves);
        let drained = &self.drained;
        let is_drained = |name: &str| drained.contains(name);
        let there = makers.iter().filter(|(_, maker)| maker.gone.is_none());
        let seen = Seen {
            edition: Edition { term: 7, generation: self.generation },
            passed: SECOND,
            making: there.map(|(name, maker)| (name.as_str(), &maker.making)).collect(),
            is_fresh: &is_fresh,
            gone: &gone,
            is_drained: &is_drained,
            is_leaving: &is_leaving,
        };
        let made = MadePool { drain_timeout: 60 * SECOND, ..MadePool::default() };
        self.roster.learn("web", &self.spec, &made, &seen);
        self.roster.act("web", step, 4, &seen)
    }

    /// The member carries out its roster at once, and reports that.
    fn obey(&mut self, member: &str) {
        let edition = self.edition();
        let Some(maker) = self.makers.get_mut(member) else { return };
        maker.making.applied = edition;
        let outlives = maker.making.outlives;
        let roster = &self.roster;
        let is_mine =
            |name: &String| roster.backends.get(name).is_some_and(|it| it.executor == member);
        maker.making.backends.retain(|name, _| is_mine(name));
        for (name, entry) in roster.backends.iter().filter(|(name, _)| is_mine(name)) {
            let has = maker.making.backends.contains_key(name);
            // A backend that ended with its process is not made again under its name.
            let is_lost = !has && entry.address.is_some() && !outlives;
            if entry.wanted == Wanted::Leave || is_lost {
                maker.making.backends.remove(name);
                continue;
            }
            let made = Made {
                state: MadeState::Ready,
                address: Some(([127, 0, 0, 1], 80).into()),
                id: Some(entry.key.clone()),
                ..Made::default()
            };
            maker.making.backends.insert(name.clone(), made);
        }
    }

    fn obey_all(&mut self) {
        let there = self.makers.iter().filter(|(_, maker)| maker.gone.is_none());
        let names: Vec<String> = there.map(|(name, _)| name.clone()).collect();
        names.iter().for_each(|name| self.obey(name));
    }

    fn told(&self) -> Vec<(&str, &str, Wanted)> {
        let entries = self.roster.backends.iter();
        entries.map(|(name, it)| (name.as_str(), it.executor.as_str(), it.wanted)).collect()
    }
}

fn out(count: u32) -> Scaling {
    Scaling::Out { size: None, count }
}

fn leave(names: &[&str]) -> Scaling {
    Scaling::In { backends: names.iter().map(|name| (*name).to_string()).collect() }
}

#[test]
fn processes_are_spread_and_scripts_have_one_executor() {
    let mut bed = Bed::new(false, &["a", "b"]);
    assert_eq!(bed.period(&out(3)).refused, 0);
    let spread = [
        ("web-e1", "a", Wanted::Serve),
        ("web-e2", "b", Wanted::Serve),
        ("web-e3", "a", Wanted::Serve),
    ];
    assert_eq!(bed.told(), spread);
    let mut bed = Bed::new(true, &["a", "b"]);
    bed.period(&out(2));
    assert!(bed.told().iter().all(|(_, executor, _)| *executor == "a"), "{:?}", bed.told());
    bed.makers.get_mut("a").unwrap().leaves = true;
    bed.period(&out(1));
    assert_eq!(bed.told()[2].1, "b", "who is drained by an operator gets nothing new");
}

#[test]
fn backends_beyond_the_maximum_or_without_an_executor_are_refused() {
    let mut bed = Bed::new(false, &["a"]);
    assert_eq!(bed.period(&out(9)).refused, 5);
    assert_eq!(bed.told().len(), 4);
    let mut bed = Bed::new(false, &[]);
    assert_eq!((bed.period(&out(1)).refused, bed.told().len()), (1, 0));
}

#[test]
fn a_backend_drains_first_and_is_removed_after_its_executor_confirms() {
    let mut bed = Bed::new(false, &["a"]);
    bed.period(&out(2));
    bed.obey_all();
    bed.period(&Scaling::Hold);
    assert_eq!(bed.roster.backends["web-e1"].state, MadeState::Ready);
    bed.period(&leave(&["web-e2"]));
    bed.obey_all();
    bed.period(&Scaling::Hold);
    assert_eq!(bed.told()[1].2, Wanted::Drain);
    bed.drained.insert("web-e2".to_string());
    bed.period(&Scaling::Hold);
    assert_eq!(bed.told()[1].2, Wanted::Leave);
    bed.period(&Scaling::Hold);
    assert_eq!(bed.told().len(), 2, "its executor has not said that it is gone");
    bed.obey_all();
    bed.period(&Scaling::Hold);
    assert_eq!(bed.told(), [("web-e1", "a", Wanted::Serve)]);
    bed.period(&out(1));
    assert_eq!(bed.told()[1].0, "web-e3", "no name comes twice");
}

#[test]
fn a_draining_backend_serves_again_if_needed_or_leaves_at_timeout() {
    let mut bed = Bed::new(true, &["a"]);
    bed.period(&out(1));
    bed.obey_all();
    bed.period(&leave(&["web-e1"]));
    bed.period(&leave(&["web-e1"]));
    assert_eq!(bed.told()[0].2, Wanted::Drain);
    bed.period(&out(1));
    assert_eq!(bed.told(), [("web-e1", "a", Wanted::Serve)]);
    bed.period(&leave(&["web-e1"]));
    for _ in 0..60 {
        bed.period(&Scaling::Hold);
    }
    assert_eq!(bed.told()[0].2, Wanted::Leave);
}

#[test]
fn another_member_takes_over_backends_that_outlive_their_executor() {
    let mut bed = Bed::new(true, &["a", "b"]);
    bed.period(&out(2));
    bed.obey_all();
    bed.period(&Scaling::Hold);
    bed.makers.get_mut("a").unwrap().gone = Some(Gone::Silent);
    bed.period(&Scaling::Hold);
    assert!(bed.told().iter().all(|(_, executor, _)| *executor == "b"), "{:?}", bed.told());
    assert!(
        bed.roster.backends.values().all(|it| it.address.is_some() && it.since == bed.edition())
    );
    bed.obey_all();
    // The first returns and still lists them, as of an older roster. Nothing follows.
    bed.makers.get_mut("a").unwrap().gone = None;
    let before = bed.roster.clone();
    bed.period(&Scaling::Hold);
    assert_eq!(bed.roster.settled(), before.settled());
}

#[test]
fn processes_end_with_a_lost_executor_and_outlast_a_silent_executor() {
    let mut bed = Bed::new(false, &["a", "b"]);
    bed.period(&out(2));
    bed.obey_all();
    bed.period(&Scaling::Hold);
    let seen = BackendSpec { health: Health::Healthy, ..BackendSpec::default() };
    bed.spec.backends.insert("web-e1".to_string(), seen);
    bed.makers.get_mut("a").unwrap().gone = Some(Gone::Silent);
    bed.period(&Scaling::Hold);
    assert_eq!(bed.told().len(), 2, "it serves, as our checks see");
    bed.makers.get_mut("a").unwrap().gone = Some(Gone::Surely);
    bed.period(&Scaling::Hold);
    assert_eq!(bed.told(), [("web-e2", "b", Wanted::Serve)]);
    // A restarted member has no backends, and reports that.
    let again = Making { applied: bed.edition(), ..Making::default() };
    bed.makers.get_mut("b").unwrap().making = again;
    bed.period(&out(1));
    assert_eq!(bed.told().iter().map(|it| it.0).collect::<Vec<_>>(), ["web-e3"]);
}

#[test]
fn a_replacement_is_warm_before_the_replaced_backend_drains() {
    let mut bed = Bed::new(false, &["a"]);
    bed.period(&out(1));
    bed.obey_all();
    bed.period(&Scaling::Hold);
    let replace = Scaling::Replace { size: None, backend: "web-e1".to_string() };
    bed.period(&replace);
    assert_eq!(bed.period(&replace).refused, 1, "once is enough");
    let mut spec = bed.spec.clone();
    bed.roster.add_to(&mut spec, &MadePool::default());
    let admins: Vec<_> = spec.backends.values().map(|it| it.admin).collect();
    assert_eq!(admins, [AdminState::Drain, AdminState::Up], "the planner counts one");
    bed.obey_all();
    bed.period(&Scaling::Hold);
    assert_eq!(bed.told()[0].2, Wanted::Serve);
    bed.period(&Scaling::Hold);
    assert_eq!(bed.told()[0].2, Wanted::Drain);
}

#[test]
fn a_cancelled_replacement_leaves_the_original_backend_serving() {
    let mut bed = Bed::new(false, &["a"]);
    bed.period(&out(1));
    bed.obey_all();
    bed.period(&Scaling::Replace { size: None, backend: "web-e1".to_string() });
    bed.obey_all();
    assert_eq!(bed.period(&leave(&["web-e2"])).leaving, ["web-e2"]);
    for _ in 0..5 {
        bed.period(&Scaling::Hold);
    }
    assert_eq!(bed.told()[0], ("web-e1", "a", Wanted::Serve));
}

#[test]
fn growth_revives_the_most_recently_drained_backend_of_the_size() {
    let mut bed = Bed::new(true, &["a"]);
    bed.period(&out(2));
    bed.period(&Scaling::Out { size: Some("large".to_string()), count: 1 });
    bed.obey_all();
    bed.period(&Scaling::Hold);
    for name in ["web-e3", "web-e1", "web-e2"] {
        bed.period(&leave(&[name]));
    }
    assert_eq!(bed.period(&out(1)).revived, ["web-e2"]);
    assert_eq!(bed.told()[1].2, Wanted::Serve);
}

#[test]
fn an_ending_member_drains_processes_and_hands_over_lasting_backends() {
    for outlives in [false, true] {
        let mut bed = Bed::new(outlives, &["a", "b"]);
        bed.period(&out(1));
        bed.obey_all();
        bed.period(&Scaling::Hold);
        bed.makers.get_mut("a").unwrap().making.ends = true;
        bed.period(&out(1));
        let expected = match outlives {
            true => [("web-e1", "b", Wanted::Serve), ("web-e2", "b", Wanted::Serve)],
            false => [("web-e1", "a", Wanted::Drain), ("web-e2", "b", Wanted::Serve)],
        };
        assert_eq!(bed.told(), expected);
    }
    let mut alone = Bed::new(true, &["a"]);
    alone.period(&out(1));
    alone.obey_all();
    alone.period(&Scaling::Hold);
    alone.makers.get_mut("a").unwrap().making.ends = true;
    assert_eq!(alone.period(&out(1)).refused, 1);
    assert_eq!(alone.told(), [("web-e1", "a", Wanted::Drain)]);
}

#[test]
fn unknown_fields_in_a_roster_are_ignored() {
    let mut bed = Bed::new(true, &["a"]);
    bed.makers.get_mut("a").unwrap().making.next_number = 4;
    bed.period(&out(1));
    let mut value = serde_json::to_value(&bed.roster).unwrap();
    for place in ["", "/backends/web-e4", "/forgotten"] {
        value.pointer_mut(place).unwrap()["surprise"] = 1.into();
    }
    assert_eq!(serde_json::from_value::<Roster>(value).unwrap(), bed.roster);
}

#[test]
fn a_name_reused_by_a_new_roster_has_another_key() {
    let mut bed = Bed::new(true, &["a"]);
    bed.period(&out(1));
    let key = |bed: &Bed| bed.roster.backends["web-e1"].key.clone();
    let first = key(&bed);
    bed.roster = Roster { next_number: 1, ..Roster::default() };
    bed.period(&out(1));
    assert_ne!(key(&bed), first);
}
