//! The controller that an operator's command asks, either through its API or, as an operator,
//! through the cluster's port.

use equipoise_api::client::Client;
use equipoise_api::routes::cluster::{CREATE_TOKEN, EVICT, JOINED_NODES, REVOKE_TOKEN, TOKENS};
use equipoise_api::wire::cluster::{ClusterToken, TokenMade, TokenWanted};
use equipoise_cluster::wire::{CreateToken, ListedNode};
use equipoise_cluster::{Asker, Name, TokenId};
use serde::Serialize;

use super::Here;
use crate::process::{ApiArgs, ClusterPlace};
use crate::wire;

/// Ways to reach a controller.
pub(super) enum Controller {
    Api(Client),
    Port(Asker),
}

/// A list, and the answer that it came in.
pub(super) struct Listed<T> {
    pub(super) shown: Vec<T>,
    /// The controller's answer as JSON.
    pub(super) answer: serde_json::Result<serde_json::Value>,
}

impl<T> Listed<T> {
    fn of(answer: &impl Serialize, shown: Vec<T>) -> Listed<T> {
        Listed { shown, answer: serde_json::to_value(answer) }
    }
}

/// A node that joined. Times are in seconds since 1970.
pub(super) struct NodeRow {
    pub(super) name: String,
    pub(super) joined_at: u64,
    /// End of its last certificate.
    pub(super) valid_until: u64,
    /// Id of the token with which it joined.
    pub(super) token: String,
    pub(super) evicted: bool,
}

impl Controller {
    /// The named controller, or this machine's.
    pub(super) fn of(args: ApiArgs) -> anyhow::Result<Controller> {
        match args.cluster_place()? {
            ClusterPlace::Api(client) => Ok(Controller::Api(client)),
            ClusterPlace::File(file, _) => Here::load(&file)?.operator().map(Controller::Port),
        }
    }

    pub(super) async fn tokens(&self) -> anyhow::Result<Listed<ClusterToken>> {
        Ok(match self {
            Controller::Api(client) => {
                let answer = client.ask(TOKENS, &()).await?;
                Listed::of(&answer, answer.tokens.clone())
            }
            Controller::Port(asker) => {
                let answer = asker.tokens().await?;
                Listed::of(&answer, answer.tokens.iter().cloned().map(wire::token).collect())
            }
        })
    }

    pub(super) async fn create_token(&self, wish: &CreateToken) -> anyhow::Result<TokenMade> {
        match self {
            Controller::Api(client) => {
                let wanted = TokenWanted {
                    time_to_live_seconds: wish.time_to_live_s,
                    single_use: wish.single_use,
                    node: wish.node.as_ref().map(ToString::to_string),
                };
                Ok(client.ask(CREATE_TOKEN, &wanted).await?)
            }
            Controller::Port(asker) => {
                let made = asker.create_token(wish).await?;
                Ok(TokenMade { token: made.token, listed: wire::token(made.listed) })
            }
        }
    }

    pub(super) async fn revoke_token(&self, id: &TokenId) -> anyhow::Result<()> {
        match self {
            Controller::Api(client) => {
                client.ask(REVOKE_TOKEN.of([&id.to_string()]), &()).await.map(drop)?
            }
            Controller::Port(asker) => asker.revoke_token(id).await?,
        }
        Ok(())
    }

    pub(super) async fn nodes(&self) -> anyhow::Result<Listed<NodeRow>> {
        Ok(match self {
            Controller::Api(client) => {
                let answer = client.ask(JOINED_NODES, &()).await?;
                let row = |node: &equipoise_api::wire::cluster::JoinedNode| NodeRow {
                    name: node.name.clone(),
                    joined_at: node.joined_at_unix_seconds,
                    valid_until: node.certificate_until_unix_seconds,
                    token: node.token.clone(),
                    evicted: node.evicted,
                };
                Listed::of(&answer, answer.nodes.iter().map(row).collect())
            }
            Controller::Port(asker) => {
                let answer = asker.nodes().await?;
                let row = |node: &ListedNode| NodeRow {
                    name: node.name.to_string(),
                    joined_at: node.joined_at,
                    valid_until: node.valid_until,
                    token: node.token.to_string(),
                    evicted: node.evicted,
                };
                Listed::of(&answer, answer.nodes.iter().map(row).collect())
            }
        })
    }

    pub(super) async fn evict(&self, node: &Name) -> anyhow::Result<()> {
        match self {
            Controller::Api(client) => {
                client.ask(EVICT.of([&node.to_string()]), &()).await.map(drop)?
            }
            Controller::Port(asker) => asker.evict(node).await?,
        }
        Ok(())
    }
}
