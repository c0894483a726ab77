//! The stream of a worker: from a file's `[[slice]]` table, from the command line, or from both.

use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context, bail};
use clap::ValueEnum;

use equipoise_config::{self as config, Loaded, Multicast, SliceStream, Surroundings};

/// Options of the stream. They override the file.
#[derive(Debug, clap::Args)]
pub(super) struct StreamOptions {
    /// A configuration file with the stream's [[slice]] table: the controller's, or one with only
    /// this table
    #[arg(long, value_name = "FILE", help_heading = "Stream")]
    config: Option<PathBuf>,
    /// Which of the file's streams, if there are several
    #[arg(long, value_name = "NAME", help_heading = "Stream", requires = "config")]
    stream: Option<String>,
    /// Number of slices; must be the same as the controller's
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
    /// DDS type name of items; a name as ROS 2 makes it has no key [default: dpslb::DataItem]
    #[arg(long, value_name = "TYPE", help_heading = "Stream", value_parser = config::type_name)]
    item_type: Option<String>,
    /// DDS type name of replies [default: dpslb::Reply]
    #[arg(long, value_name = "TYPE", help_heading = "Stream", value_parser = config::type_name)]
    reply_type: Option<String>,
    /// Prefix of the topics between workers and controllers [default: equipoise/slice]
    #[arg(long, value_name = "TOPIC", help_heading = "Stream", value_parser = config::topic)]
    control: Option<String>,
    /// Order in which items are processed while a slice moves; must be the same as the controller's
    /// [default: free]
    #[arg(long, help_heading = "Stream")]
    order: Option<Order>,
    /// Time without a controller's answer after which the worker stops; must be the same as the
    /// controller's [default: 5s]
    #[arg(long, value_name = "TIME", help_heading = "Stream", value_parser = duration)]
    lease: Option<Duration>,
    /// A network interface for DDS, by name or address; separate several with commas, or repeat the
    /// option
    #[arg(
        long,
        visible_alias = "interface",
        value_name = "NAME",
        value_delimiter = ',',
        help_heading = "Network"
    )]
    interfaces: Vec<String>,
    /// A host to ask for participants, where multicast does not reach it; several as for
    /// --interface
    #[arg(
        long,
        visible_alias = "peer",
        value_name = "HOST[:PORT]",
        value_delimiter = ',',
        help_heading = "Network"
    )]
    peers: Vec<String>,
    /// Use of multicast [default: full]
    #[arg(long, help_heading = "Network")]
    multicast: Option<Cast>,
    /// Silence after which DDS takes a participant for dead [default: 5s]
    #[arg(long, value_name = "TIME", help_heading = "Network", value_parser = duration)]
    dds_lease: Option<Duration>,
    /// Further Cyclone DDS configuration: XML, or file:// and a path
    #[arg(long, value_name = "XML|URL", help_heading = "Network", value_parser = config::cyclone)]
    more: Option<String>,
}

/// The values of `[[slice]] order`.
#[derive(Clone, Copy, Debug, ValueEnum)]
enum Order {
    /// The new owner starts at once
    Free,
    /// The new owner starts when the old one has nothing left
    Strict,
    /// Strict, and the state of a slice moves with it: the program exports and imports it
    Stateful,
}

/// The values of `[[slice]] multicast`.
#[derive(Clone, Copy, Debug, ValueEnum)]
enum Cast {
    /// Discovery and data
    Full,
    /// Discovery only
    Discovery,
    /// Nothing: --peer names the participants
    Off,
}

impl StreamOptions {
    /// Reads the stream from file and command line.
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
                bail!("{} has several streams ({known}): choose one with --stream", file.display())
            }
            None => streams.into_iter().next(),
        };
        match (found, &self.stream) {
            (Some(stream), _) => Ok(stream),
            (None, Some(name)) if !names.is_empty() => {
                bail!("{} has no stream {name}; its streams are {known}", file.display())
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

/// A stream with default options.
fn unsaid(slices: u32) -> anyhow::Result<SliceStream> {
    let text = format!("[[slice]]\nname = \"stream\"\nslices = {slices}\n");
    let file = std::path::Path::new("(command line)");
    let Loaded { config, .. } = config::parse(&text, file, &Surroundings::here())?;
    config.slices.into_iter().next().context("a table makes a stream")
}

/// Reads a duration in the notation of the configuration file.
pub(super) fn duration(text: &str) -> Result<Duration, String> {
    config::read_duration(text)
        .filter(|time| !time.is_zero())
        .ok_or_else(|| "accepted: a number and a unit (ms, s, m, h, d), such as 300ms".to_string())
}

/// Reads the name of a worker.
pub(super) fn name(text: &str) -> Result<String, String> {
    let fits = (1..=64).contains(&text.len())
        && text.bytes().all(|b| b.is_ascii_alphanumeric() || b"._-".contains(&b));
    match fits {
        true => Ok(text.to_string()),
        false => Err("accepted: 1 to 64 letters, digits, `.`, `_` and `-`".to_string()),
    }
}
