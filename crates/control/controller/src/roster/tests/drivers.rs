//! Pools that change their driver.

use super::*;

/// Marks these backends as made by an earlier driver, also if they are still being made.
fn outdate(bed: &mut Bed, names: &[&str]) {
    let backends = &mut bed.makers.get_mut("a").unwrap().making.backends;
    names.iter().for_each(|name| backends.get_mut(*name).unwrap().is_outdated = true);
}

#[test]
fn outdated_backends_are_replaced_and_drain_once_successors_are_warm() {
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

/// Sets the driver's name of member `a`; `None`: it makes processes.
fn of_driver(bed: &mut Bed, driver: Option<&str>) {
    let making = &mut bed.makers.get_mut("a").unwrap().making;
    (making.driver, making.outlives) = (driver.map(str::to_string), driver.is_some());
}

#[test]
fn each_backend_keeps_its_driver_after_the_pools_driver_changes() {
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
fn driver_changes_under_a_new_roster_add_at_most_one_backend() {
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
        let replaced = |name: &str| bed.roster.backends[name].replaces.clone();
        use Wanted::{Drain, Serve};
        if knows {
            assert_eq!(wanted, [Drain, Drain, Serve, Serve]);
            assert_eq!([replaced("web-e3"), replaced("web-e4")], [None, None], "they have");
        } else {
            // The roster begins the change again, with one successor at a time.
            assert_eq!(wanted, [Serve; 5]);
            assert_eq!(replaced("web-e5").as_deref(), Some("web-e1"));
        }
    }
}
