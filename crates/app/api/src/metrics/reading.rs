use super::{MachineReading, PlanningReading, StreamReading};
use crate::wire::dns::DnsStatus;
use crate::wire::packet::PacketStatus;
use crate::wire::{Admin, BackendState, Health, Region};

/// Every figure that is exported, summed over the data-plane threads.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Reading {
    /// The program's version.
    pub version: String,
    /// The instance's name.
    pub instance: String,
    /// Data-plane threads.
    pub threads: usize,
    /// Reads of the configuration file.
    pub reload: ReloadReading,
    /// The API's own callers.
    pub access: AccessReading,
    /// All front doors.
    pub front_doors: Vec<FrontDoorReading>,
    /// All pools.
    pub pools: Vec<PoolReading>,
    /// The packet level, reasons that never happened too.
    pub packet: Option<PacketStatus>,
    /// Utilisation of this machine; `None` before the first measurement.
    pub machine: Option<MachineReading>,
    /// The controller, if one is to run here; on nodes and agents, what they go by.
    pub planning: Option<PlanningReading>,
    /// The DNS level, reasons that never happened too.
    pub dns: Option<DnsStatus>,
    /// Streams of the slice level.
    pub streams: Vec<StreamReading>,
}

/// Reads of the configuration file, that at the start included.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ReloadReading {
    /// Successful ones.
    pub succeeded: u64,
    /// Failed ones.
    pub failed: u64,
    /// Whether the last one did.
    pub last_succeeded: bool,
    /// When the last one that did, did; seconds since 1970.
    pub last_success_unix_seconds: u64,
}

/// Rejected callers of the API, and lost lines of the audit log.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct AccessReading {
    /// Reason and count; reasons that never happened too.
    pub turned_away: Vec<(&'static str, u64)>,
    /// Lines that could not be written where the audit log is.
    pub audit_lines_lost: u64,
    /// Lines of the audit log that are not written yet.
    pub audit_lines_waiting: u64,
    /// Lines of the process's log that standard error did not accept.
    pub log_lines_lost: u64,
}

/// A time histogram.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct TimeReading {
    /// Upper bound in seconds and count of each bucket (not cumulative), ascending; the last bound
    /// is infinite.
    pub buckets: Vec<(f64, u64)>,
    /// Of all values.
    pub sum_seconds: f64,
}

impl TimeReading {
    /// How many values there are.
    pub fn count(&self) -> u64 {
        self.buckets.iter().map(|(_, count)| count).sum()
    }
}

/// A front door.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct FrontDoorReading {
    /// Its name.
    pub name: String,
    /// Its pool.
    pub pool: String,
    /// Whether it serves requests (HTTP) and not only connections.
    pub http: bool,
    /// Accepted connections, or client addresses seen.
    pub connections: u64,
    /// Of them open now.
    pub connections_open: u64,
    /// Requests being served (HTTP).
    pub requests_in_flight: u64,
    /// Responses by class, 1xx to 5xx (HTTP).
    pub responses: [u64; 5],
    /// From a request's head to its response's end (HTTP).
    pub request_time: TimeReading,
    /// From clients.
    pub bytes_in: u64,
    /// To clients.
    pub bytes_out: u64,
    /// Tries on another backend or session.
    pub retries: u64,
    /// Requests that were put to a second backend because the first response was late.
    pub hedges: u64,
    /// Hedged requests that the second attempt won.
    pub hedges_won: u64,
    /// Times that accepting paused.
    pub accept_pauses: u64,
    /// Access-log lines given up.
    pub access_log_dropped: u64,
    /// Reason and count; reasons that never happened too, so that a rate sees their first.
    pub drops: Vec<(&'static str, u64)>,
    /// Delegation, where the front door is in node mode.
    pub dispatch: Option<crate::wire::dispatch::DispatchStatus>,
}

/// A pool.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct PoolReading {
    /// Its name.
    pub name: String,
    /// Requests or connections that wait for a backend with room.
    pub queued: u64,
    /// How long they waited, however that ended.
    pub queue_wait: TimeReading,
    /// Its backends.
    pub backends: Vec<BackendReading>,
}

/// A backend.
#[derive(Clone, Debug, PartialEq)]
pub struct BackendReading {
    /// Its name.
    pub name: String,
    /// Desired state.
    pub admin: Admin,
    /// Observed health.
    pub health: Health,
    /// Resulting state.
    pub state: BackendState,
    /// Its share.
    pub weight: u16,
    /// Given to it.
    pub requests: u64,
    /// Requests, connections or client addresses in flight.
    pub in_flight: u64,
    /// The concurrency limit, if it has one.
    pub limit: Option<u32>,
    /// Where it works, if its limit is learnt and it has had work.
    pub region: Option<Region>,
    /// Its responses by class, 1xx to 5xx (HTTP).
    pub responses: [u64; 5],
    /// From a request sent to its response complete (HTTP).
    pub response_time: TimeReading,
    /// Reason and count, of reasons that a backend can cause.
    pub failures: Vec<(&'static str, u64)>,
    /// Upstream sessions open now.
    pub sessions_open: u64,
    /// Upstream sessions opened.
    pub sessions_opened: u64,
    /// Requests over a session already open.
    pub sessions_reused: u64,
    /// Responses with ambiguous framing, and bytes received without an outstanding request.
    pub multiplex_faults: u64,
    /// To it.
    pub bytes_out: u64,
    /// From it.
    pub bytes_in: u64,
}
