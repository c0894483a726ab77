//! Backends and numbers that a roster learns from its members.

use super::*;

#[test]
fn backends_created_before_the_first_roster_are_adopted() {
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
fn backends_unknown_to_a_restored_older_roster_are_adopted() {
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
fn numbers_claimed_by_one_member_can_be_adopted_from_another_later() {
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
fn one_plan_drops_lost_and_adopts_unknown_backends() {
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
fn an_adopted_backend_keeps_draining_and_malformed_names_are_ignored() {
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

#[test]
fn a_claimed_number_above_the_bound_is_ignored() {
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
fn later_claimed_numbers_leave_earlier_claimed_numbers_open() {
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
