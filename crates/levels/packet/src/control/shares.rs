//! Room that services share. Each of n services has a share of `room / 2n` that others cannot use.

/// The usage of a room by service.
#[derive(Clone, Debug)]
pub(super) struct Shares {
    room: usize,
    /// Used by all services; a service below its share counts with its share.
    reserved: usize,
    /// By service number.
    services: Vec<Share>,
}

#[derive(Clone, Copy, Debug, Default)]
struct Share {
    used: usize,
    /// Reserved for this service.
    own: usize,
}

impl Share {
    fn reserved(self) -> usize {
        self.used.max(self.own)
    }
}

impl Shares {
    /// Makes an unused room.
    pub(super) fn new(room: usize, services: usize) -> Shares {
        Shares { room, reserved: 0, services: vec![Share::default(); services] }
    }

    /// Gives each service in use its share. A single service needs none.
    pub(super) fn share_out(&mut self, in_use: impl Iterator<Item = bool> + Clone) {
        let services = in_use.clone().filter(|it| *it).count();
        let own = if services > 1 { self.room / (2 * services) } else { 0 };
        for (share, is_used) in self.services.iter_mut().zip(in_use) {
            share.own = if is_used { own } else { 0 };
        }
        self.reserved = self.services.iter().map(|it| it.reserved()).sum();
    }

    fn of(&self, service: u16) -> Share {
        self.services.get(usize::from(service)).copied().unwrap_or_default()
    }

    /// Returns the usage of a service.
    pub(super) fn used(&self, service: u16) -> usize {
        self.of(service).used
    }

    /// Whether a service may use one more.
    pub(super) fn has_room(&self, service: u16) -> bool {
        self.free(service) > 0
    }

    /// Returns the number that a service may use in addition.
    pub(super) fn free(&self, service: u16) -> usize {
        let share = self.of(service);
        share.own.saturating_sub(share.used) + self.room.saturating_sub(self.reserved)
    }

    /// Returns the usage of a service beyond its share.
    pub(super) fn beyond(&self, service: u16) -> usize {
        let share = self.of(service);
        share.used.saturating_sub(share.own)
    }

    /// Increments the usage of a service.
    pub(super) fn add(&mut self, service: u16) {
        self.change(service, |used| used + 1);
    }

    /// Decrements the usage of a service.
    pub(super) fn take(&mut self, service: u16) {
        self.change(service, |used| used.saturating_sub(1));
    }

    fn change(&mut self, service: u16, change: impl Fn(usize) -> usize) {
        let Some(share) = self.services.get_mut(usize::from(service)) else { return };
        self.reserved -= share.reserved();
        share.used = change(share.used);
        self.reserved += share.reserved();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_service_leaves_others_their_shares() {
        let mut shares = Shares::new(14, 3);
        shares.share_out([true, true, false].into_iter());
        let mut used = 0;
        while shares.has_room(0) {
            shares.add(0);
            used += 1;
        }
        assert_eq!((used, shares.beyond(0)), (11, 8));
        assert_eq!((shares.free(1), shares.free(2)), (3, 0));
        (0..3).for_each(|_| shares.add(1));
        assert_eq!((shares.has_room(1), shares.beyond(1)), (false, 0));
        shares.take(0);
        assert_eq!((shares.free(0), shares.free(1)), (1, 1));
    }

    #[test]
    fn a_lone_service_has_all_the_room() {
        let mut shares = Shares::new(14, 3);
        shares.share_out([false, true, false].into_iter());
        assert_eq!(shares.free(1), 14);
    }
}
