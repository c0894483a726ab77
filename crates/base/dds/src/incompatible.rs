//! Writers and readers of one topic and partition that DDS does not connect.

use std::fmt;

use cyclors::{
    dds_qos_policy_id_DDS_DATA_REPRESENTATION_QOS_POLICY_ID as REPRESENTATION,
    dds_qos_policy_id_DDS_DURABILITY_QOS_POLICY_ID as DURABILITY,
    dds_qos_policy_id_DDS_RELIABILITY_QOS_POLICY_ID as RELIABILITY,
    dds_qos_policy_id_DDS_TYPE_CONSISTENCY_ENFORCEMENT_QOS_POLICY_ID as TYPE_CONSISTENCY,
};

/// Incompatible counterparts of a writer or reader.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Incompatible {
    /// Number of incompatible counterparts since it was created.
    pub count: u32,
    /// The mismatch of the last one.
    pub why: Mismatch,
}

/// The property that does not match.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Mismatch {
    /// The structures of the types; their names may be equal.
    Type,
    /// The serialization of samples.
    Representation,
    /// The reader is reliable and the writer best-effort.
    Reliability,
    /// The reader requests earlier samples, and the writer keeps none.
    Durability,
    /// Another policy, by its number in DDS.
    Other(u32),
}

impl Incompatible {
    pub(crate) fn new(count: u32, policy: u32) -> Self {
        let why = match policy {
            TYPE_CONSISTENCY => Mismatch::Type,
            REPRESENTATION => Mismatch::Representation,
            RELIABILITY => Mismatch::Reliability,
            DURABILITY => Mismatch::Durability,
            other => Mismatch::Other(other),
        };
        Self { count, why }
    }
}

impl fmt::Display for Mismatch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Type => f.write_str("its type has other members, or other kinds of them"),
            Self::Representation => f.write_str("its samples are serialized in another way"),
            Self::Reliability => f.write_str("the writer is best-effort and the reader reliable"),
            Self::Durability => {
                f.write_str("the reader asks for more durability than the writer offers")
            }
            Self::Other(policy) => write!(f, "QoS policy {policy} of DDS does not fit"),
        }
    }
}
