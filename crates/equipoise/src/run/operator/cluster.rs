//! Requests about the cluster, answered by its controller in this process.

use equipoise_api::metrics::PlanningReading;
use equipoise_api::wire::cluster::{
    ClusterMembers, ClusterStanding, ClusterTokens, JoinedNode, JoinedNodes, OwnLoad, TokenMade,
    TokenWanted,
};
use equipoise_api::{ClusterOperator, OperateError};
use equipoise_cli::wire;
use equipoise_cluster::wire::CreateToken;
use equipoise_cluster::{Name, NodeRecord, Office, OfficeError};
use equipoise_controller::NodeKind;
use equipoise_planning::{NoOffice, Planner};
use equipoise_status as status;

use crate::run::control::Control;

impl ClusterOperator for Control {
    async fn cluster_members(&self) -> Result<ClusterMembers, OperateError> {
        let members = office(self.planner())?.members();
        match self.planner().controller() {
            Ok(controller) => Ok(wire::members(members, &controller.admins())),
            Err(why) => Err(OperateError::Unavailable(why)),
        }
    }

    async fn cluster_tokens(&self) -> Result<ClusterTokens, OperateError> {
        let listed = office(self.planner())?.tokens().await.map_err(refused)?;
        Ok(ClusterTokens { tokens: listed.tokens.into_iter().map(wire::token).collect() })
    }

    async fn create_token(&self, wanted: TokenWanted) -> Result<TokenMade, OperateError> {
        self.accepts_changes()?;
        let office = office(self.planner())?;
        let node = wanted.node.as_deref().map(str::parse::<Name>).transpose();
        let node = node.map_err(|error| OperateError::Refused(error.to_string()))?;
        let (time_to_live_s, single_use) = (wanted.time_to_live_seconds, wanted.single_use);
        let asked = CreateToken { time_to_live_s, single_use, node };
        let made = office.create_token(asked).await.map_err(refused)?;
        Ok(TokenMade { token: made.token, listed: wire::token(made.listed) })
    }

    async fn revoke_token(&self, id: &str) -> Result<(), OperateError> {
        self.accepts_changes()?;
        let office = office(self.planner())?;
        let id = id.parse().map_err(|_| refused(OfficeError::NoSuchToken))?;
        office.revoke_token(&id).await.map_err(refused)
    }

    async fn joined_nodes(&self) -> Result<JoinedNodes, OperateError> {
        let office = office(self.planner())?;
        let joined = office.joined().await.map_err(refused)?;
        let controllers = office.controllers();
        Ok(JoinedNodes { nodes: joined.into_iter().map(node).collect(), controllers })
    }

    async fn evict_node(&self, node: &str) -> Result<(), OperateError> {
        self.accepts_changes()?;
        let office = office(self.planner())?;
        let name = node.parse().map_err(|_| refused(OfficeError::NoSuchNode))?;
        office.evict(&name).await.map_err(refused)
    }
}

/// The state of a node in its cluster; `None` on other machines.
pub(super) fn standing(planner: &Planner) -> Option<ClusterStanding> {
    let reached = planner.client()?.status();
    let mut standing = status::cluster::standing(NodeKind::Node, &reached, own_load(planner));
    standing.problems.extend(planner.unscaled());
    Some(standing)
}

/// The load of this machine by its own measurement; `None` before the first one.
pub(super) fn own_load(planner: &Planner) -> Option<OwnLoad> {
    let weigh = planner.wish().planning.policy.coefficients;
    planner.utilisation().map(|used| status::cluster::own_load(&used, &weigh))
}

/// The planner's figures, for metrics; `None` if no controller should run here.
pub(super) fn reading(planner: &Planner) -> Option<PlanningReading> {
    if let Some(client) = planner.client() {
        return Some(status::cluster::reading(&client.status(), planner.up()));
    }
    let Ok(controller) = planner.controller() else {
        return status::controller::reading_without(&planner.controller_now()?);
    };
    let reading = status::plan::reading(&controller.condition(), &controller.figures());
    let (cluster, cluster_sent_bytes) = planner.served().unzip();
    let cluster = cluster.unwrap_or_default();
    Some(PlanningReading { cluster, cluster_sent_bytes, ..reading })
}

fn office(planner: &Planner) -> Result<Office, OperateError> {
    planner.office().map_err(|why| match why {
        NoOffice::Alone => OperateError::NoCluster(
            "this machine is in no cluster: its file has no [cluster] table; see docs/cluster.md for how \
             to set one up"
                .into(),
        ),
        NoOffice::Node => OperateError::NoCluster(format!(
            "{} is a node of its cluster: `equipoise status --cluster` works here too; run other commands on a \
                 controller: {}",
            planner.instance(),
            planner.client().map(|it| status::cluster::names(&it.status())).unwrap_or_default()
        )),
        NoOffice::NotServing => OperateError::Failed("this controller serves no cluster".into()),
        NoOffice::Failed(why) => {
            OperateError::Unavailable(format!("the controller does not run: {why}"))
        }
        NoOffice::Stopping => OperateError::Stopping,
    })
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
