//! A run: experiments, one after the other.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

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
    /// Keep what the folder's CSV files have, and measure the other cases
    #[arg(long)]
    pub resume: bool,
    /// Begin no case after so many seconds; --resume goes on from there
    #[arg(long)]
    pub seconds: Option<f64>,
    /// Only every so many-th case: a coarse picture, which --resume refines
    #[arg(long, default_value_t = 1)]
    pub every: usize,
    /// Repetitions of each measurement; medians are reported
    #[arg(long, default_value_t = 5)]
    pub repetitions: usize,
    /// All random numbers come from it
    #[arg(long, default_value_t = 2017)]
    pub seed: u64,
}

/// Measures one case. Sets its columns in the row, which has the case's parameters already, and
/// gives points for the plots. It is given the rows of the experiment that its own follows from.
type Measure<'a> = Box<dyn FnMut(&[Row], &Case, &mut Row) -> Result<Vec<Row>> + 'a>;

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
        self.add_any(description, move |_, case, row| {
            measure(case, row)?;
            Ok(Vec::new())
        })
    }

    /// As [`Self::add`], for a case that also gives points for the plots: rows of their own, in
    /// `NAME-points.csv`.
    ///
    /// # Errors
    /// If the description is wrong.
    pub fn add_with_points(
        &mut self,
        description: &str,
        mut measure: impl FnMut(&Case, &mut Row) -> Result<Vec<Row>> + 'a,
    ) -> Result<()> {
        self.add_any(description, move |_, case, row| measure(case, row))
    }

    /// Adds an experiment with figures that follow from the rows of another one, which its
    /// description names: rows of this run, or else of the folder.
    ///
    /// # Errors
    /// If the description is wrong.
    pub fn add_following(
        &mut self,
        description: &str,
        mut follow: impl FnMut(&[Row], &Case, &mut Row) -> Result<()> + 'a,
    ) -> Result<()> {
        self.add_any(description, move |others, case, row| {
            follow(others, case, row)?;
            Ok(Vec::new())
        })
    }

    fn add_any(
        &mut self,
        description: &str,
        measure: impl FnMut(&[Row], &Case, &mut Row) -> Result<Vec<Row>> + 'a,
    ) -> Result<()> {
        self.experiments.push((Experiment::parse(description)?, Box::new(measure)));
        Ok(())
    }

    /// Runs all, or those that the options name, and writes the results. Prints the report and
    /// where it is.
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
        let folder = options.out.clone().unwrap_or_else(|| PathBuf::from("lab/results").join(name));
        fs::create_dir_all(&folder).with_context(|| format!("cannot make {}", folder.display()))?;
        let manifest = Manifest::collect(options.seed, options.quick);
        report::write(&folder, "manifest.json", &serde_json::to_string_pretty(&manifest)?)?;
        let cost =
            chosen.iter().flat_map(|(one, _)| one.cases(options.quick)).map(Case::cost).sum();
        let until = options.seconds.map(|s| {
            // A time that is none has passed.
            Instant::now() + Duration::try_from_secs_f64(s).unwrap_or_default()
        });
        let progress = Progress::new(cost);
        let rows = BTreeMap::new();
        let mut session = Session { options, folder, until, progress, rows };
        let mut text = format!("# {name}\n\n{}\n\n", manifest.summary());
        for (experiment, measure) in chosen {
            text += &session.experiment(&experiment, measure)?;
            report::write(&session.folder, "report.md", &text)?;
        }
        session.progress.end();
        println!("{text}\nResults: {}", session.folder.display());
        Ok(())
    }
}

/// A run that is under way.
struct Session {
    options: Options,
    folder: PathBuf,
    until: Option<Instant>,
    progress: Progress,
    /// Of the experiments so far, by name.
    rows: BTreeMap<String, Vec<Row>>,
}

