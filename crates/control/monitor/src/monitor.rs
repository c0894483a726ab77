use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::Instant;

use crate::group::Group;
use crate::links::Links;
use crate::meter::{Reading, Utilisation, between};
use crate::parse;
use crate::source::Source;

/// Paths of the kernel's files, and configured link speeds.
#[derive(Clone, Debug)]
pub struct MonitorOptions {
    /// `/proc`, or the host's `/proc` where it is mounted in a container.
    pub proc: PathBuf,
    /// `/sys`.
    pub sys: PathBuf,
    /// Configured link speeds by interface, bits per second. They take precedence over the
    /// kernel's, and make any interface count.
    pub link_speeds: BTreeMap<String, u64>,
}

impl Default for MonitorOptions {
    fn default() -> MonitorOptions {
        MonitorOptions { proc: "/proc".into(), sys: "/sys".into(), link_speeds: BTreeMap::new() }
    }
}

/// Returns the memory that this process may use, in bytes: that of the machine, or the smallest
/// limit of its control group and of those above it. `proc` is `/proc`. `None`: it is not known.
pub fn usable_memory_bytes(proc: &Path) -> Option<u64> {
    let mut buffer = Vec::new();
    let limit = Group::of(&proc.join("self")).memory_limit(&mut buffer);
    let mut meminfo = Source::new(proc.join("meminfo"));
    let memory = meminfo.read(&mut buffer).and_then(|text| parse::meminfo(text).ok());
    limit.into_iter().chain(memory.map(|memory| memory.total_bytes)).min()
}

/// Measures the utilisation of this machine on demand.
///
/// Keeps its files and its buffer open: after the first samples it allocates only the result. A
/// file that cannot be read is a missing signal. [`Monitor::missing`] returns such files, for one
/// log line at the start.
#[derive(Debug)]
pub struct Monitor {
    start: Instant,
    buffer: Vec<u8>,
    stat: Source,
    meminfo: Source,
    status: Source,
    net_dev: Source,
    pressures: [Source; 3],
    group: Group,
    links: Links,
    before: Option<Reading>,
    spare: Reading,
}

impl Monitor {
    /// Opens the files.
    pub fn new(options: MonitorOptions) -> Monitor {
        let MonitorOptions { proc, sys, link_speeds } = options;
        let own = proc.join("self");
        Monitor {
            start: Instant::now(),
            buffer: Vec::new(),
            stat: Source::new(proc.join("stat")),
            meminfo: Source::new(proc.join("meminfo")),
            status: Source::new(own.join("status")),
            net_dev: Source::new(own.join("net/dev")),
            pressures: ["cpu", "memory", "io"]
                .map(|kind| Source::new(proc.join("pressure").join(kind))),
            group: Group::of(&own),
            links: Links::new(sys.join("class/net"), link_speeds),
            before: None,
            spare: Reading::default(),
        }
    }

    /// Returns the files that do not exist; pressure is an optional kernel feature.
    pub fn missing(&self) -> Vec<PathBuf> {
        let files = [&self.stat, &self.meminfo, &self.net_dev].into_iter().chain(&self.pressures);
        files.filter(|file| !file.is_there()).map(|file| file.path().to_path_buf()).collect()
    }

    /// Replaces the configured link speeds, see [`MonitorOptions::link_speeds`].
    pub fn set_link_speeds(&mut self, stated: BTreeMap<String, u64>) {
        self.links.state(stated);
    }

    /// Returns the interfaces with a configured speed that do not exist.
    pub fn missing_links(&self) -> Vec<String> {
        self.links.missing()
    }

    /// Returns the utilisation since the previous call. The first result has no rates.
    pub fn sample(&mut self) -> Utilisation {
        let mut now = std::mem::take(&mut self.spare);
        self.read(&mut now);
        let before = self.before.replace(now);
        let now = self.before.as_ref().expect("it was put there");
        let utilisation = between(before.as_ref().unwrap_or(&Reading::default()), now);
        self.spare = before.unwrap_or_default();
        utilisation
    }

    /// Reads all files into `now` and reuses its lists.
    fn read(&mut self, now: &mut Reading) {
        let buffer = &mut self.buffer;
        now.cpu = self.stat.read(buffer).and_then(|text| parse::stat(text).ok());
        now.allowed_processors = self.status.read(buffer).and_then(parse::allowed_processors);
        now.memory = self.meminfo.read(buffer).and_then(|text| parse::meminfo(text).ok());
        now.group = self.group.read(buffer);
        match self.net_dev.read(buffer) {
            Some(text) => self.links.read(text, &mut now.interfaces),
            None => now.interfaces.clear(),
        }
        let [cpu, memory, io] = self.pressures.each_mut().map(|file| {
            // If the kernel feature is off, the file may exist, but reading it fails.
            file.is_there()
                .then(|| file.read(buffer).and_then(|text| parse::pressure(text).ok()))
                .flatten()
        });
        (now.cpu_pressure, now.memory_pressure, now.io_pressure) = (cpu, memory, io);
        now.at = self.start.elapsed();
    }
}
