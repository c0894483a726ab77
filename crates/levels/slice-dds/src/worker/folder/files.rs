//! The files of checkpoints: `FOLDER/SLICE/EPOCH`. An epoch belongs to one owner of the slice, so
//! two workers never write one file, and the largest epoch counts.

use std::fs::{self, File};
use std::io;
use std::path::Path;

use equipoise_basics::files;
use equipoise_slice::SliceId;
use equipoise_slice::worker::Checkpoint;

use crate::stream::fnv1a;

/// First bytes of a file. The last one is the version of the format.
const HEAD: [u8; 8] = *b"eqslice\x01";
const SUM_BYTES: usize = 8;
/// Longer than any state.
const BYTES_MAX: u64 = 1 << 40;
/// Suffix of files that could not be read.
const UNREAD: &str = "unread";

/// Writes a checkpoint durably, and removes those of earlier epochs. `keeps_earlier`: those could
/// not be read, and are renamed.
pub(super) fn store(
    folder: &Path,
    slice: SliceId,
    checkpoint: &Checkpoint,
    keeps_earlier: bool,
) -> io::Result<()> {
    let of_slice = folder.join(slice.0.to_string());
    make(folder)?;
    make(&of_slice)?;
    let epoch = checkpoint.version.epoch.0;
    files::replace(&of_slice.join(epoch.to_string()), &encode(checkpoint)?, 0o600)?;
    for (earlier, name) in names(&of_slice)? {
        if earlier < epoch {
            let path = of_slice.join(name);
            // It is not the last one, so a failure changes nothing.
            let _ = match keeps_earlier {
                true => fs::rename(&path, path.with_extension(UNREAD)),
                false => fs::remove_file(&path),
            };
        }
    }
    Ok(())
}

/// Reads the last checkpoint of `slice`. `None`: there is none.
pub(super) fn load(folder: &Path, slice: SliceId) -> io::Result<Option<Checkpoint>> {
    let of_slice = folder.join(slice.0.to_string());
    let last = match names(&of_slice) {
        Ok(names) => names.into_iter().max(),
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            // Perhaps it is not mounted.
            fs::metadata(folder.parent().unwrap_or(folder))?;
            None
        }
        Err(error) => return Err(error),
    };
    let Some((_, name)) = last else { return Ok(None) };
    let bytes = files::read(&of_slice.join(name), BYTES_MAX)?;
    decode(&bytes).map(Some)
}

/// Creates a folder in an existing one, durably.
fn make(folder: &Path) -> io::Result<()> {
    match fs::create_dir(folder) {
        Ok(()) => File::open(folder.parent().unwrap_or(folder))?.sync_all(),
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists && folder.is_dir() => Ok(()),
        Err(error) => Err(error),
    }
}

/// The epochs in the folder of a slice, with their files' names.
fn names(folder: &Path) -> io::Result<Vec<(u64, String)>> {
    let mut names = Vec::new();
    for entry in fs::read_dir(folder)? {
        if let Ok(name) = entry?.file_name().into_string()
            && let Ok(epoch) = name.parse()
        {
            names.push((epoch, name));
        }
    }
    Ok(names)
}

fn encode(checkpoint: &Checkpoint) -> io::Result<Vec<u8>> {
    let body = postcard::to_stdvec(checkpoint).map_err(io::Error::other)?;
    let sum = fnv1a(&body).to_le_bytes();
    Ok([&HEAD[..], &sum, &body].concat())
}

fn decode(bytes: &[u8]) -> io::Result<Checkpoint> {
    let wrong = |text: &str| io::Error::new(io::ErrorKind::InvalidData, text.to_string());
    let Some(rest) = bytes.strip_prefix(&HEAD) else {
        return Err(wrong("not a checkpoint, or one of another version of equipoise"));
    };
    let damaged = || wrong("the checkpoint is damaged");
    let (sum, body) = rest.split_first_chunk::<SUM_BYTES>().ok_or_else(damaged)?;
    if fnv1a(body) != u64::from_le_bytes(*sum) {
        return Err(damaged());
    }
    postcard::from_bytes(body).map_err(|_| damaged())
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;
    use std::path::PathBuf;
    use std::sync::Arc;

    use equipoise_slice::{Group, HandoverId, Positions, SnapshotId, Writer};
    use equipoise_testkit::Folder;

    use super::*;

    const SLICE: SliceId = SliceId(7);

    fn checkpoint(epoch: u64, number: u64, state: Option<&[u8]>) -> Checkpoint {
        let mut contained = Positions::default();
        contained.set(Writer { group: Group::BASE, id: 5 }, number);
        let version = SnapshotId { epoch: HandoverId(epoch), number };
        Checkpoint { version, contained, state: state.map(Arc::from) }
    }

    fn listed(folder: &Path) -> Vec<String> {
        let names = fs::read_dir(folder).unwrap();
        let mut names: Vec<_> =
            names.map(|it| it.unwrap().file_name().into_string().unwrap()).collect();
        names.sort();
        names
    }

    fn stage(test: &str) -> (Folder, PathBuf) {
        let root = Folder::new(test);
        let folder = root.root().join("stream-8");
        (root, folder)
    }

    #[test]
    fn the_last_checkpoint_is_read_and_earlier_checkpoints_are_removed() {
        let (_root, folder) = stage("folder-last");
        assert_eq!(load(&folder, SLICE).unwrap(), None);
        for (epoch, number) in [(9, 1), (9, 2), (10, 1)] {
            let stored = checkpoint(epoch, number, Some(b"state"));
            store(&folder, SLICE, &stored, false).unwrap();
            assert_eq!(load(&folder, SLICE).unwrap(), Some(stored));
        }
        assert_eq!(listed(&folder.join("7")), ["10"]);
        let mode = fs::metadata(folder.join("7/10")).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o600, "only its owner reads a state");
        // An earlier owner that was paused.
        store(&folder, SLICE, &checkpoint(9, 3, None), false).unwrap();
        assert_eq!(load(&folder, SLICE).unwrap(), Some(checkpoint(10, 1, Some(b"state"))));
        assert_eq!(load(&folder, SliceId(8)).unwrap(), None);
    }

    #[test]
    fn damaged_checkpoint_files_are_refused_and_kept() {
        let (_root, folder) = stage("folder-damaged");
        store(&folder, SLICE, &checkpoint(3, 1, Some(b"state")), false).unwrap();
        let path = folder.join("7/3");
        let good = fs::read(&path).unwrap();
        for length in 0..good.len() {
            fs::write(&path, &good[..length]).unwrap();
            load(&folder, SLICE).expect_err("a part of it");
        }
        for at in 0..good.len() {
            let mut bad = good.clone();
            bad[at] ^= 1;
            fs::write(&path, &bad).unwrap();
            load(&folder, SLICE).expect_err("a changed bit");
        }
        store(&folder, SLICE, &checkpoint(4, 1, None), true).unwrap();
        assert_eq!(listed(&folder.join("7")), ["3.unread", "4"]);
        assert_eq!(load(&folder, SLICE).unwrap(), Some(checkpoint(4, 1, None)));
    }

    #[test]
    fn a_folder_that_is_not_mounted_is_an_error() {
        let folder = Path::new("/none/such/stream-8");
        assert_eq!(load(folder, SLICE).unwrap_err().kind(), io::ErrorKind::NotFound);
        let stored = store(folder, SLICE, &checkpoint(3, 1, None), false);
        assert_eq!(stored.unwrap_err().kind(), io::ErrorKind::NotFound);
    }
}
