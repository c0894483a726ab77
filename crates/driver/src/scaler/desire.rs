//! What is to exist, as the leader says it, against what exists here.

use std::collections::BTreeSet;
use std::time::Duration;

use super::roster::{Member, Phase, Roster};
use crate::driver::Added;

/// The backends of a pool that are to exist here, by the leader's roster.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DesiredState {
    /// These, each with its wish.
    pub backends: Vec<Desired>,
    /// These stay as they are: the roster has forgotten them, and the leader is to take them in.
    pub kept: BTreeSet<String>,
    /// The number of the next backend that the roster names.
    pub next_number: u64,
    /// Whether other members may have the rest, or had what is unknown here: backends that outlive their maker, in a
    /// cluster. What is not here is left to them.
    pub is_shared: bool,
}

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
    /// What served and is not known here was made by a process that is gone. Where another member may have had it, we go on
    /// with it. Otherwise it is not there, which the view shows: it died with that process, or the record would have it.
    pub(crate) fn desire(&mut self, now: Duration, desired: &DesiredState) {
        for one in &desired.backends {
            if self.members.contains_key(&one.name) {
                self.heed(now, one);
            } else if let Some(member) = self.unknown(now, one, desired.is_shared) {
                self.members.insert(one.name.clone(), member);
            }
        }
        let names = desired.backends.iter().map(|one| one.name.as_str());
        let names: BTreeSet<&str> = names.collect();
        let stays =
            |name: &String| names.contains(name.as_str()) || desired.kept.contains(name.as_str());
        if desired.is_shared {
            self.members.retain(|name, _| stays(name));
        } else {
            self.members.retain(|name, one| stays(name) || one.may_exist);
            let others = self.members.iter_mut().filter(|(name, _)| !stays(name));
            others.for_each(|(_, member)| member.go(now));
        }
        self.next_number = self.next_number.max(desired.next_number);
    }

    pub(super) fn heed(&mut self, now: Duration, one: &Desired) {
        let drain_timeout = self.limits.drain_timeout;
        let Some(member) = self.members.get_mut(&one.name) else { return };
        match (one.wish, &member.phase) {
            (Wish::Serve, Phase::Draining { .. }) => member.phase = Phase::Ready,
            (Wish::Drain, Phase::Ready) => {
                member.phase = Phase::Draining { until: now + drain_timeout };
            }
            (Wish::Serve | Wish::Drain, _) => {}
            (Wish::Leave, Phase::Wanted { .. }) if !member.may_exist => {
                self.members.remove(&one.name);
            }
            (Wish::Leave, _) => member.go(now),
        }
    }

    fn unknown(&self, now: Duration, one: &Desired, is_shared: bool) -> Option<Member> {
        let number = self.number(&one.name)?;
        // Not one of an earlier process, which died with it or was taken away.
        let is_new = number >= self.next_number;
        let phase = match (one.wish, &one.added) {
            (Wish::Serve, None) if is_shared || is_new => Phase::Wanted { not_before: now },
            _ if !is_shared => return None,
            (Wish::Serve, _) => Phase::Ready,
            (Wish::Drain, Some(_)) => Phase::Draining { until: now + self.limits.drain_timeout },
            // Its adding may have been under way elsewhere.
            (Wish::Drain | Wish::Leave, _) => Phase::Unwanted { not_before: now },
        };
        Some(Member {
            may_exist: !matches!(phase, Phase::Wanted { .. }),
            maker: self.maker,
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
        Roster::new("web", Limits::default(), "n".to_string())
    }

    /// By a roster that has named nine.
    fn desire(roster: &mut Roster, all: &[Desired], is_shared: bool) {
        let (backends, kept) = (all.to_vec(), BTreeSet::new());
        let desired = DesiredState { backends, kept, next_number: 10, is_shared };
        roster.desire(NOW, &desired);
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
    fn what_is_desired_is_asked_for_once_under_its_key() {
        let mut roster = roster();
        let both = [desired(3, Wish::Serve, false), desired(4, Wish::Serve, false)];
        desire(&mut roster, &both, false);
        assert_eq!(asked(&mut roster), ["+web-e3 key-3", "+web-e4 key-4"]);
        desire(&mut roster, &both, false);
        assert_eq!(asked(&mut roster), [""; 0]);
    }

    #[test]
    fn a_process_drains_serves_again_leaves_and_what_is_not_desired_goes() {
        let mut roster = roster();
        let both = [desired(1, Wish::Serve, false), desired(2, Wish::Serve, false)];
        desire(&mut roster, &both, false);
        asked(&mut roster);
        roster.added(NOW, "web-e1", Ok(added()));
        roster.added(NOW, "web-e2", Ok(added()));
        desire(&mut roster, &[desired(1, Wish::Drain, true), desired(2, Wish::Serve, true)], false);
        assert_eq!(states(&roster)[0].1, BackendState::Draining);
        desire(&mut roster, &[desired(1, Wish::Serve, true), desired(2, Wish::Serve, true)], false);
        assert_eq!(states(&roster)[0].1, BackendState::Ready);
        desire(&mut roster, &[desired(1, Wish::Leave, true)], false);
        assert_eq!(asked(&mut roster), ["-web-e1", "-web-e2"]);
    }

    #[test]
    fn what_is_being_added_and_not_desired_any_more_is_removed_as_soon_as_it_is_there() {
        let mut roster = roster();
        desire(&mut roster, &[desired(1, Wish::Serve, false)], false);
        asked(&mut roster);
        desire(&mut roster, &[], false);
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
        desire(&mut local, &all, false);
        assert_eq!(states(&local), [("web-e4", BackendState::Starting)]);
        let mut scripts = roster();
        desire(&mut scripts, &all, true);
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
        desire(&mut roster, &[desired(1, Wish::Serve, true), desired(2, Wish::Serve, false)], true);
        asked(&mut roster);
        desire(&mut roster, &[], true);
        roster.added(NOW, "web-e2", Ok(added()));
        assert_eq!(states(&roster), []);
        assert_eq!(asked(&mut roster), [""; 0]);
    }

    #[test]
    fn what_the_roster_has_forgotten_stays_until_the_leader_has_taken_it_in() {
        for is_shared in [false, true] {
            let mut roster = roster();
            let both = [desired(8, Wish::Serve, false), desired(9, Wish::Serve, false)];
            desire(&mut roster, &both, is_shared);
            asked(&mut roster);
            roster.added(NOW, "web-e8", Ok(added()));
            roster.added(NOW, "web-e9", Ok(added()));
            let kept = ["web-e9".to_string()].into();
            let older = DesiredState { backends: Vec::new(), kept, next_number: 9, is_shared };
            roster.desire(NOW, &older);
            let kept = ("web-e9", BackendState::Ready);
            let expected = match is_shared {
                true => vec![kept],
                false => vec![("web-e8", BackendState::Leaving), kept],
            };
            assert_eq!(states(&roster), expected, "{is_shared}");
            assert_eq!(roster.next_number, 10, "names go on after the last");
        }
    }

    #[test]
    fn one_that_was_never_asked_for_just_goes() {
        let mut roster = roster();
        desire(&mut roster, &[desired(1, Wish::Serve, false)], false);
        desire(&mut roster, &[desired(1, Wish::Leave, false)], false);
        assert!(roster.members.is_empty());
    }

    #[test]
    fn a_process_that_was_being_made_when_its_parent_was_killed_is_not_made_again_under_its_name() {
        for (known, expected) in [(2, vec![]), (1, vec![("web-e1", BackendState::Starting)])] {
            let mut roster = roster();
            roster.next_number = known;
            desire(&mut roster, &[desired(1, Wish::Serve, false)], false);
            assert_eq!(states(&roster), expected);
        }
    }
}
