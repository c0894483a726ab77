//! A `[[slice]]` table as the stream of the slice level.

use equipoise_dds::{Multicast as DdsMulticast, Settings};
use equipoise_slice_dds::{OwnType, Stream};

use super::{Multicast, SliceStream};

/// The stream of a table, with its DDS domain, topics and types.
pub fn dds_stream(config: &SliceStream) -> Stream {
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
