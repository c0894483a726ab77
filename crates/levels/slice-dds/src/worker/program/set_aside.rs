//! Quarantine of items with which the program ended repeatedly.

use std::io::{self, Write};
use std::path::{Path, PathBuf};

use super::Shared;
use super::desk::Suspect;
use crate::worker::Work;

/// Default of [`SetAside::after`].
pub const SET_ASIDE_AFTER: u32 = 5;
/// The first words of the reply to a quarantined item.
pub const SET_ASIDE_REPLY: &str = "equipoise: set aside";

/// When an item is quarantined, and where it is stored.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SetAside {
    /// Number of successive ends of the program with the item in hand after which it is
    /// quarantined. 0: never. 1 counts as 2, because a single end may be chance.
    pub after: u32,
    /// Folder for the item's message, in a file `SLICE-ID-SENDER-TIMESTAMP`. `None`: only the
    /// publisher has it.
    pub folder: Option<PathBuf>,
}

impl Default for SetAside {
    fn default() -> Self {
        Self { after: SET_ASIDE_AFTER, folder: None }
    }
}

impl Shared {
    /// Handles a job that the program has had in hand at several ends.
    pub(super) fn suspect(&self, suspect: &Suspect) {
        let Suspect { number, ends } = *suspect;
        let desk = self.desk();
        let (slice, id, sender, timestamp, message) = match desk.work(number) {
            Some(Work::Item(item)) => {
                (item.slice_id, item.id, item.sender_id, item.timestamp, item.message.to_vec())
            }
            // A state is not quarantined: no other job of its slice may continue without it.
            Some(_) => {
                tracing::error!(
                    ends,
                    "the slice worker's program has ended again with a slice's state in hand"
                );
                return;
            }
            None => return,
        };
        drop(desk);
        if self.set_aside.after == 0 || ends < self.set_aside.after {
            tracing::warn!(
                slice,
                id,
                sender,
                timestamp,
                ends,
                "the slice worker's program has ended again with this item in hand: if the item is the cause, change the program to acknowledge such items"
            );
            return;
        }
        if !self.desk().may_begin(number) {
            return;
        }
        // The desk is not locked during the write, because the worker's engine needs it for every
        // job. No program runs, so no other thread takes the job.
        let name = format!("{slice}-{id}-{sender}-{timestamp}");
        if let Some(folder) = &self.set_aside.folder
            && let Err(error) = keep(folder, &name, &message)
        {
            let folder = folder.display();
            tracing::error!(slice, id, sender, timestamp, %folder, %error, "cannot store the item that ends the program; the program receives it again");
            return;
        }
        let mut desk = self.desk();
        // During a slow write the slice may have moved to another worker.
        if !desk.may_begin(number) {
            return;
        }
        let Some(job) = desk.remove(number) else { return };
        drop(desk);
        tracing::error!(
            slice,
            id,
            sender,
            timestamp,
            ends,
            "set aside: the slice worker's program has ended repeatedly with this item in hand"
        );
        job.set_aside(ends);
    }
}

fn keep(folder: &Path, name: &str, message: &[u8]) -> io::Result<()> {
    std::fs::create_dir_all(folder)?;
    let mut file = std::fs::File::create(folder.join(name))?;
    file.write_all(message)?;
    file.sync_all()
}
