//! The query log: a line for each answer of the share that is logged.

use std::fmt::{self, Write as _};
use std::net::IpAddr;
use std::sync::Arc;

use domain::base::Message;
use domain::rdata::AllRecordData;
use equipoise_core::LogLine;

use crate::stats::Transport;

/// Takes what adds a line's fields; `false`: the line was given up. It must not wait.
#[derive(Clone)]
pub struct QueryLog(Arc<Take>);

/// Adds the fields of one answer to a line.
pub type Fill<'a> = dyn Fn(&mut LogLine<'_>) + 'a;

type Take = dyn Fn(&Fill<'_>) -> bool + Send + Sync;

impl QueryLog {
    /// Lines go to `take`.
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

/// What is told of an answer.
pub(crate) struct QueryLine<'a> {
    pub(crate) client: IpAddr,
    pub(crate) transport: Transport,
    /// The whole message.
    pub(crate) answer: &'a [u8],
}

impl QueryLine<'_> {
    fn write(&self, line: &mut LogLine<'_>) {
        line.word("client", self.client);
        line.word(
            "transport",
            match self.transport {
                Transport::Udp => "udp",
                Transport::Tcp => "tcp",
            },
        );
        // It is our own answer: it has a header, and a question unless the query's could not be read.
        let Ok(message) = Message::from_octets(self.answer) else { return };
        if let Some(question) = message.first_question() {
            line.text("name", question.qname().to_string().as_bytes());
            line.word("type", question.qtype());
        }
        line.word("rcode", message.opt_rcode());
        line.number("bytes", self.answer.len() as u64);
        line.flag("truncated", message.header().tc());
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
            true => line.none("addresses"),
            false => line.word("addresses", addresses),
        }
    }
}
