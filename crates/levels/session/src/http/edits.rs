//! Lines that are added to responses.

use crate::affinity::StickyCookie;
use crate::config::Scheme;
use crate::lease::Lease;
use crate::route::{Edits, SecurityHeaders};

/// Lines that a front door and a route add to responses.
#[derive(Clone, Copy, Default)]
pub(crate) struct ResponseEdits<'a> {
    /// The line of `Strict-Transport-Security`, which replaces the backend's.
    pub(crate) hsts: Option<&'a str>,
    pub(crate) security: Option<SecurityHeaders>,
    /// Those of the request's route.
    pub(crate) route: Option<&'a Edits>,
    /// The cookie that names the backend, with its value, to a client that has another or none.
    pub(crate) sticky: Option<(&'a StickyCookie, u64, Scheme)>,
}

impl<'a> ResponseEdits<'a> {
    /// The same for a response of the leased backend, to a request with this sticky cookie.
    pub(crate) fn of_backend(self, lease: &'a Lease, asked: Option<u64>, scheme: Scheme) -> Self {
        let cookie = lease.pool().options.sticky.as_ref();
        let named = cookie.map(|cookie| (cookie, cookie.names(lease.backend().address), scheme));
        ResponseEdits { sticky: named.filter(|(_, value, _)| asked != Some(*value)), ..self }
    }

    /// Whether a field of the backend's response is dropped for one that is added.
    pub(crate) fn drops(&self, name: &str) -> bool {
        self.route.is_some_and(|edits| edits.drops(name))
    }

    /// Adds the lines to a response for which `has` says whether it has a field of a name.
    pub(crate) fn write(&self, has: impl Fn(&str) -> bool, out: &mut Vec<u8>) {
        out.extend_from_slice(self.hsts.unwrap_or_default().as_bytes());
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
    }
}
