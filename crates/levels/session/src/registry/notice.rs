use std::fmt;
use std::num::NonZeroU32;
use std::sync::Arc;
use std::time::Duration;

use equipoise_core::{AdminState, Health, Weight};

use crate::Reason;
use equipoise_health::Verdict;

/// Something that an operator reads in the log; its text is the log line.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Notice {
    pub(crate) pool: Arc<str>,
    /// `None` if it is about the pool.
    pub(crate) backend: Option<Arc<str>>,
    pub(crate) what: What,
}

#[derive(Clone, Debug, PartialEq)]
pub(crate) enum What {
    /// The checks turned; `of` is `rise` or `fall`, `why` the last failure.
    Checked {
        verdict: Verdict,
        of: u32,
        why: Option<String>,
    },
    /// `reason` is that of the last failure.
    Ejected {
        failures: u32,
        reason: Reason,
        lasts: Duration,
    },
    /// It stays although it fails.
    EjectionRefused {
        failures: u32,
        eligible: usize,
        total: usize,
        share: f64,
    },
    /// `health` is the present result of the checks.
    EjectionOver {
        health: Health,
    },
    /// Back before its time.
    Readmitted {
        share: f64,
    },
    /// Back before its time, since statuses had ejected it and a check passed.
    ReadmittedByCheck,
    Admin(AdminState),
    WeightSet(Weight),
    WeightReset(Weight),
    /// `None`: the configured one.
    ConcurrencySet(Option<NonZeroU32>),
    /// The pool is new, and its first backends are being made.
    Starting,
    /// The first of them is there.
    Started,
    /// The pool has no backend, and requests wait until one is created.
    Awaiting,
    /// The pool lost its last eligible backend, or did not get its first in time.
    Empty,
    /// The same in node mode.
    EmptyHere,
    /// It has one again.
    Serving,
    /// Its backups take its work.
    OnBackups,
    /// Another kind of backend takes it again.
    OffBackups,
}

impl Notice {
    /// Whether someone should look at it soon.
    pub(crate) fn is_warning(&self) -> bool {
        match &self.what {
            What::Checked { verdict, .. } => verdict.health == Health::Unhealthy,
            What::Ejected { .. }
            | What::EjectionRefused { .. }
            | What::Readmitted { .. }
            | What::Empty
            | What::EmptyHere
            | What::OnBackups => true,
            _ => false,
        }
    }

    pub(crate) fn log(&self) {
        let (pool, backend, event) = (&*self.pool, self.backend.as_deref(), self.what.event());
        if self.is_warning() {
            tracing::warn!(pool, backend, event, "{self}");
        } else {
            tracing::info!(pool, backend, event, "{self}");
        }
    }
}

impl What {
    /// The type of the event.
    fn event(&self) -> &'static str {
        match self {
            What::Checked { verdict, .. } if verdict.health == Health::Healthy => "backend.healthy",
            What::Checked { .. } | What::EjectionOver { health: Health::Unhealthy } => {
                "backend.unhealthy"
            }
            What::Ejected { .. } => "backend.ejected",
            What::EjectionRefused { .. } => "backend.not-ejected",
            What::EjectionOver { .. } | What::Readmitted { .. } | What::ReadmittedByCheck => {
                "backend.readmitted"
            }
            What::Admin(AdminState::Up) => "backend.up",
            What::Admin(AdminState::Drain) => "backend.draining",
            What::Admin(AdminState::Down) => "backend.down",
            What::WeightSet(_) | What::WeightReset(_) => "backend.weight",
            What::ConcurrencySet(_) => "backend.concurrency",
            What::Starting => "pool.starting",
            What::Started => "pool.started",
            What::Awaiting => "pool.awaiting",
            What::Empty | What::EmptyHere => "pool.empty",
            What::Serving => "pool.serving",
            What::OnBackups => "pool.on-backups",
            What::OffBackups => "pool.off-backups",
        }
    }
}

impl fmt::Display for Notice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "pool {}: ", self.pool)?;
        if let Some(backend) = &self.backend {
            write!(f, "backend {backend} ")?;
        }
        self.what.fmt(f)
    }
}

