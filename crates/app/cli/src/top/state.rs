//! The state of the page, and its changes by keys and answers. No I/O.

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::time::{Duration, Instant};

use equipoise_api::wire::Admin;
use equipoise_api::wire::events::Event;
use equipoise_api::wire::why::{WhyAnswer, WhyQuestion};
use termion::event::Key;

use super::action::{Action, Target};
use super::headline::{self, Fact};
use super::rates::{Rates, Sample, Samples};
use super::reading::Reading;
use super::sheet::{Order, Row, Sheet};
use super::tabs::Tab;
use crate::table::Tone;
use crate::weight;
use crate::why::{Details, text};

/// Events that the page keeps.
const EVENTS_MAX: usize = 1000;

/// Silence from which the headline reports it. A single late answer is none.
const SILENCE: Duration = Duration::from_secs(3);

/// Longest input.
const INPUT_MAX: usize = 500;

/// The key Enter.
const ENTER: Key = Key::Char('\n');

/// The task that a key starts.
#[derive(Debug, PartialEq)]
pub(super) enum Effect {
    Nothing,
    Quit,
    Perform(Action),
    Ask(WhyQuestion),
}

/// The part in front of the table.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Front {
    Nothing,
    /// The line of the filter is edited.
    Filter,
    Help,
    Facts,
    Confirm(Action),
    /// The new weight of a backend.
    Weight(Target, String),
    Why(Why),
}

/// A question, and its answer.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Why {
    pub(super) text: String,
    /// Lines of the answer, or the error.
    pub(super) answer: Vec<String>,
    /// First line that is shown.
    pub(super) top: usize,
}

/// An arrival.
#[derive(Debug)]
pub(super) enum News {
    Reading(Box<Reading>),
    /// The process does not answer, for this reason.
    Silent(String),
    Event(Event),
    /// The outcome of an action.
    Done(Result<String, String>),
    /// The answer to a question, or the error.
    Answer(Result<WhyAnswer, String>),
}

/// The page.
#[derive(Debug)]
pub(super) struct State {
    pub(super) reading: Reading,
    pub(super) rates: Option<Rates>,
    pub(super) facts: Vec<Fact>,
    pub(super) tab: Tab,
    pub(super) filter: String,
    pub(super) front: Front,
    /// The outcome of the last action, or why there was none.
    pub(super) message: Option<(String, Tone)>,
    /// The arranged table of the tab.
    pub(super) sheet: Sheet,
    /// First row that is shown.
    pub(super) top: usize,
    samples: Samples,
    events: VecDeque<Event>,
    orders: HashMap<Tab, Order>,
    /// Id of the selected row, and its place when it was last there.
    selected: (String, usize),
    /// The tab from which `e` led to the events.
    back: Tab,
    /// Why the process does not answer.
    silent: Option<String>,
    /// Weights before the first change of this page, by backend.
    weights: BTreeMap<String, u16>,
    /// Rows on a page of the table.
    pub(super) page: usize,
}

impl State {
    pub(super) fn new(reading: Reading) -> State {
        let tabs = Tab::of(&reading);
        let first = tabs.first().copied().unwrap_or(Tab::Events);
        let tab = if tabs.contains(&Tab::Backends) { Tab::Backends } else { first };
        let mut state = State {
            reading: reading.clone(),
            rates: None,
            facts: Vec::new(),
            tab,
            filter: String::new(),
            front: Front::Nothing,
            message: None,
            sheet: Sheet::default(),
            top: 0,
            samples: Samples::default(),
            events: VecDeque::new(),
            orders: HashMap::new(),
            selected: (String::new(), 0),
            back: tab,
            silent: None,
            weights: BTreeMap::new(),
            page: 1,
        };
        state.read(reading);
        state
    }

    /// Takes what has arrived.
    pub(super) fn receive(&mut self, news: News) {
        match news {
            News::Reading(reading) => self.read(*reading),
            News::Silent(why) => self.silent = Some(why),
            News::Event(event) => {
                self.events.push_back(event);
                while self.events.len() > EVENTS_MAX {
                    self.events.pop_front();
                }
                if self.tab == Tab::Events {
                    self.arrange();
                }
            }
            News::Done(Ok(text)) => self.message = Some((text, Tone::Good)),
            News::Done(Err(text)) => self.message = Some((text, Tone::Bad)),
            News::Answer(answered) => {
                if let Front::Why(why) = &mut self.front {
                    let text = answered.map_or_else(|error| error, |answer| text(&answer));
                    why.answer = text.lines().map(str::to_owned).collect();
                    why.top = 0;
                }
            }
        }
    }

