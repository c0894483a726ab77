//! Builds and checks `[[packet.quic]]`.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;

use equipoise_packet::abi::FlowKey;
use equipoise_packet::config::{QuicIds, VipConfig};
use equipoise_packet::{NotHex, Protocol, QuicConfig, QuicKey, ServerId};
use equipoise_session::config::{Place, PoolConfig};

use super::key::{Count, Key};
use super::named_id::NamedId;
use super::problem::Findings;
use super::secret_file::{self, Readers};
use super::tables::{Packet, Quic};
use super::view::{Location, View};
use super::{FileKind, Surroundings};

/// The configurations of connection ids of a VIP.
pub(super) fn ids(
    vip: View<'_, Packet>,
    around: &Surroundings<'_>,
    findings: &mut Findings<'_>,
) -> Vec<QuicIds> {
    vip.get(Packet::QUIC).iter().map(|values| ids_of(values, around, findings)).collect()
}

fn ids_of(
    values: View<'_, Quic>,
    around: &Surroundings<'_>,
    findings: &mut Findings<'_>,
) -> QuicIds {
    // A missing length is reported elsewhere.
    let length = |option: Key<Quic, Option<Count<u8>>>, least| values.get(option).unwrap_or(least);
    let config = QuicConfig {
        rotation: values.get(Quic::CONFIG_ROTATION),
        server_id_bytes: length(Quic::SERVER_ID_LENGTH, 1),
        nonce_bytes: length(Quic::NONCE_LENGTH, QuicConfig::NONCE_MIN),
        key: key(values, around, findings),
    };
    let mut named = BTreeMap::<Arc<str>, ServerId>::new();
    // Messages have the texts as they are written.
    for text in values.get(Quic::SERVER_IDS.as_written()).unwrap_or_default() {
        // The option's form admits nothing else.
        let Ok(NamedId { name, id }) = text.parse() else { continue };
        let wanted = usize::from(config.server_id_bytes);
        let wrong = if id.bytes().len() != wanted {
            let given = id.bytes().len();
            format!("\"{text}\" has {given} bytes; accepted: `server-id-length`, which is {wanted}")
        } else if named.contains_key(&*name) {
            format!("\"{name}\" is listed twice; accepted: one server id for each backend")
        } else if let Some((other, _)) = named.iter().find(|(_, known)| **known == id) {
            format!("\"{name}\" has the server id of \"{other}\"; accepted: ids that differ")
        } else {
            named.insert(name.into(), id);
            continue;
        };
        findings.error(values.at(Quic::SERVER_IDS), &values.path_of(Quic::SERVER_IDS), wrong);
    }
    QuicIds { config, named }
}

fn key(
    values: View<'_, Quic>,
    around: &Surroundings<'_>,
    findings: &mut Findings<'_>,
) -> Option<QuicKey> {
    let file = values.get(Quic::KEY_FILE)?;
    let (option, readers) = (Quic::KEY_FILE, Readers::OwnerAndGroup);
    secret_file::warn(values, option, readers, "the key", around, findings);
    let wrong = match (around.read)(Path::new(file), FileKind::Secret) {
        Err(error) => format!("\"{file}\" cannot be read: {error}; accepted: a file with the key"),
        Ok(text) => match text.trim().parse() {
            Ok(key) => return Some(key),
            Err(NotHex) => format!(
                "\"{file}\" has no key; accepted: 32 hexadecimal digits (try: openssl rand -hex 16)"
            ),
        },
    };
    findings.error(values.at(Quic::KEY_FILE), &values.path_of(Quic::KEY_FILE), wrong);
    None
}

/// Checks the configurations of a VIP against each other, the VIP and its pool.
pub(super) fn check(
    values: View<'_, Packet>,
    vip: &VipConfig,
    pool: Option<&PoolConfig>,
    findings: &mut Findings<'_>,
) {
    if vip.quic.is_empty() {
        return;
    }
    let error = |findings: &mut Findings<'_>, option: Location, text: String| {
        findings.error(option.at, &option.path, text);
    };
    if vip.vip.protocol != Protocol::Udp {
        error(
            findings,
            values.location(Packet::QUIC),
            "given for a VIP of TCP; accepted for VIPs of UDP".into(),
        );
    }
    if vip.key != FlowKey::FiveTuple {
        let text = "given with `quic`, whose other packets go by their five-tuple; accepted: \"five-tuple\"";
        error(findings, values.location(Packet::KEY), text.into());
    }
    for (at, (of, ids)) in values.get(Packet::QUIC).iter().zip(&vip.quic).enumerate() {
        let QuicConfig { rotation, .. } = ids.config;
        if vip.quic[..at].iter().any(|other| other.config.rotation == rotation) {
            let text = format!("{rotation} is given twice; accepted: each value once");
            error(findings, of.location(Quic::CONFIG_ROTATION), text);
        }
        let (bytes, most) = (ids.config.bytes(), QuicConfig::BYTES_MAX);
        if bytes > most {
            let text = format!(
                "{bytes} together with `server-id-length`; accepted: at most {most}, as a connection id has 20 bytes"
            );
            error(findings, of.location(Quic::NONCE_LENGTH), text);
        } else if let Some(pool) = pool {
            check_backends(of, vip, ids, pool, findings);
        }
    }
}

/// Checks that the listed backends have ids that differ.
fn check_backends(
    values: View<'_, Quic>,
    vip: &VipConfig,
    ids: &QuicIds,
    pool: &PoolConfig,
    findings: &mut Findings<'_>,
) {
    let (at, path) = (values.at(Quic::SERVER_IDS), values.path_of(Quic::SERVER_IDS));
    let placed = pool.backends.iter().filter(|it| !matches!(it.place, Place::Host { .. }));
    let placed = placed.map(|it| (&*it.name, vip.backend_id(it.address)));
    if let (_, Some([one, other])) = ids.server_ids(placed) {
        let text = format!(
            "backends `{one}` and `{other}` have the same server id; accepted: another one for one of them, or a \
             larger `server-id-length`"
        );
        findings.error(at, &path, text);
    }
    for name in ids.named.keys().filter(|name| !pool.backends.iter().any(|it| it.name == **name)) {
        let text = format!("pool \"{}\" lists no backend `{name}`", pool.name);
        findings.warning(at, &path, text);
    }
}
