//! The topics of replies, each with its own [`Outlet`].
//!
//! Replies of the paper's type have the id of their item as a key, and any program can read them.
//! DDS keeps memory for each key, at the writer and at every reader, until the writer ends
//! (`renewed.rs`). When a writer ends, each of its readers examines every id that it wrote: 16 ms
//! for 16,384 replies, in which it receives nothing else. Our own clients find a reply by its
//! content. They read a second topic, of the same replies without a key. Its writer stays.
//!
//! A worker writes a reply to each topic that a program depends on. That is nearly always one.

use std::sync::Mutex;

use equipoise_basics::lock;
use equipoise_dds::{Error, Guid, Incompatible, Writer as DdsWriter};

use crate::stream::{READS_UNKEYED, Topics, WRITES_UNKEYED};
use crate::worker::outlet::{Outlet, Sent};

/// The topics of replies.
#[derive(Debug)]
pub(super) struct Outlets {
    /// Without a key.
    unkeyed: Outlet,
    /// With a key. `None`: the stream's type of replies has none, and `unkeyed` is the only topic.
    keyed: Option<Keyed>,
}

/// The topic of replies with a key.
#[derive(Debug)]
struct Keyed {
    outlet: Outlet,
    readers: Mutex<Option<Readers>>,
}

/// The readers of one writer, when they were examined.
#[derive(Debug)]
struct Readers {
    writer: Guid,
    /// See [`DdsWriter::matched_ever`].
    matched: (u32, u32),
    /// Some of them do not read the topic without a key.
    need_key: bool,
}

/// The topics that have taken a reply.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Taken {
    unkeyed: bool,
    keyed: bool,
}

impl Outlets {
    pub(super) fn new(topics: &Topics) -> Result<Self, Error> {
        let keyed = match &topics.keyed_replies {
            Some(topic) => {
                let outlet = Outlet::new(topic, true, WRITES_UNKEYED)?;
                Some(Keyed { outlet, readers: Mutex::default() })
            }
            None => None,
        };
        Ok(Self { unkeyed: Outlet::new(&topics.replies, false, &[])?, keyed })
    }

    /// Writes a reply to the topics that have not taken it, and notes in `taken` those that have.
    ///
    /// # Errors
    /// A topic will never take the reply. The other one was tried as well.
    pub(super) fn write(&self, cdr: &[u8], taken: &mut Taken) -> Result<Sent, Error> {
        let has_readers = || Ok(self.unkeyed.writer().matched()? > 0);
        let unkeyed = once(&self.unkeyed, has_readers, cdr, &mut taken.unkeyed);
        let keyed = match &self.keyed {
            Some(keyed) => once(&keyed.outlet, || keyed.is_needed(), cdr, &mut taken.keyed),
            None => Ok(Sent::Usual),
        };
        let sent = [unkeyed, keyed];
        if sent.contains(&Ok(Sent::Late)) {
            return Ok(Sent::Late);
        }
        let [unkeyed, keyed] = sent;
        Ok(match (unkeyed?, keyed?) {
            (Sent::Usual, Sent::Usual) => Sent::Usual,
            _ => Sent::Beside,
        })
    }

    /// Incompatible readers of the topic that any program can read.
    pub(super) fn incompatible(&self) -> Result<Incompatible, Error> {
        self.keyed.as_ref().map_or(&self.unkeyed, |keyed| &keyed.outlet).incompatible()
    }

    /// Whether a reader is bypassed.
    pub(super) fn is_passing(&self) -> bool {
        self.all().any(Outlet::is_passing)
    }

    /// Waits for a moment until bypassed readers accept replies again, or have ended.
    pub(super) fn look(&self) {
        self.all().filter(|outlet| outlet.is_passing()).for_each(Outlet::look);
    }

    fn all(&self) -> impl Iterator<Item = &Outlet> {
        std::iter::once(&self.unkeyed).chain(self.keyed.as_ref().map(|keyed| &keyed.outlet))
    }
}

impl Keyed {
    /// Whether a reader depends on this topic. Our own clients of this version read it only for
    /// workers of the version before.
    fn is_needed(&self) -> Result<bool, Error> {
        let writer = self.outlet.writer();
        let matched = writer.matched_ever()?;
        if matched.0 == 0 {
            return Ok(false);
        }
        let mut known = lock(&self.readers);
        let is_known = |of: &&Readers| of.writer == writer.guid() && of.matched == matched;
        if let Some(readers) = known.as_ref().filter(is_known) {
            return Ok(readers.need_key);
        }
        let need_key = need_key(&writer)?;
        *known = Some(Readers { writer: writer.guid(), matched, need_key });
        Ok(need_key)
    }
}

fn need_key(writer: &DdsWriter) -> Result<bool, Error> {
    // A reader that has just gone needs nothing.
    let mut endpoints = writer.readers()?.into_iter().filter_map(|reader| writer.reader(reader));
    Ok(endpoints.any(|endpoint| endpoint.user_data != READS_UNKEYED))
}

