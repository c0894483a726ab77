//! Attaches, swaps and detaches the programs on interfaces, and waits for missing interfaces.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::os::fd::BorrowedFd;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::device::Device;
use super::link::{Link, Occupant, XdpMode, mode_of, occupant};
use super::notice::Notice;
use super::offloads::Offloads;
use crate::program::Entry;

/// Kind of packets that arrive on an interface.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Role {
    /// Packets for VIPs, and possibly replies.
    Clients,
    /// nat: replies of backends only.
    Replies,
}

impl Role {
    /// Returns the program of the role.
    pub(super) fn entry(self) -> Entry {
        match self {
            Role::Clients => Entry::Balance,
            Role::Replies => Entry::Reverse,
        }
    }
}

/// State of an interface.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum InterfaceState {
    /// The program runs on it.
    Attached(XdpMode),
    /// The interface does not exist; the engine waits for it.
    Absent,
    /// The program cannot be attached; the engine tries again when links change.
    Failed(String),
}

/// Status of an interface.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct InterfaceStatus {
    /// Name of the interface.
    pub name: Arc<str>,
    /// Kind of packets that arrive on it.
    pub role: Role,
    /// State of the interface.
    pub state: InterfaceState,
}

#[derive(Debug)]
struct Attachment {
    role: Role,
    /// The link, and the index of the interface that it was made for.
    link: Option<(u32, Link)>,
    state: InterfaceState,
}

/// Attachments by interface.
#[derive(Debug)]
pub(super) struct Attachments {
    pins: PathBuf,
    by_name: BTreeMap<Arc<str>, Attachment>,
    offloads: Offloads,
}

/// Prefix of the names of pinned links; the interface's name follows.
const PIN_PREFIX: &str = "link-";

impl Attachments {
    /// Makes it without attachments. Links will be pinned in `pins`.
    pub(super) fn new(pins: &Path, offloads: Offloads) -> Attachments {
        Attachments { pins: pins.to_owned(), by_name: BTreeMap::new(), offloads }
    }

    fn pin_of(&self, name: &str) -> PathBuf {
        self.pins.join(format!("{PIN_PREFIX}{name}"))
    }

    /// Attaches the programs to the interfaces in `wanted`, and to no others. `device` returns an
    /// interface, `program` a program.
    ///
    /// A link that another process pinned gets the program of this process. With `may_switch`, a
    /// program in a mode that loses packets is attached again in another mode.
    pub(super) fn follow<'p>(
        &mut self,
        wanted: &BTreeMap<Arc<str>, Role>,
        device: impl Fn(&str) -> Option<Device>,
        program: impl Fn(Role) -> BorrowedFd<'p>,
        may_switch: bool,
    ) -> Vec<Notice> {
        let mut notices = self.release(wanted);
        let mut needed = BTreeSet::new();
        for (name, role) in wanted {
            let pin = self.pin_of(name);
            let attachment = self.by_name.entry(Arc::clone(name)).or_insert(Attachment {
                role: *role,
                link: None,
                state: InterfaceState::Absent,
            });
            let before = attachment.state.clone();
            let role_changed = std::mem::replace(&mut attachment.role, *role) != *role;
            let device = device(name);
            attachment.state = match &device {
                None => {
                    attachment.link = None;
                    // The old link is useless when the interface returns.
                    let _ = std::fs::remove_file(&pin);
                    InterfaceState::Absent
                }
                Some(device) => {
                    let offloads = &mut self.offloads;
                    let mut place = Place { name, device, pin: &pin, offloads, may_switch };
                    attachment.attach(&mut place, program(*role), role_changed, &mut notices)
                }
            };
            let state = &attachment.state;
            if *state != before || before == InterfaceState::Absent {
                notices.extend(device.iter().flat_map(|device| device.warnings(name, state)));
                notices.push(Notice::Interface { name: Arc::clone(name), state: state.clone() });
            }
            // Also while attaching fails: switching them on again would change the link, and cause
            // another attempt.
            if let Some(device) = &device {
                needed.extend(device.stripping());
                needed.extend(device.merging(match state {
                    InterfaceState::Attached(mode) => *mode,
                    _ => XdpMode::Generic,
                }));
            }
        }
        notices.extend(self.offloads.restore(&needed));
        notices
    }

    /// Detaches from all interfaces that are not in `wanted`, including those of links that an
    /// earlier process pinned.
    fn release(&mut self, wanted: &BTreeMap<Arc<str>, Role>) -> Vec<Notice> {
        self.by_name.retain(|name, _| wanted.contains_key(name));
        let mut notices = Vec::new();
        for (name, pin) in pinned(&self.pins) {
            if !wanted.contains_key(&*name) {
                detach(&pin);
                notices.push(Notice::Detached { name });
            }
        }
        notices
    }

    /// Detaches from all interfaces, and switches the offloads on again.
    pub(super) fn clear(&mut self) -> Vec<Notice> {
        let mut notices = self.release(&BTreeMap::new());
        notices.extend(self.offloads.restore(&BTreeSet::new()));
        notices
    }

    /// Returns the status of each interface.
    pub(super) fn status(&self) -> Vec<InterfaceStatus> {
        let status = |(name, attachment): (&Arc<str>, &Attachment)| InterfaceStatus {
            name: Arc::clone(name),
            role: attachment.role,
            state: attachment.state.clone(),
        };
        self.by_name.iter().map(status).collect()
    }
}

