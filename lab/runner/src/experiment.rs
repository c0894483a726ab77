//! The description of an experiment.

use anyhow::{Context, Result};
use serde::{Deserialize, Serialize};

use crate::row::{Row, Value};

/// An experiment, as its TOML file describes it.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct Experiment {
    /// Name of its files, and for `--only`.
    pub name: String,
    /// Heading.
    pub title: String,
    /// The paper's result, in words.
    pub paper: String,
    /// Another experiment with the rows that these figures follow from: nothing is measured.
    #[serde(default)]
    pub(crate) follows_from: Option<String>,
    /// Notes for reading the figures; deviations from the paper.
    #[serde(default)]
    pub notes: String,
    /// The conclusion; stands below the figures.
    #[serde(default)]
    pub conclusion: String,
    /// The cases of a full run.
    pub cases: Vec<Case>,
    /// The cases with `--quick`.
    pub quick: Vec<Case>,
    /// Columns of the report's table; all of them are in the CSV.
    pub table: Vec<String>,
    /// The goals.
    #[serde(default)]
    pub(crate) goal: Vec<Goal>,
    /// The plots.
    #[serde(default)]
    pub(crate) plot: Vec<Plot>,
}

/// The parameters of one case: numbers and words by name.
#[derive(Clone, Debug, Deserialize)]
pub struct Case(toml::Table);

/// A figure that is demanded of a column.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub(crate) struct Goal {
    pub(crate) what: String,
    pub(crate) column: String,
    pub(crate) at_least: Option<f64>,
    pub(crate) at_most: Option<f64>,
    /// The rows of the goal: those with their column in this range.
    pub(crate) of: Option<Range>,
}

/// Rows by the value of one column.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Range {
    pub(crate) column: String,
    pub(crate) from: f64,
    pub(crate) to: f64,
}

/// A plot.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Plot {
    pub(crate) name: String,
    pub(crate) title: String,
    pub(crate) x: Axis,
    pub(crate) y: Axis,
    pub(crate) series: Vec<Series>,
}

#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Axis {
    pub(crate) label: String,
    /// For x: the column.
    #[serde(default)]
    pub(crate) column: String,
    #[serde(default)]
    pub(crate) logarithmic: bool,
}

/// A line of a plot: a column of our rows, or points that the paper reported.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Series {
    pub(crate) label: String,
    #[serde(default)]
    pub(crate) column: String,
    #[serde(default)]
    pub(crate) paper: Vec<[f64; 2]>,
}

impl Experiment {
    /// Reads a description.
    ///
    /// # Errors
    /// If the text is not one; the message says where.
    pub fn parse(text: &str) -> Result<Experiment> {
        toml::from_str(text).context("the experiment's description")
    }

    /// The cases to run.
    pub fn cases(&self, quick: bool) -> &[Case] {
        if quick { &self.quick } else { &self.cases }
    }
}

impl Case {
    /// A number of this case.
    ///
    /// # Errors
    /// If the case has none of this name.
    pub fn number(&self, name: &str) -> Result<f64> {
        let value = self.0.get(name).with_context(|| format!("the case has no number `{name}`"))?;
        value
            .as_float()
            .or_else(|| value.as_integer().map(|integer| integer as f64))
            .with_context(|| format!("`{name}` is {value:?}, which is no number"))
    }

    /// A whole number of this case.
    ///
    /// # Errors
    /// If the case has none of this name.
    pub fn count(&self, name: &str) -> Result<usize> {
        Ok(self.number(name)? as usize)
    }

    /// A word of this case.
    ///
    /// # Errors
    /// If the case has none of this name.
    pub fn word(&self, name: &str) -> Result<&str> {
        let value = self.0.get(name).and_then(toml::Value::as_str);
        value.with_context(|| format!("the case has no word `{name}`"))
    }

    /// Seconds that the case takes, roughly: for the progress line.
    pub(crate) fn cost(&self) -> f64 {
        self.number("cost").unwrap_or(1.0)
    }

    /// The parameters as the first columns of a row.
    pub(crate) fn row(&self) -> Row {
        let mut row = Row::new();
        for (name, value) in self.0.iter().filter(|(name, _)| *name != "cost") {
            match value.as_str() {
                Some(word) => row.set(name, Value::Word(word.to_string())),
                None => row.set(name, Value::Number(self.number(name).unwrap_or(f64::NAN))),
            };
        }
        row
    }
}

/// How a goal was met.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Verdict {
    pub(crate) goal: String,
    pub(crate) met: bool,
    /// The worst figure of the rows that count.
    pub(crate) worst: f64,
    pub(crate) demanded: String,
}

impl Goal {
    /// `None` if no row counts, as in a quick run.
    pub(crate) fn judge(&self, rows: &[Row]) -> Option<Verdict> {
        let counts = |row: &&Row| {
            self.of.as_ref().is_none_or(|range| {
                row.number(&range.column).is_some_and(|at| (range.from..=range.to).contains(&at))
            })
        };
        let figures: Vec<f64> =
            rows.iter().filter(counts).filter_map(|row| row.number(&self.column)).collect();
        if figures.is_empty() {
            return None;
        }
        let least = figures.iter().copied().fold(f64::INFINITY, f64::min);
        let most = figures.iter().copied().fold(f64::NEG_INFINITY, f64::max);
        let (worst, met, demanded) = match (self.at_least, self.at_most) {
            (Some(demanded), _) => (least, least >= demanded, format!("at least {demanded}")),
            (None, demanded) => {
                let demanded = demanded.unwrap_or(f64::INFINITY);
                (most, most <= demanded, format!("at most {demanded}"))
            }
        };
        // NaN meets no goal.
        let met = met && !figures.iter().any(|figure| figure.is_nan());
        let goal = self.what.clone();
        Some(Verdict { goal, met, worst, demanded })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_figure_that_is_infinite_or_none_misses_a_goal_and_no_row_has_no_verdict() {
        let goal = Goal {
            what: "seconds".to_string(),
            column: "s".to_string(),
            at_least: None,
            at_most: Some(5.0),
            of: None,
        };
        let judge = |figures: &[f64]| {
            let row = |figure: &f64| {
                let mut row = Row::new();
                row.figure("s", *figure);
                row
            };
            let rows: Vec<Row> = figures.iter().map(row).collect();
            goal.judge(&rows).map(|verdict| verdict.met)
        };
        assert_eq!(judge(&[1.0, 5.0]), Some(true));
        assert_eq!(judge(&[1.0, f64::INFINITY]), Some(false));
        assert_eq!(judge(&[1.0, f64::NAN]), Some(false));
        assert_eq!(judge(&[]), None);
    }
}
