use std::path::Path;
use std::sync::{Arc, Mutex};

use equipoise_testkit::Folder;

use super::*;

const GRO: Offload = Offload::Merging;

/// A device with a driver that may fail or ignore commands, and the list's contents before each
/// command.
#[derive(Debug, Default)]
struct Driver {
    is_on: bool,
    error: Option<i32>,
    is_deaf: bool,
    lists: Vec<String>,
}

#[derive(Clone, Debug)]
struct Board(Arc<Mutex<Driver>>, PathBuf);

impl Switchboard for Board {
    fn is_on(&self, _interface: &str, _offload: Offload) -> bool {
        self.0.lock().unwrap().is_on
    }

    fn set(&self, _interface: &str, _offload: Offload, on: bool) -> io::Result<()> {
        let mut driver = self.0.lock().unwrap();
        driver.lists.push(listed(&self.1));
        if let Some(error) = driver.error {
            return Err(io::Error::from_raw_os_error(error));
        }
        if !driver.is_deaf {
            driver.is_on = on;
        }
        Ok(())
    }
}

fn listed(file: &Path) -> String {
    fs::read_to_string(file).unwrap_or_default()
}

/// The offloads of one device with merging on.
fn offloads(name: &str) -> (Folder, PathBuf, Board, Offloads) {
    let folder = Folder::new(name);
    let file = folder.path("offloads");
    let driver = Driver { is_on: true, ..Driver::default() };
    let board = Board(Arc::new(Mutex::new(driver)), file.clone());
    let offloads = Offloads::over(Some(Box::new(board.clone())), file.clone(), true);
    (folder, file, board, offloads)
}

fn turn_off(offloads: &mut Offloads) -> Result<(), String> {
    offloads.turn_off(&[("eth0".to_owned(), GRO)], &mut Vec::new())
}

#[test]
fn an_offload_is_listed_before_it_is_turned_off_and_until_it_is_on_again() {
    let (_folder, file, board, mut offloads) = offloads("offloads-listed");
    turn_off(&mut offloads).unwrap();
    assert!(!board.0.lock().unwrap().is_on);
    // The process ends here, and the next one has only the list.
    let mut next = Offloads::over(Some(Box::new(board.clone())), file.clone(), true);
    assert_eq!(next.restore(&BTreeSet::new()).len(), 1);
    assert_eq!(board.0.lock().unwrap().lists, ["eth0 gro\n"; 2]);
    assert!(board.0.lock().unwrap().is_on);
    assert_eq!(listed(&file), "");
}

#[test]
fn an_offload_that_cannot_be_turned_on_again_stays_listed_and_is_tried_again() {
    let (_folder, file, board, mut offloads) = offloads("offloads-stuck");
    turn_off(&mut offloads).unwrap();
    for (error, is_deaf) in [(Some(libc::EBUSY), false), (None, true)] {
        let mut driver = board.0.lock().unwrap();
        (driver.error, driver.is_deaf) = (error, is_deaf);
        drop(driver);
        offloads.stuck.clear();
        let notices = [(); 2].map(|()| offloads.restore(&BTreeSet::new()));
        assert!(matches!(&notices[0][..], [Notice::OffloadStuck { .. }]), "{notices:?}");
        assert!(notices[1].is_empty(), "said once: {notices:?}");
        assert_eq!(listed(&file), "eth0 gro\n");
    }
    board.0.lock().unwrap().is_deaf = false;
    offloads.restore(&BTreeSet::new());
    assert!(board.0.lock().unwrap().is_on);
    assert_eq!(listed(&file), "");
}

#[test]
fn the_offload_of_a_removed_device_is_deleted_from_the_list() {
    let (_folder, file, board, mut offloads) = offloads("offloads-gone");
    turn_off(&mut offloads).unwrap();
    board.0.lock().unwrap().error = Some(libc::ENODEV);
    assert!(offloads.restore(&BTreeSet::new()).is_empty());
    assert_eq!(listed(&file), "");
}

#[test]
fn an_offload_that_its_driver_keeps_on_is_refused_and_not_listed() {
    let (_folder, file, board, mut offloads) = offloads("offloads-deaf");
    board.0.lock().unwrap().is_deaf = true;
    let why = turn_off(&mut offloads).unwrap_err();
    assert!(why.contains("its driver keeps it on"), "{why}");
    board.0.lock().unwrap().error = Some(libc::EOPNOTSUPP);
    let why = turn_off(&mut offloads).unwrap_err();
    assert!(why.contains("cannot be turned off"), "{why}");
    assert_eq!(listed(&file), "");
}
