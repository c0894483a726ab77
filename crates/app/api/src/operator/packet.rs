//! The packet level: flows and pins.

use std::future::Future;

use super::OperateError;
use crate::wire::packet::{FlowAnswer, FlowQuestion, Pin, PinKey, Pins};

/// Operations on the packet level. Without implementations, there is no packet level.
pub trait PacketOperator: Send + Sync + 'static {
    /// Explains where the next packet of a flow goes.
    fn explain_flow(
        &self,
        _question: FlowQuestion,
    ) -> impl Future<Output = Result<FlowAnswer, OperateError>> + Send {
        async { Err(OperateError::NoPacketLevel) }
    }

    /// The pinned flows.
    fn pins(&self) -> impl Future<Output = Result<Pins, OperateError>> + Send {
        async { Err(OperateError::NoPacketLevel) }
    }

    /// Pins a flow to a backend, until the pin is removed or the packet level stops.
    fn add_pin(&self, _pin: Pin) -> impl Future<Output = Result<Pin, OperateError>> + Send {
        async { Err(OperateError::NoPacketLevel) }
    }

    /// Pins a pinned flow to another backend.
    fn move_pin(&self, _pin: Pin) -> impl Future<Output = Result<Pin, OperateError>> + Send {
        async { Err(OperateError::NoPacketLevel) }
    }

    /// Removes a pin. The flow stays at its backend until it ends.
    fn remove_pin(&self, _pin: PinKey) -> impl Future<Output = Result<Pins, OperateError>> + Send {
        async { Err(OperateError::NoPacketLevel) }
    }
}
