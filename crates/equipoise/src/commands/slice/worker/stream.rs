//! Where a worker's stream is: a file's `[[slice]]` table, the command line, or both.

use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context, bail};
use clap::ValueEnum;

use crate::config::{self, Loaded, Multicast, SliceStream, Surroundings};

/// Options of the stream; what is said here wins over the file.
#[derive(Debug, clap::Args)]
pub(super) struct StreamOptions {
    /// A configuration file with the stream's [[slice]] table: the controller's, or one with that alone
    #[arg(long, value_name = "FILE", help_heading = "Stream")]
    config: Option<PathBuf>,
    /// Which of the file's streams, where there are several
    #[arg(long, value_name = "NAME", help_heading = "Stream", requires = "config")]
    stream: Option<String>,
    /// Slices of the stream; the controller has to have the same
    #[arg(long, value_name = "N", help_heading = "Stream", required_unless_present = "config",
          value_parser = clap::value_parser!(u32).range(1..=10_000))]
    slices: Option<u32>,
    /// The DDS domain; on Linux 0 to 101 are safe [default: 0]
    #[arg(long, value_name = "N", help_heading = "Stream",
          value_parser = clap::value_parser!(u32).range(0..=232))]
    domain: Option<u32>,
    /// The topic of items [default: items]
    #[arg(long, value_name = "TOPIC", help_heading = "Stream", value_parser = config::topic)]
    items: Option<String>,
    /// The topic of replies [default: replies]
    #[arg(long, value_name = "TOPIC", help_heading = "Stream", value_parser = config::topic)]
    replies: Option<String>,
    /// The name of items' type; one that ROS 2 makes has no key [default: dpslb::DataItem]
    #[arg(long, value_name = "TYPE", help_heading = "Stream", value_parser = config::type_name)]
    item_type: Option<String>,
    /// The name of replies' type [default: dpslb::Reply]
    #[arg(long, value_name = "TYPE", help_heading = "Stream", value_parser = config::type_name)]
    reply_type: Option<String>,
    /// What the topics between workers and controllers begin with [default: equipoise/slice]
    #[arg(long, value_name = "TOPIC", help_heading = "Stream", value_parser = config::topic)]
    control: Option<String>,
    /// In which order items are done while a slice moves; the controller has to have the same [default: free]
    #[arg(long, help_heading = "Stream")]
    order: Option<Order>,
    /// A worker that no controller has heard for this long does nothing more; the controller has to have the same [default: 5s]
    #[arg(long, value_name = "TIME", help_heading = "Stream", value_parser = duration)]
    lease: Option<Duration>,
    /// A network interface that DDS uses, by name or address; several with commas between them, or the option again
    #[arg(
        long,
        visible_alias = "interface",
        value_name = "NAME",
        value_delimiter = ',',
        help_heading = "Network"
    )]
    interfaces: Vec<String>,
    /// A host that is asked for participants, where multicast does not reach it; several likewise
    #[arg(
        long,
        visible_alias = "peer",
        value_name = "HOST[:PORT]",
        value_delimiter = ',',
        help_heading = "Network"
    )]
    peers: Vec<String>,
    /// What multicast is used for [default: full]
    #[arg(long, help_heading = "Network")]
    multicast: Option<Cast>,
    /// A participant of DDS that is silent for this long is taken for dead [default: 5s]
    #[arg(long, value_name = "TIME", help_heading = "Network", value_parser = duration)]
    dds_lease: Option<Duration>,
    /// More configuration of Cyclone DDS: XML, or file:// and a path
    #[arg(long, value_name = "XML|URL", help_heading = "Network", value_parser = config::cyclone)]
    more: Option<String>,
}

/// As `[[slice]] order` has them.
#[derive(Clone, Copy, Debug, ValueEnum)]
enum Order {
    /// The new owner starts at once
    Free,
    /// The new owner starts when the old one has nothing left
    Strict,
    /// Strict, and the state of a slice moves with it: the program exports it and takes it over
    Stateful,
}

