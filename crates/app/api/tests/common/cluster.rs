//! The plan and the members of the recorder.

use std::collections::BTreeMap;

use equipoise_api::wire::Admin;
use equipoise_api::wire::cluster::{
    ClusterMembers, ClusterToken, ClusterTokens, JoinedNode, JoinedNodes, TokenMade, TokenWanted,
};
use equipoise_api::wire::plan::{
    HistoryQuestion, NodeHistory, NodeStatus, Nodes, PlanStatus, PlannedPool, PlannedScaling,
    PoolWish,
};
use equipoise_api::{ClusterOperator, OperateError, PlanOperator};

use super::recorder::Recorder;

impl PlanOperator for Recorder {
    async fn plan(&self, next: bool) -> Result<PlanStatus, OperateError> {
        let (mode, pinned) = *self.decided.lock().unwrap();
        let scaling = PlannedScaling {
            mode,
            pinned,
            backends: 1,
            min: 1,
            max: 9,
            action: "hold".into(),
            count: 0,
            size: None,
            leaving: Vec::new(),
            reason: "idle".into(),
            in_use: None,
        };
        let web = PlannedPool { name: "web".into(), weights: Vec::new(), scaling: Some(scaling) };
        Ok(PlanStatus {
            next,
            leader: None,
            term: 1,
            generation: 1,
            age_seconds: None,
            period_seconds: 1.0,
            store_failing_seconds: None,
            pools: vec![web],
            nodes: Vec::new(),
        })
    }

    async fn wish(&self, _: &str, wish: PoolWish) -> Result<PlanStatus, OperateError> {
        *self.decided.lock().unwrap() = (wish.mode, wish.count);
        self.plan(false).await
    }

    async fn nodes(&self) -> Result<Nodes, OperateError> {
        let node = NodeStatus {
            name: "n".into(),
            kind: "node".into(),
            state: "alive".into(),
            version: "0".into(),
            capacity: 1.0,
            claimed_capacity: None,
            admin: *self.node_admin.lock().unwrap(),
            standing: None,
            shares: BTreeMap::new(),
            cpu_percent: None,
            machine_cpu_percent: None,
            memory_percent: None,
            net_percent: None,
            l1: None,
            l2: None,
            keep: None,
            takes: None,
            report_age_seconds: None,
            applied: None,
            refused_total: 0,
        };
        Ok(Nodes { leader: None, controllers: Vec::new(), nodes: vec![node] })
    }

    async fn set_node_admin(&self, _: &str, admin: Admin) -> Result<Nodes, OperateError> {
        *self.node_admin.lock().unwrap() = admin;
        self.nodes().await
    }

    async fn node_history(
        &self,
        node: &str,
        _: HistoryQuestion,
    ) -> Result<NodeHistory, OperateError> {
        Ok(NodeHistory { node: node.into(), points: Vec::new() })
    }
}

/// The join token that [`Recorder`] returns.
pub const SECRET_OF_A_TOKEN: &str = "eqp1.t.secret.fingerprint";

/// A join token as listed.
pub fn token(id: &str, wanted: TokenWanted) -> ClusterToken {
    ClusterToken {
        id: id.into(),
        created_at_unix_seconds: 1,
        expires_at_unix_seconds: 1 + wanted.time_to_live_seconds,
        single_use: wanted.single_use,
        node: wanted.node,
        used_by: None,
    }
}

impl ClusterOperator for Recorder {
    async fn cluster_members(&self) -> Result<ClusterMembers, OperateError> {
        let nodes = self.nodes().await?;
        Ok(ClusterMembers {
            cluster: "test".into(),
            authority: "a".into(),
            controller: "c".into(),
            leader: nodes.leader,
            term: None,
            controllers: nodes.controllers,
            instructions: None,
            instructions_age_seconds: None,
            period_seconds: 1.0,
            store_failing_seconds: None,
            store_failure: None,
            problem: None,
            members: nodes.nodes,
            elastic: Vec::new(),
            counts: BTreeMap::new(),
        })
    }

    async fn cluster_tokens(&self) -> Result<ClusterTokens, OperateError> {
        Ok(ClusterTokens { tokens: self.tokens.lock().unwrap().clone() })
    }

    async fn create_token(&self, wanted: TokenWanted) -> Result<TokenMade, OperateError> {
        let mut tokens = self.tokens.lock().unwrap();
        let listed = token(&format!("t{}", tokens.len()), wanted);
        tokens.push(listed.clone());
        Ok(TokenMade { token: SECRET_OF_A_TOKEN.into(), listed })
    }

    async fn revoke_token(&self, id: &str) -> Result<(), OperateError> {
        let mut tokens = self.tokens.lock().unwrap();
        let place = tokens.iter().position(|token| token.id == id);
        let place = place.ok_or_else(|| OperateError::NotFound("no such token".into()))?;
        tokens.remove(place);
        Ok(())
    }

    async fn joined_nodes(&self) -> Result<JoinedNodes, OperateError> {
        let node = JoinedNode {
            name: "n".into(),
            key: "k".into(),
            joined_at_unix_seconds: 1,
            certificate_until_unix_seconds: 2,
            token: "t".into(),
            evicted: *self.evicted.lock().unwrap(),
        };
        Ok(JoinedNodes { nodes: vec![node], controllers: vec!["c".into()] })
    }

    async fn evict_node(&self, node: &str) -> Result<(), OperateError> {
        if node == "c" {
            return Err(OperateError::Conflict("c is a controller".into()));
        }
        *self.evicted.lock().unwrap() = true;
        Ok(())
    }
}
