//! In a cluster: what is to exist, as the leader says it, against what exists here.

use std::collections::BTreeSet;
use std::time::Duration;

use super::roster::{Member, Phase, Roster};
use crate::driver::Added;

/// A backend that is to exist here, or to leave.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Desired {
    /// Its name, unique in the pool for ever.
    pub name: String,
    /// The same for every try to add it, and no other's.
    pub key: String,
    /// Which of the pool's sizes.
    pub size: Option<String>,
    /// What is to become of it.
    pub wish: Wish,
    /// Where it is, if it was added, by us or by whoever had it before.
    pub added: Option<Added>,
}

/// What is to become of a backend.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wish {
    /// It is to serve.
    Serve,
    /// It is to finish what it has; nobody gives it anything new.
    Drain,
    /// It is to be taken away now.
    Leave,
}

impl Roster {
    /// Makes what exists what is desired; saying it again changes nothing.
    ///
    /// What served and is not known here was made by a process that is gone: of a driver whose backends outlive us we go
    /// on with it, and of another it died, so that it is not there, which the view shows.
    pub(crate) fn desire(&mut self, now: Duration, desired: &[Desired], outlives_us: bool) {
        for one in desired {
            if self.members.contains_key(&one.name) {
                self.heed(now, one);
            } else if let Some(member) = self.unknown(now, one, outlives_us) {
                self.members.insert(one.name.clone(), member);
            }
        }
        let names: BTreeSet<&str> = desired.iter().map(|one| one.name.as_str()).collect();
        if outlives_us {
            self.members.retain(|name, _| names.contains(name.as_str()));
            return;
        }
        self.members.retain(|name, one| names.contains(name.as_str()) || one.may_exist);
        let others = self.members.iter_mut().filter(|(name, _)| !names.contains(name.as_str()));
        others.for_each(|(_, member)| member.go(now));
    }

    fn heed(&mut self, now: Duration, one: &Desired) {
        let Some(member) = self.members.get_mut(&one.name) else { return };
        match (one.wish, &member.phase) {
            (Wish::Serve, Phase::Draining { .. }) => member.phase = Phase::Ready,
            (Wish::Serve, _) => {}
            (Wish::Drain, Phase::Ready) => {
                self.leave(now, &one.name);
            }
            (Wish::Drain, _) => {}
            (Wish::Leave, _) => member.go(now),
        }
    }

    fn unknown(&self, now: Duration, one: &Desired, outlives_us: bool) -> Option<Member> {
        let number = self.number(&one.name)?;
        let phase = match (one.wish, &one.added) {
            (Wish::Serve, None) => Phase::Wanted { not_before: now },
            _ if !outlives_us => return None,
            (Wish::Serve, Some(_)) => Phase::Ready,
            (Wish::Drain, Some(_)) => Phase::Draining { until: now + self.limits.drain_timeout },
            // Its adding may have been under way elsewhere.
            (Wish::Drain | Wish::Leave, _) => Phase::Unwanted { not_before: now },
        };
        let is_new = matches!(phase, Phase::Wanted { .. });
        Some(Member {
            may_exist: !is_new,
            maker: self.maker,
            served: one.added.is_some().then_some((now, Duration::ZERO)),
            added: one.added.clone(),
            ..Member::new(number, one.size.clone(), one.key.clone(), phase)
        })
    }
}