    fn read(&mut self, reading: Reading) {
        let sample = Sample::of(&reading.status, reading.at);
        self.rates = self.samples.add(sample);
        self.facts = headline::facts(&reading.status, &reading.degraded, self.rates.as_ref());
        self.silent = None;
        self.reading = reading;
        let tabs = self.tabs();
        if !tabs.contains(&self.tab) {
            // A reload has removed the level.
            self.tab = tabs.first().copied().unwrap_or(Tab::Events);
        }
        self.arrange();
    }

    pub(super) fn tabs(&self) -> Vec<Tab> {
        Tab::of(&self.reading)
    }

    /// The worst fact, and the number of others.
    pub(super) fn headline(&self, now: Instant) -> (Option<Fact>, usize) {
        let age = now.saturating_duration_since(self.reading.at);
        if let Some(why) = self.silent.as_ref().filter(|_| age >= SILENCE) {
            let mut fact = headline::silence(age.as_secs());
            fact.text = format!("{}: {why}", fact.text);
            return (Some(fact), self.facts.len());
        }
        (self.facts.first().cloned(), self.facts.len().saturating_sub(1))
    }

    pub(super) fn order(&self) -> Order {
        self.orders.get(&self.tab).copied().unwrap_or_default()
    }

    /// Builds the table again, and finds the selected row in it.
    fn arrange(&mut self) {
        let sheet = self.tab.sheet(&self.reading, &self.events);
        self.sheet = sheet.arrange(&self.filter, self.order());
        let (id, place) = &self.selected;
        let found = self.sheet.rows.iter().position(|row| row.id == *id);
        self.select(found.unwrap_or(*place));
    }

    /// Place of the selected row.
    pub(super) fn place(&self) -> usize {
        self.selected.1
    }

    fn select(&mut self, place: usize) {
        let place = place.min(self.sheet.rows.len().saturating_sub(1));
        let id = self.sheet.rows.get(place).map_or(String::new(), |row| row.id.clone());
        self.selected = (id, place);
    }

    pub(super) fn row(&self) -> Option<&Row> {
        self.sheet.rows.get(self.place())
    }

    fn go(&mut self, tab: Tab) {
        if tab != self.tab {
            self.back = self.tab;
            self.tab = tab;
            self.selected = (String::new(), 0);
            self.top = 0;
            self.arrange();
        }
    }

    /// The tab that is `by` places further.
    fn turn(&mut self, by: isize) {
        let tabs = self.tabs();
        let at = tabs.iter().position(|tab| *tab == self.tab).unwrap_or(0);
        let next = at.cast_signed() + by;
        if let Some(tab) = tabs.get(next.rem_euclid(tabs.len().cast_signed()).cast_unsigned()) {
            self.go(*tab);
        }
    }

    fn note(&mut self, text: impl Into<String>) {
        self.message = Some((text.into(), Tone::Warning));
    }

    /// Takes a key.
    pub(super) fn key(&mut self, key: Key) -> Effect {
        if key == Key::Ctrl('c') {
            return Effect::Quit;
        }
        match std::mem::replace(&mut self.front, Front::Nothing) {
            Front::Nothing => return self.table_key(key),
            Front::Filter => self.filter_key(key),
            Front::Help | Front::Facts => {}
            Front::Confirm(action) => match key {
                Key::Char('y' | 'Y') => return self.confirmed(action),
                Key::Char('n' | 'N' | 'q') | Key::Esc => self.note("nothing was changed"),
                _ => self.front = Front::Confirm(action),
            },
            Front::Weight(target, mut text) => match key {
                ENTER => self.weighed(target, text),
                Key::Esc => self.note("nothing was changed"),
                key => {
                    edit(&mut text, key);
                    self.front = Front::Weight(target, text);
                }
            },
            Front::Why(why) => return self.why_key(key, why),
        }
        Effect::Nothing
    }

