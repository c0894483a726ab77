//! The packet level: flows and pins.

use std::future::Future;

use tokio::sync::mpsc::Receiver;

use super::OperateError;
use crate::wire::packet::{
    CaptureQuestion, FlowAnswer, FlowQuestion, Pin, PinKey, Pins, SourceFlows, SourceQuestion,
};

/// A capture: the parts of a pcapng file. Dropping it ends the capture.
pub struct CaptureFile {
    /// The parts, until the capture ends.
    pub parts: Receiver<Vec<u8>>,
    /// Ends the capture when it is dropped.
    pub capture: Box<dyn Send>,
}

/// Operations on the packet level. Without implementations, there is no packet level.
pub trait PacketOperator: Send + Sync + 'static {
    /// Explains where the next packet of a flow goes.
    fn explain_flow(
        &self,
        _question: FlowQuestion,
    ) -> impl Future<Output = Result<FlowAnswer, OperateError>> + Send {
        async { Err(OperateError::NoPacketLevel) }
    }

    /// Finds the clients of a source of full-nat.
    fn flows_of_source(
        &self,
        _question: SourceQuestion,
    ) -> impl Future<Output = Result<SourceFlows, OperateError>> + Send {
        async { Err(OperateError::NoPacketLevel) }
    }

    /// Captures packets.
    fn capture(
        &self,
        _question: CaptureQuestion,
    ) -> impl Future<Output = Result<CaptureFile, OperateError>> + Send {
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
