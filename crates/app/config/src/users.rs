//! Finds the front doors, VIPs and names that use each pool.

use std::collections::HashMap;

use equipoise_session::config::Protocol;

use super::values::Values;

/// The users of each pool, by the pool's name.
#[derive(Default)]
pub(super) struct Users<'v>(HashMap<&'v str, PoolUsers<'v>>);

/// The users of a pool.
#[derive(Clone, Default)]
pub(super) struct PoolUsers<'v> {
    pub(super) doors: Vec<&'v Values>,
    /// A `[[packet]]` table uses the pool.
    pub(super) packet: bool,
    /// A name of a `[[dns]]` table uses the pool.
    pub(super) dns: bool,
}

impl<'v> Users<'v> {
    pub(super) fn of(file: &'v Values) -> Users<'v> {
        let mut users = Users::default();
        for door in file.tables("session").iter().chain(file.tables("dispatch")) {
            users.add(door, |pool| pool.doors.push(door));
            for route in sni_routes(door).iter().chain(routes(door)) {
                users.add(route, |pool| pool.doors.push(door));
            }
        }
        for vip in file.tables("packet") {
            users.add(vip, |pool| pool.packet = true);
        }
        for zone in file.tables("dns") {
            for named in std::iter::once(zone).chain(zone.tables("names")) {
                users.add(named, |pool| pool.dns = true);
            }
        }
        users
    }

    /// The users of a pool, by its name.
    pub(super) fn of_pool(&self, name: &str) -> PoolUsers<'v> {
        self.0.get(name).cloned().unwrap_or_default()
    }

    fn add(&mut self, user: &'v Values, note: impl FnOnce(&mut PoolUsers<'v>)) {
        if let Some(name) = user.text("pool") {
            note(self.0.entry(name).or_default());
        }
    }
}

impl PoolUsers<'_> {
    /// Front doors use the pool, and all of them speak HTTP.
    pub(super) fn are_http(&self) -> bool {
        let is_http = |door: &&Values| protocol_of(door) == Some(Protocol::Http);
        !self.doors.is_empty() && self.doors.iter().all(is_http)
    }
}

/// The pools of a front door by server name.
pub(super) fn sni_routes(door: &Values) -> &[Values] {
    door.spec.option("sni").map_or(&[], |_| door.tables("sni"))
}

/// The tables of a front door's routes that may name a pool.
pub(super) fn routes(door: &Values) -> impl Iterator<Item = &Values> {
    let routes = door.spec.option("route").map_or(&[][..], |_| door.tables("route"));
    routes.iter().flat_map(|route| {
        std::iter::once(route).chain(route.tables("pools")).chain(route.table("mirror"))
    })
}

/// The protocol of a front door; `None` if the option has an error.
pub(super) fn protocol_of(door: &Values) -> Option<Protocol> {
    match door.spec.option("protocol") {
        Some(_) => door.choice("protocol"),
        None => Some(Protocol::Http),
    }
}
