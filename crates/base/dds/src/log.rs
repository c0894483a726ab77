//! Forwards Cyclone's log to `tracing`, and counts drops that Cyclone only logs.
//!
//! Cyclone checks every sample against the reader's type before delivery. A sample that does not
//! match (too short, or of another type with the same name) is dropped with a line in its log and
//! without a counter.
//!
//! Lines of each priority are throttled, because each invalid packet at the domain's ports causes a
//! warning.

mod throttle;

use std::collections::BTreeMap;
use std::ffi::{CStr, c_void};
use std::sync::{LazyLock, Mutex, Once};
use std::time::Instant;

use cyclors::{dds_log_data_t, dds_set_log_sink};
use equipoise_basics::lock;

use throttle::{Throttle, Verdict};

const FATAL: u32 = 1;
const ERROR: u32 = 2;
const WARNING: u32 = 4;

/// Number of dropped samples, by domain and topic.
static MALFORMED: Mutex<BTreeMap<(u32, String), u64>> = Mutex::new(BTreeMap::new());

/// Greatest number of topics with a separate count. Any host may publish under any name.
const TOPICS_MAX: usize = 1024;

/// Number of samples for readers of `topic` that Cyclone DDS dropped because they do not match its
/// type.
pub(crate) fn malformed(domain: u32, topic: &str) -> u64 {
    let counts = lock(&MALFORMED);
    counts.get(&(domain, topic.to_string())).copied().unwrap_or_default()
}

pub(crate) fn install() {
    static ONCE: Once = Once::new();
    // SAFETY: the sink is a static function, and uses no argument of ours.
    ONCE.call_once(|| unsafe { dds_set_log_sink(Some(sink), std::ptr::null_mut()) });
}

unsafe extern "C" fn sink(_: *mut c_void, entry: *const dds_log_data_t) {
    // SAFETY: Cyclone calls this with an entry that is valid during the call; its message is a C
    // string.
    let (priority, domain, message) = unsafe {
        let Some(entry) = entry.as_ref().filter(|entry| !entry.message.is_null()) else { return };
        (entry.priority, entry.domid, CStr::from_ptr(entry.message))
    };
    let message = message.to_string_lossy();
    let message = message.trim_end();
    if let Some(topic) = dropped_of(message) {
        count(domain, topic);
        // Not a warning, because any sender can cause one line per sample.
        tracing::debug!(domain, "DDS: {message}");
        return;
    }
    match priority {
        FATAL | ERROR if may_write(&ERRORS) => tracing::error!(domain, "DDS: {message}"),
        WARNING if may_write(&WARNINGS) => tracing::warn!(domain, "DDS: {message}"),
        FATAL | ERROR | WARNING => {}
        _ => tracing::debug!(domain, "DDS: {message}"),
    }
}

static ERRORS: Mutex<Throttle> = Mutex::new(Throttle::new());
static WARNINGS: Mutex<Throttle> = Mutex::new(Throttle::new());
static BEGAN: LazyLock<Instant> = LazyLock::new(Instant::now);

/// True if a line may be written now. If not, the number of such lines is logged at the end of the
/// window.
fn may_write(lines: &'static Mutex<Throttle>) -> bool {
    let line = lock(lines).line(BEGAN.elapsed());
    let Verdict::LeaveOut { due } = line else { return true };
    let Some(due) = due else { return false };
    tracing::warn!("DDS: too many lines; further ones are left out and counted for {due:.0?}");
    let tell = move || {
        std::thread::sleep(due);
        let left_out = lock(lines).take();
        tracing::warn!(left_out, "DDS: lines were left out");
    };
    if std::thread::Builder::new().name("dds-log".into()).spawn(tell).is_err() {
        lock(lines).take();
    }
    false
}

/// The topic of a dropped sample, if `message` reports one.
fn dropped_of(message: &str) -> Option<&str> {
    let (_, rest) = message.split_once("data(application")?;
    let (_, rest) = rest.split_once(": deserialization ")?;
    let (names, _) = rest.rsplit_once(" failed (")?;
    names.rsplit_once('/').map(|(topic, _)| topic)
}

fn count(domain: u32, topic: &str) {
    let mut counts = lock(&MALFORMED);
    let key = (domain, topic.to_string());
    if counts.len() < TOPICS_MAX || counts.contains_key(&key) {
        *counts.entry(key).or_default() += 1;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_topic_of_dropped_samples_is_parsed_from_the_log() {
        let line = "data(application, vendor 1.16): 1105e70:4c3ab2fb:b1d51a8e:1002 #1: deserialization \
                    a/b/dpslb::ClientItem failed (for reasons unknown)";
        assert_eq!(dropped_of(line), Some("a/b"));
        assert_eq!(dropped_of("data(builtin, vendor 1.16): x #1: deserialization failed"), None);
        assert_eq!(dropped_of("anything else"), None);
    }
}
