//! Files that outlive a process: maps and links in the BPF file system, and the flow registry.

use std::fs::{self, File};
use std::io;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use equipoise_basics::files;
use equipoise_pog::Seed;
use libbpf_rs::MapCore;
use rustix::fs::{FlockOperation, flock, statfs};
use rustix::mount::{MountFlags, mount};

use super::EngineError;
use crate::ledger::Ledger;
use crate::limits::Limits;
use crate::program::{MAPS, Program, TRANSLATED_FLOWS, TranslatedFlows};

/// Mount point of the BPF file system.
const BPF_FOLDER: &str = "/sys/fs/bpf";
/// `BPF_FS_MAGIC`
const BPF_MAGIC: i64 = 0xcafe_4a11;

/// Version of the layout: [`abi.h`](crate::abi) and everything else that two processes must agree
/// on.
const ABI_VERSION: u32 = 8;

/// The folders of an instance; one process at a time holds them.
#[derive(Debug)]
pub(super) struct Place {
    pins: PathBuf,
    run: PathBuf,
    /// Whether the BPF file system was not mounted, so that all pins are lost.
    was_unmounted: bool,
    _lock: File,
}

impl Place {
    /// Opens or creates the folders of `instance`. Mounts the BPF file system if necessary.
    pub(super) fn open(instance: &str, run_folder: &Path) -> Result<Place, EngineError> {
        let failed = |what: &Path| {
            let what = what.to_owned();
            move |source: io::Error| EngineError::Folder { what, source }
        };
        let run = run_folder.join(instance);
        fs::create_dir_all(&run).map_err(failed(&run))?;
        let lock_file = run.join("lock");
        let mut options = File::options();
        options.write(true).create(true).truncate(true).mode(0o640);
        let lock = options.open(&lock_file).map_err(failed(&lock_file))?;
        match flock(&lock, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => {}
            Err(rustix::io::Errno::WOULDBLOCK) => {
                return Err(EngineError::Running { instance: instance.into() });
            }
            Err(error) => return Err(failed(&lock_file)(error.into())),
        }
        let was_unmounted = mount_bpf().map_err(failed(Path::new(BPF_FOLDER)))?;
        let pins = pin_folder(instance);
        fs::create_dir_all(&pins).map_err(failed(&pins))?;
        Ok(Place { pins, run, was_unmounted, _lock: lock })
    }

    /// Returns the folder of pinned maps and links.
    pub(super) fn pins(&self) -> &Path {
        &self.pins
    }

    /// Returns the path of the flow registry.
    pub(super) fn registry(&self) -> PathBuf {
        self.run.join("flows")
    }

    /// Returns the path of the list of offloads.
    pub(super) fn offloads(&self) -> PathBuf {
        self.run.join("offloads")
    }

    fn ledger_file(&self) -> PathBuf {
        self.run.join("ledger")
    }

