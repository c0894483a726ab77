//! Builds one zone: its records, its name servers and its balanced names.

use std::path::Path;

use equipoise_dns::config::{NameServer, StaticRecord, ZoneConfig};
use equipoise_dns::zone::{check, file as zone_file};
use equipoise_dns::{Name, ZoneError};
use equipoise_session::config::PoolConfig;

use super::{PoolsByName, addresses, below, lower};
use crate::problem::Findings;
use crate::values::Values;
use crate::{FileKind, Surroundings};

/// The state of reading one zone.
pub(super) struct Reading<'r, 's> {
    pub(super) file: &'r Values,
    pub(super) by_name: &'r PoolsByName<'r>,
    pub(super) values: &'r Values,
    pub(super) pools: &'r [PoolConfig],
    pub(super) around: &'r Surroundings<'r>,
    pub(super) findings: &'r mut Findings<'s>,
}

impl Reading<'_, '_> {
    pub(super) fn error(&mut self, values: &Values, option: &str, text: String) {
        self.findings.error(values.at(option), &values.path_of(option), text);
    }

    /// Builds the zone of the table. `None` if the zone's name is missing or wrong.
    pub(super) fn zone(&mut self) -> Option<ZoneConfig> {
        let values = self.values;
        let origin = lower(Name::vec_from_str(values.text("zone")?).ok()?);
        let seconds = |option: &str| values.duration(option).as_secs() as u32;
        let mailbox = match values.text("mailbox") {
            Some(text) => self.name(values, "mailbox", text, &origin)?,
            None => below("hostmaster", &origin)?,
        };
        let mut zone = ZoneConfig {
            ttl: seconds("record-ttl"),
            negative_ttl: seconds("negative-ttl"),
            serial: values.amount("serial"),
            mailbox,
            servers: Vec::new(),
            nodes: Vec::new(),
            names: Vec::new(),
            records: self.records(&origin),
            origin,
        };
        self.filled(values, "listen");
        for node in values.tables("nodes") {
            self.filled(node, "addresses");
        }
        for server in values.tables("ns") {
            self.filled(server, "addresses");
            let Some(text) = server.text("name") else { continue };
            let Some(name) = self.name(server, "name", text, &zone.origin) else { continue };
            zone.servers.push(NameServer { name, addresses: addresses(server, "addresses") });
        }
        if values.given("pool") {
            let origin = zone.origin.clone();
            self.balanced(values, origin, &mut zone);
        }
        for values in values.tables("names") {
            let Some(text) = values.text("name") else { continue };
            let Some(name) = self.name(values, "name", text, &zone.origin) else { continue };
            self.balanced(values, name, &mut zone);
        }
        self.unused_nodes(&zone);
        // Values with errors are missing here; checking the zone would report them twice.
        if !self.findings.has_error_below(&values.path) && !self.findings.has_error_on("pool") {
            for wrong in check(&zone) {
                self.place(&wrong);
            }
        }
        Some(zone)
    }

    /// Reports a list that is stated and empty.
    pub(super) fn filled(&mut self, values: &Values, option: &str) {
        if values.given(option) && values.texts(option).is_some_and(|texts| texts.is_empty()) {
            self.error(values, option, "an empty list; accepted: at least one".into());
        }
    }

    /// Reads a name. Without a final dot it is relative to the zone's name.
    fn name(&mut self, values: &Values, option: &str, text: &str, origin: &Name) -> Option<Name> {
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
        let Some(path) = values.text("zone-file") else { return Vec::new() };
        let read = |file: &Path| (self.around.read)(file, FileKind::Zone);
        match zone_file::read(Path::new(path), origin, &read) {
            Ok(records) => return records,
            Err(error) => self.error(values, "zone-file", error.to_string()),
        }
        Vec::new()
    }

    /// Warns of `[[dns.nodes]]` tables for backends that no name uses.
    fn unused_nodes(&mut self, zone: &ZoneConfig) {
        for values in self.values.tables("nodes") {
            let Some(backend) = values.text("backend") else { continue };
            let pools = self.pools.iter().flat_map(|pool| &pool.backends);
            let mut named =
                pools.filter(|b| *b.name == *backend || b.place.text(b.address) == backend);
            let used = named.any(|b| zone.nodes.iter().any(|node| node.name == b.name));
            if !used && !self.findings.has_error_below(&self.values.path) {
                let text = format!("no name of this zone is spread over a backend `{backend}`");
                self.findings.warning(values.at("backend"), &values.path_of("backend"), text);
            }
        }
    }

    /// Reports an error of the zone at the option that caused it.
    fn place(&mut self, wrong: &ZoneError) {
        let values = self.values;
        let option = match wrong {
            ZoneError::NoServers(_) | ZoneError::ServerWithoutAddress(_) => "ns",
            ZoneError::NotServed { .. }
            | ZoneError::SoaElsewhere(_)
            | ZoneError::AliasBeside(_)
            | ZoneError::Aliases(_)
            | ZoneError::TooLarge { .. }
            | ZoneError::WildcardServers(_)
            | ZoneError::Balanced { .. }
            | ZoneError::Delegated { .. }
            | ZoneError::OutOfZone { .. }
                if values.given("zone-file") =>
            {
                "zone-file"
            }
            _ if values.given("names") => "names",
            _ => "zone",
        };
        self.error(values, option, wrong.to_string());
    }
}
