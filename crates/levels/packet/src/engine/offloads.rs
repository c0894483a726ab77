//! Switches off the offloads that would show the program other packets than those on the wire, and
//! on again when the program is detached. A file lists them for the process that detaches the
//! program. An offload is listed before it is switched off, and until it is on again, so that a
//! crash leaves none off permanently.

#[cfg(test)]
mod tests;

use std::collections::BTreeSet;
use std::fs;
use std::io;
use std::path::PathBuf;

use equipoise_basics::files;

use super::ethtool::{Ethtool, Offload, Switchboard};
use super::notice::Notice;

/// An offload of a device.
pub(super) type Switch = (String, Offload);

/// The offloads that this instance switched off.
#[derive(Debug)]
pub(super) struct Offloads {
    /// `None`: the socket is not available, so offloads are ignored.
    switchboard: Option<Box<dyn Switchboard>>,
    file: PathBuf,
    /// Whether offloads may be switched off.
    may_change: bool,
    off: BTreeSet<Switch>,
    /// Entries of `off` that could not be switched on again; logged once.
    stuck: BTreeSet<Switch>,
}

impl Offloads {
    /// Makes it with the offloads that an earlier process listed in `file`.
    pub(super) fn open(file: PathBuf, may_change: bool) -> Offloads {
        let ethtool = Ethtool::open().ok();
        let switchboard = ethtool.map(|it| Box::new(it) as Box<dyn Switchboard>);
        Offloads::over(switchboard, file, may_change)
    }

    fn over(
        switchboard: Option<Box<dyn Switchboard>>,
        file: PathBuf,
        may_change: bool,
    ) -> Offloads {
        let text = fs::read_to_string(&file).unwrap_or_default();
        let off = text.lines().filter_map(|line| {
            let (device, word) = line.split_once(' ')?;
            let offload = Offload::ALL.into_iter().find(|offload| offload.word() == word)?;
            Some((device.to_owned(), offload))
        });
        Offloads { switchboard, off: off.collect(), file, may_change, stuck: BTreeSet::new() }
    }

    /// Switches off those of `switches` that are on.
    ///
    /// # Errors
    /// Advice for the first one that stays on.
    pub(super) fn turn_off(
        &mut self,
        switches: &[Switch],
        notices: &mut Vec<Notice>,
    ) -> Result<(), String> {
        let mut outcome = Ok(());
        for switch in switches {
            if !self.is_on(switch) {
                continue;
            }
            let (device, offload) = switch;
            let (word, effect) = (offload.word(), offload.effect());
            let stays = match self.may_change.then(|| self.turn_one_off(device, *offload)) {
                Some(Ok(true)) => {
                    notices.push(Notice::Offload {
                        device: device.clone(),
                        offload: *offload,
                        on: false,
                    });
                    continue;
                }
                Some(Ok(false)) => "its driver keeps it on: try".to_owned(),
                Some(Err(error)) => format!("it cannot be turned off ({error}): try"),
                None => "[flows] adjust-offloads = false forbids to turn it off: run".to_owned(),
            };
            let what = format!("{word} of {device} is on, and {effect}");
            outcome = outcome.and(Err(format!("{what}; {stays} `ethtool -K {device} {word} off`")));
        }
        outcome
    }

    fn is_on(&self, (device, offload): &Switch) -> bool {
        self.switchboard.as_ref().is_some_and(|it| it.is_on(device, *offload))
    }

    /// Returns whether the offload is off afterwards: some drivers ignore the command.
    fn turn_one_off(&mut self, device: &str, offload: Offload) -> io::Result<bool> {
        let switch = (device.to_owned(), offload);
        let is_new = self.off.insert(switch.clone());
        self.note();
        let set = self.switchboard.as_ref().map_or(Ok(()), |it| it.set(device, offload, false));
        let is_off = !self.is_on(&switch);
        if is_new && !is_off {
            self.off.remove(&switch);
            self.note();
        }
        set.map(|()| is_off)
    }

    /// Switches on the offloads that are not in `needed`. Failures stay listed, and are tried again
    /// next time.
    pub(super) fn restore(&mut self, needed: &BTreeSet<Switch>) -> Vec<Notice> {
        let mut notices = Vec::new();
        let Some(switchboard) = &self.switchboard else { return notices };
        let free: Vec<Switch> = self.off.difference(needed).cloned().collect();
        for switch in free {
            let (device, offload) = (switch.0.clone(), switch.1);
            let error = match switchboard.set(&device, offload, true) {
                Ok(()) if switchboard.is_on(&device, offload) => {
                    notices.push(Notice::Offload { device: device.clone(), offload, on: true });
                    None
                }
                Ok(()) => Some("its driver keeps it off".to_owned()),
                // A device that is gone needs no restoring.
                Err(error) if error.raw_os_error() == Some(libc::ENODEV) => None,
                Err(error) => Some(error.to_string()),
            };
            match error {
                None => {
                    self.stuck.remove(&switch);
                    self.off.remove(&switch);
                }
                Some(error) if self.stuck.insert(switch) => {
                    notices.push(Notice::OffloadStuck { device, offload, error });
                }
                Some(_) => {}
            }
        }
        self.note();
        notices
    }

    /// Writes the list for the process that detaches the program. If that fails, the offloads will
    /// stay off.
    fn note(&self) {
        let lines =
            self.off.iter().map(|(device, offload)| format!("{device} {}\n", offload.word()));
        let text: String = lines.collect();
        if text.is_empty() {
            let _ = fs::remove_file(&self.file);
            return;
        }
        // A crash leaves either the old list or the new one.
        let _ = files::replace_volatile(&self.file, text.as_bytes(), 0o644);
    }
}
