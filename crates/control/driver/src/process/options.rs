use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv4Addr};
use std::path::PathBuf;
use std::time::Duration;

use super::limits::SizeLimit;
use crate::Backoff;
use crate::options::{OptionRefused, Refuse};
use crate::template::{NAMES, unknown, uses};

/// Options of the process driver.
///
/// The driver replaces `{port}`, `{address}`, `{name}`, `{size}` and `{pool}` in the command, in
/// values of the environment and in the working folder.
#[derive(Clone, Debug, PartialEq)]
pub struct ProcessOptions {
    /// Program and arguments, run without a shell.
    pub command: Vec<String>,
    /// Environment variables.
    pub environment: BTreeMap<String, String>,
    /// True if the processes inherit the environment of equipoise. Otherwise they inherit only
    /// `PATH`, `LANG` and `TZ`.
    pub inherit_environment: bool,
    /// Working folder; that of equipoise if `None`.
    pub folder: Option<PathBuf>,
    /// User that runs the processes; that of equipoise if `None`. Another user needs root.
    pub user: Option<String>,
    /// Address at which the processes listen.
    pub address: IpAddr,
    /// Ports at which the processes listen.
    pub ports: Ports,
    /// Longest time from the start to the first accepted connection.
    pub ready_timeout: Duration,
    /// Time from SIGTERM to SIGKILL.
    pub stop_timeout: Duration,
    /// Waits before a process is started again.
    pub restart: Backoff,
    /// Run time after which the waits begin at the shortest again.
    pub well_after: Duration,
    /// Number of ends in a row, none after `well_after`, from which events report a loop.
    pub loop_after: u32,
    /// Log files of the output. If `None`, only errors show its last lines.
    pub logs: Option<LogOptions>,
    /// Limits of CPU and memory by size, through control groups; `*` is for every other size. They
    /// need root.
    pub limits: BTreeMap<String, SizeLimit>,
}

/// The ports of a pool's processes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ports {
    /// A port that the kernel reports as free.
    Free,
    /// A port of this range, both ends included.
    Range(u16, u16),
}

/// Log files: `NAME.log`, and older parts as `NAME.log.1` and up.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LogOptions {
    /// The folder.
    pub folder: PathBuf,
    /// Largest size of one file, in bytes.
    pub bytes_max: u64,
    /// Number of files of one backend.
    pub files: u32,
    /// Number of removed backends that keep their log files.
    pub gone_kept: u32,
}

impl Default for LogOptions {
    fn default() -> Self {
        LogOptions { folder: PathBuf::from("."), bytes_max: 4 << 20, files: 3, gone_kept: 8 }
    }
}

impl Default for ProcessOptions {
    fn default() -> Self {
        ProcessOptions {
            command: Vec::new(),
            environment: BTreeMap::new(),
            inherit_environment: false,
            folder: None,
            user: None,
            address: IpAddr::V4(Ipv4Addr::LOCALHOST),
            ports: Ports::Free,
            ready_timeout: Duration::from_secs(30),
            stop_timeout: Duration::from_secs(10),
            restart: Backoff { first: Duration::from_millis(500), most: Duration::from_secs(30) },
            well_after: Duration::from_secs(10),
            loop_after: 5,
            logs: None,
            limits: BTreeMap::new(),
        }
    }
}

impl ProcessOptions {
    /// The limit of a process of a size.
    pub fn limit_of(&self, size: Option<&str>) -> Option<SizeLimit> {
        let own = size.and_then(|size| self.limits.get(size));
        own.or_else(|| self.limits.get("*")).copied()
    }

    /// Checks the options alone, not whether this machine can follow them.
    ///
    /// # Errors
    /// [`OptionRefused`] names the first option that is wrong.
    pub fn check(&self) -> Result<(), OptionRefused> {
        let refuse = Refuse("process");
        refuse.program("command", &self.command)?;
        refuse.variables("environment", self.environment.iter())?;
        self.check_names(&refuse)?;
        if self.address.is_unspecified() || self.address.is_multicast() {
            let accepted = "the address at which it is reached, such as 127.0.0.1";
            return Err(refuse.with("address", self.address, accepted));
        }
        if let Ports::Range(first, last) = self.ports
            && (first == 0 || first > last)
        {
            let accepted = "\"free\", or a range such as 9000-9099";
            return Err(refuse.with("ports", format!("{first}-{last}"), accepted));
        }
        refuse.within("ready-timeout", self.ready_timeout, 100, 3600)?;
        refuse.within("stop-timeout", self.stop_timeout, 0, 3600)?;
        refuse.within("restart-first", self.restart.first, 10, 3600)?;
        refuse.within("restart-most", self.restart.most, 10, 24 * 3600)?;
        if self.restart.first > self.restart.most {
            let accepted = format!("at most restart-most, {:?}", self.restart.most);
            return Err(refuse.with("restart-first", self.restart.first, accepted));
        }
        refuse.within("well-after", self.well_after, 100, 24 * 3600)?;
        if !(2..=1000).contains(&self.loop_after) {
            return Err(refuse.with("loop-after", self.loop_after, "2 to 1000"));
        }
        if let Some(logs) = &self.logs {
            logs.check(&refuse)?;
        }
        for (size, limit) in &self.limits {
            limit.check(size, &refuse)?;
        }
        Ok(())
    }

