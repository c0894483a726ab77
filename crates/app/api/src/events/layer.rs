use std::fmt::{self, Write};
use std::sync::Arc;

use tracing::field::{Field, Visit};
use tracing::{Event as Line, Level, Metadata, Subscriber};
use tracing_subscriber::Layer;
use tracing_subscriber::filter::{FilterExt, LevelFilter, filter_fn};
use tracing_subscriber::layer::Context;
use tracing_subscriber::registry::LookupSpan;

use super::EventJournal;
use crate::wire::events::EventLevel;

/// Field that makes a line of the log an event; its value is the type.
const KIND: &str = "event";

/// Adds the lines with a field `event` to the journal, whatever the log's level is.
pub fn layer<S>(journal: &Arc<EventJournal>) -> impl Layer<S> + use<S>
where
    S: Subscriber + for<'s> LookupSpan<'s>,
{
    let has_kind = |line: &Metadata<'_>| line.fields().field(KIND).is_some();
    Recorder(Arc::clone(journal)).with_filter(filter_fn(has_kind).and(LevelFilter::INFO))
}

struct Recorder(Arc<EventJournal>);

impl<S: Subscriber> Layer<S> for Recorder {
    fn on_event(&self, line: &Line<'_>, _: Context<'_, S>) {
        let mut fields = Fields::default();
        line.record(&mut fields);
        let level = match *line.metadata().level() {
            Level::ERROR => EventLevel::Error,
            Level::WARN => EventLevel::Warning,
            _ => EventLevel::Info,
        };
        let subject = fields.subject();
        self.0.add(level, &fields.kind, &subject, &(fields.message + &fields.others));
    }
}

/// The fields of a line.
#[derive(Default)]
struct Fields {
    kind: String,
    message: String,
    subject: Option<String>,
    pool: Option<String>,
    backend: Option<String>,
    /// ` name=value` for each other field.
    others: String,
}

impl Fields {
    fn subject(&mut self) -> String {
        let of_pool = match (self.pool.take(), self.backend.take()) {
            (Some(pool), Some(backend)) => Some(format!("{pool}/{backend}")),
            (pool, backend) => pool.or(backend),
        };
        self.subject.take().or(of_pool).unwrap_or_default()
    }

    fn note(&mut self, field: &Field, value: &dyn fmt::Display) {
        let value = || value.to_string();
        match field.name() {
            KIND => self.kind = value(),
            "message" => self.message = value(),
            "subject" => self.subject = Some(value()),
            "pool" => self.pool = Some(value()),
            "backend" => self.backend = Some(value()),
            name => {
                // Cannot fail: a string accepts all text.
                let _ = write!(self.others, " {name}={}", value());
            }
        }
    }
}

impl Visit for Fields {
    fn record_str(&mut self, field: &Field, value: &str) {
        self.note(field, &value);
    }

    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        self.note(field, &format_args!("{value:?}"));
    }
}