/// Target of an attachment.
struct Place<'a> {
    name: &'a str,
    device: &'a Device,
    pin: &'a Path,
    offloads: &'a mut Offloads,
    /// Whether a running program may be attached again in another mode.
    may_switch: bool,
}

impl Attachment {
    fn attach(
        &mut self,
        place: &mut Place<'_>,
        program: BorrowedFd<'_>,
        role_changed: bool,
        notices: &mut Vec<Notice>,
    ) -> InterfaceState {
        let Place { name, device, pin, may_switch, .. } = *place;
        let of_now = |link: &Link| link.ifindex().is_ok_and(|of| of == device.index);
        if !self.link.as_ref().is_some_and(|(at, link)| *at == device.index && of_now(link)) {
            self.link = None;
        }
        if may_switch
            && self.link.is_some()
            && !device.is_mode_right(mode_of(device.index).unwrap_or_default())
        {
            // The kernel runs a program in one mode only, so there is a short gap.
            detach(pin);
            self.link = None;
        }
        // A running program stays attached: detaching it would end its flows.
        let was_running = self.link.is_some();
        // Before the program sees a packet.
        if let Err(why) = place.offloads.turn_off(&device.stripping(), notices)
            && device.has_vlans
            && !was_running
        {
            return self.refuse(why, pin);
        }
        let attached = match &self.link {
            Some(_) if !role_changed => Ok(()),
            Some((_, link)) => link.update(program),
            None => adopt_or_create(device, program, pin).map(|link| {
                self.link = Some((device.index, link));
            }),
        };
        let mode = match attached.and_then(|()| mode_of(device.index)) {
            Ok(mode) => mode.unwrap_or(XdpMode::Native),
            Err(error) => return InterfaceState::Failed(reason(&error, name, device.index)),
        };
        match place.offloads.turn_off(&device.merging(mode), notices) {
            Ok(()) => InterfaceState::Attached(mode),
            Err(_) if was_running => InterfaceState::Attached(mode),
            Err(why) => self.refuse(why, pin),
        }
    }

    /// Detaches the program from an interface that would show it other packets than those on the
    /// wire.
    fn refuse(&mut self, why: String, pin: &Path) -> InterfaceState {
        self.link = None;
        detach(pin);
        InterfaceState::Failed(why)
    }
}

/// Opens the pinned link and swaps its program, or creates a new link.
fn adopt_or_create(device: &Device, program: BorrowedFd<'_>, pin: &Path) -> io::Result<Link> {
    let index = device.index;
    if let Ok(link) = Link::open(pin)
        && link.ifindex().is_ok_and(|of| of == index)
    {
        if device.is_mode_right(mode_of(index).unwrap_or_default()) {
            link.update(program)?;
            return Ok(link);
        }
        let _ = link.detach();
    }
    let _ = std::fs::remove_file(pin);
    let link = match device.not_native {
        Some(_) => Link::create(program, index, XdpMode::Generic)?,
        None => match Link::create(program, index, XdpMode::Native) {
            // The interface has another program, in some mode.
            Err(error) if error.raw_os_error() == Some(libc::EBUSY) => return Err(error),
            Err(_) => Link::create(program, index, XdpMode::Generic)?,
            Ok(link) => link,
        },
    };
    link.pin(pin)?;
    Ok(link)
}

fn reason(error: &io::Error, name: &str, index: u32) -> String {
    match error.raw_os_error() {
        // EEXIST: it runs in the other mode.
        Some(libc::EBUSY | libc::EEXIST) => occupied_by(occupant(index).ok().flatten(), name),
        Some(libc::EPERM) => "not permitted: run as root, or with CAP_NET_ADMIN and CAP_BPF".into(),
        _ => error.to_string(),
    }
}

/// Explains why the program cannot be attached, with the command to run.
fn occupied_by(occupant: Option<Occupant>, name: &str) -> String {
    let Some(Occupant { program, mode }) = occupant else {
        return format!("another XDP program was attached to {name} (`ip link show dev {name}`)");
    };
    let (mode, keyword) = match mode {
        XdpMode::Native => ("native", "xdpdrv"),
        XdpMode::Generic => ("generic", "xdpgeneric"),
    };
    format!(
        "another XDP program is attached there: id {program}, in {mode} mode; see `bpftool prog show id {program}`, and take \
         it off with `ip link set dev {name} {keyword} off`, or end the process that holds its link (`bpftool link show`)"
    )
}

/// Returns the pinned links: interface and path.
fn pinned(pins: &Path) -> Vec<(Arc<str>, PathBuf)> {
    let entries = std::fs::read_dir(pins).into_iter().flatten().flatten();
    entries
        .filter_map(|entry| {
            let name = entry.file_name().to_str()?.strip_prefix(PIN_PREFIX)?.into();
            Some((name, entry.path()))
        })
        .collect()
}

fn detach(pin: &Path) {
    if let Ok(link) = Link::open(pin) {
        // If the interface is gone, there is nothing to detach.
        let _ = link.detach();
    }
    let _ = std::fs::remove_file(pin);
}

/// Detaches every program that an earlier process pinned in `pins`, and switches its offloads on
/// again. Returns the interfaces.
pub(super) fn detach_all(pins: &Path, mut offloads: Offloads) -> Vec<Arc<str>> {
    let pinned = pinned(pins);
    pinned.iter().for_each(|(_, pin)| detach(pin));
    offloads.restore(&BTreeSet::new()).iter().for_each(Notice::log);
    pinned.into_iter().map(|(name, _)| name).collect()
}
