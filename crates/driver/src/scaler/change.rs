//! Another driver: it makes what comes, and what the one before made is taken away by that one.

use std::time::Duration;

use super::roster::{Phase, Roster};

impl Roster {
    /// From now on the next driver adds. With `replace`, each backend that is wanted gets one of the next driver's in its
    /// stead, and drains when that is warm: if the next driver cannot make any, those that there are go on.
    pub(crate) fn change_driver(&mut self, now: Duration, replace: bool) {
        self.maker += 1;
        // What one could not make, another may.
        self.gates.clear();
        self.succeed(now, replace);
    }

    /// The same of a change that was before this process, and may not have come to its end.
    pub(crate) fn succeed(&mut self, now: Duration, replace: bool) {
        let earlier = self.members().into_iter().filter(|(_, one)| one.maker != self.maker);
        let names: Vec<String> = earlier.map(|(name, _)| name.clone()).collect();
        for name in names {
            let next = self.maker;
            let member = self.member(&name);
            // Nobody has been asked for it yet.
            if matches!(member.phase, Phase::Wanted { .. }) && !member.may_exist {
                member.maker = next;
                continue;
            }
            if !replace || !member.is_up() || self.is_replaced(&name) {
                continue;
            }
            let member = self.member(&name);
            let (size, older) = (member.size.clone(), member.replaces.take());
            let serves = matches!(member.phase, Phase::Ready | Phase::Broken);
            // One that was itself to replace another leaves that to its successor.
            let stays = serves && older.is_none();
            self.want(now, size, older.or_else(|| stays.then(|| name.clone())));
            if !stays {
                self.leave(now, &name);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::Limits;
    use super::super::roster::Task;
    use super::super::view::BackendState::{self, Draining, Leaving, Ready, Starting};
    use super::*;
    use crate::driver::Added;
    use equipoise_planner::elastic::Scaling;

    fn at(seconds: u64) -> Duration {
        Duration::from_secs(seconds)
    }

    fn roster(count: u32) -> Roster {
        let limits = Limits { max: 4, warm_up: at(10), ..Limits::default() };
        let mut roster = Roster::new("web", limits, "n".to_string());
        roster.scale(at(0), &Scaling::Out { size: None, count });
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
    fn each_is_replaced_by_one_of_the_next_and_taken_away_by_its_own() {
        let mut roster = roster(2);
        assert_eq!(asked(&mut roster, at(0)), of(&[("+web-e1", 0), ("+web-e2", 0)]));
        add(&mut roster, at(1), "web-e1");
        add(&mut roster, at(1), "web-e2");
        roster.change_driver(at(20), true);
        assert_eq!(asked(&mut roster, at(20)), of(&[("+web-e3", 1), ("+web-e4", 1)]));
        add(&mut roster, at(21), "web-e3");
        // One is there and not warm, one is not there: nobody leaves yet.
        assert_eq!(asked(&mut roster, at(22)), []);
        let expected =
            [("web-e1", Ready), ("web-e2", Ready), ("web-e3", Ready), ("web-e4", Starting)];
        assert_eq!(states(&roster), expected);
        assert!(roster.is_replaced("web-e1") && roster.is_replaced("web-e2"));
        roster.due(at(31));
        assert_eq!(states(&roster)[..2], [("web-e1", Draining), ("web-e2", Ready)]);
        roster.drained(at(32), "web-e1");
        assert_eq!(asked(&mut roster, at(32)), of(&[("-web-e1", 0)]));
        roster.removed(at(33), "web-e1", Ok(()));
        assert!(roster.has_of(0), "the other is still there");
    }

    #[test]
    fn what_was_being_added_is_taken_away_and_what_was_only_wanted_is_the_nexts() {
        let mut roster = roster(3);
        roster.limits.parallel = 1;
        assert_eq!(asked(&mut roster, at(0)), of(&[("+web-e1", 0)]));
        roster.change_driver(at(1), true);
        let expected =
            [("web-e1", Leaving), ("web-e2", Starting), ("web-e3", Starting), ("web-e4", Starting)];
        assert_eq!(states(&roster), expected);
        add(&mut roster, at(2), "web-e1");
        assert_eq!(asked(&mut roster, at(2)), of(&[("-web-e1", 0), ("+web-e2", 1)]));
    }

    #[test]
    fn a_driver_that_makes_none_takes_nothing_away_and_the_one_after_it_goes_on() {
        let mut roster = roster(1);
        asked(&mut roster, at(0));
        add(&mut roster, at(1), "web-e1");
        roster.change_driver(at(20), true);
        assert_eq!(asked(&mut roster, at(20)), of(&[("+web-e2", 1)]));
        roster.added(at(21), "web-e2", Err("no such program".to_string()));
        assert_eq!(asked(&mut roster, at(21)), []);
        assert_eq!(states(&roster)[0], ("web-e1", Ready));
        roster.change_driver(at(21), true);
        // What may be left of the one that failed is its driver's business, and no reason to wait for the next.
        assert_eq!(asked(&mut roster, at(21)), of(&[("+web-e3", 2), ("-web-e2", 1)]));
        roster.removed(at(22), "web-e2", Ok(()));
        add(&mut roster, at(101), "web-e3");
        assert!(roster.is_replaced("web-e1"));
        roster.due(at(120));
        assert_eq!(states(&roster), [("web-e1", Draining), ("web-e3", Ready)]);
    }

    #[test]
    fn one_that_drains_is_not_taken_back_from_another_driver() {
        let mut roster = roster(1);
        asked(&mut roster, at(0));
        add(&mut roster, at(1), "web-e1");
        roster.scale(at(2), &Scaling::In { backends: vec!["web-e1".to_string()] });
        roster.change_driver(at(3), true);
        roster.scale(at(4), &Scaling::Out { size: None, count: 1 });
        assert_eq!(states(&roster), [("web-e1", Draining), ("web-e2", Starting)]);
        assert_eq!(asked(&mut roster, at(4)), of(&[("+web-e2", 1)]));
    }

    #[test]
    fn in_a_cluster_only_what_comes_is_the_nexts() {
        let mut roster = roster(1);
        asked(&mut roster, at(0));
        add(&mut roster, at(1), "web-e1");
        roster.change_driver(at(20), false);
        assert_eq!(asked(&mut roster, at(20)), []);
        assert_eq!(states(&roster), [("web-e1", Ready)]);
        roster.scale(at(21), &Scaling::Out { size: None, count: 1 });
        assert_eq!(asked(&mut roster, at(21)), of(&[("+web-e2", 1)]));
    }
}
