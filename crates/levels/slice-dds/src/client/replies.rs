//! A client's readers of replies.
//!
//! Workers write the same replies on two topics, without a key and with one (`worker/outlets.rs`).
//! Workers of the version before write only those with a key. So during one version a client reads
//! both topics. It drops the replies with a key of each worker that writes both.

use std::collections::BTreeMap;

use equipoise_dds::{Error, Reader, Sample, Waitset, WriterHandle};
use equipoise_slice::Group;

use crate::client::{KEYED_REPLIES, REPLIES};
use crate::stream::{READS_UNKEYED, Topics, WRITES_UNKEYED, item_qos};

/// Writers of replies that are known at a time. A worker replaces its writer periodically
/// (`renewed.rs`).
const WRITERS_MAX: usize = 256;

/// A client's readers of replies.
#[derive(Debug)]
pub(crate) struct ReplyReaders {
    unkeyed: Reader,
    /// `None`: the stream's type of replies has no key.
    keyed: Option<Keyed>,
}

#[derive(Debug)]
struct Keyed {
    reader: Reader,
    /// By writer: its worker writes both topics.
    writers: BTreeMap<WriterHandle, bool>,
}

impl ReplyReaders {
    pub(crate) fn new(topics: &Topics) -> Result<Self, Error> {
        let unkeyed = topics.replies.reader(&item_qos(Group::BASE, Vec::new()))?;
        let keyed = match &topics.keyed_replies {
            Some(topic) => {
                let reader = topic.reader(&item_qos(Group::BASE, READS_UNKEYED.to_vec()))?;
                Some(Keyed { reader, writers: BTreeMap::new() })
            }
            None => None,
        };
        Ok(Self { unkeyed, keyed })
    }

    pub(crate) fn attach(&self, waitset: &Waitset) -> Result<(), Error> {
        waitset.attach(&self.unkeyed, REPLIES)?;
        match &self.keyed {
            Some(keyed) => waitset.attach(&keyed.reader, KEYED_REPLIES),
            None => Ok(()),
        }
    }

    /// Adds the replies of the readers that are `ready`.
    pub(crate) fn take(&mut self, ready: &[u32], samples: &mut Vec<Sample>) -> Result<(), Error> {
        if ready.contains(&REPLIES) {
            self.unkeyed.take(samples)?;
        }
        match &mut self.keyed {
            Some(keyed) if ready.contains(&KEYED_REPLIES) => keyed.take(samples),
            _ => Ok(()),
        }
    }
}

impl Keyed {
    fn take(&mut self, samples: &mut Vec<Sample>) -> Result<(), Error> {
        let mut taken = Vec::new();
        self.reader.take(&mut taken)?;
        samples.extend(taken.into_iter().filter(|sample| !self.writes_both(sample.writer())));
        Ok(())
    }

    fn writes_both(&mut self, writer: WriterHandle) -> bool {
        if let Some(both) = self.writers.get(&writer) {
            return *both;
        }
        // A writer that ended before it was known counts as one of the version before.
        let endpoint = self.reader.writer(writer);
        let both = endpoint.is_some_and(|endpoint| endpoint.user_data == WRITES_UNKEYED);
        if self.writers.len() >= WRITERS_MAX {
            self.writers.clear();
        }
        self.writers.insert(writer, both);
        both
    }
}
