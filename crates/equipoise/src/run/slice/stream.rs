//! Converts a `[[slice]]` table to the types of the slice level.

use equipoise_dds::{Multicast as DdsMulticast, Settings};
use equipoise_slice_dds::controller::Options;
use equipoise_slice_dds::{OwnType, Stream};

use equipoise_config::{Multicast, SliceStream};

/// The stream's place in DDS.
pub(crate) fn dds_stream(config: &SliceStream) -> Stream {
    let network = &config.network;
    let dds = Settings {
        interfaces: network.interfaces.clone(),
        peers: network.peers.clone(),
        multicast: match network.multicast {
            Multicast::Full => DdsMulticast::Full,
            Multicast::Discovery => DdsMulticast::Discovery,
            Multicast::Off => DdsMulticast::Off,
        },
        lease: network.lease,
        more: network.more.clone(),
        ..Settings::default()
    };
    Stream {
        domain: config.domain,
        dds,
        items: config.items.clone(),
        replies: config.replies.clone(),
        item_type: config.item_type.clone(),
        reply_type: config.reply_type.clone(),
        own: config.own.as_ref().map(|own| OwnType { idl: own.idl.clone(), key: own.key.clone() }),
        control: config.control.clone(),
    }
}

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
