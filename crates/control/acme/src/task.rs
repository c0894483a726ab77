//! The parts that every order of a process uses.

use std::sync::Arc;

use equipoise_tls::Challenges;
use tokio::sync::watch;

use crate::names::Names;
use crate::options::TextRecords;

pub(crate) struct Task {
    pub(crate) challenges: Challenges,
    pub(crate) text_records: Arc<dyn TextRecords>,
    pub(crate) names: Arc<Names>,
    pub(crate) issued: watch::Sender<u64>,
}
