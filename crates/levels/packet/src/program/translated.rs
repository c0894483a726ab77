//! The map of nat's flows, which exists from the first VIP with nat on.
//!
//! The program finds it in the only entry of the map `translated`, so that a configuration without
//! nat takes no memory for it. The size is that of the program's limits, whether it exists or not:
//! tables can be taken over by a process with another configuration.

use std::os::fd::{AsFd, AsRawFd};
use std::path::Path;

use libbpf_rs::{MapCore, MapFlags, MapHandle, MapType, OpenMapMut, libbpf_sys};

use super::{LoadError, Program};
use crate::limits::Limits;
use crate::memory::{Area, MapError};

/// The map that has it in its entry, as the object names it.
pub(super) const HOLDER: &str = "translated";
/// Name of its pin beside those of [`MAPS`](super::MAPS).
pub const TRANSLATED_FLOWS: &str = "translated-flows";
/// As the kernel lists it.
const NAME: &str = "translated_flow";
/// The key of the only entry.
const KEY: [u8; 4] = [0; 4];

/// Memory for the flows of nat, which no program uses yet.
#[derive(Debug)]
pub struct TranslatedFlows(MapHandle);

impl TranslatedFlows {
    /// Allocates it.
    ///
    /// # Errors
    /// [`LoadError::Room`], [`LoadError::Privilege`]
    pub fn create(limits: &Limits) -> Result<TranslatedFlows, LoadError> {
        let bytes = limits.translated_bytes();
        let options = libbpf_sys::bpf_map_create_opts {
            sz: size_of::<libbpf_sys::bpf_map_create_opts>() as libbpf_sys::size_t,
            map_flags: libbpf_sys::BPF_F_MMAPABLE,
            ..Default::default()
        };
        let created = MapHandle::create(MapType::Array, Some(NAME), 4, bytes, 1, &options);
        let failed = |source: libbpf_rs::Error| match source.kind() {
            libbpf_rs::ErrorKind::PermissionDenied => LoadError::Privilege(source),
            _ => LoadError::Room { bytes: bytes as usize, source },
        };
        created.map(TranslatedFlows).map_err(failed)
    }

    /// Opens what an earlier process pinned in `folder`; `None`: it had no nat.
    pub(super) fn pinned(folder: &Path) -> Result<Option<TranslatedFlows>, LoadError> {
        let path = folder.join(TRANSLATED_FLOWS);
        if !path.exists() {
            return Ok(None);
        }
        let opened = MapHandle::from_pinned_path(&path).map(TranslatedFlows).map(Some);
        opened.map_err(|source| LoadError::Pinned { path, source })
    }

    /// Pins it in `folder`, in place of another.
    pub(crate) fn pin(&mut self, folder: &Path) -> libbpf_rs::Result<()> {
        let path = folder.join(TRANSLATED_FLOWS);
        let _ = std::fs::remove_file(&path);
        self.0.pin(path)
    }

    /// The map.
    pub fn map(&self) -> &MapHandle {
        &self.0
    }

    /// Sets the form of the entry of the map that will hold it. The returned example is needed
    /// until that map is created; the kernel keeps only its sizes.
    pub(super) fn shape(
        holder: &mut OpenMapMut<'_>,
        limits: &Limits,
    ) -> Result<TranslatedFlows, LoadError> {
        let example = TranslatedFlows::create(limits)?;
        let set = holder.set_inner_map_fd(example.0.as_fd());
        set.map_err(|source| LoadError::Refused { log: String::new(), source })?;
        Ok(example)
    }
}

impl Program {
    /// Whether there is memory for flows of nat.
    pub fn translates(&self) -> bool {
        self.translated.is_some()
    }

    /// Memory for flows of nat, if there is one.
    pub fn translated(&self) -> Option<&TranslatedFlows> {
        self.translated.as_ref()
    }

    /// The same, to be pinned.
    pub(crate) fn translated_mut(&mut self) -> Option<&mut TranslatedFlows> {
        self.translated.as_mut()
    }

    /// Gives the program memory for flows of nat. Without it, clients get no replies under nat.
    ///
    /// # Errors
    /// [`LoadError::Map`], [`LoadError::Room`]
    pub fn translate(&mut self, flows: TranslatedFlows) -> Result<(), LoadError> {
        let bytes = self.limits.translated_bytes() as usize;
        let area = Area::map(flows.0.as_fd(), bytes);
        let failed = |source| MapError { what: TRANSLATED_FLOWS, bytes, source };
        let area = area.map_err(failed)?;
        let held = self.map(HOLDER).map(|holder| {
            let entry = flows.0.as_fd().as_raw_fd().to_ne_bytes();
            holder.update(&KEY, &entry, MapFlags::ANY)
        });
        held.transpose().map_err(|source| LoadError::Room { bytes, source })?;
        self.memory.translated.begin(area);
        self.translated = Some(flows);
        Ok(())
    }
}
