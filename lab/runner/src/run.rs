//! A run: experiments, one after the other.

use std::fs;
use std::path::PathBuf;

use anyhow::{Context, Result, ensure};

use crate::experiment::{Case, Experiment};
use crate::manifest::Manifest;
use crate::progress::Progress;
use crate::row::Row;
use crate::{plot, report};

/// The options of every lab program.
#[derive(Clone, Debug, clap::Args)]
pub struct Options {
    /// Small cases only: does it run, and are the figures about right?
    #[arg(long)]
    pub quick: bool,
    /// Only these experiments, by name
    #[arg(long, value_delimiter = ',')]
    pub only: Vec<String>,
    /// Folder for the results
    #[arg(long)]
    pub out: Option<PathBuf>,
    /// Repetitions of each measurement; medians are reported
    #[arg(long, default_value_t = 5)]
    pub repetitions: usize,
    /// All random numbers come from it
    #[arg(long, default_value_t = 2017)]
    pub seed: u64,
}

/// Measures one case. Sets its columns in the row, which has the case's parameters already.
type Measure<'a> = Box<dyn FnMut(&Case, &mut Row) -> Result<Vec<Row>> + 'a>;

/// Experiments with what measures them.
pub struct Run<'a> {
    name: &'static str,
    options: Options,
    experiments: Vec<(Experiment, Measure<'a>)>,
}

impl<'a> Run<'a> {
    /// Without experiments yet; `name` is the lab program's, for the folder of results.
    pub fn new(name: &'static str, options: Options) -> Run<'a> {
        Run { name, options, experiments: Vec::new() }
    }

    /// Adds an experiment that sets the columns of a row a case.
    ///
    /// # Errors
    /// If the description is wrong.
    pub fn add(
        &mut self,
        description: &str,
        mut measure: impl FnMut(&Case, &mut Row) -> Result<()> + 'a,
    ) -> Result<()> {
        self.add_with_points(description, move |case, row| {
            measure(case, row)?;
            Ok(Vec::new())
        })
    }

    /// As [`Self::add`], for a case that also gives points for the plots: rows of their own, in `NAME-points.csv`.
    ///
    /// # Errors
    /// If the description is wrong.
    pub fn add_with_points(
        &mut self,
        description: &str,
        measure: impl FnMut(&Case, &mut Row) -> Result<Vec<Row>> + 'a,
    ) -> Result<()> {
        self.experiments.push((Experiment::parse(description)?, Box::new(measure)));
        Ok(())
    }

    /// Runs all, or those that the options name, and writes the results. Prints the report and where it is.
    ///
    /// # Errors
    /// If an experiment fails, or its results cannot be written.
    pub fn run(self) -> Result<()> {
        let Run { name, options, experiments } = self;
        for only in &options.only {
            let names = || experiments.iter().map(|(experiment, _)| experiment.name.as_str());
            let all = names().collect::<Vec<_>>().join(", ");
            ensure!(names().any(|name| name == only), "--only {only}: there are {all}");
        }
        let chosen: Vec<_> = experiments
            .into_iter()
            .filter(|(one, _)| options.only.is_empty() || options.only.contains(&one.name))
            .collect();
        let folder = options.out.unwrap_or_else(|| PathBuf::from("lab/results").join(name));
        fs::create_dir_all(&folder).with_context(|| format!("cannot make {}", folder.display()))?;
        let manifest = Manifest::collect(options.seed, options.quick);
        report::write(&folder, "manifest.json", &serde_json::to_string_pretty(&manifest)?)?;
        let cost =
            chosen.iter().flat_map(|(one, _)| one.cases(options.quick)).map(Case::cost).sum();
        let mut progress = Progress::new(cost);
        let mut text = format!("# {name}\n\n{}\n\n", manifest.summary());
        for (experiment, mut measure) in chosen {
            let (mut rows, mut points) = (Vec::new(), Vec::new());
            for (at, case) in experiment.cases(options.quick).iter().enumerate() {
                let all = experiment.cases(options.quick).len();
                progress.begin(&format!("{}, case {} of {all}", experiment.name, at + 1));
                let mut row = case.row();
                let more = measure(case, &mut row)
                    .with_context(|| format!("{}, case {}", experiment.name, at + 1))?;
                points.extend(more);
                rows.push(row);
                report::write_csv(&folder, &experiment.name, &rows)?;
                progress.done(case.cost());
            }
            if !points.is_empty() {
                report::write_csv(&folder, &format!("{}-points", experiment.name), &points)?;
            }
            let plotted = if points.is_empty() { &rows } else { &points };
            for one in &experiment.plot {
                plot::draw(one, plotted, &folder.join(format!("{}.svg", one.name)))?;
            }
            text += &report::section(&experiment, &rows);
            report::write(&folder, "report.md", &text)?;
        }
        progress.end();
        println!("{text}\nResults: {}", folder.display());
        Ok(())
    }
}
