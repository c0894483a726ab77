//! Events: changes in the process.

use std::fmt;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Type of the event that stands for events which a reader did not get.
pub const LOST: &str = "events.lost";

words! {
    /// Severity of an event.
    EventLevel {
        /// A normal change.
        Info = "info",
        /// A change that an operator should look at.
        Warning = "warning",
        /// A failure.
        Error = "error",
    }
}

/// A change in the process.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Event {
    /// `EPOCH-NUMBER`. Numbers rise by one. Each process has an epoch of its own, and begins at 1.
    pub id: String,
    /// Time of the event (RFC 3339, UTC).
    pub time: String,
    /// Severity.
    pub level: EventLevel,
    /// The type, such as `backend.unhealthy`. `events.lost` stands for events that the reader did
    /// not get.
    #[serde(rename = "type")]
    pub kind: String,
    /// Name of the object, such as `web/b1`; empty if it is the process.
    pub subject: String,
    /// Description, with the reason.
    pub words: String,
    /// Only of `events.lost`: the number of lost events. Absent if it is not known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub lost: Option<u64>,
}

/// The events that the process keeps.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Events {
    /// The id from which a later request continues, as `after` or `Last-Event-ID`.
    pub last: String,
    /// The events, the oldest first.
    pub events: Vec<Event>,
}

/// Query for events.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct EventsQuestion {
    /// Only these types, with commas between them. `backend` stands for every `backend.*`.
    #[serde(default, rename = "type", skip_serializing_if = "Option::is_none")]
    #[schemars(extend("pattern" = super::event_kinds::pattern()))]
    pub kind: Option<String>,
    /// Only this object. `web` stands for `web` and every `web/*`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub subject: Option<String>,
    /// Only events after the one with this id. The header `Last-Event-ID` has precedence.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(extend("pattern" = super::event_kinds::ID_PATTERN))]
    pub after: Option<String>,
}
