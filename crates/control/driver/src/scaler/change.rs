//! The drivers of a pool. The latest driver adds backends, and each driver removes those that it
//! made. The leader decides which backends replace those of an earlier driver.

use super::roster::Roster;

/// The properties of a driver that decisions use.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Maker {
    /// Its name in rosters: [`crate::DriverOptions::fingerprint`].
    pub(crate) name: Option<String>,
    /// True if its backends outlive this process.
    pub(crate) outlives: bool,
}

impl Roster {
    /// The number of a driver. A driver with an unknown name gets a new number.
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

    /// Makes this driver the one that adds.
    pub(crate) fn change_driver(&mut self, maker: Maker) -> u32 {
        self.maker = self.know(maker);
        // The new driver may succeed where the earlier failed.
        self.gates.clear();
        self.maker
    }

    /// Forgets unnamed drivers that have nothing to remove. Named drivers stay, because a roster
    /// may name them again.
    pub(crate) fn forget_makers(&mut self, is_asked: impl Fn(u32) -> bool) {
        let (current, members) = (self.maker, &self.members);
        let has_some = |number| members.values().any(|one| one.maker == number);
        self.makers.retain(|number, maker| {
            *number == current || maker.name.is_some() || has_some(*number) || is_asked(*number)
        });
    }

    /// The driver of this name; if there is none, the driver that adds.
    pub(super) fn named(&self, name: Option<&String>) -> u32 {
        name.and_then(|name| self.names.get(name)).copied().unwrap_or(self.maker)
    }

    /// The driver that made a backend, or will make it.
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

    /// True if an earlier driver made this backend, or will, and it is still wanted.
    pub(crate) fn is_outdated(&self, name: &str) -> bool {
        self.members.get(name).is_some_and(|one| one.maker != self.maker && one.is_up())
    }

    /// True if there is a backend of this driver, made or not.
    pub(crate) fn has_of(&self, maker: u32) -> bool {
        self.members.values().any(|one| one.maker == maker)
    }
}

#[cfg(test)]
mod tests;
