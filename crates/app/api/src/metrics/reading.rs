use super::{MachineReading, PlanningReading, StreamReading};
use crate::wire::dns::DnsStatus;
use crate::wire::packet::PacketStatus;
use crate::wire::tls::TlsStatus;
use crate::wire::{Admin, BackendState, Health, Region, SourceStatus};

/// All exported figures, summed over the data-plane threads.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Reading {
    /// The program's version.
    pub version: String,
    /// The instance's name.
    pub instance: String,
    /// Data-plane threads.
    pub threads: usize,
    /// Memory of the process.
    pub memory: MemoryReading,
    /// Reads of the configuration file.
    pub reload: ReloadReading,
    /// Access to the API.
    pub access: AccessReading,
    /// TLS of the API's address, if it has one.
    pub api_tls: Option<TlsStatus>,
    /// Spans of requests, if they are traced.
    pub spans: Option<SpansReading>,
    /// All front doors.
    pub front_doors: Vec<FrontDoorReading>,
    /// All pools.
    pub pools: Vec<PoolReading>,
    /// The packet level, with zero counts.
    pub packet: Option<PacketStatus>,
    /// Utilisation of this machine; `None` before the first measurement.
    pub machine: Option<MachineReading>,
    /// The controller, if this process has one; on nodes and agents, the instructions that they
    /// follow.
    pub planning: Option<PlanningReading>,
    /// The DNS level, with zero counts.
    pub dns: Option<DnsStatus>,
    /// Streams of the slice level.
    pub streams: Vec<StreamReading>,
}

/// Memory that the process has allocated.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct MemoryReading {
    /// Bytes in use.
    pub allocated_bytes: u64,
    /// Bytes beyond which the session level accepts no work.
    pub max_bytes: u64,
}

/// Counts of reads of the configuration file, the read at start included.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ReloadReading {
    /// Successful reads.
    pub succeeded: u64,
    /// Failed reads.
    pub failed: u64,
    /// Whether the last read succeeded.
    pub last_succeeded: bool,
    /// Time of the last successful read, in seconds since 1970.
    pub last_success_unix_seconds: u64,
}

/// Rejected callers of the API, and lost lines of the audit log.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct AccessReading {
    /// Reason and count, zeros included.
    pub turned_away: Vec<(&'static str, u64)>,
    /// Lines that could not be written to the audit log.
    pub audit_lines_lost: u64,
    /// Lines of the audit log that are not written yet.
    pub audit_lines_waiting: u64,
    /// Lines of the process's log that standard error did not accept.
    pub log_lines_lost: u64,
}

/// Spans of requests.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SpansReading {
    /// Spans that the collector accepted.
    pub exported: u64,
    /// Spans lost because too many waited for their export.
    pub queue_full: u64,
    /// Spans lost because the collector did not accept them.
    pub not_accepted: u64,
}

/// A time histogram.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct TimeReading {
    /// Upper bound in seconds and count of each bucket (not cumulative), ascending; the last bound
    /// is infinite.
    pub buckets: Vec<(f64, u64)>,
    /// Sum of all values.
    pub sum_seconds: f64,
}

impl TimeReading {
    /// Number of values.
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
    /// Connections or client addresses that are open now.
    pub connections_open: u64,
    /// Requests being served (HTTP).
    pub requests_in_flight: u64,
    /// Responses by class, 1xx to 5xx (HTTP).
    pub responses: [u64; 5],
    /// Time from a request's head to the end of its response (HTTP).
    pub request_time: TimeReading,
    /// Bytes from clients.
    pub bytes_in: u64,
    /// Bytes to clients.
    pub bytes_out: u64,
    /// Attempts on another backend or session.
    pub retries: u64,
    /// Requests that were sent to a second backend because the first response was late.
    pub hedges: u64,
    /// Hedged requests that the second attempt won.
    pub hedges_won: u64,
    /// Pauses in accepting.
    pub accept_pauses: u64,
    /// Dropped access-log lines.
    pub access_log_dropped: u64,
    /// Reason and count, zeros included, so that a rate includes the first occurrence.
    pub drops: Vec<(&'static str, u64)>,
    /// Its routes.
    pub routes: Vec<crate::wire::RouteStatus>,
    /// Delegation, if the front door is in node mode.
    pub dispatch: Option<crate::wire::dispatch::DispatchStatus>,
    /// TLS, if its clients use it.
    pub tls: Option<crate::wire::tls::TlsStatus>,
}

/// A pool.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct PoolReading {
    /// Its name.
    pub name: String,
    /// Requests or connections that wait for a backend with room.
    pub queued: u64,
    /// Wait of these requests, whether or not a backend served them.
    pub queue_wait: TimeReading,
    /// The source of its backends, if it has one.
    pub source: Option<SourceStatus>,
    /// Its backends.
    pub backends: Vec<BackendReading>,
}

/// A backend.
#[derive(Clone, Debug, PartialEq)]
pub struct BackendReading {
    /// Its name.
    pub name: String,
    /// Admin state.
    pub admin: Admin,
    /// Observed health.
    pub health: Health,
    /// State that follows from both.
    pub state: BackendState,
    /// Weight.
    pub weight: u16,
    /// Requests, connections or client addresses sent to it.
    pub requests: u64,
    /// Requests, connections or client addresses in flight.
    pub in_flight: u64,
    /// Concurrency limit, if it has one.
    pub limit: Option<u32>,
    /// Region; `None` without a limit, and for a learned one before it has had work.
    pub region: Option<Region>,
    /// Responses by class, 1xx to 5xx (HTTP).
    pub responses: [u64; 5],
    /// Time from sending a request to its complete response (HTTP).
    pub response_time: TimeReading,
    /// Total time that its requests had waited in the pool's queue.
    pub queue_wait_seconds: f64,
    /// Reason and count, of reasons that a backend can cause.
    pub failures: Vec<(&'static str, u64)>,
    /// Upstream sessions open now.
    pub sessions_open: u64,
    /// Upstream sessions opened.
    pub sessions_opened: u64,
    /// Requests over an existing session.
    pub sessions_reused: u64,
    /// TLS to it, if its pool uses it.
    pub tls: Option<crate::wire::tls::BackendTlsStatus>,
    /// Responses with ambiguous framing, and bytes received without an outstanding request.
    pub multiplex_faults: u64,
    /// Requests that were put on a shared session.
    pub multiplex_shared: u64,
    /// Requests that could share a session and got one of their own.
    pub multiplex_alone: u64,
    /// Shared sessions that a late or large response got for itself.
    pub multiplex_handed_over: u64,
    /// Requests that were sent again because a late or large response was before them, or their
    /// shared session ended before their turn.
    pub multiplex_repeated: u64,
    /// Bytes to the backend.
    pub bytes_out: u64,
    /// Bytes from the backend.
    pub bytes_in: u64,
}
