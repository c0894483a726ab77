//! The query log: one line for each sampled answer.

use std::fmt::{self, Write as _};
use std::net::IpAddr;
use std::sync::Arc;

use domain::base::Message;
use domain::rdata::AllRecordData;
use equipoise_core::{LogField, LogLine};

use crate::stats::Transport;

/// Sink of log lines. It calls the function that it receives to fill a line, and returns `false` if
/// it dropped the line. It must not block.
#[derive(Clone)]
pub struct QueryLog(Arc<Take>);

/// Adds the fields of one answer to a line.
pub type Fill<'a> = dyn Fn(&mut LogLine<'_>) + 'a;

type Take = dyn Fn(&Fill<'_>) -> bool + Send + Sync;

impl QueryLog {
    /// Makes a log that passes lines to `take`.
    pub fn new(take: impl Fn(&Fill<'_>) -> bool + Send + Sync + 'static) -> QueryLog {
        QueryLog(Arc::new(take))
    }

    #[cold]
    pub(crate) fn write(&self, line: &QueryLine<'_>) -> bool {
        (self.0)(&|fields| line.write(fields))
    }
}

impl fmt::Debug for QueryLog {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("QueryLog")
    }
}

/// Fields of a line.
pub(crate) struct QueryLine<'a> {
    pub(crate) client: IpAddr,
    pub(crate) transport: Transport,
    /// The whole response message.
    pub(crate) answer: &'a [u8],
}

impl QueryLine<'_> {
    fn write(&self, line: &mut LogLine<'_>) {
        line.word(LogField::Client, self.client);
        line.word(
            LogField::Transport,
            match self.transport {
                Transport::Udp => "udp",
                Transport::Tcp => "tcp",
            },
        );
        // Our own answer always has a header. It has a question unless that of the query was
        // unreadable.
        let Ok(message) = Message::from_octets(self.answer) else { return };
        if let Some(question) = message.first_question() {
            line.text(LogField::Name, question.qname().to_string().as_bytes());
            line.word(LogField::Type, question.qtype());
        }
        line.word(LogField::Rcode, message.opt_rcode());
        line.number(LogField::Bytes, self.answer.len() as u64);
        line.flag(LogField::Truncated, message.header().tc());
        let Ok(section) = message.answer() else { return };
        let mut addresses = String::new();
        for record in section.limit_to::<AllRecordData<_, _>>().flatten() {
            let comma = if addresses.is_empty() { "" } else { "," };
            // Writing to a string does not fail.
            let _ = match record.data() {
                AllRecordData::A(a) => write!(addresses, "{comma}{}", a.addr()),
                AllRecordData::Aaaa(aaaa) => write!(addresses, "{comma}{}", aaaa.addr()),
                _ => continue,
            };
        }
        match addresses.is_empty() {
            true => line.none(LogField::Addresses),
            false => line.word(LogField::Addresses, addresses),
        }
    }
}
