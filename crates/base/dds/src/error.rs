//! Why Cyclone DDS refused something.

use cyclors::dds_return_t;

use crate::idl::IdlError;

/// A call that Cyclone DDS refused, or an argument that it cannot be given.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    /// Cyclone DDS said no.
    #[error("DDS could not {doing}: {cause}")]
    Refused {
        /// What was asked of it.
        doing: &'static str,
        /// What it said.
        cause: Cause,
    },
    /// Another socket has a port that the domain needs, and may have got it by chance.
    #[error(
        "DDS could not open the domain: {cause}. Port {port}, where those of domain {domain} hear each other, is in use, and is \
         one of those that the system gives to any socket (net.ipv4.ip_local_port_range): take a domain whose ports (7400 + 250 \
         times its number, and on) are outside that range"
    )]
    PortTaken {
        /// The domain's number.
        domain: u32,
        /// The UDP port.
        port: u16,
        /// What Cyclone DDS said.
        cause: Cause,
    },
    /// A name or setting that C cannot hold.
    #[error("{what} {value:?} has a NUL character, which DDS cannot take")]
    Nul {
        /// Which.
        what: &'static str,
        /// As it was given.
        value: String,
    },
    /// This process has the domain already, with other settings. They are of the process, and stay.
    #[error("this process takes part in DDS domain {domain} already, with other settings")]
    OtherSettings {
        /// Its number.
        domain: u32,
    },
    /// The settings ask for DDS Security, and the library was built without it: nothing would be protected.
    #[error(
        "the DDS configuration asks for DDS Security, which this build does not have: build with the feature `dds-security`, or \
         take it out of the configuration"
    )]
    NoSecurity,
    /// A file with DDS configuration that cannot be read.
    #[error("the DDS configuration {path} cannot be read: {reason}")]
    Unreadable {
        /// Where it should be.
        path: String,
        /// Why it cannot.
        reason: String,
    },
    /// The IDL does not declare the type that is asked for.
    #[error("the type of items cannot be read from IDL: {0}")]
    Idl(#[from] IdlError),
    /// The system has no thread for us.
    #[error("the system starts no more threads")]
    Thread,
    /// Bytes that are no sample of the topic's type.
    #[error("{bytes} bytes are no sample of the topic's type")]
    NotOfType {
        /// How many.
        bytes: usize,
    },
}

/// What Cyclone DDS answers, by its return codes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum Cause {
    /// No reason given; its log may have one.
    #[error("it gave no reason (see its log)")]
    Unspecified,
    /// Not built in, or not supported.
    #[error("it is not supported")]
    Unsupported,
    /// An argument is wrong.
    #[error("an argument is wrong")]
    BadParameter,
    /// Something else must be so first.
    #[error("a precondition does not hold")]
    PreconditionNotMet,
    /// Memory, ports or descriptors have run out.
    #[error("resources have run out")]
    OutOfResources,
    /// QoS policies contradict each other.
    #[error("QoS policies contradict each other")]
    InconsistentPolicy,
    /// The policy cannot be changed any more.
    #[error("the policy cannot be changed")]
    ImmutablePolicy,
    /// It is gone.
    #[error("it is deleted")]
    AlreadyDeleted,
    /// It took too long: for a reliable writer, readers do not keep up.
    #[error("time is up")]
    Timeout,
    /// DDS Security forbids it.
    #[error("DDS Security does not allow it")]
    Security,
    /// Any other code.
    #[error("code {0}")]
    Other(i32),
}

impl Cause {
    fn of(code: dds_return_t) -> Self {
        match code {
            -1 => Self::Unspecified,
            -2 => Self::Unsupported,
            -3 => Self::BadParameter,
            -4 => Self::PreconditionNotMet,
            -5 => Self::OutOfResources,
            -7 => Self::ImmutablePolicy,
            -8 => Self::InconsistentPolicy,
            -9 => Self::AlreadyDeleted,
            -10 => Self::Timeout,
            -13 => Self::Security,
            code => Self::Other(code),
        }
    }
}

/// A return code, or what it refuses. Codes that are not negative carry a handle or a count.
pub(crate) fn check(doing: &'static str, code: dds_return_t) -> Result<dds_return_t, Error> {
    if code < 0 { Err(Error::Refused { doing, cause: Cause::of(code) }) } else { Ok(code) }
}

/// `value` for C.
pub(crate) fn c_string(what: &'static str, value: &str) -> Result<std::ffi::CString, Error> {
    std::ffi::CString::new(value).map_err(|_| Error::Nul { what, value: value.to_string() })
}
