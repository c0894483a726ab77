//! Explanations of where a request, connection, query or item would go.

use std::sync::Arc;

use axum::extract::State;

use super::Routes;
use crate::answer::Answer;
use crate::extract::Body;
use crate::wire::why::{WhyAnswer, WhyQuestion};
use crate::{OperateError, Operator, Problem};

operations! {
    /// Explain where a request, connection, query or item would go now, changing nothing
    WHY = POST "/v1/why", READ, WhyQuestion => WhyAnswer;
}

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

pub(super) fn routes<O: Operator>() -> Routes<O> {
    Routes::default().serve(WHY, why::<O>)
}

async fn why<O: WhyOperator>(
    State(operator): State<Arc<O>>,
    Body(question): Body<WhyQuestion>,
) -> Result<Answer<WhyAnswer>, Problem> {
    Ok(Answer::new(operator.explain(question).await?))
}
