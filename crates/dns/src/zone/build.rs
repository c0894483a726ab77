//! Makes a snapshot: every answer as bytes, and the tables that picks are drawn from.

use std::collections::BTreeMap;
use std::sync::Arc;

use equipoise_core::Generation;
use rand::Rng;

use super::balance::Spreading;
use super::collect::{Names, collect, is_within, lower};
use super::nested::served_below;
use super::view::View;
use super::{NodeState, Standing};
use crate::config::{DnsConfig, DnsOptions, ZoneConfig};
use crate::cookie::{CookieSecret, CookieSecrets};
use crate::loads::Layout;
use crate::message::code::{DS, TXT};
use crate::message::name::hash_of;
use crate::message::tail::{Tail, TailWriter, suffixes};
use crate::rate_limit::RateLimiter;
use crate::snapshot::{Entry, NameStatus, NameTable, NodeTallies, Snapshot, Zone};

/// What a snapshot is made of.
pub struct SnapshotInput<'i> {
    /// Its number.
    pub generation: Generation,
    /// What is served; every zone passes [`super::check`].
    pub config: &'i DnsConfig,
    /// By zone and node, as in the configuration.
    pub states: &'i [Vec<NodeState>],
    /// Threads that answer.
    pub threads: usize,
    /// The one that it replaces.
    pub before: Option<&'i Snapshot>,
    /// Secret numbers of this process: keys of the rate limiter's table, and of cookies unless the configuration has
    /// others.
    pub secrets: (u64, u64),
}

/// Makes a snapshot. Nodes without a state count as serving with share 1.
pub fn build(input: &SnapshotInput<'_>, rng: &mut dyn Rng) -> Snapshot {
    let SnapshotInput { config, before, .. } = input;
    let options = &config.options;
    let origins: Vec<_> = config.zones.iter().map(|zone| lower(&zone.origin)).collect();
    let mut parts = Parts::default();
    for (place, zone) in config.zones.iter().enumerate() {
        let states = input.states.get(place).map(|states| &states[..]).unwrap_or_default();
        parts.zone(zone, &origins, states, rng);
    }
    parts.take_ds();
    let limiter = match before {
        Some(before) if before.limiter.is_of(&options.rate_limit) => Arc::clone(&before.limiter),
        _ => Arc::new(RateLimiter::new(options.rate_limit.clone(), input.secrets)),
    };
    let layout = match before {
        Some(before) if *before.layout == parts.layout => Arc::clone(&before.layout),
        _ => Arc::new(parts.layout),
    };
    Snapshot {
        generation: input.generation,
        names: NameTable::new(parts.entries),
        zones: parts.zones,
        limiter,
        cookies: cookies(options, input.secrets),
        identity: options.identity.as_ref().map(|id| id.as_bytes().into()),
        chaos: chaos(config),
        client_subnet: options.client_subnet,
        query_log: options.query_log,
        keepalive_tenths: u16::try_from(options.tcp_idle_timeout.as_millis() / 100)
            .unwrap_or(u16::MAX),
        tallies: NodeTallies::following(parts.nodes, input.threads, before.map(|b| &b.tallies)),
        layout,
        names_told: parts.told,
    }
}

fn cookies(options: &DnsOptions, (high, low): (u64, u64)) -> Option<CookieSecrets> {
    let own = || {
        let number = u128::from(high.rotate_left(32)) << 64 | u128::from(!low);
        CookieSecrets::new(vec![CookieSecret::new(number.to_be_bytes())])
    };
    if !options.cookies_wanted {
        return None;
    }
    options.cookies.clone().or_else(own)
}

#[derive(Default)]
struct Parts {
    entries: Vec<Entry>,
    zones: Vec<Zone>,
    layout: Layout,
    nodes: Vec<(Arc<str>, Arc<str>)>,
    told: Vec<NameStatus>,
    /// What zones answer to DS of zones below them.
    ds: BTreeMap<Vec<u8>, Tail>,
}

impl Parts {
    fn zone(
        &mut self,
        zone: &ZoneConfig,
        origins: &[Vec<u8>],
        states: &[NodeState],
        rng: &mut dyn Rng,
    ) {
        let (mut names, _) = collect(zone);
        let origin = lower(&zone.origin);
        let below = served_below(origins, &origin);
        for other in &below {
            names.entry(other.to_vec()).or_default();
        }
        add_empty_names(&mut names, &origin);
        let state = |node: usize| {
            let unknown = NodeState { standing: Standing::Serving, share: 1.0 };
            states.get(node).copied().unwrap_or(unknown)
        };
        let view = View::new(&names, &origin, &below);
        self.ds.extend(below.iter().filter_map(|other| Some((other.to_vec(), view.ds(other)?))));
        let ours: Vec<_> = names.iter().filter(|(name, _)| !view.is_elsewhere(name)).collect();
        let number = self.zones.len();
        self.zones.push(Zone {
            no_such_name: view.no_such_name(),
            seed: hash_of(&origin).wrapping_add(1),
        });
        let first = self.entries.len();
        let places: BTreeMap<&[u8], usize> =
            ours.iter().enumerate().map(|(at, (name, _))| (&name[..], first + at)).collect();
        let nodes_before = self.nodes.len();
        self.nodes.extend(zone.nodes.iter().map(|n| (Arc::clone(&n.pool), Arc::clone(&n.name))));
        for (name, collected) in ours {
            let mut entry = view.entry(name, collected, &places);
            entry.zone = number;
            if let Some(config) = collected.balanced.map(|place| &zone.names[place]) {
                let spread =
                    Spreading { zone, config, origin: &origin, nodes_before, state: &state };
                entry.spread = Some(spread.made(self.layout.names.len(), rng));
                self.told.push(spread.status());
                let identity =
                    |place: &usize| zone.nodes.get(*place).map_or("".into(), |n| n.name.clone());
                self.layout
                    .names
                    .push((name.to_vec(), config.nodes.iter().map(identity).collect()));
            }
            self.entries.push(entry);
        }
    }

    /// DS of a zone's own name is what the zone above it says (RFC 4035, 3.1.4.1), if that is served, too.
    fn take_ds(&mut self) {
        for entry in &mut self.entries {
            if let Some(tail) = self.ds.remove(&entry.name[..]) {
                entry.sets.retain(|(rtype, _)| *rtype != DS);
                entry.sets.push((DS, tail));
            }
        }
    }
}

/// RFC 4592, 2.2.2: names that have nothing but names below them exist.
fn add_empty_names(names: &mut Names, origin: &[u8]) {
    let known: Vec<Vec<u8>> = names.keys().cloned().collect();
    for name in known {
        for (_, above) in suffixes(&name) {
            if is_within(above, origin) {
                names.entry(above.to_vec()).or_default();
            }
        }
    }
}

/// `id.server` and `version.bind`, where they are told.
fn chaos(config: &DnsConfig) -> Vec<(Vec<u8>, Tail)> {
    let options = &config.options;
    let answers = [
        ("id.server", &options.identity),
        ("hostname.bind", &options.identity),
        ("version.server", &options.version),
        ("version.bind", &options.version),
    ];
    let answers = answers.into_iter().filter_map(|(name, text)| Some((name, text.as_ref()?)));
    let made = answers.filter_map(|(name, text)| {
        let name = domain::base::Name::vec_from_str(name).ok()?.into_octets();
        let mut body = vec![u8::try_from(text.len()).ok()?];
        body.extend(text.bytes());
        Some((name, TailWriter::chaos(TXT, &body)))
    });
    made.collect()
}
