//! Converts a `[[slice]]` table to the types of the slice level.

use equipoise_slice_dds::controller::Options;

use equipoise_config::SliceStream;

/// The options of the stream's controller.
pub(super) fn options(config: &SliceStream, candidate: &str) -> Options {
    Options {
        candidate: candidate.to_string(),
        protocol: config.protocol.clone(),
        policy: config.policy.clone(),
        round: config.round,
        leadership: config.controller_lease,
        connections: config.connection_port,
        ..Options::new(&config.name, config.slices)
    }
}
