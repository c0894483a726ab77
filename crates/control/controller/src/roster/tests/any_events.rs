//! Any sequence of events.

use proptest::prelude::*;

use super::*;

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
