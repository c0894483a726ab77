use std::collections::BTreeSet;

use equipoise_planner::elastic::Elasticity;
use proptest::prelude::*;

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
fn there_is_no_more_than_room_and_nobody_makes_nothing() {
    let mut bed = Bed::new(false, &["a"]);
    assert_eq!(bed.period(&out(9)).refused, 5);
    assert_eq!(bed.told().len(), 4);
    let mut bed = Bed::new(false, &[]);
    assert_eq!((bed.period(&out(1)).refused, bed.told().len()), (1, 0));
}

#[test]
fn who_leaves_drains_at_every_node_first_and_is_struck_off_when_it_is_gone() {
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
fn one_that_is_needed_again_is_not_drained_further_and_time_ends_every_drain() {
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
fn another_goes_on_with_what_outlives_its_executor() {
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
fn processes_end_with_their_executor_unless_it_is_only_out_of_sight() {
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
fn a_faster_one_is_warm_before_the_other_drains() {
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
fn a_faster_one_that_is_called_off_leaves_the_other_serving() {
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
fn what_was_made_before_there_was_a_roster_is_taken_over() {
    let mut bed = Bed::new(true, &["a"]);
    let made = Made { state: MadeState::Ready, ..Made::default() };
    let backends = [("web-e4".to_string(), made.clone()), ("other".to_string(), made)];
    let making = Making { outlives: true, backends: backends.into(), ..Making::default() };
    bed.makers.get_mut("a").unwrap().making = making;
    let making = bed.makers["a"].making.clone();
    let seen = Seen {
        edition: bed.edition(),
        passed: SECOND,
        making: [("a", &making)].into(),
        is_fresh: &|_| true,
        gone: &|_| Gone::No,
        is_drained: &|_| false,
        is_leaving: &|_| false,
    };
    bed.roster = Roster::begin("web", &seen);
    assert_eq!(bed.told(), [("web-e4", "a", Wanted::Serve)]);
    assert_eq!(bed.roster.next_number, 5);
}

#[test]
fn what_a_roster_that_was_put_back_never_named_is_taken_in() {
    for outlives in [true, false] {
        let mut bed = Bed::new(outlives, &["a"]);
        bed.period(&out(2));
        bed.obey_all();
        bed.period(&Scaling::Hold);
        let older = bed.roster.clone();
        bed.period(&out(2));
        bed.obey_all();
        let four = bed.makers["a"].making.clone();
        bed.roster = older;
        // Until the member's losses are known, nothing is adopted from it.
        let mut three = four.clone();
        three.backends.remove("web-e1");
        three.applied = Edition::default();
        bed.makers.get_mut("a").unwrap().making = three;
        bed.period(&Scaling::Hold);
        assert_eq!(bed.told().len(), 2);
        bed.makers.get_mut("a").unwrap().making = Making { next_number: 7, ..four };
        bed.period(&Scaling::Hold);
        let names: Vec<_> = bed.told().iter().map(|it| it.0.to_string()).collect();
        assert_eq!(names, ["web-e1", "web-e2", "web-e3", "web-e4"]);
        let third = &bed.roster.backends["web-e3"];
        assert_eq!((third.state, third.executor.as_str()), (MadeState::Ready, "a"));
        assert!(third.address.is_some() && third.outlives == outlives);
        bed.obey_all();
        bed.period(&leave(&["web-e4"]));
        bed.drained.insert("web-e4".to_string());
        bed.period(&out(1));
        assert_eq!(bed.roster.next_number, 7, "it leaves first: there is no room");
        bed.obey_all();
        bed.period(&Scaling::Hold);
        bed.period(&out(1));
        assert!(bed.roster.backends.contains_key("web-e7"), "{:?}", bed.told());
    }
}

#[test]
fn a_member_that_is_heard_first_says_that_numbers_were_given_and_one_that_is_heard_later_has_them()
{
    let mut bed = Bed::new(true, &["a", "b"]);
    bed.period(&out(1));
    bed.obey_all();
    bed.period(&Scaling::Hold);
    let older = bed.roster.clone();
    bed.period(&out(2));
    bed.obey_all();
    bed.roster = older;
    let making = std::mem::take(&mut bed.makers.get_mut("a").unwrap().making);
    bed.makers.get_mut("a").unwrap().making.outlives = true;
    bed.makers.get_mut("b").unwrap().making.next_number = 4;
    bed.period(&Scaling::Hold);
    assert_eq!((bed.told().len(), bed.roster.next_number), (1, 4));
    let has_forgotten = |bed: &Bed, name: &str| bed.roster.has_forgotten("web", name);
    let known = ["web-e1", "web-e2", "web-e3", "web-e4", "web-x"].map(|it| has_forgotten(&bed, it));
    assert_eq!(known, [false, true, true, true, false]);
    bed.makers.get_mut("a").unwrap().making = making;
    bed.period(&Scaling::Hold);
    assert_eq!(bed.told().len(), 3);
    // The other had them in its list, too. Once they are gone, the list brings none back.
    let making = bed.makers["a"].making.backends.clone();
    bed.makers.get_mut("b").unwrap().making.backends = making;
    bed.obey("a");
    bed.period(&leave(&["web-e2", "web-e3"]));
    bed.drained.extend(["web-e2", "web-e3"].map(str::to_string));
    bed.period(&Scaling::Hold);
    bed.obey("a");
    bed.period(&Scaling::Hold);
    assert_eq!(bed.told(), [("web-e1", "a", Wanted::Serve)]);
    assert!(!has_forgotten(&bed, "web-e2") && !has_forgotten(&bed, "web-e3"));
}

#[test]
fn what_was_lost_and_what_was_made_without_a_leader_change_places_in_one_plan() {
    let mut bed = Bed::new(false, &["a"]);
    bed.period(&out(2));
    bed.obey_all();
    bed.period(&Scaling::Hold);
    let told = bed.edition();
    let made = Made { state: MadeState::Ready, ..Made::default() };
    let backends = ["web-e3", "web-e4"].map(|name| (name.to_string(), made.clone()));
    let after_a_restart = |applied| Making {
        applied,
        next_number: 5,
        backends: backends.clone().into(),
        ..Making::default()
    };
    bed.makers.get_mut("a").unwrap().making = after_a_restart(Edition::default());
    bed.period(&Scaling::Hold);
    assert_eq!(bed.told().iter().map(|it| it.0).collect::<Vec<_>>(), ["web-e1", "web-e2"]);
    bed.makers.get_mut("a").unwrap().making = after_a_restart(told);
    bed.period(&Scaling::Hold);
    assert_eq!(bed.told().iter().map(|it| it.0).collect::<Vec<_>>(), ["web-e3", "web-e4"]);
}

#[test]
fn what_drains_when_it_is_taken_over_drains_on_and_names_that_are_none_are_left_alone() {
    let made = |state| Made { state, size: Some("small".to_string()), ..Made::default() };
    let states = [("web-e2", MadeState::Draining), ("web-e3", MadeState::Leaving)];
    let odd = ["web-e01", "web-e+4", "db-e5", "web-e18446744073709551615"];
    let odd = odd.map(|name| (name, MadeState::Ready));
    let backends = states.into_iter().chain(odd).map(|(name, it)| (name.to_string(), made(it)));
    let mut bed = Bed::new(true, &["a"]);
    bed.makers.get_mut("a").unwrap().making.backends = backends.collect();
    bed.period(&Scaling::Hold);
    assert_eq!(bed.told(), [("web-e2", "a", Wanted::Drain), ("web-e3", "a", Wanted::Leave)]);
    assert_eq!(bed.roster.backends["web-e2"].size.as_deref(), Some("small"));
}

/// Marks these backends as made by an earlier driver, also if they are still being made.
fn outdate(bed: &mut Bed, names: &[&str]) {
    let backends = &mut bed.makers.get_mut("a").unwrap().making.backends;
    names.iter().for_each(|name| backends.get_mut(*name).unwrap().is_outdated = true);
}

#[test]
fn what_an_earlier_driver_made_is_replaced_and_drains_when_its_successor_is_warm() {
    let mut bed = Bed::new(true, &["a"]);
    bed.period(&out(2));
    bed.obey_all();
    outdate(&mut bed, &["web-e1", "web-e2"]);
    bed.period(&Scaling::Hold);
    let replaces = |bed: &Bed| -> Vec<Option<String>> {
        bed.roster.backends.values().map(|it| it.replaces.clone()).collect()
    };
    let both = [None, None, Some("web-e1".to_string()), Some("web-e2".to_string())];
    assert_eq!(replaces(&bed), both);
    bed.period(&Scaling::Hold);
    assert_eq!(replaces(&bed), both, "each once");
    // The driver changes again before the first successor is made. The next successor takes its
    // task.
    let starting = Made { is_outdated: true, ..Made::default() };
    let edition = bed.edition();
    let making = &mut bed.makers.get_mut("a").unwrap().making;
    making.applied = edition;
    for name in ["web-e3", "web-e4"] {
        making.backends.insert(name.to_string(), starting.clone());
    }
    bed.period(&Scaling::Hold);
    let wanted: Vec<_> = bed.told().into_iter().map(|(name, _, wanted)| (name, wanted)).collect();
    use Wanted::{Leave, Serve};
    let expected = [
        ("web-e1", Serve),
        ("web-e2", Serve),
        ("web-e3", Leave),
        ("web-e4", Leave),
        ("web-e5", Serve),
    ];
    assert_eq!(wanted, expected, "there is no room for the second");
    assert_eq!(replaces(&bed)[4..], both[2..3]);
    bed.obey_all();
    outdate(&mut bed, &["web-e1", "web-e2"]);
    bed.period(&Scaling::Hold);
    assert_eq!(replaces(&bed)[2..], both[2..]);
    bed.obey_all();
    outdate(&mut bed, &["web-e1", "web-e2"]);
    // A successor that is no longer needed leaves together with the backend that it was to replace.
    assert_eq!(bed.period(&leave(&["web-e6"])).leaving, ["web-e6", "web-e2"]);
    bed.period(&Scaling::Hold);
    bed.period(&Scaling::Hold);
    let wanted: Vec<_> = bed.told().into_iter().map(|(name, _, wanted)| (name, wanted)).collect();
    let expected = [
        ("web-e1", Wanted::Drain),
        ("web-e2", Wanted::Drain),
        ("web-e5", Serve),
        ("web-e6", Wanted::Drain),
    ];
    assert_eq!(wanted, expected);
    // A draining backend of an earlier driver does not return.
    outdate(&mut bed, &["web-e1"]);
    bed.period(&out(1));
    assert_eq!(bed.told()[0], ("web-e1", "a", Wanted::Drain));
}

#[test]
fn of_those_that_drain_the_last_of_the_size_serves_again() {
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

#[derive(Clone, Debug)]
enum Happens {
    Out(u32),
    In(usize),
    Obeys(usize),
    Restarts(usize),
    Dies(usize),
    Returns(usize),
    Drained,
}

fn happens() -> impl Strategy<Value = Happens> {
    prop_oneof![
        (1u32..4).prop_map(Happens::Out),
        (0usize..6).prop_map(Happens::In),
        (0usize..3).prop_map(Happens::Obeys),
        (0usize..3).prop_map(Happens::Restarts),
        (0usize..3).prop_map(Happens::Dies),
        (0usize..3).prop_map(Happens::Returns),
        Just(Happens::Drained),
    ]
}

proptest! {
    /// In every sequence of events: no name has two executors that would make it, there are never
    /// more backends than there is room for, and when nothing changes, every member has exactly the
    /// backends that the roster gives it.
    #[test]
    fn nothing_is_lost_or_doubled(
        outlives in any::<bool>(),
        story in proptest::collection::vec(happens(), 0..60),
    ) {
        let members = ["a", "b", "c"];
        let mut bed = Bed::new(outlives, &members);
        let mut known: BTreeMap<String, String> = BTreeMap::new();
        for event in story {
            let mut step = Scaling::Hold;
            match event {
                Happens::Out(count) => step = out(count),
                Happens::In(at) => {
                    let name = bed.roster.backends.keys().nth(at).cloned();
                    step = Scaling::In { backends: name.into_iter().collect() };
                }
                Happens::Obeys(at) if bed.makers[members[at]].gone.is_none() => bed.obey(members[at]),
                Happens::Obeys(_) => {}
                Happens::Restarts(at) => {
                    let maker = bed.makers.get_mut(members[at]).unwrap();
                    maker.making.applied = Edition::default();
                    maker.making.backends.clear();
                }
                Happens::Dies(at) => {
                    bed.makers.get_mut(members[at]).unwrap().gone = Some(Gone::Surely);
                }
                Happens::Returns(at) => bed.makers.get_mut(members[at]).unwrap().gone = None,
                Happens::Drained => bed.drained.extend(bed.roster.backends.keys().cloned()),
            }
            bed.period(&step);
            prop_assert!(bed.roster.backends.len() <= 4);
            for (name, entry) in &bed.roster.backends {
                let key = known.entry(name.clone()).or_insert_with(|| entry.key.clone());
                prop_assert_eq!(&*key, &entry.key, "a name means one backend for ever");
            }
        }
        bed.makers.values_mut().for_each(|maker| maker.gone = None);
        bed.drained.extend(bed.roster.backends.keys().cloned());
        for _ in 0..4 {
            bed.obey_all();
            bed.period(&Scaling::Hold);
        }
        for (name, maker) in &bed.makers {
            let given = bed.roster.backends.iter().filter(|(_, it)| it.executor == *name);
            let given: Vec<_> = given.map(|(name, _)| name).collect();
            prop_assert_eq!(given, maker.making.backends.keys().collect::<Vec<_>>());
        }
        prop_assert!(bed.roster.backends.values().all(|it| it.wanted == Wanted::Serve));
    }
}

#[test]
fn a_claim_of_a_number_that_is_too_large_is_ignored_and_one_that_is_large_leaves_numbers() {
    let mut bed = Bed::new(false, &["a", "b"]);
    for (claim, next) in
        [(u64::MAX, 2), (1 << 53, 3), (1 << 52, (1 << 52) + 1), (u64::MAX, (1 << 52) + 2)]
    {
        bed.makers.get_mut("a").unwrap().making.next_number = claim;
        bed.period(&out(1));
        assert_eq!(bed.roster.next_number, next);
        bed.obey_all();
    }
    assert_eq!(bed.told().len(), 4);
}

#[test]
fn numbers_that_are_claimed_later_leave_those_claimed_before_open() {
    let mut bed = Bed::new(false, &["a", "b"]);
    bed.period(&out(2));
    bed.obey_all();
    bed.makers.get_mut("a").unwrap().making.next_number = 6;
    bed.period(&out(1));
    bed.obey_all();
    bed.makers.get_mut("a").unwrap().making.next_number = 9;
    bed.period(&Scaling::Hold);
    let is_open = |bed: &Bed| -> Vec<u64> {
        let has = |number: &u64| bed.roster.has_forgotten("web", &format!("web-e{number}"));
        (1..10).filter(has).collect()
    };
    assert_eq!(is_open(&bed), [3, 4, 5, 7, 8, 9]);
    let made = Made { state: MadeState::Ready, ..Made::default() };
    let both = ["web-e4", "web-e8"].map(|name| {
        // A driver was asked for it before, and may be asked again.
        let key = (name == "web-e8").then(|| "asked".to_string());
        (name.to_string(), Made { key, ..made.clone() })
    });
    bed.makers.get_mut("b").unwrap().making.backends.extend(both);
    bed.period(&Scaling::Hold);
    assert_eq!(bed.roster.backends["web-e8"].key, "asked");
    assert_ne!(bed.roster.backends["web-e4"].key, "asked");
    assert_eq!(bed.told().len(), 5, "{:?}", bed.told());
    assert_eq!(is_open(&bed), [3, 5, 7, 9]);
}

/// Sets the driver's name of member `a`; `None`: it makes processes.
fn of_driver(bed: &mut Bed, driver: Option<&str>) {
    let making = &mut bed.makers.get_mut("a").unwrap().making;
    (making.driver, making.outlives) = (driver.map(str::to_string), driver.is_some());
}

#[test]
fn each_backend_has_the_driver_that_made_it_whichever_adds_now() {
    let mut bed = Bed::new(true, &["a", "b"]);
    of_driver(&mut bed, Some("old"));
    bed.period(&out(1));
    let entry = |bed: &Bed, name: &str| {
        let entry = &bed.roster.backends[name];
        (entry.outlives, entry.driver.clone(), entry.executor.clone())
    };
    let old = (true, Some("old".to_string()), "a".to_string());
    assert_eq!(entry(&bed, "web-e1"), old);
    bed.obey_all();
    of_driver(&mut bed, None);
    let backends = &mut bed.makers.get_mut("a").unwrap().making.backends;
    backends.get_mut("web-e1").unwrap().outlives = Some(true);
    backends.get_mut("web-e1").unwrap().driver = Some("old".to_string());
    bed.period(&Scaling::Hold);
    assert_eq!(entry(&bed, "web-e1"), old);
    // A backend that a new roster adopts reports its driver and the backend that it replaces.
    bed.roster = Roster { next_number: 1, ..Roster::default() };
    let new = Made {
        state: MadeState::Ready,
        outlives: Some(false),
        replaces: Some("web-e1".to_string()),
        ..Made::default()
    };
    bed.makers.get_mut("a").unwrap().making.backends.insert("web-e2".to_string(), new);
    bed.period(&Scaling::Hold);
    assert_eq!(entry(&bed, "web-e1"), old);
    assert_eq!(entry(&bed, "web-e2"), (false, None, "a".to_string()));
    assert_eq!(bed.roster.backends["web-e2"].replaces.as_deref(), Some("web-e1"));
    // Backends of scripts outlive their executor; processes do not.
    bed.makers.get_mut("a").unwrap().gone = Some(Gone::Surely);
    bed.period(&Scaling::Hold);
    assert_eq!(bed.told(), [("web-e1", "b", Wanted::Serve)]);
}

#[test]
fn a_change_of_the_driver_that_was_begun_before_the_roster_goes_on_and_no_pool_is_tripled() {
    for knows in [true, false] {
        let mut bed = Bed::new(true, &["a"]);
        let made = |number: u32| Made {
            state: MadeState::Ready,
            address: Some(([127, 0, 0, 1], 80).into()),
            is_outdated: number < 3,
            replaces: (knows && number > 2).then(|| format!("web-e{}", number - 2)),
            ..Made::default()
        };
        let backends = (1..5).map(|number| (format!("web-e{number}"), made(number)));
        bed.makers.get_mut("a").unwrap().making.backends = backends.collect();
        bed.roster = Roster { next_number: 1, ..Roster::default() };
        for _ in 0..5 {
            bed.period(&Scaling::Hold);
            assert!(bed.told().len() <= 5, "one more than there is room for: {:?}", bed.told());
        }
        let wanted: Vec<_> = bed.told().iter().map(|it| it.2).collect();
        if knows {
            use Wanted::{Drain, Serve};
            assert_eq!(wanted, [Drain, Drain, Serve, Serve]);
        }
    }
}

#[test]
fn a_member_that_makes_no_more_drains_its_processes_and_another_has_what_outlives_it() {
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
fn a_roster_of_a_later_version_is_read_as_far_as_it_is_known() {
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
fn a_name_that_comes_again_with_a_new_roster_has_another_key() {
    let mut bed = Bed::new(true, &["a"]);
    bed.period(&out(1));
    let key = |bed: &Bed| bed.roster.backends["web-e1"].key.clone();
    let first = key(&bed);
    bed.roster = Roster { next_number: 1, ..Roster::default() };
    bed.period(&out(1));
    assert_ne!(key(&bed), first);
}
