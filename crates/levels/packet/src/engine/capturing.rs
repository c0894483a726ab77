//! Captures of packets: their description in the program, and the thread that reads the ring.

use std::collections::HashMap;
use std::net::IpAddr;
use std::os::fd::{AsFd, AsRawFd};
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::{Arc, Mutex};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use equipoise_basics::lock;
use libbpf_rs::{MapCore, MapFlags, MapHandle, MapType, RingBufferBuilder, libbpf_sys};

use crate::abi::{ANY_BACKEND, CAPTURED_BYTES, Capture, Captured, How};
use crate::capture::{CaptureError, CaptureEvent, CaptureRequest, CaptureSink, CapturedPacket};
use crate::directory::address_bytes;
use crate::memory::Memory;
use crate::privileges::{Capabilities, give_up};
use crate::program::Program;
use crate::reason::Reason;
use crate::snapshot::BackendId;

/// Longest time until the thread looks at the ends of captures.
const LOOK: Duration = Duration::from_millis(100);

/// The capture of an engine; at most one at a time.
#[derive(Default)]
pub(super) struct Capturing {
    /// Number of the last capture.
    last: u64,
    reader: Option<Reader>,
    of: Option<(CaptureRequest, Numbers)>,
}

/// The numbers of a VIP and perhaps of a backend, as the program counts them.
type Numbers = (u16, Option<u16>);

/// Backends by their numbers.
pub(super) type Names = HashMap<u32, BackendId>;

impl Capturing {
    /// Begins a capture of a service, and perhaps only of a backend. Returns its number.
    pub(super) fn begin(
        &mut self,
        program: &Program,
        request: &CaptureRequest,
        numbers: Numbers,
        names: Names,
        sink: CaptureSink,
    ) -> Result<u64, CaptureError> {
        if self.reader.as_ref().is_some_and(|reader| !reader.has_ended()) {
            return Err(CaptureError::Busy);
        }
        let kernel = |error: libbpf_rs::Error| CaptureError::Kernel(error.to_string());
        let map = |name| {
            let found = program.map(name);
            let map = found.ok_or_else(|| CaptureError::Kernel(format!("no map {name}")))?;
            MapHandle::try_from(&map).map_err(kernel)
        };
        let (wanted, holder) = (map("capture")?, map("captured")?);
        let ring = Ring::create(holder).map_err(kernel)?;
        let (id, clock) = (self.last + 1, Clock::now());
        let capture = description(id, request, numbers, clock);
        wanted.update(&KEY, capture.as_bytes(), MapFlags::ANY).map_err(kernel)?;
        let state = State {
            id,
            left: request.packets_max,
            until: Instant::now() + request.time_max,
            packets: 0,
            lost: 0,
            sink,
            clock,
            names,
        };
        self.reader = Some(Reader::start(ring, wanted, state)?);
        self.last = id;
        self.of = Some((request.clone(), numbers));
        mark(program.memory(), true);
        Ok(id)
    }

    /// Ends a capture, if it still runs.
    pub(super) fn end(&mut self, id: u64, memory: &Memory) {
        if id == self.last {
            mark(memory, false);
            self.reader = None;
            self.of = None;
        }
    }

    /// Ends the capture of a VIP or backend that was removed: another one may get its number.
    /// `numbers` returns those that a request has now.
    pub(super) fn end_of_removed(
        &mut self,
        memory: &Memory,
        numbers: impl FnOnce(&CaptureRequest) -> Option<Numbers>,
    ) {
        let is_removed = |(request, begun): &(_, _)| numbers(request) != Some(*begun);
        if self.of.as_ref().is_some_and(is_removed) {
            self.end(self.last, memory);
        }
    }
}

/// Ends a capture that a killed process has left, and frees its ring.
pub(super) fn forget(program: &Program) {
    mark(program.memory(), false);
    if let Some(holder) = program.map("captured") {
        let _ = holder.delete(&KEY);
    }
}

/// Tells the program on every CPU whether there is a capture.
pub(super) fn mark(memory: &Memory, is_capturing: bool) {
    memory.cpus.iter().for_each(|cpu| cpu.set_capturing(is_capturing));
}

/// The key of the only entry of the maps `capture` and `captured`.
const KEY: [u8; 4] = [0; 4];

/// The capture as the program reads it.
fn description(
    id: u64,
    request: &CaptureRequest,
    (service, backend): Numbers,
    clock: Clock,
) -> Capture {
    let (address, bits) = request.client.unwrap_or((IpAddr::from([0; 4]), 0));
    let mask = u128::MAX.checked_shl(128 - u32::from(bits)).unwrap_or_default().to_be_bytes();
    let (address, _) = address_bytes(address);
    Capture {
        id,
        until_ns: clock.monotonic_ns + request.time_max.as_nanos() as u64,
        source: std::array::from_fn(|at| address[at] & mask[at]),
        source_mask: mask,
        service: u32::from(service),
        backend: backend.map_or(ANY_BACKEND, u32::from),
        random_max: u32::MAX / request.every.max(1),
        snap_bytes: request.snap_bytes,
        left: request.packets_max as i32,
        lost: 0,
    }
}

