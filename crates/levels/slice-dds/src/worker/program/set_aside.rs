//! Items that ended the program again and again.

use std::io::{self, Write};
use std::path::{Path, PathBuf};

use super::Shared;
use super::desk::Suspect;
use crate::worker::Work;

/// How often a program may end with one item in hand, if nobody says.
pub const SET_ASIDE_AFTER: u32 = 5;
/// How a reply begins to an item that was set aside.
pub const SET_ASIDE_REPLY: &str = "equipoise: set aside";

/// When an item is taken from the program that ends it, and where it goes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SetAside {
    /// When the program has ended so often in a row with it in hand. 0: never; 1 is as 2, as one end may be chance.
    pub after: u32,
    /// The folder in which its message is kept, in a file `SLICE-ID-SENDER-TIMESTAMP`. None: its publisher alone has it.
    pub folder: Option<PathBuf>,
}

impl Default for SetAside {
    fn default() -> Self {
        Self { after: SET_ASIDE_AFTER, folder: None }
    }
}

impl Shared {
    /// The program has ended, not for the first time, with this job in hand.
    pub(super) fn suspect(&self, suspect: &Suspect) {
        let Suspect { number, ends } = *suspect;
        let desk = self.desk();
        let (slice, id, sender, timestamp, message) = match desk.work(number) {
            Some(Work::Item(item)) => {
                (item.slice_id, item.id, item.sender_id, item.timestamp, item.message.to_vec())
            }
            // A state: nobody else may go on with its slice.
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
                "the slice worker's program has ended again with this item in hand: if that is why, have it answer such items"
            );
            return;
        }
        if !self.desk().may_begin(number) {
            return;
        }
        // The desk is not held meanwhile: the worker's engine needs it for every job. Nobody else takes the job, as no program runs.
        let name = format!("{slice}-{id}-{sender}-{timestamp}");
        if let Some(folder) = &self.set_aside.folder
            && let Err(error) = keep(folder, &name, &message)
        {
            let folder = folder.display();
            tracing::error!(slice, id, sender, timestamp, %folder, %error, "cannot keep the item that ends the program: it is tried again");
            return;
        }
        let mut desk = self.desk();
        // Where the disk is slow, the slice may have become another's.
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
            "set aside: the slice worker's program has ended so often with this item in hand. Its client is told so"
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