    fn check_names(&self, refuse: &Refuse) -> Result<(), OptionRefused> {
        let folder = self.folder.as_ref().map(|path| path.to_string_lossy().into_owned());
        let words = self.command.iter().map(|word| ("command", word));
        let values = self.environment.values().map(|value| ("environment", value));
        let all = || words.clone().chain(values.clone());
        for (option, template) in all().chain(folder.as_ref().map(|path| ("folder", path))) {
            if let Some(word) = unknown(template) {
                let names = NAMES.map(|name| format!("{{{name}}}")).join(", ");
                return Err(refuse.with(option, format!("{{{word}}}"), names));
            }
        }
        if !all().any(|(_, template)| uses(template, "port")) {
            let accepted = "{port} in an argument or in an environment variable, so that a backend knows where to \
                            listen";
            return Err(refuse.with("command", &self.command, accepted));
        }
        Ok(())
    }
}

impl LogOptions {
    fn check(&self, refuse: &Refuse) -> Result<(), OptionRefused> {
        if !(4096..=1 << 40).contains(&self.bytes_max) {
            return Err(refuse.with("logs.bytes-max", self.bytes_max, "4096 to 2^40"));
        }
        if !(1..=100).contains(&self.files) {
            return Err(refuse.with("logs.files", self.files, "1 to 100"));
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fine() -> ProcessOptions {
        let command = ["app", "--listen", "{address}:{port}"].map(String::from).to_vec();
        ProcessOptions { command, ..ProcessOptions::default() }
    }

    #[test]
    fn invalid_process_options_are_refused_with_the_accepted_values() {
        fn with(change: impl FnOnce(&mut ProcessOptions)) -> String {
            let mut options = fine();
            change(&mut options);
            options.check().unwrap_err().to_string()
        }
        let limit = SizeLimit { cpus: Some(0.0), memory_bytes: None };
        let rows = [
            (with(|o| o.command.clear()), "run without a shell"),
            (with(|o| o.command = vec![String::new()]), "process.command"),
            (with(|o| o.command[1] += "\0"), "without NUL"),
            (with(|o| o.command[2] = "80".into()), "a backend knows where to listen"),
            (with(|o| o.command[2] += "{prot}"), "is \"{prot}\"; accepted: {address}, {name}"),
            (with(|o| _ = o.environment.insert("A=B".into(), "1".into())), "without `=`"),
            (with(|o| o.folder = Some("/srv/{nam}".into())), "process.folder"),
            (with(|o| o.address = IpAddr::V4(Ipv4Addr::UNSPECIFIED)), "at which it is reached"),
            (with(|o| o.ports = Ports::Range(9, 8)), "9000-9099"),
            (with(|o| o.ports = Ports::Range(0, 8)), "process.ports"),
            (with(|o| o.ready_timeout = Duration::ZERO), "accepted: 100ms to 3600s"),
            (with(|o| o.restart.most = Duration::from_millis(20)), "restart-first"),
            (with(|o| o.loop_after = 1), "loop-after"),
            (
                with(|o| o.logs = Some(LogOptions { files: 0, ..LogOptions::default() })),
                "process.logs.files is 0",
            ),
            (with(|o| _ = o.limits.insert("small".into(), limit)), "process.limits"),
        ];
        for (found, expected) in rows {
            assert!(found.contains(expected), "{found:?} lacks {expected:?}");
        }
        assert_eq!(fine().check(), Ok(()));
    }

    #[test]
    fn the_port_may_be_passed_in_the_environment() {
        let mut options = fine();
        options.command.truncate(1);
        options.environment.insert("PORT".into(), "{port}".into());
        assert_eq!(options.check(), Ok(()));
    }
}
