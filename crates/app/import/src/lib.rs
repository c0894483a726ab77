//! Translates configurations of other balancers into equipoise's. Pure.
//!
//! In: the text of `haproxy.cfg`, of `nginx -T` or an nginx file, of `keepalived.conf`, or the
//! commands of `ipvsadm`. Out: a configuration in TOML, and a result for each line: carried, needs
//! nothing, changes behaviour, or not carried, with the nearest option. Fails with [`ImportError`]
//! if the text is of none of these, or does not follow their syntax.
//!
//! | file | job |
//! |---|---|
//! | `haproxy.rs`, `haproxy/` | HAProxy: words and sections, conditions, frontends, backends |
//! | `nginx.rs`, `nginx/` | nginx: blocks, `http` and `stream`, locations |
//! | `keepalived.rs` | virtual servers of keepalived |
//! | `ipvs.rs` | commands of `ipvsadm` |
//! | `conditions.rs` | requests that meet two sets of conditions of routes |
//! | `model.rs` | the configuration that is built, and its text |
//! | `report.rs` | the result of each line |
//! | `trial.rs`, `trial/` | a translation beside the old proxy: requests, answers, differences |

mod conditions;
mod haproxy;
mod ipvs;
mod keepalived;
mod model;
mod nginx;
mod report;
pub mod trial;

pub use report::{Line, Report, Verdict};

/// Programs with configurations that are translated.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Peer {
    /// `haproxy.cfg`.
    Haproxy,
    /// A file of nginx, or the output of `nginx -T`.
    Nginx,
    /// `keepalived.conf`.
    Keepalived,
    /// The output of `ipvsadm-save`, or commands of `ipvsadm`.
    Ipvsadm,
}

/// A translation.
#[derive(Clone, Debug)]
pub struct Import {
    /// The configuration, with a comment for each line that is not carried or changes behaviour.
    pub text: String,
    /// The result of each line.
    pub report: Report,
}

/// Text that cannot be translated.
#[derive(Clone, Debug, thiserror::Error, PartialEq, Eq)]
pub enum ImportError {
    /// The program is not recognised.
    #[error(
        "this is no configuration of HAProxy, nginx, keepalived or ipvsadm that is recognised; name the program with --from"
    )]
    UnknownPeer,
    /// The syntax is wrong.
    #[error("line {line}: {problem}")]
    Syntax {
        /// The line, from 1.
        line: usize,
        /// The problem.
        problem: String,
    },
    /// It has no virtual server, frontend or server.
    #[error("nothing in it accepts connections: {wanted} is missing")]
    Empty {
        /// The directives that would.
        wanted: &'static str,
    },
}

impl Peer {
    /// The program's name.
    pub fn name(self) -> &'static str {
        match self {
            Peer::Haproxy => "HAProxy",
            Peer::Nginx => "nginx",
            Peer::Keepalived => "keepalived",
            Peer::Ipvsadm => "ipvsadm",
        }
    }

    /// Recognises the program by the text.
    pub fn of(text: &str) -> Option<Peer> {
        let lines = || {
            text.lines().map(str::trim).filter(|it| !it.starts_with(['#', '!']) && !it.is_empty())
        };
        let begins = |words: &[&str]| {
            let first = |line: &str| line.split([' ', '\t', ';', '{']).next().map(str::to_string);
            lines().filter_map(first).any(|it| words.contains(&it.as_str()))
        };
        let opens = |words: &[&str]| {
            let opened = lines().filter_map(|line| line.strip_suffix('{'));
            opened.filter_map(|it| it.split_whitespace().next()).any(|it| words.contains(&it))
        };
        if begins(&["virtual_server", "vrrp_instance", "virtual_server_group"]) {
            Some(Peer::Keepalived)
        } else if opens(&["http", "stream", "server", "upstream", "events"]) {
            Some(Peer::Nginx)
        } else if begins(&["frontend", "backend", "listen", "defaults"]) {
            Some(Peer::Haproxy)
        } else if begins(&["-A", "ipvsadm"]) {
            Some(Peer::Ipvsadm)
        } else {
            None
        }
    }
}

/// Translates a configuration.
///
/// # Errors
/// See [`ImportError`].
pub fn import(peer: Peer, text: &str) -> Result<Import, ImportError> {
    let mut report = Report::default();
    let mut config = match peer {
        Peer::Haproxy => haproxy::import(text, &mut report),
        Peer::Nginx => nginx::import(text, &mut report),
        Peer::Keepalived => keepalived::import(text, &mut report),
        Peer::Ipvsadm => ipvs::import(text, &mut report),
    }?;
    config.keep_to_this_machine(&mut report);
    let text = config.text(peer.name(), &report);
    Ok(Import { text, report })
}
