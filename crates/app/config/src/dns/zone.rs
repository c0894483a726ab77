//! Builds one zone: its records, its name servers and its balanced names.

use std::path::Path;
use std::time::Duration;

use equipoise_dns::config::{NameServer, StaticRecord, ZoneConfig};
use equipoise_dns::zone::{check, file as zone_file};
use equipoise_dns::{Name, ZoneError};
use equipoise_session::config::PoolConfig;

use super::{PoolsByName, below, lower};
use crate::key::{Key, Texts};
use crate::problem::Findings;
use crate::tables::{Dns, DnsName, DnsNode, DnsServer, File};
use crate::view::View;
use crate::{FileKind, Surroundings};

/// The state of reading one zone.
pub(super) struct Reading<'r, 's> {
    pub(super) file: View<'r, File>,
    pub(super) by_name: &'r PoolsByName<'r>,
    pub(super) values: View<'r, Dns>,
    pub(super) pools: &'r [PoolConfig],
    pub(super) around: &'r Surroundings<'r>,
    pub(super) findings: &'r mut Findings<'s>,
}

impl Reading<'_, '_> {
    pub(super) fn error<T, V>(&mut self, values: View<'_, T>, option: Key<T, V>, text: String) {
        self.findings.error(values.at(option), &values.path_of(option), text);
    }

    /// Builds the zone of the table. `None` if the zone's name is missing or wrong.
    pub(super) fn zone(&mut self) -> Option<ZoneConfig> {
        let values = self.values;
        let origin = lower(Name::vec_from_str(values.get(Dns::ZONE)?).ok()?);
        let seconds = |option: Key<Dns, Duration>| values.get(option).as_secs() as u32;
        let mailbox = match values.get(Dns::MAILBOX) {
            Some(text) => self.name(values, Dns::MAILBOX, text, &origin)?,
            None => below("hostmaster", &origin)?,
        };
        let mut zone = ZoneConfig {
            ttl: seconds(Dns::RECORD_TTL),
            negative_ttl: seconds(Dns::NEGATIVE_TTL),
            serial: values.get(Dns::SERIAL),
            mailbox,
            servers: Vec::new(),
            nodes: Vec::new(),
            names: Vec::new(),
            records: self.records(&origin),
            origin,
        };
        self.filled(values, Dns::LISTEN.as_written());
        for node in values.get(Dns::NODES) {
            self.filled(node, DnsNode::ADDRESSES.as_written());
        }
        for server in values.get(Dns::NS) {
            self.filled(server, DnsServer::ADDRESSES.as_written());
            let Some(text) = server.get(DnsServer::NAME) else { continue };
            let Some(name) = self.name(server, DnsServer::NAME, text, &zone.origin) else {
                continue;
            };
            let addresses = server.get(DnsServer::ADDRESSES).unwrap_or_default();
            zone.servers.push(NameServer { name, addresses });
        }
        if values.given(Dns::POOL) {
            let origin = zone.origin.clone();
            self.balanced(None, origin, &mut zone);
        }
        for values in values.get(Dns::NAMES) {
            let Some(text) = values.get(DnsName::NAME) else { continue };
            let Some(name) = self.name(values, DnsName::NAME, text, &zone.origin) else { continue };
            self.balanced(Some(values), name, &mut zone);
        }
        self.unused_nodes(&zone);
        // Values with errors are missing here; checking the zone would report them twice.
        if !self.findings.has_error_below(values.path())
            && !self.findings.has_error_on(File::POOL.name())
        {
            for wrong in check(&zone) {
                self.place(&wrong);
            }
        }
        Some(zone)
    }

    /// Reports a list that is stated and empty.
    pub(super) fn filled<T>(&mut self, values: View<'_, T>, option: Key<T, Option<Texts>>) {
        if values.given(option) && values.get(option).is_some_and(<[_]>::is_empty) {
            self.error(values, option, "an empty list; accepted: at least one".into());
        }
    }

    /// Reads a name. Without a final dot it is relative to the zone's name.
    fn name<T, V>(
        &mut self,
        values: View<'_, T>,
        option: Key<T, V>,
        text: &str,
        origin: &Name,
    ) -> Option<Name> {
        let name = match text.ends_with('.') {
            true => Name::vec_from_str(text).ok(),
            false => below(text, origin),
        };
        if name.is_none() {
            let text =
                format!("\"{text}\" with the zone's name behind it is longer than 255 bytes");
            self.error(values, option, text + "; accepted: a shorter one");
        }
        name.map(lower)
    }

    fn records(&mut self, origin: &Name) -> Vec<StaticRecord> {
        let values = self.values;
        let Some(path) = values.get(Dns::ZONE_FILE) else { return Vec::new() };
        let read = |file: &Path| (self.around.read)(file, FileKind::Zone);
        match zone_file::read(Path::new(path), origin, &read) {
            Ok(records) => return records,
            Err(error) => self.error(values, Dns::ZONE_FILE, error.to_string()),
        }
        Vec::new()
    }

    /// Warns of `[[dns.nodes]]` tables for backends that no name uses.
    fn unused_nodes(&mut self, zone: &ZoneConfig) {
        for values in self.values.get(Dns::NODES) {
            let Some(backend) = values.get(DnsNode::BACKEND) else { continue };
            let pools = self.pools.iter().flat_map(|pool| &pool.backends);
            let mut named =
                pools.filter(|b| *b.name == *backend || b.place.text(b.address) == backend);
            let used = named.any(|b| zone.nodes.iter().any(|node| node.name == b.name));
            if !used && !self.findings.has_error_below(self.values.path()) {
                let text = format!("no name of this zone is spread over a backend `{backend}`");
                self.findings.warning(
                    values.at(DnsNode::BACKEND),
                    &values.path_of(DnsNode::BACKEND),
                    text,
                );
            }
        }
    }

    /// Reports an error of the zone at the option that caused it.
    fn place(&mut self, wrong: &ZoneError) {
        let values = self.values;
        let option = match wrong {
            ZoneError::NoServers(_) | ZoneError::ServerWithoutAddress(_) => Dns::NS.any(),
            ZoneError::NotServed { .. }
            | ZoneError::SoaElsewhere(_)
            | ZoneError::AliasBeside(_)
            | ZoneError::Aliases(_)
            | ZoneError::TooLarge { .. }
            | ZoneError::WildcardServers(_)
            | ZoneError::Balanced { .. }
            | ZoneError::Delegated { .. }
            | ZoneError::OutOfZone { .. }
                if values.given(Dns::ZONE_FILE) =>
            {
                Dns::ZONE_FILE.any()
            }
            _ if values.given(Dns::NAMES) => Dns::NAMES.any(),
            _ => Dns::ZONE.any(),
        };
        self.error(values, option, wrong.to_string());
    }
}
