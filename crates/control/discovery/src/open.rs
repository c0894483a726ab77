//! Creates a source from its options.

use crate::dns::DnsSource;
use crate::file::FileSource;
use crate::options::SourceOptions;
use crate::source::Source;

pub(crate) fn open(options: &SourceOptions) -> Box<dyn Source> {
    match options {
        SourceOptions::File(path) => Box::new(FileSource::new(path.clone())),
        SourceOptions::Dns(options) => Box::new(DnsSource::new(options.clone())),
    }
}
