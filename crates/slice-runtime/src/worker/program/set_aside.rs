//! Items that ended the program again and again.

use std::io::{self, Write};
use std::path::{Path, PathBuf};

use equipoise_dds::items::DataItem;

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
    /// When the program has ended so often in a row with it in hand. 0: never.
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
        let mut desk = self.desk();
        let (slice, id, sender, timestamp) = match desk.work(suspect.number) {
            Some(Work::Item(item)) => (item.slice_id, item.id, item.sender_id, item.timestamp),
            // A state: nobody else may go on with its slice.
            Some(_) => {
                let ends = suspect.ends;
                tracing::error!(
                    ends,
                    "the slice worker's program has ended again with a slice's state in hand"
                );
                return;
            }
            None => return,
        };
        let ends = suspect.ends;
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
        if let (Some(folder), Some(Work::Item(item))) =
            (&self.set_aside.folder, desk.work(suspect.number))
            && let Err(error) = keep(folder, &item)
        {
            let folder = folder.display();
            tracing::error!(slice, id, sender, timestamp, %folder, %error, "cannot keep the item that ends the program: it is tried again");
            return;
        }
        let Some(job) = desk.remove(suspect.number) else { return };
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

fn keep(folder: &Path, item: &DataItem<'_>) -> io::Result<()> {
    std::fs::create_dir_all(folder)?;
    let DataItem { slice_id, id, sender_id, timestamp, message } = item;
    let path = folder.join(format!("{slice_id}-{id}-{sender_id}-{timestamp}"));
    let mut file = std::fs::File::create(path)?;
    file.write_all(message)?;
    file.sync_all()
}
