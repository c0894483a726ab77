//! Creates a source from its options.

use crate::consul::ConsulSource;
use crate::dns::DnsSource;
use crate::etcd::EtcdSource;
use crate::file::FileSource;
use crate::http::HttpSource;
use crate::kubernetes::KubernetesSource;
use crate::options::SourceOptions;
use crate::source::Source;

pub(crate) fn open(options: &SourceOptions) -> Box<dyn Source> {
    match options.clone() {
        SourceOptions::File(path) => Box::new(FileSource::new(path)),
        SourceOptions::Dns(options) => Box::new(DnsSource::new(options)),
        SourceOptions::Http(options) => Box::new(HttpSource::new(options)),
        SourceOptions::Etcd(place) => Box::new(EtcdSource::new(place)),
        SourceOptions::Consul(options) => Box::new(ConsulSource::new(options)),
        SourceOptions::Kubernetes(options) => Box::new(KubernetesSource::new(options)),
    }
}
