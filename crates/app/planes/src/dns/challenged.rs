//! Adds the answers to challenges of an ACME directory to zones. Pure.

use std::sync::Arc;

use equipoise_dns::config::{DnsConfig, ZoneConfig};

/// Name and text of a TXT record.
type Text = (String, String);

/// Zones with answers: the zone before, the answers, and the zone that is served.
#[derive(Default)]
pub(super) struct Challenged(Vec<(Arc<ZoneConfig>, Vec<Text>, Arc<ZoneConfig>)>);

impl Challenged {
    /// Returns `config` with each text in the innermost zone of its name. A zone without changes
    /// is the same `Arc` as before, so that its records are not built again.
    pub(super) fn take(&mut self, mut config: DnsConfig, texts: &[Text]) -> DnsConfig {
        let mut of_zones = vec![Vec::new(); config.zones.len()];
        for text in texts {
            let labels = |place: &usize| config.zones[*place].covers(&text.0);
            let inside = (0..config.zones.len()).filter(|place| labels(place).is_some());
            if let Some(place) = inside.max_by_key(|place| labels(place)) {
                of_zones[place].push(text.clone());
            }
        }
        let before = std::mem::take(&mut self.0);
        for (zone, texts) in config.zones.iter_mut().zip(of_zones) {
            if texts.is_empty() {
                continue;
            }
            let mut known = before.iter().filter(|it| Arc::ptr_eq(&it.0, zone));
            let served = match known.find(|it| it.1 == texts) {
                Some((_, _, served)) => Arc::clone(served),
                None => Arc::new(zone.with_texts(&texts)),
            };
            self.0.push((Arc::clone(zone), texts, Arc::clone(&served)));
            *zone = served;
        }
        config
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::config;
    use super::*;

    #[test]
    fn a_text_is_in_the_zone_of_its_name_while_it_lasts() {
        let stated = config();
        let origin = stated.zones[0].origin.to_string();
        let text = |name: &str, text: &str| (name.to_string(), text.to_string());
        let inside = text(&format!("_acme-challenge.{origin}"), "one");
        let mut challenged = Challenged::default();
        let other = challenged.take(stated.clone(), &[text("_acme-challenge.other", "x")]);
        assert!(Arc::ptr_eq(&other.zones[0], &stated.zones[0]));
        let first = challenged.take(stated.clone(), std::slice::from_ref(&inside));
        let records = &first.zones[0].records;
        assert_eq!(records.len(), stated.zones[0].records.len() + 1);
        assert_eq!(records.last().map(|it| &*it.body), Some(b"\x03one".as_slice()));
        let again = challenged.take(stated.clone(), &[inside]);
        assert!(Arc::ptr_eq(&again.zones[0], &first.zones[0]));
        let gone = challenged.take(stated.clone(), &[]);
        assert!(Arc::ptr_eq(&gone.zones[0], &stated.zones[0]));
    }
}
