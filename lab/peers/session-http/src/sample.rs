//! One measurement, and what several of them say together.

use crate::rows::Figure;

/// One measurement of one proxy in one row. `None`: the row does not measure it.
#[derive(Clone, Debug, Default)]
pub(crate) struct Sample {
    pub(crate) row: &'static str,
    pub(crate) proxy: &'static str,
    /// From 1.
    pub(crate) repetition: u32,
    pub(crate) requests: Option<u64>,
    pub(crate) seconds: Option<f64>,
    /// Failed connections and responses, and requests without an answer.
    pub(crate) errors: Option<u64>,
    pub(crate) requests_per_second: Option<f64>,
    pub(crate) cpu_us: Option<f64>,
    pub(crate) user_us: Option<f64>,
    pub(crate) system_us: Option<f64>,
    /// CPU time of the proxy as a share of the time that passed.
    pub(crate) busy: Option<f64>,
    pub(crate) upstream_cpu_us: Option<f64>,
    pub(crate) p50_us: Option<f64>,
    pub(crate) p99_us: Option<f64>,
    pub(crate) p999_us: Option<f64>,
    /// Open loop: how late requests left.
    pub(crate) delay_p99_us: Option<f64>,
    pub(crate) idle_connections: Option<u32>,
    pub(crate) private_bytes: Option<f64>,
    pub(crate) resident_bytes: Option<f64>,
}

impl Sample {
    pub(crate) const CSV_HEADER: &str = "row,proxy,repetition,requests,seconds,errors,requests_per_s,\
        cpu_us_per_request,user_us_per_request,system_us_per_request,proxy_busy,\
        upstream_cpu_us_per_request,latency_us_p50,latency_us_p99,latency_us_p999,send_delay_us_p99,\
        idle_connections,private_bytes_per_connection,resident_bytes_per_connection";

    pub(crate) fn csv(&self) -> String {
        let mut fields =
            vec![self.row.to_owned(), self.proxy.to_owned(), self.repetition.to_string()];
        fields.push(whole(self.requests));
        fields.push(decimal(self.seconds));
        fields.push(whole(self.errors));
        fields.extend(
            [
                self.requests_per_second,
                self.cpu_us,
                self.user_us,
                self.system_us,
                self.busy,
                self.upstream_cpu_us,
                self.p50_us,
                self.p99_us,
                self.p999_us,
                self.delay_p99_us,
            ]
            .map(decimal),
        );
        fields.push(whole(self.idle_connections));
        fields.extend([self.private_bytes, self.resident_bytes].map(decimal));
        fields.join(",")
    }

    pub(crate) fn figure(&self, figure: Figure) -> Option<f64> {
        match figure {
            Figure::CpuPerRequest => self.cpu_us,
            Figure::LatencyP99 => self.p99_us,
            Figure::MemoryPerConnection => self.private_bytes,
        }
    }
}

fn whole(value: Option<impl ToString>) -> String {
    value.map_or_else(String::new, |value| value.to_string())
}

fn decimal(value: Option<f64>) -> String {
    value.map_or_else(String::new, |value| format!("{value:.3}"))
}

/// Median, least and greatest of some values.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Summary {
    pub(crate) median: f64,
    pub(crate) least: f64,
    pub(crate) greatest: f64,
}

impl Summary {
    /// `None` if there is no value.
    pub(crate) fn of(values: impl IntoIterator<Item = f64>) -> Option<Summary> {
        let mut values: Vec<f64> = values.into_iter().collect();
        values.sort_by(f64::total_cmp);
        let (&least, &greatest) = (values.first()?, values.last()?);
        let middle = values.len() / 2;
        let median = if values.len() % 2 == 1 {
            values[middle]
        } else {
            (values[middle - 1] + values[middle]) / 2.0
        };
        Some(Summary { median, least, greatest })
    }
}

/// The share-th value of ascending `values`, nearest rank.
pub(crate) fn quantile(values: &[u64], share: f64) -> Option<u64> {
    let rank = (share * values.len() as f64).ceil() as usize;
    values.get(rank.saturating_sub(1)).copied()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_csv_line_has_as_many_fields_as_the_header() {
        let line = Sample { row: "http-1k", requests: Some(3), ..Sample::default() }.csv();
        assert_eq!(line.split(',').count(), Sample::CSV_HEADER.split(',').count());
    }

    #[test]
    fn a_summary_of_an_even_count_takes_the_middle_of_the_two() {
        let expected = Summary { median: 2.5, least: 1.0, greatest: 4.0 };
        assert_eq!(Summary::of([4.0, 1.0, 3.0, 2.0]), Some(expected));
        assert_eq!(Summary::of([]), None);
    }

    #[test]
    fn quantiles_are_values_that_were_measured() {
        let values: Vec<u64> = (1..=1000).collect();
        assert_eq!(quantile(&values, 0.5), Some(500));
        assert_eq!(quantile(&values, 0.999), Some(999));
        assert_eq!(quantile(&values, 1.0), Some(1000));
        assert_eq!(quantile(&[], 0.5), None);
    }
}
