//! The drivers of a pool: the last one adds, and each removes what it made. The leader decides which backends replace those
//! of an earlier driver.

use super::roster::Roster;

/// A driver, as far as decisions need to know it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Maker {
    /// Its name in rosters: [`crate::DriverOptions::fingerprint`].
    pub(crate) name: Option<String>,
    /// Whether its backends outlive this process.
    pub(crate) outlives: bool,
}

impl Roster {
    /// The number of a driver: a new one, unless a driver of that name is known.
    pub(crate) fn know(&mut self, maker: Maker) -> u32 {
        if let Some(known) = maker.name.as_ref().and_then(|name| self.names.get(name)) {
            return *known;
        }
        let number = self.makers.keys().last().map_or(0, |last| last + 1);
        if let Some(name) = &maker.name {
            self.names.insert(name.clone(), number);
        }
        self.makers.insert(number, maker);
        number
    }

    /// From now on this driver adds.
    pub(crate) fn change_driver(&mut self, maker: Maker) -> u32 {
        self.maker = self.know(maker);
        // What one could not make, another may.
        self.gates.clear();
        self.maker
    }

    /// Forgets drivers without a name that have nothing to remove. A roster may name the others again.
    pub(crate) fn forget_makers(&mut self, is_asked: impl Fn(u32) -> bool) {
        let (current, members) = (self.maker, &self.members);
        let has_some = |number| members.values().any(|one| one.maker == number);
        self.makers.retain(|number, maker| {
            *number == current || maker.name.is_some() || has_some(*number) || is_asked(*number)
        });
    }

    /// The driver of that name; the one that adds, if no driver here has it.
    pub(super) fn named(&self, name: Option<&String>) -> u32 {
        name.and_then(|name| self.names.get(name)).copied().unwrap_or(self.maker)
    }

    /// The driver that made a backend, or is to make it.
    pub(crate) fn maker_of(&self, name: &str) -> u32 {
        self.members.get(name).map_or(self.maker, |one| one.maker)
    }

    /// The driver of this number.
    pub(crate) fn maker(&self, number: u32) -> Option<&Maker> {
        self.makers.get(&number)
    }

    pub(crate) fn outlives(&self, number: u32) -> bool {
        self.makers.get(&number).is_some_and(|maker| maker.outlives)
    }

    /// Whether an earlier driver made it, or is to, and it is wanted all the same.
    pub(crate) fn is_outdated(&self, name: &str) -> bool {
        self.members.get(name).is_some_and(|one| one.maker != self.maker && one.is_up())
    }

    /// Whether there is anything that this driver made or is to make.
    pub(crate) fn has_of(&self, maker: u32) -> bool {
        self.members.values().any(|one| one.maker == maker)
    }
}

#[cfg(test)]
mod tests;