/// Nanoseconds of the kernel's clock, and the time of day at the same moment.
#[derive(Clone, Copy)]
struct Clock {
    monotonic_ns: u64,
    at: SystemTime,
}

impl Clock {
    fn now() -> Clock {
        let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
        // SAFETY: the kernel writes one timespec.
        unsafe { libc::clock_gettime(libc::CLOCK_MONOTONIC, &raw mut time) };
        let monotonic_ns = time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64;
        Clock { monotonic_ns, at: SystemTime::now() }
    }

    fn at(&self, monotonic_ns: u64) -> SystemTime {
        let since = Duration::from_nanos(monotonic_ns.saturating_sub(self.monotonic_ns));
        self.at.checked_add(since).unwrap_or(UNIX_EPOCH)
    }
}

/// The ring of a capture, in the program's only entry for one. Dropping it frees its memory.
struct Ring {
    map: MapHandle,
    holder: MapHandle,
}

impl Ring {
    fn create(holder: MapHandle) -> libbpf_rs::Result<Ring> {
        let options = libbpf_sys::bpf_map_create_opts {
            sz: size_of::<libbpf_sys::bpf_map_create_opts>() as libbpf_sys::size_t,
            ..Default::default()
        };
        let name = Some("captured_ring");
        let map = MapHandle::create(MapType::RingBuf, name, 0, 0, CAPTURED_BYTES, &options)?;
        holder.update(&KEY, &map.as_fd().as_raw_fd().to_ne_bytes(), MapFlags::ANY)?;
        Ok(Ring { map, holder })
    }
}

impl Drop for Ring {
    fn drop(&mut self) {
        let _ = self.holder.delete(&KEY);
    }
}

/// The thread of a capture. Dropping it ends the capture.
struct Reader {
    stops: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

struct State {
    id: u64,
    left: u32,
    until: Instant,
    packets: u64,
    /// Packets for which the receiver had no room.
    lost: u64,
    sink: CaptureSink,
    clock: Clock,
    names: Names,
}

impl Reader {
    fn start(ring: Ring, wanted: MapHandle, state: State) -> Result<Reader, CaptureError> {
        let stops = Arc::new(AtomicBool::new(false));
        let stopped = Arc::clone(&stops);
        let read = move || {
            give_up(Capabilities::ALL);
            let id = state.id;
            let state = Arc::new(Mutex::new(state));
            if let Err(error) = read(&ring.map, &stopped, &state) {
                tracing::error!("packet: a capture ended: {error}");
            }
            // Packets for which the ring had no room.
            let counted = wanted.lookup(&KEY, MapFlags::ANY).ok().flatten();
            let counted = counted.and_then(|bytes| Capture::from_bytes(&bytes));
            let in_kernel = counted.filter(|it| it.id == id).map_or(0, |it| u64::from(it.lost));
            // The engine may not know yet that the capture has ended.
            let _ = wanted.update(&KEY, Capture::default().as_bytes(), MapFlags::ANY);
            let mut state = lock(&state);
            let (packets, lost) = (state.packets, state.lost + in_kernel);
            (state.sink)(CaptureEvent::End { packets, lost });
        };
        let thread = thread::Builder::new().name("packet-capture".into()).spawn(read);
        let thread = thread.map_err(|error| CaptureError::Kernel(error.to_string()))?;
        Ok(Reader { stops, thread: Some(thread) })
    }
}

impl Reader {
    fn has_ended(&self) -> bool {
        self.thread.as_ref().is_none_or(JoinHandle::is_finished)
    }
}

impl Drop for Reader {
    fn drop(&mut self) {
        self.stops.store(true, Relaxed);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

fn read(ring: &MapHandle, stops: &AtomicBool, state: &Arc<Mutex<State>>) -> libbpf_rs::Result<()> {
    let of_ring = Arc::clone(state);
    let mut builder = RingBufferBuilder::new();
    builder.add(ring, move |record| {
        lock(&of_ring).take(record);
        0
    })?;
    let ring = builder.build()?;
    while !stops.load(Relaxed) && !lock(state).is_over() {
        ring.poll(LOOK)?;
    }
    ring.consume()
}

impl State {
    fn is_over(&self) -> bool {
        self.left == 0 || Instant::now() >= self.until
    }

    /// Delivers a packet of this capture.
    fn take(&mut self, record: &[u8]) {
        let Some(head) = Captured::from_bytes(record).filter(|head| head.id == self.id) else {
            return;
        };
        let frame = record.get(size_of::<Captured>()..).unwrap_or_default();
        let bytes = frame.get(..head.captured_bytes as usize).unwrap_or(frame).to_vec();
        let dropped = (head.action < 0).then(|| Reason::from_number(-(head.action + 1) as u32));
        let packet = CapturedPacket {
            at: self.clock.at(head.at_ns),
            frame_bytes: head.frame_bytes,
            bytes,
            backend: self.names.get(&head.backend).copied(),
            how: How::from_number(head.how),
            dropped: dropped.flatten(),
        };
        self.left = self.left.saturating_sub(1);
        if (self.sink)(CaptureEvent::Packet(packet)) {
            self.packets += 1;
        } else {
            self.lost += 1;
        }
    }
}