fn once(
    outlet: &Outlet,
    is_needed: impl FnOnce() -> Result<bool, Error>,
    cdr: &[u8],
    taken: &mut bool,
) -> Result<Sent, Error> {
    if *taken || !is_needed()? {
        *taken = true;
        return Ok(Sent::Usual);
    }
    let sent = outlet.write(cdr);
    // A reply that one topic refuses is counted when the other has taken it.
    *taken = matches!(sent, Ok(Sent::Usual | Sent::Beside));
    sent
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use equipoise_dds::items::Reply;
    use equipoise_dds::{Qos, Reader, Sample, Settings, Topic};
    use equipoise_slice::Group;

    use super::*;
    use crate::client::replies::ReplyReaders;
    use crate::client::{KEYED_REPLIES, REPLIES};
    use crate::stream::{Stream, item_qos};

    fn topics(domain: u32) -> Topics {
        let dds = Settings { interfaces: vec!["lo".into()], ..Settings::default() };
        Stream { domain, dds, ..Stream::default() }.join().unwrap()
    }

    fn keyed(topics: &Topics) -> &Topic {
        topics.keyed_replies.as_ref().unwrap()
    }

    fn eventually(what: &str, holds: impl FnMut() -> bool) {
        assert!(equipoise_testkit::eventually(holds), "{what}");
    }

    fn cdr(id: i64) -> Vec<u8> {
        let mut cdr = Vec::new();
        Reply { id, timestamp: 2, sender_id: 3, message: b"done" }.encode(&mut cdr);
        cdr
    }

    fn ids(samples: &[Sample]) -> Vec<i64> {
        samples.iter().map(|sample| Reply::decode(sample.cdr()).unwrap().id).collect()
    }

    fn take(reader: &Reader, samples: &mut Vec<Sample>) -> Vec<i64> {
        reader.take(samples).unwrap();
        ids(samples)
    }

    fn write(outlets: &Outlets, ids: impl Iterator<Item = i64>) {
        for id in ids {
            let mut taken = Taken::default();
            assert_eq!(outlets.write(&cdr(id), &mut taken), Ok(Sent::Usual));
            assert_eq!(taken, Taken { unkeyed: true, keyed: true });
        }
    }

    #[test]
    fn keyed_replies_are_written_only_while_a_reader_needs_the_key() {
        let (worker, client, program) = (topics(30), topics(30), topics(30));
        let outlets = Outlets::new(&worker).unwrap();
        let of_keyed = || outlets.keyed.as_ref().unwrap();
        let mut ours = ReplyReaders::new(&client).unwrap();
        let beside = keyed(&client).reader(&item_qos(Group::BASE, READS_UNKEYED.to_vec())).unwrap();
        eventually("the client is met", || {
            let keyed = of_keyed().outlet.writer().matched().unwrap();
            (outlets.unkeyed.writer().matched().unwrap(), keyed) == (1, 2)
        });
        assert!(!of_keyed().is_needed().unwrap());
        let (mut samples, mut with_key) = (Vec::new(), Vec::new());
        let both = [REPLIES, KEYED_REPLIES];
        write(&outlets, 0..10);
        eventually("the client has each reply", || {
            ours.take(&both, &mut samples).unwrap();
            samples.len() == 10
        });
        // A program with any vendor's DDS, or a client of the version before.
        let any = keyed(&program).reader(&Qos::default()).unwrap();
        eventually("the program is met", || of_keyed().is_needed().unwrap());
        write(&outlets, 10..20);
        let mut of_any = Vec::new();
        eventually("the program has its replies", || take(&any, &mut of_any).len() == 10);
        eventually("the client has each reply", || {
            ours.take(&both, &mut samples).unwrap();
            samples.len() == 20
        });
        assert_eq!(ids(&of_any), (10..20).collect::<Vec<_>>());
        eventually("DDS brings them to all that read", || take(&beside, &mut with_key).len() == 10);
        ours.take(&both, &mut samples).unwrap();
        assert_eq!(ids(&samples), (0..20).collect::<Vec<_>>(), "each once");
        drop((any, program));
        eventually("the program is gone", || !of_keyed().is_needed().unwrap());
        write(&outlets, 20..30);
        eventually("the client has each reply", || {
            ours.take(&both, &mut samples).unwrap();
            samples.len() == 30
        });
        assert_eq!(take(&beside, &mut with_key).len(), 10);
    }

    #[test]
    fn a_client_reads_replies_of_a_worker_of_the_previous_version() {
        let (client, before) = (topics(31), topics(31));
        let mut ours = ReplyReaders::new(&client).unwrap();
        let outlet = Outlet::new(keyed(&before), true, &[]).unwrap();
        eventually("they meet", || outlet.writer().matched().unwrap() == 1);
        for id in 0..10 {
            assert_eq!(outlet.write(&cdr(id)), Ok(Sent::Usual));
        }
        let mut samples = Vec::new();
        eventually("the client has each reply", || {
            ours.take(&[KEYED_REPLIES], &mut samples).unwrap();
            samples.len() == 10
        });
        let read: BTreeSet<_> = ids(&samples).into_iter().collect();
        assert_eq!(read, (0..10).collect());
    }
}