impl Session {
    /// Measures the cases of one, draws it, and gives its section of the report.
    fn experiment(&mut self, experiment: &Experiment, mut measure: Measure<'_>) -> Result<String> {
        let Session { options, folder, until, progress, rows: known } = self;
        let points_name = format!("{}-points", experiment.name);
        let others = match &experiment.follows_from {
            Some(other) => rows_of(other, known, folder)?,
            None => Vec::new(),
        };
        if let Some(other) = &experiment.follows_from
            && others.is_empty()
        {
            // In a run with an end its turn may not have come.
            ensure!(
                until.is_some(),
                "{} follows from `{other}`: add that to --only",
                experiment.name
            );
            return Ok(String::new());
        }
        let kept = match options.resume && experiment.follows_from.is_none() {
            true => report::read_csv(folder, &experiment.name)?,
            false => Vec::new(),
        };
        let (mut rows, mut points) = (Vec::new(), Vec::new());
        let cases = experiment.cases(options.quick);
        for (at, case) in cases.iter().enumerate() {
            let mut row = case.row();
            if let Some(kept) = find(&kept, case) {
                rows.push(kept.clone());
                progress.done(case.cost());
                continue;
            }
            let is_late = until.is_some_and(|until| Instant::now() > until);
            let is_left_out = (at + 1) % options.every.max(1) != 0;
            // An experiment that follows from another takes no time.
            if experiment.follows_from.is_none() && (is_late || is_left_out) {
                continue;
            }
            progress.begin(&format!("{}, case {} of {}", experiment.name, at + 1, cases.len()));
            let more = measure(&others, case, &mut row)
                .with_context(|| format!("{}, case {}", experiment.name, at + 1))?;
            points.extend(more);
            rows.push(row);
            // With what is known of cases to come: a run may end here.
            let known_later = cases[at + 1..].iter().filter_map(|case| find(&kept, case));
            let written: Vec<Row> = rows.iter().chain(known_later).cloned().collect();
            report::write_csv(folder, &experiment.name, &written)?;
            progress.done(case.cost());
        }
        if !kept.is_empty() && points.is_empty() {
            points = report::read_csv(folder, &points_name)?;
        } else if !points.is_empty() {
            report::write_csv(folder, &points_name, &points)?;
        }
        let plotted = if points.is_empty() { &rows } else { &points };
        for one in &experiment.plot {
            plot::draw(one, plotted, &folder.join(format!("{}.svg", one.name)))?;
        }
        let section = report::section(experiment, &rows);
        known.insert(experiment.name.clone(), rows);
        Ok(section)
    }
}

/// The row of a case among those of an earlier run.
fn find<'r>(kept: &'r [Row], case: &Case) -> Option<&'r Row> {
    let row = case.row();
    kept.iter().find(|kept| kept.has_all_of(&row))
}

/// The rows of an experiment of this run, or else of an earlier one.
fn rows_of(name: &str, known: &BTreeMap<String, Vec<Row>>, folder: &Path) -> Result<Vec<Row>> {
    match known.get(name) {
        Some(rows) => Ok(rows.clone()),
        None => report::read_csv(folder, name),
    }
}

#[cfg(test)]
mod tests {
    use std::cell::RefCell;

    use super::*;

    const MEASURED: &str = r#"
        name = "one"
        title = "one"
        paper = ""
        table = ["n", "twice"]
        cases = [{ n = 1, cost = 1 }, { n = 2.5 }, { n = 3 }]
        quick = []
    "#;
    const FOLLOWING: &str = r#"
        name = "sum"
        title = "sum"
        paper = ""
        follows-from = "one"
        table = ["sum"]
        cases = [{ of = "all" }]
        quick = []
    "#;

    /// Into the folder.
    fn options(folder: &Path) -> Options {
        Options {
            quick: false,
            only: Vec::new(),
            out: Some(folder.to_path_buf()),
            resume: true,
            seconds: None,
            every: 1,
            repetitions: 1,
            seed: 1,
        }
    }

    /// Runs both; which cases were measured, and the sum of what was known.
    fn run(options: Options) -> (Vec<f64>, f64) {
        let (measured, sum) = (RefCell::new(Vec::new()), RefCell::new(0.0));
        let mut run = Run::new("test", options);
        let added = run.add(MEASURED, |case, row| {
            measured.borrow_mut().push(case.number("n")?);
            row.figure("twice", 2.0 * case.number("n")?);
            Ok(())
        });
        added.expect("a description");
        let added = run.add_following(FOLLOWING, |others, _, row| {
            *sum.borrow_mut() = others.iter().filter_map(|row| row.number("twice")).sum();
            row.figure("sum", *sum.borrow());
            Ok(())
        });
        added.expect("a description");
        run.run().expect("it runs");
        (measured.into_inner(), sum.into_inner())
    }

    #[test]
    fn a_run_resumes_and_measures_only_missing_cases() {
        let folder = std::env::temp_dir().join(format!("equipoise-run-{}", std::process::id()));
        let all = || options(&folder);
        // Every second case, then those between, then none.
        assert_eq!(run(Options { every: 2, ..all() }), (vec![2.5], 5.0));
        assert_eq!(run(all()), (vec![1.0, 3.0], 13.0));
        assert_eq!(run(all()), (vec![], 13.0));
        // A line of the CSV is gone: only its case is measured again.
        let csv = fs::read_to_string(folder.join("one.csv")).expect("it was written");
        let without: Vec<&str> = csv.lines().filter(|line| !line.starts_with("2.5")).collect();
        fs::write(folder.join("one.csv"), without.join("\n") + "\n").expect("the folder is ours");
        assert_eq!(run(all()), (vec![2.5], 13.0));
        // An experiment that follows from another, alone, uses the rows of the folder; without
        // --resume all is measured again.
        let only = |name: &str| Options { resume: false, only: vec![name.to_string()], ..all() };
        assert_eq!(run(only("sum")), (vec![], 13.0));
        assert_eq!(run(only("one")).0, [1.0, 2.5, 3.0]);
        // No time: nothing is measured, and nothing is lost.
        assert_eq!(run(Options { seconds: Some(-1.0), ..all() }), (vec![], 13.0));
        fs::remove_dir_all(&folder).expect("the folder is ours");
    }
}
