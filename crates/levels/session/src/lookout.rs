//! How the kernel watches a connection to a backend for a silent peer.

/// The detection of a silent peer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Lookout {
    /// Nothing but time-outs.
    None,
    /// Keep-alive probes, while nothing is on its way.
    Probes,
    /// Those, and sent bytes that are not acknowledged.
    All,
}