impl Member {
    /// It is to be gone, drained or not.
    fn go(&mut self, now: Duration) {
        match self.phase {
            Phase::Adding { .. } => self.phase = Phase::Adding { is_unwanted: true },
            Phase::Unwanted { .. } | Phase::Removing => {}
            _ => self.unwanted(now),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::Limits;
    use super::super::roster::Task;
    use super::super::view::BackendState;
    use super::*;

    const NOW: Duration = Duration::from_secs(100);

    fn roster() -> Roster {
        Roster::new("web", Limits { max: 1, ..Limits::default() }, "n".to_string())
    }

    fn added() -> Added {
        Added { address: ([127, 0, 0, 1], 80).into(), id: "i".to_string() }
    }

    fn desired(number: u32, wish: Wish, is_added: bool) -> Desired {
        let name = format!("web-e{number}");
        let key = format!("key-{number}");
        Desired { name, key, size: None, wish, added: is_added.then(added) }
    }

    fn asked(roster: &mut Roster) -> Vec<String> {
        let text = |task: Task| match task {
            Task::Add(ask) => format!("+{} {}", ask.name, ask.key),
            Task::Remove(ask) => format!("-{}", ask.name),
        };
        roster.due(NOW).into_iter().map(text).collect()
    }

    fn states(roster: &Roster) -> Vec<(&str, BackendState)> {
        roster.members().into_iter().map(|(name, one)| (name.as_str(), one.state())).collect()
    }

    #[test]
    fn what_is_desired_is_asked_for_once_under_its_key_whatever_the_local_most() {
        let mut roster = roster();
        let both = [desired(3, Wish::Serve, false), desired(4, Wish::Serve, false)];
        roster.desire(NOW, &both, false);
        assert_eq!(asked(&mut roster), ["+web-e3 key-3", "+web-e4 key-4"]);
        roster.desire(NOW, &both, false);
        assert_eq!(asked(&mut roster), [""; 0]);
    }

    #[test]
    fn a_process_drains_serves_again_leaves_and_what_is_not_desired_goes() {
        let mut roster = roster();
        roster.desire(
            NOW,
            &[desired(1, Wish::Serve, false), desired(2, Wish::Serve, false)],
            false,
        );
        asked(&mut roster);
        roster.added(NOW, "web-e1", Ok(added()));
        roster.added(NOW, "web-e2", Ok(added()));
        roster.desire(NOW, &[desired(1, Wish::Drain, true), desired(2, Wish::Serve, true)], false);
        assert_eq!(states(&roster)[0].1, BackendState::Draining);
        roster.desire(NOW, &[desired(1, Wish::Serve, true), desired(2, Wish::Serve, true)], false);
        assert_eq!(states(&roster)[0].1, BackendState::Ready);
        roster.desire(NOW, &[desired(1, Wish::Leave, true)], false);
        assert_eq!(asked(&mut roster), ["-web-e1", "-web-e2"]);
    }

    #[test]
    fn what_is_being_added_and_not_desired_any_more_is_removed_as_soon_as_it_is_there() {
        let mut roster = roster();
        roster.desire(NOW, &[desired(1, Wish::Serve, false)], false);
        asked(&mut roster);
        roster.desire(NOW, &[], false);
        roster.added(NOW, "web-e1", Ok(added()));
        assert_eq!(asked(&mut roster), ["-web-e1"]);
    }

    #[test]
    fn of_what_another_had_processes_are_gone_and_the_rest_is_gone_on_with() {
        let all = [
            desired(1, Wish::Serve, true),
            desired(2, Wish::Drain, true),
            desired(3, Wish::Leave, true),
            desired(4, Wish::Serve, false),
        ];
        let mut local = roster();
        local.desire(NOW, &all, false);
        assert_eq!(states(&local), [("web-e4", BackendState::Starting)]);
        let mut scripts = roster();
        scripts.desire(NOW, &all, true);
        let expected = [
            ("web-e1", BackendState::Ready),
            ("web-e2", BackendState::Draining),
            ("web-e3", BackendState::Leaving),
            ("web-e4", BackendState::Starting),
        ];
        assert_eq!(states(&scripts), expected);
        assert_eq!(asked(&mut scripts), ["-web-e3", "+web-e4 key-4"]);
    }

    #[test]
    fn what_another_has_now_is_left_alone() {
        let mut roster = roster();
        roster.desire(NOW, &[desired(1, Wish::Serve, true), desired(2, Wish::Serve, false)], true);
        asked(&mut roster);
        roster.desire(NOW, &[], true);
        roster.added(NOW, "web-e2", Ok(added()));
        assert_eq!(states(&roster), []);
        assert_eq!(asked(&mut roster), [""; 0]);
    }
}
