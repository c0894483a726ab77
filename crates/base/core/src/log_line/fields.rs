//! The fields of a line of the access log, and which of them a line has.

/// Declares the fields, each with its name.
macro_rules! fields {
    ($($field:ident $name:literal,)*) => {
        /// A field of the access log.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub enum LogField {
            $(#[doc = concat!("`", $name, "`")] $field,)*
        }

        impl LogField {
            /// Every field, in the order of a line.
            pub const ALL: &[LogField] = &[$(LogField::$field),*];

            /// Its key.
            pub const fn name(self) -> &'static str {
                match self {
                    $(LogField::$field => $name,)*
                }
            }
        }
    };
}

fields! {
    Time "time",
    Kind "kind",
    FrontDoor "front_door",
    Client "client",
    Transport "transport",
    Name "name",
    Type "type",
    Rcode "rcode",
    Bytes "bytes",
    Truncated "truncated",
    Addresses "addresses",
    Scheme "scheme",
    Method "method",
    Host "host",
    Path "path",
    Protocol "protocol",
    Status "status",
    BytesIn "bytes_in",
    BytesOut "bytes_out",
    Seconds "seconds",
    QueueSeconds "queue_seconds",
    ConnectSeconds "connect_seconds",
    FirstByteSeconds "first_byte_seconds",
    Route "route",
    Pool "pool",
    Backend "backend",
    Retries "retries",
    Referer "referer",
    UserAgent "user_agent",
    RequestId "request_id",
    TraceId "trace_id",
    Reason "reason",
    ProxyAuthority "proxy_authority",
    ProxyTlsVersion "proxy_tls_version",
    ProxyTlsCipher "proxy_tls_cipher",
    ProxyTlsClient "proxy_tls_client",
    ProxyUniqueId "proxy_unique_id",
}

impl LogField {
    /// The field with this name.
    pub fn named(name: &str) -> Option<LogField> {
        Self::ALL.iter().copied().find(|field| field.name() == name)
    }
}

/// A set of fields.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LogFields(u64);

const _: () = assert!(LogField::ALL.len() <= 64);

impl LogFields {
    /// The fields of a line unless the configuration chooses them.
    pub const USUAL: LogFields = LogFields(u64::MAX)
        .without(LogField::Protocol)
        .without(LogField::Route)
        .without(LogField::Referer)
        .without(LogField::TraceId);

    const fn without(self, field: LogField) -> LogFields {
        LogFields(self.0 & !(1 << field as u64))
    }

    /// Whether the set has this field.
    pub const fn has(self, field: LogField) -> bool {
        self.0 & (1 << field as u64) != 0
    }
}

impl FromIterator<LogField> for LogFields {
    fn from_iter<I: IntoIterator<Item = LogField>>(fields: I) -> LogFields {
        LogFields(fields.into_iter().fold(0, |set, field| set | (1 << field as u64)))
    }
}