    fn table_key(&mut self, key: Key) -> Effect {
        self.message = None;
        let place = self.place();
        match key {
            Key::Char('q') => return Effect::Quit,
            Key::Char(digit @ '1'..='9') => {
                let at = digit as usize - '1' as usize;
                if let Some(tab) = self.tabs().get(at) {
                    self.go(*tab);
                }
            }
            Key::Char('\t') | Key::Right => self.turn(1),
            Key::BackTab | Key::Left => self.turn(-1),
            Key::Up | Key::Char('k') => self.select(place.saturating_sub(1)),
            Key::Down | Key::Char('j') => self.select(place + 1),
            Key::PageUp => self.select(place.saturating_sub(self.page)),
            Key::PageDown => self.select(place + self.page),
            Key::Home => self.select(0),
            Key::End => self.select(usize::MAX),
            Key::Char('s') => self.sort(),
            Key::Char('r') => {
                let order = self.orders.entry(self.tab).or_default();
                order.is_reversed = !order.is_reversed;
                self.arrange();
            }
            Key::Char('/') => self.front = Front::Filter,
            Key::Esc => {
                self.filter.clear();
                self.arrange();
            }
            Key::Char('d') => self.propose(|_, target| target.drain()),
            Key::Char('u') => self.propose(State::undo),
            Key::Char('w') => self.weigh(),
            Key::Char('e') if self.tab == Tab::Events => self.go(self.back),
            Key::Char('e') => self.go(Tab::Events),
            Key::Char('f') => self.front = Front::Facts,
            Key::Char('h') | Key::F(1) => self.front = Front::Help,
            Key::Char('?') => {
                let text = self.row().map_or(String::new(), |row| row.question.clone());
                self.front = Front::Why(Why { text, ..Why::default() });
            }
            _ => {}
        }
        Effect::Nothing
    }

    fn filter_key(&mut self, key: Key) {
        match key {
            ENTER => return,
            Key::Esc => self.filter.clear(),
            key => {
                edit(&mut self.filter, key);
                self.front = Front::Filter;
            }
        }
        self.arrange();
    }

    /// The next column in the order of the table; after the last one, trouble first.
    fn sort(&mut self) {
        let columns = self.sheet.columns.len();
        let order = self.orders.entry(self.tab).or_default();
        let next = order.column.map_or(0, |column| column + 1);
        *order = Order { column: Some(next).filter(|next| *next < columns), is_reversed: false };
        self.arrange();
    }

    /// Asks for the confirmation of a change of the selected row.
    fn propose(&mut self, action: impl FnOnce(&State, &Target) -> Result<Action, String>) {
        let Some(target) = self.target() else { return };
        match action(self, &target) {
            Ok(action) => self.front = Front::Confirm(action),
            Err(why) => self.note(why),
        }
    }

    fn target(&mut self) -> Option<Target> {
        let target = self.row().and_then(|row| row.target.clone());
        if target.is_none() {
            self.note("nothing in this row can be changed");
        }
        target
    }

    /// Takes a drain back, or else a change of the weight that was made here.
    fn undo(&self, target: &Target) -> Result<Action, String> {
        let before = self.weights.get(&target.name());
        let is_drained = matches!(target, Target::Backend { admin, .. } if *admin != Admin::Up);
        match (before, target.weight()) {
            (Some(before), Ok(weight)) if !is_drained && weight != *before => {
                target.set_weight(*before).ok_or_else(String::new)
            }
            _ => target.undo(),
        }
    }

    fn weigh(&mut self) {
        let Some(target) = self.target() else { return };
        match target.weight() {
            Ok(_) => self.front = Front::Weight(target, String::new()),
            Err(why) => self.note(why),
        }
    }

    fn weighed(&mut self, target: Target, text: String) {
        let action = weight::weight(&text).map(|weight| target.set_weight(weight));
        match action {
            Ok(Some(action)) => self.front = Front::Confirm(action),
            Ok(None) => {}
            Err(why) => {
                self.note(why);
                self.front = Front::Weight(target, text);
            }
        }
    }

    fn confirmed(&mut self, action: Action) -> Effect {
        if let Some((backend, before)) = action.weight_before() {
            self.weights.entry(backend).or_insert(before);
        }
        Effect::Perform(action)
    }

    fn why_key(&mut self, key: Key, mut why: Why) -> Effect {
        let mut effect = Effect::Nothing;
        match key {
            Key::Esc => return effect,
            Key::Up => why.top = why.top.saturating_sub(1),
            Key::Down => why.top = (why.top + 1).min(why.answer.len().saturating_sub(1)),
            ENTER => {
                let words: Vec<_> = why.text.split_whitespace().collect();
                why.top = 0;
                why.answer = vec!["...".into()];
                match crate::why::question(&words, &Details::default()) {
                    Ok(question) => effect = Effect::Ask(question),
                    Err(error) => why.answer = vec![error.to_string()],
                }
            }
            key => edit(&mut why.text, key),
        }
        self.front = Front::Why(why);
        effect
    }
}

/// Edits a line at its end.
fn edit(text: &mut String, key: Key) {
    match key {
        Key::Ctrl('u') => text.clear(),
        Key::Char(character) if !character.is_control() && text.len() < INPUT_MAX => {
            text.push(character);
        }
        Key::Backspace | Key::Ctrl('h') => {
            text.pop();
        }
        _ => {}
    }
}

#[cfg(test)]
mod tests;
