//! Another driver: it makes what comes, and what the one before made is taken away by that one. The leader says which
//! backends take the place of those that are outdated then.

use super::roster::{Phase, Roster};

impl Roster {
    /// From now on the next driver adds.
    pub(crate) fn change_driver(&mut self) {
        self.maker += 1;
        // What one could not make, another may.
        self.gates.clear();
        self.pass_on();
    }

    /// Backends that no driver was asked for are the next driver's.
    pub(crate) fn pass_on(&mut self) {
        let next = self.maker;
        for member in self.members.values_mut() {
            if matches!(member.phase, Phase::Wanted { .. }) && !member.may_exist {
                member.maker = next;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;
    use std::time::Duration;

    use super::super::Limits;
    use super::super::desire::{Desired, DesiredState, Wish};
    use super::super::roster::Task;
    use super::super::view::BackendState::{self, Draining, Leaving, Ready, Starting};
    use super::*;
    use crate::driver::Added;

    fn at(seconds: u64) -> Duration {
        Duration::from_secs(seconds)
    }

    /// Has these, by number, and no others.
    fn desire(roster: &mut Roster, now: Duration, wishes: &[(u64, Wish)]) {
        let one = |(number, wish): &(u64, Wish)| Desired {
            name: format!("web-e{number}"),
            key: format!("web-e{number}-key"),
            size: None,
            wish: *wish,
            added: None,
        };
        let backends = wishes.iter().map(one).collect();
        let next_number = wishes.iter().map(|(number, _)| number + 1).max().unwrap_or(1);
        let kept = BTreeSet::new();
        roster.desire(now, &DesiredState { backends, kept, next_number, is_shared: false });
    }

    fn roster(count: u64) -> Roster {
        let mut roster = Roster::new("web", Limits::default(), "n".to_string());
        let wishes: Vec<_> = (1..=count).map(|number| (number, Wish::Serve)).collect();
        desire(&mut roster, at(0), &wishes);
        roster
    }

    /// What is due, with the driver that is asked.
    fn asked(roster: &mut Roster, now: Duration) -> Vec<(String, u32)> {
        let text = |task: &Task| match task {
            Task::Add(ask) => (format!("+{}", ask.name), ask.name.clone()),
            Task::Remove(ask) => (format!("-{}", ask.name), ask.name.clone()),
        };
        let due = roster.due(now);
        due.iter().map(text).map(|(what, name)| (what, roster.maker_of(&name))).collect()
    }

    fn add(roster: &mut Roster, now: Duration, name: &str) {
        let added = Added { address: ([127, 0, 0, 1], 80).into(), id: name.to_string() };
        roster.added(now, name, Ok(added));
    }

    fn states(roster: &Roster) -> Vec<(&str, BackendState)> {
        roster.members().into_iter().map(|(name, one)| (name.as_str(), one.state())).collect()
    }

    fn of(all: &[(&str, u32)]) -> Vec<(String, u32)> {
        all.iter().map(|(what, maker)| ((*what).to_string(), *maker)).collect()
    }

    #[test]
    fn what_comes_is_made_by_the_next_driver_and_each_is_taken_away_by_its_own() {
        use Wish::{Drain, Leave, Serve};
        let mut roster = roster(2);
        assert_eq!(asked(&mut roster, at(0)), of(&[("+web-e1", 0), ("+web-e2", 0)]));
        add(&mut roster, at(1), "web-e1");
        add(&mut roster, at(1), "web-e2");
        roster.change_driver();
        assert!(roster.is_outdated("web-e1") && roster.is_outdated("web-e2"));
        assert_eq!(asked(&mut roster, at(20)), [], "nothing leaves by itself");
        desire(&mut roster, at(21), &[(1, Serve), (2, Serve), (3, Serve), (4, Serve)]);
        assert_eq!(asked(&mut roster, at(21)), of(&[("+web-e3", 1), ("+web-e4", 1)]));
        add(&mut roster, at(22), "web-e3");
        assert!(!roster.is_outdated("web-e3") && !roster.is_outdated("web-e4"));
        desire(&mut roster, at(31), &[(1, Drain), (2, Serve), (3, Serve), (4, Serve)]);
        let expected =
            [("web-e1", Draining), ("web-e2", Ready), ("web-e3", Ready), ("web-e4", Starting)];
        assert_eq!(states(&roster), expected);
        assert!(!roster.is_outdated("web-e1"), "it leaves already");
        desire(&mut roster, at(32), &[(1, Leave), (2, Serve), (3, Serve), (4, Serve)]);
        assert_eq!(asked(&mut roster, at(32)), of(&[("-web-e1", 0)]));
        roster.removed(at(33), "web-e1", Ok(()));
        assert!(roster.has_of(0), "the other is still there");
    }

    #[test]
    fn what_was_being_added_is_outdated_and_what_was_only_wanted_is_the_nexts() {
        let mut roster = roster(3);
        roster.limits.parallel = 1;
        assert_eq!(asked(&mut roster, at(0)), of(&[("+web-e1", 0)]));
        roster.change_driver();
        let outdated = ["web-e1", "web-e2", "web-e3"].map(|name| roster.is_outdated(name));
        assert_eq!(outdated, [true, false, false]);
        desire(&mut roster, at(1), &[(1, Wish::Leave), (2, Wish::Serve), (3, Wish::Serve)]);
        assert_eq!(states(&roster)[0], ("web-e1", Leaving));
        add(&mut roster, at(2), "web-e1");
        assert_eq!(asked(&mut roster, at(2)), of(&[("-web-e1", 0), ("+web-e2", 1)]));
    }

    #[test]
    fn what_a_driver_could_not_make_does_not_hold_up_the_next() {
        let mut roster = roster(1);
        asked(&mut roster, at(0));
        roster.added(at(0), "web-e1", Err("no such program".to_string()));
        assert_eq!(asked(&mut roster, at(0)), []);
        roster.change_driver();
        desire(&mut roster, at(0), &[(1, Wish::Leave), (2, Wish::Serve)]);
        // What may be left of the one that failed is its driver's business.
        assert_eq!(asked(&mut roster, at(0)), of(&[("-web-e1", 0), ("+web-e2", 1)]));
    }
}