    /// Reads the ledger of the previous process; the error explains why it is unusable.
    pub(super) fn ledger(&self) -> Result<Ledger, String> {
        let file = self.ledger_file();
        let text = match fs::read_to_string(&file) {
            Ok(text) => text,
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                return Err(format!("{} is not there", file.display()));
            }
            Err(error) => return Err(format!("{} cannot be read: {error}", file.display())),
        };
        Ledger::read(&text).map_err(|error| format!("{} cannot be used: {error}", file.display()))
    }

    /// Replaces the ledger for the next process.
    pub(super) fn note(&self, ledger: &Ledger) -> io::Result<()> {
        files::replace_volatile(&self.ledger_file(), ledger.to_string().as_bytes(), 0o600)
    }

    /// Explains the loss of an earlier process's maps.
    pub(super) fn where_maps_went(&self) -> &'static str {
        if self.was_unmounted {
            "they are gone: no BPF file system was mounted on /sys/fs/bpf (under `ip netns exec` each command has a /sys \
             of its own: mount it there yourself, or use `nsenter --net`)"
        } else {
            "they are gone from /sys/fs/bpf, as after a reboot"
        }
    }

    fn layout(&self) -> PathBuf {
        self.run.join("layout")
    }

    /// Whether the pinned maps are usable; the error is the reason why existing maps are not.
    pub(super) fn adoptable(&self, limits: &Limits) -> Result<bool, &'static str> {
        if !MAPS.iter().any(|map| self.pins.join(map).exists()) {
            return Ok(false);
        }
        if !MAPS.iter().all(|map| self.pins.join(map).exists()) {
            return Err("some of its maps are gone");
        }
        match fs::read_to_string(self.layout()) {
            Ok(text) if text == layout_text(limits) => Ok(true),
            Ok(text) if text.lines().next() != layout_text(limits).lines().next() => {
                Err("another version of equipoise made them")
            }
            Ok(_) => Err("they have other sizes ([flows] max, pins-max and the like)"),
            Err(_) => Err("it is not known what made them"),
        }
    }

    /// Pins the maps of a program, replacing existing pins.
    pub(super) fn pin_maps(
        &self,
        program: &mut Program,
        limits: &Limits,
    ) -> Result<(), EngineError> {
        // Without this file no process adopts an incomplete set of maps.
        let _ = fs::remove_file(self.layout());
        let _ = fs::remove_file(self.pins.join(TRANSLATED_FLOWS));
        for mut map in program.object_mut().maps_mut() {
            let Some(name) = MAPS.iter().find(|name| map.name() == **name) else { continue };
            let path = self.pins.join(name);
            let _ = fs::remove_file(&path);
            map.pin(&path).map_err(|source| EngineError::Pin { path, source })?;
        }
        if let Some(flows) = program.translated_mut() {
            self.pin_translated(flows)?;
        }
        let layout = self.layout();
        files::replace_volatile(&layout, layout_text(limits).as_bytes(), 0o600)
            .map_err(|source| EngineError::Folder { what: layout, source })
    }

    /// Pins the map of nat's flows.
    pub(super) fn pin_translated(&self, flows: &mut TranslatedFlows) -> Result<(), EngineError> {
        let pinned = flows.pin(&self.pins);
        let path = self.pins.join(TRANSLATED_FLOWS);
        pinned.map_err(|source| EngineError::Pin { path, source })
    }

    /// Removes all files after the programs are detached.
    pub(super) fn remove(self) {
        let _ = fs::remove_file(self.layout());
        for map in MAPS.iter().chain([&TRANSLATED_FLOWS]) {
            let _ = fs::remove_file(self.pins.join(map));
        }
        let _ = fs::remove_dir(&self.pins);
        let _ = fs::remove_file(self.registry());
        let _ = fs::remove_file(self.ledger_file());
        let _ = fs::remove_file(self.offloads());
        let _ = fs::remove_file(self.run.join("lock"));
        // Fails if the folder has the seed or files of others.
        let _ = fs::remove_dir(&self.run);
    }

    /// Returns this machine's seed. It is created once, so that a restarted process knows its
    /// flows.
    pub(super) fn seed(&self) -> Result<Seed, EngineError> {
        let file = self.run.join("seed");
        let failed = |source| EngineError::Folder { what: file.clone(), source };
        if let Some(seed) = fs::read(&file).ok().and_then(|bytes| seed_of(&bytes)) {
            return Ok(seed);
        }
        let mut bytes = [0; 16];
        let mut random = File::open("/dev/urandom").map_err(failed)?;
        io::Read::read_exact(&mut random, &mut bytes).map_err(failed)?;
        files::replace_volatile(&file, &bytes, 0o600).map_err(failed)?;
        Ok(seed_of(&bytes).unwrap_or_else(|| unreachable!("it has 16 bytes")))
    }
}

/// Returns the folder of an instance's pinned maps and links.
pub(super) fn pin_folder(instance: &str) -> PathBuf {
    Path::new(BPF_FOLDER).join("equipoise").join(instance)
}

fn seed_of(bytes: &[u8]) -> Option<Seed> {
    let (k0, k1) = bytes.split_first_chunk::<8>()?;
    let k1: &[u8; 8] = k1.try_into().ok()?;
    Some(Seed { k0: u64::from_le_bytes(*k0), k1: u64::from_le_bytes(*k1) })
}

fn layout_text(limits: &Limits) -> String {
    format!("abi {ABI_VERSION}\n{limits:?}\n")
}

/// Mounts the BPF file system. Returns whether it was not mounted.
fn mount_bpf() -> io::Result<bool> {
    if statfs(BPF_FOLDER)?.f_type as i64 == BPF_MAGIC {
        return Ok(false);
    }
    let flags = MountFlags::NOSUID | MountFlags::NODEV | MountFlags::NOEXEC;
    mount("bpf", BPF_FOLDER, "bpf", flags, Some(c"mode=0700"))?;
    Ok(true)
}
