//! The export of spans of requests: `[tracing]`.

use std::time::Duration;

use anyhow::Context;
use equipoise_api::metrics::SpansReading;
use equipoise_config::Config;
use equipoise_core::trace::TraceSink;
use equipoise_otlp::{Exporter, OtlpOptions, SpanCounts};

use super::control::Control;

/// Longest time that the end of the process waits for the export of the last spans.
const LAST_SPANS_WITHIN: Duration = Duration::from_secs(2);

/// Starts the export, if it is configured.
pub(super) fn start(config: &Config) -> anyhow::Result<Option<(TraceSink, Exporter)>> {
    let Some(tracing) = &config.tracing else { return Ok(None) };
    let options = OtlpOptions {
        url: tracing.otlp.clone(),
        ca: tracing.ca.clone(),
        sample: tracing.sample,
        service: tracing.service.clone(),
        instance: config.instance.name.to_string(),
        version: env!("CARGO_PKG_VERSION").into(),
    };
    Exporter::start(options).map(Some).context("cannot export spans ([tracing])")
}

impl Control {
    /// Counts of spans.
    pub(super) fn spans(&self) -> Option<SpansReading> {
        let SpanCounts { exported, queue_full, not_accepted } =
            self.levels.spans.as_ref()?.counts();
        Some(SpansReading { exported, queue_full, not_accepted })
    }

    /// Exports the last spans, after the data plane has ended.
    pub(super) async fn finish_spans(&self) {
        if let Some(exporter) = &self.levels.spans {
            exporter.finish(LAST_SPANS_WITHIN).await;
        }
    }
}
