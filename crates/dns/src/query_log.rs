//! The query log: a line for each answer of the share that is logged.

use std::fmt;
use std::net::IpAddr;
use std::sync::Arc;

use domain::base::Message;
use domain::rdata::AllRecordData;

use crate::stats::Transport;

/// Takes a line without its newline; `false`: it was given up. It must not wait.
#[derive(Clone)]
pub struct QueryLog(Arc<Take>);

type Take = dyn Fn(&dyn fmt::Display) -> bool + Send + Sync;

impl QueryLog {
    /// Lines go to `take`.
    pub fn new(take: impl Fn(&dyn fmt::Display) -> bool + Send + Sync + 'static) -> QueryLog {
        QueryLog(Arc::new(take))
    }

    #[cold]
    pub(crate) fn write(&self, line: &QueryLine<'_>) -> bool {
        (self.0)(line)
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

impl fmt::Display for QueryLine<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let transport = match self.transport {
            Transport::Udp => "udp",
            Transport::Tcp => "tcp",
        };
        write!(f, "level=dns client={} transport={transport}", self.client)?;
        // It is our own answer: it has a header, and a question unless the query's could not be read.
        let Ok(message) = Message::from_octets(self.answer) else { return Ok(()) };
        if let Some(question) = message.first_question() {
            // Names are written as in zone files: whatever bytes a client sends, the line stays one line.
            let name = question.qname().to_string();
            write!(f, " name={name:?} type={}", question.qtype())?;
        }
        write!(f, " rcode={} bytes={}", message.opt_rcode(), self.answer.len())?;
        if message.header().tc() {
            f.write_str(" truncated")?;
        }
        let Ok(section) = message.answer() else { return Ok(()) };
        let mut lead = " addresses=";
        for record in section.limit_to::<AllRecordData<_, _>>().flatten() {
            match record.data() {
                AllRecordData::A(a) => write!(f, "{lead}{}", a.addr())?,
                AllRecordData::Aaaa(aaaa) => write!(f, "{lead}{}", aaaa.addr())?,
                _ => continue,
            }
            lead = ",";
        }
        Ok(())
    }
}
