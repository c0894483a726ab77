//! Where time goes: with `DPSLB_TRACE=1` in the environment every process prints to its standard
//! error when each message of the protocol passes, and the time of items until their work begins.

use std::sync::Mutex;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use equipoise_slice_dds::{Passing, watch_messages};

/// Number of items in a printed mean.
const ITEMS: u32 = 1000;

fn is_on() -> bool {
    std::env::var_os("DPSLB_TRACE").is_some()
}

/// The time, nanoseconds since 1970: the same in all processes of the machine.
pub(crate) fn unix_ns() -> i64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    i64::try_from(since.as_nanos()).unwrap_or(i64::MAX)
}

/// Tells of messages from now on, if that is asked for. Claims and their answers come all the time,
/// and are left out.
pub(crate) fn begin() {
    if is_on() {
        watch_messages(|passing: Passing, name| {
            if !matches!(name, "claims" | "grant" | "standby") {
                eprintln!("{} {} {passing:?} {name}", unix_ns() / 1000, std::process::id());
            }
        });
    }
}

/// CPU time of an item, by thread.
pub(crate) fn cost(thread: &str, time: Duration) {
    if is_on() {
        eprintln!("{time:>10.1?} of an item: {thread}");
    }
}

/// How long items were on their way from their client to their work.
pub(crate) struct Way(Option<Mutex<(u32, Duration)>>);

impl Default for Way {
    fn default() -> Self {
        Self(is_on().then(Mutex::default))
    }
}

impl Way {
    /// Work on an item that was published then, nanoseconds since 1970, begins.
    pub(crate) fn note(&self, published_ns: i64) {
        let Some(sum) = &self.0 else { return };
        let way = u64::try_from(unix_ns() - published_ns).unwrap_or(0);
        let mut sum = sum.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        *sum = (sum.0 + 1, sum.1 + Duration::from_nanos(way));
        if sum.0 == ITEMS {
            eprintln!(
                "{} items were {:?} on their way to {}",
                ITEMS,
                sum.1 / ITEMS,
                std::process::id()
            );
            *sum = Default::default();
        }
    }
}
