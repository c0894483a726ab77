//! Finds the front doors, VIPs and names that use each pool.

use std::collections::HashMap;
use std::net::SocketAddr;

use equipoise_session::config::Protocol;

use super::key::{Key, Text};
use super::tables::{
    Dispatch, Dns, DnsName, File, Packet, Route, RouteMirror, RoutePool, Session, Sni,
};
use super::text::Listen;
use super::view::{Location, View};

/// The table of a front door.
#[derive(Clone, Copy)]
pub(super) enum DoorTable<'v> {
    Session(View<'v, Session>),
    Dispatch(View<'v, Dispatch>),
}

/// An option that names a pool.
pub(super) struct Mention<'v> {
    /// Name of the pool.
    pub(super) pool: &'v str,
    /// The place of the option.
    pub(super) location: Location,
}

/// The users of each pool, by the pool's name.
#[derive(Default)]
pub(super) struct Users<'v>(HashMap<&'v str, PoolUsers<'v>>);

/// The users of a pool.
#[derive(Clone, Default)]
pub(super) struct PoolUsers<'v> {
    pub(super) doors: Vec<DoorTable<'v>>,
    /// A `[[packet]]` table uses the pool.
    pub(super) packet: bool,
    /// A name of a `[[dns]]` table uses the pool.
    pub(super) dns: bool,
}

impl<'v> Users<'v> {
    pub(super) fn of(file: View<'v, File>) -> Users<'v> {
        let mut users = Users::default();
        for door in DoorTable::all(file) {
            for mention in door.mentions() {
                users.at(&mention).doors.push(door);
            }
        }
        for mention in vips(file) {
            users.at(&mention).packet = true;
        }
        for mention in names(file) {
            users.at(&mention).dns = true;
        }
        users
    }

    /// The users of a pool, by its name.
    pub(super) fn of_pool(&self, name: &str) -> PoolUsers<'v> {
        self.0.get(name).cloned().unwrap_or_default()
    }

    fn at(&mut self, mention: &Mention<'v>) -> &mut PoolUsers<'v> {
        self.0.entry(mention.pool).or_default()
    }
}

impl PoolUsers<'_> {
    /// Front doors use the pool, and all of them speak HTTP.
    pub(super) fn are_http(&self) -> bool {
        !self.doors.is_empty()
            && self.doors.iter().all(|door| door.protocol() == Some(Protocol::Http))
    }

    /// Whether a front door with this protocol uses the pool.
    pub(super) fn speak(&self, protocol: Protocol) -> bool {
        self.doors.iter().any(|door| door.protocol() == Some(protocol))
    }
}

impl<'v> DoorTable<'v> {
    /// The front doors of a file.
    pub(super) fn all(file: View<'v, File>) -> impl Iterator<Item = DoorTable<'v>> {
        let sessions = file.get(File::SESSION).into_iter().map(DoorTable::Session);
        sessions.chain(file.get(File::DISPATCH).into_iter().map(DoorTable::Dispatch))
    }

    /// The protocol; `None` if the option has an error.
    pub(super) fn protocol(self) -> Option<Protocol> {
        match self {
            DoorTable::Session(door) => door.get(Session::PROTOCOL),
            DoorTable::Dispatch(_) => Some(Protocol::Http),
        }
    }

    pub(super) fn listen_addresses(self) -> Vec<SocketAddr> {
        match self {
            DoorTable::Session(door) => {
                let listens = door.get(Session::LISTEN).unwrap_or_default().into_iter();
                listens.flat_map(|Listen(addresses)| addresses).collect()
            }
            DoorTable::Dispatch(door) => door.get(Dispatch::LISTEN).into_iter().collect(),
        }
    }

    /// The place of `listen`.
    pub(super) fn listen(self) -> Location {
        match self {
            DoorTable::Session(door) => door.location(Session::LISTEN),
            DoorTable::Dispatch(door) => door.location(Dispatch::LISTEN),
        }
    }

    /// The place of the front door's own `pool`.
    pub(super) fn pool(self) -> Location {
        match self {
            DoorTable::Session(door) => door.location(Session::POOL),
            DoorTable::Dispatch(door) => door.location(Dispatch::POOL),
        }
    }

    /// Whether the front door has pools by server name.
    pub(super) fn has_sni(self) -> bool {
        matches!(self, DoorTable::Session(door) if !door.get(Session::SNI).is_empty())
    }

    /// The options of a front door and its routes that name a pool.
    pub(super) fn mentions(self) -> Vec<Mention<'v>> {
        match self {
            DoorTable::Session(door) => {
                let own = mention(door, Session::POOL).into_iter();
                let sni = door.get(Session::SNI).into_iter();
                let routes = door.get(Session::ROUTE).into_iter().flat_map(|route| {
                    let shares = route.get(Route::POOLS).into_iter();
                    let mirror = route.get(Route::MIRROR);
                    mention(route, Route::POOL)
                        .into_iter()
                        .chain(shares.filter_map(|share| mention(share, RoutePool::POOL)))
                        .chain(mirror.and_then(|mirror| mention(mirror, RouteMirror::POOL)))
                });
                own.chain(sni.filter_map(|it| mention(it, Sni::POOL))).chain(routes).collect()
            }
            DoorTable::Dispatch(door) => mention(door, Dispatch::POOL).into_iter().collect(),
        }
    }
}

/// All options that name a pool.
pub(super) fn mentions<'v>(file: View<'v, File>) -> impl Iterator<Item = Mention<'v>> {
    DoorTable::all(file).flat_map(DoorTable::mentions).chain(vips(file)).chain(names(file))
}

fn vips<'v>(file: View<'v, File>) -> impl Iterator<Item = Mention<'v>> {
    file.get(File::PACKET).into_iter().filter_map(|vip| mention(vip, Packet::POOL))
}

fn names<'v>(file: View<'v, File>) -> impl Iterator<Item = Mention<'v>> {
    file.get(File::DNS).into_iter().flat_map(|zone| {
        let names = zone.get(Dns::NAMES).into_iter();
        let names = names.filter_map(|name| mention(name, DnsName::POOL));
        mention(zone, Dns::POOL).into_iter().chain(names)
    })
}

fn mention<'v, T>(values: View<'v, T>, pool: Key<T, Option<Text>>) -> Option<Mention<'v>> {
    Some(Mention { pool: values.get(pool)?, location: values.location(pool) })
}