impl fmt::Display for What {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            What::Checked { verdict, of, why } => {
                let healthy = verdict.health == Health::Healthy;
                f.write_str(if healthy { "is healthy" } else { "is unhealthy" })?;
                if let Some(why) = why {
                    write!(f, ": {why}")?;
                }
                match verdict.first {
                    true => f.write_str(" (first check)"),
                    false => write!(f, " ({} of {of} checks)", verdict.checks),
                }
            }
            What::Ejected { failures, reason, lasts } => write!(
                f,
                "is ejected for {lasts:?}: it failed {failures} times in a row, the last time with {}",
                reason.name()
            ),
            What::EjectionRefused { failures, eligible, total, share } => write!(
                f,
                "failed {failures} times in a row but stays: of {total} backends {eligible} take \
                 work, and the panic threshold ({share}) lets no more be ejected"
            ),
            What::EjectionOver { health: Health::Unhealthy } => {
                f.write_str("ends its ejection and stays out: its checks fail")
            }
            What::EjectionOver { .. } => f.write_str("is back: its ejection is over"),
            What::Readmitted { share } => write!(
                f,
                "is back before its ejection is over: too few are left for the panic threshold \
                 ({share})"
            ),
            What::ReadmittedByCheck => {
                f.write_str("is back before its ejection is over: its active check passed")
            }
            What::Admin(AdminState::Up) => f.write_str("is set up"),
            What::Admin(AdminState::Drain) => f.write_str("is draining"),
            What::Admin(AdminState::Down) => f.write_str("is set down"),
            What::WeightSet(weight) => write!(f, "is given weight {weight}"),
            What::WeightReset(weight) => write!(f, "is given its configured weight {weight}"),
            What::ConcurrencySet(Some(limit)) => write!(f, "is given concurrency {limit}"),
            What::ConcurrencySet(None) => f.write_str("is given its configured concurrency"),
            What::Starting => f.write_str("starting its first backends; none serves yet"),
            What::Awaiting => f.write_str("it has no backend; requests wait until one is created"),
            What::Started => f.write_str("its first backend takes work"),
            What::Empty => f.write_str("no backend can take work; requests are refused"),
            What::EmptyHere => f.write_str(
                "no backend can take work; peers serve its requests, and unhealthy backends get \
                 what peers cannot serve",
            ),
            What::OnBackups => f.write_str("only backups can take work, and they do"),
            What::OffBackups => f.write_str("its backups rest: another backend takes work again"),
            What::Serving => f.write_str("a backend can take work again"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(what: What) -> String {
        Notice { pool: "web".into(), backend: Some("10.0.0.1:80".into()), what }.to_string()
    }

    #[test]
    fn notices_name_the_pool_backend_event_and_cause() {
        let verdict = |health, checks, first| Verdict { health, checks, first };
        let refused = Some("connection refused".to_owned());
        let down = verdict(Health::Unhealthy, 3, false);
        assert_eq!(
            text(What::Checked { verdict: down, of: 3, why: refused.clone() }),
            "pool web: backend 10.0.0.1:80 is unhealthy: connection refused (3 of 3 checks)"
        );
        let first = verdict(Health::Unhealthy, 1, true);
        assert_eq!(
            text(What::Checked { verdict: first, of: 3, why: refused }),
            "pool web: backend 10.0.0.1:80 is unhealthy: connection refused (first check)"
        );
        let up = verdict(Health::Healthy, 2, false);
        assert_eq!(
            text(What::Checked { verdict: up, of: 2, why: None }),
            "pool web: backend 10.0.0.1:80 is healthy (2 of 2 checks)"
        );
        let (reason, lasts) = (Reason::ConnectRefused, Duration::from_secs(10));
        assert_eq!(
            text(What::Ejected { failures: 5, reason, lasts }),
            "pool web: backend 10.0.0.1:80 is ejected for 10s: it failed 5 times in a row, the last \
             time with connect_refused"
        );
        let refusal = What::EjectionRefused { failures: 5, eligible: 2, total: 4, share: 0.5 };
        assert_eq!(
            text(refusal),
            "pool web: backend 10.0.0.1:80 failed 5 times in a row but stays: of 4 backends 2 take \
             work, and the panic threshold (0.5) lets no more be ejected"
        );
    }
}
