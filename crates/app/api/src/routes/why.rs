//! Explanations of where a request, connection, query or item would go.

use std::sync::Arc;

use axum::extract::State;

use super::Routes;
use crate::answer::Answer;
use crate::auth::Access;
use crate::extract::Body;
use crate::wire::why::{WhyAnswer, WhyQuestion};
use crate::{Operator, Problem, WhyOperator};

pub(super) fn routes<O: Operator>() -> Routes<O> {
    Routes::default().post(
        Access::READ,
        "/v1/why",
        why::<O>,
        "Explain where a request, connection, query or item would go now, changing nothing",
    )
}

async fn why<O: WhyOperator>(
    State(operator): State<Arc<O>>,
    Body(question): Body<WhyQuestion>,
) -> Result<Answer<WhyAnswer>, Problem> {
    Ok(Answer::new(operator.explain(question).await?))
}
