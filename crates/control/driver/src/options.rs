use std::sync::Arc;

use serde::{Deserialize, Serialize};
use tokio::sync::mpsc;

use crate::driver::{Driver, Event};
use crate::{
    ExecDriver, ExecOptions, ProcessDriver, ProcessOptions, WebhookDriver, WebhookOptions,
};

/// The kind of a pool's driver, with its options. Options are serialized only for drivers with
/// backends that outlive this process.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum DriverOptions {
    /// The backends are local processes.
    #[serde(skip)]
    Process(ProcessOptions),
    /// The operator's scripts create and remove backends.
    Exec(ExecOptions),
    /// An HTTP service of the operator creates and removes backends.
    Webhook(WebhookOptions),
}

/// An option with a value that is not accepted.
#[derive(Clone, Debug, thiserror::Error, PartialEq, Eq)]
#[error("{driver}.{option} is {value}; accepted: {accepted}")]
pub struct OptionRefused {
    /// The driver's kind.
    pub driver: &'static str,
    /// The option's name, as in the configuration file.
    pub option: &'static str,
    /// The value.
    pub value: String,
    /// The accepted values, or what the operator can do.
    pub accepted: String,
}

impl DriverOptions {
    /// `process`, `exec` or `webhook`.
    pub fn kind(&self) -> &'static str {
        match self {
            DriverOptions::Process(_) => "process",
            DriverOptions::Exec(_) => "exec",
            DriverOptions::Webhook(_) => "webhook",
        }
    }

    /// True if the backends of this kind of driver survive the end of this process.
    pub fn outlives_us(&self) -> bool {
        !matches!(self, DriverOptions::Process(_))
    }

    /// The name of this driver in rosters: 16 hexadecimal digits that reveal no secret. `None` if
    /// the backends end with this process.
    pub fn fingerprint(&self) -> Option<String> {
        let text = serde_json::to_vec(&self.without_secrets()?).ok()?;
        // FNV-1a gives the same value in every process and version.
        let hash = text.iter().fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| {
            (hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3)
        });
        Some(format!("{hash:016x}"))
    }

    /// True if both drivers manage the same backends.
    pub(crate) fn is_as(&self, other: &DriverOptions) -> bool {
        self.outlives_us() && self.without_secrets() == other.without_secrets()
    }

    /// The options without the token: a service manages the same backends whatever its token is.
    fn without_secrets(&self) -> Option<DriverOptions> {
        match self {
            DriverOptions::Process(_) => None,
            DriverOptions::Exec(_) => Some(self.clone()),
            DriverOptions::Webhook(options) => {
                Some(DriverOptions::Webhook(WebhookOptions { token: None, ..options.clone() }))
            }
        }
    }

    /// Checks the options alone, not whether this machine can follow them.
    ///
    /// # Errors
    /// [`OptionRefused`] names the first option that is wrong.
    pub fn check(&self) -> Result<(), OptionRefused> {
        match self {
            DriverOptions::Process(options) => options.check(),
            DriverOptions::Exec(options) => options.check(),
            DriverOptions::Webhook(options) => options.check(),
        }
    }

    /// Opens the driver of a pool. The driver sends its events to `events`.
    ///
    /// # Errors
    /// [`OptionRefused`], also for a user, folder or certificate that this machine does not have.
    pub fn open(
        self,
        pool: &str,
        events: mpsc::Sender<Event>,
    ) -> Result<Arc<dyn Driver>, OptionRefused> {
        self.check()?;
        Ok(match self {
            DriverOptions::Process(options) => {
                Arc::new(ProcessDriver::open(pool, options, events)?)
            }
            DriverOptions::Exec(options) => Arc::new(ExecDriver::new(pool, options)),
            DriverOptions::Webhook(options) => Arc::new(WebhookDriver::open(pool, options)?),
        })
    }
}

/// Builds the errors of one driver's options.
pub(crate) struct Refuse(pub(crate) &'static str);

impl Refuse {
    pub(crate) fn with(
        &self,
        option: &'static str,
        value: impl std::fmt::Debug,
        accepted: impl Into<String>,
    ) -> OptionRefused {
        let value = format!("{value:?}");
        OptionRefused { driver: self.0, option, value, accepted: accepted.into() }
    }

    pub(crate) fn program(
        &self,
        option: &'static str,
        argv: &[String],
    ) -> Result<(), OptionRefused> {
        if argv.first().is_none_or(String::is_empty) {
            let accepted = "a list of a program and its arguments, such as [\"/usr/bin/app\", \"--port\", \"{port}\"] \
                            (run without a shell)";
            return Err(self.with(option, argv, accepted));
        }
        match argv.iter().find(|word| word.contains('\0')) {
            Some(word) => Err(self.with(option, word, "words without NUL bytes")),
            None => Ok(()),
        }
    }

    pub(crate) fn variables<'a>(
        &self,
        option: &'static str,
        names: impl Iterator<Item = (&'a String, &'a String)>,
    ) -> Result<(), OptionRefused> {
        for (name, value) in names {
            if name.is_empty() || name.contains(['=', '\0']) || value.contains('\0') {
                let accepted = "names without `=`, and no NUL bytes";
                return Err(self.with(option, (name, value), accepted));
            }
        }
        Ok(())
    }

    pub(crate) fn within(
        &self,
        option: &'static str,
        value: std::time::Duration,
        least_ms: u64,
        most_s: u64,
    ) -> Result<(), OptionRefused> {
        use std::time::Duration;
        let fine = Duration::from_millis(least_ms)..=Duration::from_secs(most_s);
        if fine.contains(&value) {
            return Ok(());
        }
        Err(self.with(option, value, format!("{:?} to {:?}", fine.start(), fine.end())))
    }
}
