use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use crate::meter::InterfaceReading;
use crate::parse::net_dev;

/// Number of readings between updates of link speeds. Reading a speed takes the kernel's network
/// lock.
const SPEED_EVERY: u32 = 30;

/// Selects the interfaces that count, and their speeds.
///
/// Interfaces with a device count: hardware, and devices of a hypervisor. `lo`, veth, bridges,
/// bonds, tunnels and VLANs do not: their traffic also passes through a device, or never leaves the
/// machine. An interface with a configured speed always counts.
#[derive(Debug)]
pub(crate) struct Links {
    folder: PathBuf,
    stated: BTreeMap<String, u64>,
    known: BTreeMap<String, Link>,
    readings: u32,
}

#[derive(Clone, Copy, Debug)]
struct Link {
    counts: bool,
    bits_per_second: Option<u64>,
    seen: u32,
}

impl Links {
    /// `folder` is `/sys/class/net`; `stated` has the configured speeds, bits per second.
    pub(crate) fn new(folder: PathBuf, stated: BTreeMap<String, u64>) -> Links {
        Links { folder, stated, known: BTreeMap::new(), readings: 0 }
    }

    /// Replaces the configured speeds, bits per second.
    pub(crate) fn state(&mut self, stated: BTreeMap<String, u64>) {
        self.stated = stated;
        self.known.clear();
    }

    /// Returns the interfaces with a configured speed that do not exist.
    pub(crate) fn missing(&self) -> Vec<String> {
        let is_missing = |name: &&String| !self.folder.join(name).exists();
        self.stated.keys().filter(is_missing).cloned().collect()
    }

    /// Reads the interfaces that count from the text of `/proc/net/dev` into `readings`.
    pub(crate) fn read(&mut self, text: &str, readings: &mut Vec<InterfaceReading>) {
        self.readings = self.readings.wrapping_add(1);
        if self.readings.is_multiple_of(SPEED_EVERY) {
            self.known.clear();
        }
        let mut count = 0;
        for interface in net_dev(text) {
            let link = match self.known.get_mut(interface.name) {
                Some(link) => link,
                None => {
                    let link = look(&self.folder, interface.name, &self.stated);
                    self.known.entry(interface.name.to_string()).or_insert(link)
                }
            };
            link.seen = self.readings;
            if !link.counts {
                continue;
            }
            if count == readings.len() {
                readings.push(InterfaceReading {
                    name: String::new(),
                    received_bytes: 0,
                    sent_bytes: 0,
                    link_bits_per_second: None,
                });
            }
            let reading = &mut readings[count];
            reading.name.clear();
            reading.name.push_str(interface.name);
            reading.received_bytes = interface.received;
            reading.sent_bytes = interface.sent;
            reading.link_bits_per_second = link.bits_per_second;
            count += 1;
        }
        readings.truncate(count);
        // Forgets interfaces that are gone: a new one of the same name may differ.
        self.known.retain(|_, link| link.seen == self.readings);
    }
}

fn look(folder: &Path, name: &str, stated: &BTreeMap<String, u64>) -> Link {
    let folder = folder.join(name);
    if let Some(speed) = stated.get(name) {
        return Link { counts: true, bits_per_second: Some(*speed), seen: 0 };
    }
    let counts = folder.join("device").exists();
    let speed = || std::fs::read_to_string(folder.join("speed")).ok();
    let bits_per_second = if counts { speed().and_then(|text| link_speed(&text)) } else { None };
    Link { counts, bits_per_second, seen: 0 }
}

/// Parses `speed` of `/sys/class/net/NAME`, in megabits per second. -1 and 2^32 - 1 mean unknown.
/// Reading the file fails for a link that is down or has no speed.
fn link_speed(text: &str) -> Option<u64> {
    let megabits = text.trim().parse::<i64>().ok()?;
    (1..i64::from(u32::MAX)).contains(&megabits).then(|| megabits.unsigned_abs() * 1_000_000)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_speed_is_read_or_not_known() {
        for (text, speed) in [
            ("1000\n", Some(1_000_000_000)),
            ("400000\n", Some(400_000_000_000)),
            ("-1\n", None),
            ("0\n", None),
            ("4294967295\n", None),
            ("", None),
            ("fast", None),
        ] {
            assert_eq!(link_speed(text), speed, "{text:?}");
        }
    }

    #[test]
    fn interfaces_with_a_device_or_a_stated_speed_count() {
        let text = include_str!("../fixtures/net_dev-linux-6.18");
        let folder = std::env::temp_dir().join(format!("equipoise-links-{}", std::process::id()));
        for (name, speed) in [("eth0", "10000\n"), ("ifb0", "10000\n"), ("lo", "")] {
            std::fs::create_dir_all(folder.join(name)).unwrap();
            std::fs::write(folder.join(name).join("speed"), speed).unwrap();
        }
        std::fs::create_dir_all(folder.join("eth0/device")).unwrap();
        let mut links = Links::new(folder.clone(), BTreeMap::from([("ifb1".to_string(), 7)]));
        assert_eq!(links.missing(), ["ifb1"]);
        let mut readings = Vec::new();
        links.read(text, &mut readings);
        std::fs::remove_dir_all(&folder).unwrap();
        let found: Vec<_> =
            readings.iter().map(|r| (r.name.as_str(), r.link_bits_per_second)).collect();
        assert_eq!(found, [("ifb1", Some(7)), ("eth0", Some(10_000_000_000))]);
        // The configured speed takes precedence, from the next reading on.
        links.state(BTreeMap::from([("eth0".to_string(), 9)]));
        links.read(text, &mut readings);
        let found: Vec<_> =
            readings.iter().map(|r| (r.name.as_str(), r.link_bits_per_second)).collect();
        assert_eq!(found, [("eth0", Some(9))]);
    }
}
