//! Lines that are added to responses.

use std::time::Duration;

use crate::affinity::StickyCookie;
use crate::config::Scheme;
use crate::lease::Lease;
use crate::route::{Edits, SecurityHeaders};

/// Announces other protocols (RFC 7838).
const ALT_SVC: &str = "alt-svc";

/// How long a request has waited.
#[derive(Clone, Copy)]
pub(crate) struct Timing {
    /// For the backend's response, in the attempt that it has answered.
    pub(crate) backend: Duration,
    /// For a backend with room.
    pub(crate) queue: Duration,
}

/// Lines that a front door and a route add to responses.
#[derive(Clone, Copy, Default)]
pub(crate) struct ResponseEdits<'a> {
    /// The line of `Strict-Transport-Security`, which replaces the backend's.
    pub(crate) hsts: Option<&'a str>,
    /// The line of `Alt-Svc`, for responses without one.
    pub(crate) alt_svc: Option<&'a str>,
    pub(crate) security: Option<SecurityHeaders>,
    /// Those of the request's route.
    pub(crate) route: Option<&'a Edits>,
    /// The cookie that names the backend, with its value, to a client that has another or none.
    pub(crate) sticky: Option<(&'a StickyCookie, u64, Scheme)>,
    /// For `Server-Timing`.
    pub(crate) timing: Option<Timing>,
}

impl<'a> ResponseEdits<'a> {
    /// The same for a response of the leased backend, to a request with this sticky cookie.
    pub(crate) fn of_backend(self, lease: &'a Lease, asked: Option<u64>, scheme: Scheme) -> Self {
        let cookie = lease.pool().options.sticky.as_ref();
        let named = cookie.map(|cookie| (cookie, cookie.names(lease.backend().address), scheme));
        ResponseEdits { sticky: named.filter(|(_, value, _)| asked != Some(*value)), ..self }
    }

    /// The same with these times.
    pub(crate) fn timed(self, timing: Option<Timing>) -> Self {
        ResponseEdits { timing, ..self }
    }

    /// Whether a field of the backend's response is dropped for one that is added.
    pub(crate) fn drops(&self, name: &str) -> bool {
        self.route.is_some_and(|edits| edits.drops(name))
    }

    /// Adds the lines to a response for which `has` says whether it has a field of a name.
    pub(crate) fn write(&self, has: impl Fn(&str) -> bool, out: &mut Vec<u8>) {
        out.extend_from_slice(self.hsts.unwrap_or_default().as_bytes());
        let alt_svc = self.alt_svc.filter(|_| !self.drops(ALT_SVC) && !has(ALT_SVC));
        out.extend_from_slice(alt_svc.unwrap_or_default().as_bytes());
        let fields = self.security.map(SecurityHeaders::fields).unwrap_or_default();
        for (name, value) in fields.iter().filter(|(name, _)| !self.drops(name) && !has(name)) {
            for part in [name, ": ", value, "\r\n"] {
                out.extend_from_slice(part.as_bytes());
            }
        }
        out.extend_from_slice(self.route.map(Edits::lines).unwrap_or_default());
        if let Some((cookie, value, scheme)) = self.sticky {
            cookie.write(value, scheme == Scheme::Https, out);
        }
        if let Some(Timing { backend, queue }) = self.timing {
            let [backend, queue] = [backend, queue].map(|time| time.as_secs_f64() * 1e3);
            let line = format!("Server-Timing: backend;dur={backend:.3}, queue;dur={queue:.3}\r\n");
            out.extend_from_slice(line.as_bytes());
        }
    }
}
