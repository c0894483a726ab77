/// Converts OpenMetrics text to the older Prometheus text format (version 0.0.4). That format has
/// `_total` in the comments of counters too, and no units, `info` metrics or end mark.
///
/// # Source
/// Prometheus documentation, "Exposition formats"; OpenMetrics 1.0, section "Overall structure".
pub(crate) fn to_plain_text(open_metrics: &str) -> String {
    let mut out = String::with_capacity(open_metrics.len());
    // The help line comes before the type, which decides the name in both lines.
    let mut help = None;
    for line in open_metrics.lines() {
        let mut words = line.splitn(4, ' ');
        match (words.next(), words.next(), words.next(), words.next()) {
            (Some("#"), Some("EOF" | "UNIT"), ..) => {}
            (Some("#"), Some("HELP"), Some(name), text) => help = Some((name, text.unwrap_or(""))),
            (Some("#"), Some("TYPE"), Some(name), Some(kind)) => {
                let (suffix, kind) = match kind {
                    "counter" => ("_total", "counter"),
                    "info" => ("_info", "gauge"),
                    "unknown" => ("", "untyped"),
                    other => ("", other),
                };
                if let Some((_, text)) = help.take().filter(|(of, _)| *of == name) {
                    out += &format!("# HELP {name}{suffix} {text}\n");
                }
                out += &format!("# TYPE {name}{suffix} {kind}\n");
            }
            _ => {
                out += line;
                out.push('\n');
            }
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::to_plain_text;

    #[test]
    fn counters_and_infos_are_named_as_their_samples_and_the_rest_stays() {
        let open = "# HELP a_requests Requests.\n# TYPE a_requests counter\na_requests_total{x=\"# y\"} 3\n\
            # HELP a_seconds Time.\n# TYPE a_seconds histogram\n# UNIT a_seconds seconds\na_seconds_sum 1.0\n\
            # HELP build Build.\n# TYPE build info\nbuild_info{v=\"1\"} 1\n# EOF\n";
        let plain = "# HELP a_requests_total Requests.\n# TYPE a_requests_total counter\na_requests_total{x=\"# y\"} 3\n\
            # HELP a_seconds Time.\n# TYPE a_seconds histogram\na_seconds_sum 1.0\n\
            # HELP build_info Build.\n# TYPE build_info gauge\nbuild_info{v=\"1\"} 1\n";
        assert_eq!(to_plain_text(open), plain);
    }
}
