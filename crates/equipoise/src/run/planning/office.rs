//! Requests of the API to a cluster's controller.

use equipoise_api::OperateError;
use equipoise_api::wire::cluster::{
    ClusterMembers, ClusterTokens, JoinedNode, JoinedNodes, TokenMade, TokenWanted,
};
use equipoise_cli::wire;
use equipoise_cluster::wire::CreateToken;
use equipoise_cluster::{Name, NodeRecord, Office, OfficeError};

use super::{Active, Planner};
use crate::run::cluster::{self, Seat};
use equipoise_basics::lock;

impl Planner {
    /// The members of the cluster, as this controller sees them.
    pub(crate) fn cluster_members(&self) -> Result<ClusterMembers, OperateError> {
        let members = self.office()?.members();
        match self.controller() {
            Ok(controller) => Ok(wire::members(members, &controller.admins())),
            Err(why) => Err(OperateError::Unavailable(why)),
        }
    }

    /// Lists the join tokens.
    pub(crate) async fn cluster_tokens(&self) -> Result<ClusterTokens, OperateError> {
        let listed = self.office()?.tokens().await.map_err(refused)?;
        Ok(ClusterTokens { tokens: listed.tokens.into_iter().map(wire::token).collect() })
    }

    /// Creates a join token.
    pub(crate) async fn create_token(
        &self,
        wanted: TokenWanted,
    ) -> Result<TokenMade, OperateError> {
        let office = self.office()?;
        let node = wanted.node.as_deref().map(str::parse::<Name>).transpose();
        let node = node.map_err(|error| OperateError::Refused(error.to_string()))?;
        let (time_to_live_s, single_use) = (wanted.time_to_live_seconds, wanted.single_use);
        let asked = CreateToken { time_to_live_s, single_use, node };
        let made = office.create_token(asked).await.map_err(refused)?;
        Ok(TokenMade { token: made.token, listed: wire::token(made.listed) })
    }

    /// Revokes a join token.
    pub(crate) async fn revoke_token(&self, id: &str) -> Result<(), OperateError> {
        let office = self.office()?;
        let id = id.parse().map_err(|_| refused(OfficeError::NoSuchToken))?;
        office.revoke_token(&id).await.map_err(refused)
    }

    /// Lists all nodes that ever joined.
    pub(crate) async fn joined_nodes(&self) -> Result<JoinedNodes, OperateError> {
        let office = self.office()?;
        let joined = office.joined().await.map_err(refused)?;
        let controllers = office.controllers();
        Ok(JoinedNodes { nodes: joined.into_iter().map(node).collect(), controllers })
    }

    /// Evicts a node.
    pub(crate) async fn evict_node(&self, node: &str) -> Result<(), OperateError> {
        let office = self.office()?;
        let name = node.parse().map_err(|_| refused(OfficeError::NoSuchNode))?;
        office.evict(&name).await.map_err(refused)
    }

    pub(super) fn office(&self) -> Result<Office, OperateError> {
        match (&self.seat, &*lock(&self.active)) {
            (Seat::Alone, _) => Err(OperateError::NoCluster(
                "this machine is in no cluster: its file has no [cluster] table; see docs/cluster.md for how \
                 to set one up"
                    .into(),
            )),
            (Seat::Node(node), _) => Err(OperateError::NoCluster(format!(
                "{} is a node of its cluster: `equipoise status --cluster` works here too; run other commands on a \
                     controller: {}",
                self.instance,
                cluster::names(&node.client.status())
            ))),
            (Seat::Controller(_), Active::Running(running)) => running
                .server
                .as_ref()
                .map(equipoise_cluster::ClusterServer::office)
                .ok_or_else(|| OperateError::Failed("this controller serves no cluster".into())),
            (Seat::Controller(_), Active::Failed(why)) => {
                Err(OperateError::Unavailable(format!("the controller does not run: {why}")))
            }
            (Seat::Controller(_), Active::Unasked) => Err(OperateError::Stopping),
        }
    }
}

fn refused(error: OfficeError) -> OperateError {
    match error {
        OfficeError::NoSuchToken => {
            OperateError::NotFound("no such token; GET /v1/cluster/tokens lists the tokens".into())
        }
        OfficeError::NoSuchNode => OperateError::NotFound(error.to_string()),
        OfficeError::IsController(_) => OperateError::Conflict(error.to_string()),
        OfficeError::TimeToLive | OfficeError::TooMany(_) => {
            OperateError::Refused(error.to_string())
        }
        OfficeError::Store(_) | OfficeError::Unconfirmed(_) => {
            OperateError::Unavailable(error.to_string())
        }
    }
}

fn node((name, record): (Name, NodeRecord)) -> JoinedNode {
    JoinedNode {
        name: name.to_string(),
        key: record.key.to_string(),
        joined_at_unix_seconds: record.joined_at,
        certificate_until_unix_seconds: record.valid_until,
        evicted: record.is_evicted(record.key),
        token: record.token.to_string(),
    }
}