/// As `[[slice]] multicast` has them.
#[derive(Clone, Copy, Debug, ValueEnum)]
enum Cast {
    /// Discovery and data
    Full,
    /// Discovery only
    Discovery,
    /// Nothing: --peer says who there is
    Off,
}

impl StreamOptions {
    /// The stream.
    pub(super) fn read(&self) -> anyhow::Result<SliceStream> {
        let mut stream = match &self.config {
            Some(_) => self.in_file()?,
            None => unsaid(self.slices.unwrap_or_default())?,
        };
        self.overrule(&mut stream);
        Ok(stream)
    }

    fn in_file(&self) -> anyhow::Result<SliceStream> {
        let file = self.config.as_deref().context("there is no file")?;
        let Loaded { config, .. } = config::load(file)?;
        let streams = config.slices;
        let names: Vec<_> = streams.iter().map(|stream| stream.name.clone()).collect();
        let known = names.join(", ");
        let found = match &self.stream {
            Some(name) => streams.into_iter().find(|stream| stream.name == *name),
            None if names.len() > 1 => {
                bail!("{} has several streams ({known}): say which with --stream", file.display())
            }
            None => streams.into_iter().next(),
        };
        match (found, &self.stream) {
            (Some(stream), _) => Ok(stream),
            (None, Some(name)) if !names.is_empty() => {
                bail!("{} has no stream {name}; it has {known}", file.display())
            }
            _ => bail!("{} has no [[slice]] table", file.display()),
        }
    }

    fn overrule(&self, stream: &mut SliceStream) {
        fn set<T: Clone>(field: &mut T, said: Option<&T>) {
            if let Some(said) = said {
                field.clone_from(said);
            }
        }
        set(&mut stream.slices, self.slices.as_ref());
        set(&mut stream.domain, self.domain.as_ref());
        set(&mut stream.items, self.items.as_ref());
        set(&mut stream.replies, self.replies.as_ref());
        set(&mut stream.item_type, self.item_type.as_ref());
        set(&mut stream.reply_type, self.reply_type.as_ref());
        set(&mut stream.control, self.control.as_ref());
        set(&mut stream.protocol.lease, self.lease.as_ref());
        set(&mut stream.network.lease, self.dds_lease.as_ref());
        if let Some(order) = self.order {
            stream.protocol.order = match order {
                Order::Free => equipoise_slice::Order::Free,
                Order::Strict => equipoise_slice::Order::Strict,
                Order::Stateful => equipoise_slice::Order::Stateful,
            };
        }
        if let Some(multicast) = self.multicast {
            stream.network.multicast = match multicast {
                Cast::Full => Multicast::Full,
                Cast::Discovery => Multicast::Discovery,
                Cast::Off => Multicast::Off,
            };
        }
        for (field, said) in [
            (&mut stream.network.interfaces, &self.interfaces),
            (&mut stream.network.peers, &self.peers),
        ] {
            if !said.is_empty() {
                field.clone_from(said);
            }
        }
        if self.more.is_some() {
            stream.network.more.clone_from(&self.more);
        }
    }
}

/// A stream of which nothing else is said.
fn unsaid(slices: u32) -> anyhow::Result<SliceStream> {
    let text = format!("[[slice]]\nname = \"stream\"\nslices = {slices}\n");
    let file = std::path::Path::new("(command line)");
    let Loaded { config, .. } = config::parse(&text, file, &Surroundings::here())?;
    config.slices.into_iter().next().context("a table makes a stream")
}

/// As the file has durations.
pub(super) fn duration(text: &str) -> Result<Duration, String> {
    config::read_duration(text)
        .filter(|time| !time.is_zero())
        .ok_or_else(|| "accepted: a number and a unit (ms, s, m, h, d), such as 300ms".to_string())
}

/// A worker's name.
pub(super) fn name(text: &str) -> Result<String, String> {
    let fits = (1..=64).contains(&text.len())
        && text.bytes().all(|b| b.is_ascii_alphanumeric() || b"._-".contains(&b));
    match fits {
        true => Ok(text.to_string()),
        false => Err("accepted: 1 to 64 letters, digits, `.`, `_` and `-`".to_string()),
    }
}
