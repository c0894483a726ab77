//! Explanations.

use std::future::Future;

use super::OperateError;
use crate::wire::why::{WhyAnswer, WhyQuestion};

/// Explanations of where a request, connection, query or item would go.
/// Without an implementation, nothing is balanced.
pub trait WhyOperator: Send + Sync + 'static {
    /// Explains where it would go now. Changes nothing.
    fn explain(
        &self,
        _question: WhyQuestion,
    ) -> impl Future<Output = Result<WhyAnswer, OperateError>> + Send {
        async {
            let text = "this process balances nothing; ask one of `equipoise run`";
            Err(OperateError::Refused(text.into()))
        }
    }
}
