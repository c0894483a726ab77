//! Turns off the offloads by which the program would see other packets than come by the wire, and on again when the
//! program is detached. What was turned off is noted in a file, for the process that detaches the program.

use std::collections::BTreeSet;
use std::fs;
use std::path::PathBuf;

use super::ethtool::{Ethtool, Offload};
use super::notice::Notice;

/// An offload of a device.
pub(super) type Switch = (String, Offload);

/// The offloads that this instance turned off.
#[derive(Debug)]
pub(super) struct Offloads {
    /// `None`: there is no such socket, so nothing is looked at.
    ethtool: Option<Ethtool>,
    file: PathBuf,
    /// Otherwise nothing is turned off.
    may_change: bool,
    off: BTreeSet<Switch>,
}

impl Offloads {
    /// With those that `file` says an earlier process turned off.
    pub(super) fn open(file: PathBuf, may_change: bool) -> Offloads {
        let text = fs::read_to_string(&file).unwrap_or_default();
        let off = text.lines().filter_map(|line| {
            let (device, word) = line.split_once(' ')?;
            let offload = Offload::ALL.into_iter().find(|offload| offload.word() == word)?;
            Some((device.to_owned(), offload))
        });
        Offloads { ethtool: Ethtool::open().ok(), off: off.collect(), file, may_change }
    }

    /// Turns off those of `switches` that are on.
    ///
    /// # Errors
    /// What to do about the first that stays on.
    pub(super) fn turn_off(
        &mut self,
        switches: &[Switch],
        notices: &mut Vec<Notice>,
    ) -> Result<(), String> {
        let Some(ethtool) = &self.ethtool else { return Ok(()) };
        let mut outcome = Ok(());
        for (device, offload) in switches.iter().filter(|(device, it)| ethtool.is_on(device, *it)) {
            let (word, effect) = (offload.word(), offload.effect());
            let stays = match self.may_change.then(|| ethtool.set(device, *offload, false)) {
                // Some drivers ignore it.
                Some(Ok(())) if ethtool.is_on(device, *offload) => {
                    "its driver keeps it on: try".to_owned()
                }
                Some(Ok(())) => {
                    self.off.insert((device.clone(), *offload));
                    let (device, offload) = (device.clone(), *offload);
                    notices.push(Notice::Offload { device, offload, on: false });
                    continue;
                }
                Some(Err(error)) => format!("it cannot be turned off ({error}): try"),
                None => "[flows] adjust-offloads = false forbids to turn it off: run".to_owned(),
            };
            let what = format!("{word} of {device} is on, and {effect}");
            outcome = outcome.and(Err(format!("{what}; {stays} `ethtool -K {device} {word} off`")));
        }
        self.note();
        outcome
    }

    /// Turns on again what was turned off and is not among `needed`.
    pub(super) fn restore(&mut self, needed: &BTreeSet<Switch>) -> Vec<Notice> {
        let mut notices = Vec::new();
        let Some(ethtool) = &self.ethtool else { return notices };
        let free: Vec<Switch> = self.off.difference(needed).cloned().collect();
        for (device, offload) in free {
            // A device that is gone has nothing to be restored.
            if ethtool.set(&device, offload, true).is_ok() {
                notices.push(Notice::Offload { device: device.clone(), offload, on: true });
            }
            self.off.remove(&(device, offload));
        }
        self.note();
        notices
    }

    /// For the process that detaches the program. If it cannot be written, the offloads stay off then.
    fn note(&self) {
        let lines =
            self.off.iter().map(|(device, offload)| format!("{device} {}\n", offload.word()));
        let text: String = lines.collect();
        if text.is_empty() {
            let _ = fs::remove_file(&self.file);
        } else {
            let _ = fs::write(&self.file, text);
        }
    }
}
