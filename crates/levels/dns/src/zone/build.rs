//! Builds a snapshot: every answer as bytes, and the tables for draws.

use std::collections::BTreeMap;
use std::sync::Arc;

use equipoise_core::Generation;
use rand::Rng;

use super::balance::Spreading;
use super::collect::{Names, collect, is_within, lower};
use super::nested::{ZoneTree, is_elsewhere};
use super::view::View;
use crate::config::{DnsConfig, DnsOptions, ZoneConfig};
use crate::cookie::{CookieSecret, CookieSecrets};
use crate::loads::Layout;
use crate::message::code::{DS, TXT};
use crate::message::name::hash_of;
use crate::message::tail::{Tail, TailWriter, suffixes};
use crate::rate_limit::RateLimiter;
use crate::snapshot::{Entry, Fixed, NameStatus, NameTable, NodeTallies, Snapshot, Zone};
use crate::spread::Spread;
use crate::standing::{NodeState, Standing};

/// Inputs of [`build`].
pub struct SnapshotInput<'i> {
    /// Number of the snapshot.
    pub generation: Generation,
    /// The configuration; every zone must pass [`super::check`].
    pub config: &'i DnsConfig,
    /// State of nodes, by zone and node as in the configuration.
    pub states: &'i [Vec<NodeState>],
    /// Number of threads that answer.
    pub threads: usize,
    /// The snapshot that it replaces.
    pub before: Option<&'i Snapshot>,
    /// Secret numbers of this process: keys of the rate limiter's table, and of cookies unless the
    /// configuration has cookie secrets.
    pub secrets: (u64, u64),
}

/// Builds a snapshot. Nodes without a state count as serving with share 1. The part that does not
/// depend on states is taken from `before` if that has the same zones.
pub fn build(input: &SnapshotInput<'_>, rng: &mut dyn Rng) -> Snapshot {
    let SnapshotInput { config, before, .. } = input;
    let options = &config.options;
    let fixed = match before {
        Some(before) if before.fixed.is_of(&config.zones) => Arc::clone(&before.fixed),
        _ => Arc::new(fixed(&config.zones, *before)),
    };
    let (spreads, names_told) = spreads(&fixed, input.states, rng);
    let nodes = config.zones.iter().flat_map(|zone| &zone.nodes);
    let nodes = nodes.map(|node| (Arc::clone(&node.pool), Arc::clone(&node.name))).collect();
    let limiter = match before {
        Some(before) if before.limiter.is_of(&options.rate_limit) => Arc::clone(&before.limiter),
        _ => Arc::new(RateLimiter::new(options.rate_limit.clone(), input.secrets)),
    };
    Snapshot {
        generation: input.generation,
        layout: Arc::clone(&fixed.layout),
        fixed,
        spreads,
        limiter,
        cookies: cookies(options, input.secrets),
        identity: options.identity.as_ref().map(|id| id.as_bytes().into()),
        chaos: chaos(config),
        client_subnet: options.client_subnet,
        query_log: options.query_log,
        keepalive_tenths: u16::try_from(options.tcp_idle_timeout.as_millis() / 100)
            .unwrap_or(u16::MAX),
        tallies: NodeTallies::following(nodes, input.threads, before.map(|b| &b.tallies)),
        names_told,
    }
}

/// Builds static answers and the table of names.
fn fixed(zones: &[Arc<ZoneConfig>], before: Option<&Snapshot>) -> Fixed {
    let tree = ZoneTree::new(zones.iter().map(|zone| &zone.origin));
    let mut parts = Parts::default();
    for zone in zones {
        parts.zone(zone, &tree);
    }
    parts.take_ds();
    let layout = match before {
        Some(before) if *before.layout == parts.layout => Arc::clone(&before.layout),
        _ => Arc::new(parts.layout),
    };
    Fixed {
        of: zones.to_vec(),
        names: NameTable::new(parts.entries),
        zones: parts.zones,
        balanced: parts.balanced,
        layout,
    }
}

/// Builds the spreads of balanced names in the order of [`Fixed::balanced`], and their status.
fn spreads(
    fixed: &Fixed,
    states: &[Vec<NodeState>],
    rng: &mut dyn Rng,
) -> (Vec<Spread>, Vec<NameStatus>) {
    let origins: Vec<_> = fixed.of.iter().map(|zone| lower(&zone.origin)).collect();
    let nodes_before: Vec<usize> = fixed
        .of
        .iter()
        .scan(0, |total, zone| {
            let before = *total;
            *total += zone.nodes.len();
            Some(before)
        })
        .collect();
    let made = fixed.balanced.iter().enumerate().map(|(account, (zone, place))| {
        let nodes_before = nodes_before[*zone];
        let (origin, own) = (&origins[*zone], states.get(*zone));
        let (number, zone) = (*zone, &fixed.of[*zone]);
        let state = |node: usize| {
            let unknown = NodeState { standing: Standing::Serving, share: 1.0 };
            own.and_then(|own| own.get(node)).copied().unwrap_or(unknown)
        };
        let config = &zone.names[*place];
        let host = |name: &[u8]| fixed.names.of_zone(name, number);
        let spread = Spreading { zone, config, origin, nodes_before, state: &state, host: &host };
        (spread.made(account, rng), spread.status())
    });
    made.unzip()
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
    balanced: Vec<(usize, usize)>,
    layout: Layout,
    /// Answers to DS queries for zones below a served zone.
    ds: BTreeMap<Vec<u8>, Tail>,
}

impl Parts {
    fn zone(&mut self, zone: &ZoneConfig, tree: &ZoneTree) {
        let (mut names, _) = collect(zone);
        let origin = lower(&zone.origin);
        let below = tree.below(&origin);
        for other in &below {
            names.entry(other.to_vec()).or_default();
        }
        add_empty_names(&mut names, &origin);
        let ours: Vec<_> = names.iter().filter(|(name, _)| !is_elsewhere(name, &below)).collect();
        let first = self.entries.len();
        let places: BTreeMap<&[u8], usize> =
            ours.iter().enumerate().map(|(at, (name, _))| (&name[..], first + at)).collect();
        let view = View::new(&names, &origin, &below, &places);
        self.ds.extend(below.iter().filter_map(|other| Some((other.to_vec(), view.ds(other)?))));
        let number = self.zones.len();
        self.zones.push(Zone {
            no_such_name: view.no_such_name(),
            seed: hash_of(&origin).wrapping_add(1),
        });
        for (name, collected) in ours {
            let mut entry = view.entry(name, collected);
            entry.zone = number;
            if let Some(place) = collected.balanced {
                entry.spread = Some(self.balanced.len());
                self.balanced.push((number, place));
                let identity =
                    |place: &usize| zone.nodes.get(*place).map_or("".into(), |n| n.name.clone());
                let nodes = zone.names[place].nodes.iter().map(identity).collect();
                self.layout.names.push((name.clone(), nodes));
            }
            self.entries.push(entry);
        }
    }

    /// A query for DS of a zone's own name gets the answer of the parent zone (RFC 4035, 3.1.4.1),
    /// if this server has it.
    fn take_ds(&mut self) {
        for entry in &mut self.entries {
            if let Some(tail) = self.ds.remove(&entry.name[..]) {
                entry.sets.retain(|(rtype, _)| *rtype != DS);
                entry.sets.push((DS, tail));
            }
        }
    }
}

/// Adds empty non-terminals: a name that only has names below it exists (RFC 4592, 2.2.2).
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

/// Answers of class CHAOS: `id.server` and `version.bind` and their synonyms, if configured.
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
