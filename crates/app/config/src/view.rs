//! The values of a table, read by its keys.

use std::marker::PhantomData;
use std::str::FromStr;
use std::time::Duration;

use super::key::{
    Any, Briefs, Count, CountOr, Each, Has, In, Key, List, Number, OneOf, Options, Parsed, Size,
    Text, Texts,
};
use super::option::{Choice, Numbered};
use super::values::{Value, Values, join};

/// A table with the options of `T`.
pub(super) struct View<'v, T> {
    values: &'v Values,
    table: PhantomData<fn(T)>,
}

/// A list of tables with the options of `T`.
pub(super) struct Views<'v, T> {
    list: &'v [Values],
    table: PhantomData<fn(T)>,
}

/// The place of an option in the file, for messages.
#[derive(Clone, Debug)]
pub(super) struct Location {
    /// Offset in bytes.
    pub(super) at: usize,
    /// The option's path.
    pub(super) path: String,
}

/// A type of values, and what a reader gets for them.
pub(super) trait Typed {
    type Read<'v>;

    /// Takes the value of an option; `None` if it has neither a value nor a default.
    fn read(value: Option<&Value>) -> Self::Read<'_>;
}

impl<T> Clone for View<'_, T> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<T> Copy for View<'_, T> {}

impl<T> Clone for Views<'_, T> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<T> Copy for Views<'_, T> {}

impl<'v, T> View<'v, T> {
    /// `values` has the options of `T`.
    pub(super) fn new(values: &'v Values) -> View<'v, T> {
        View { values, table: PhantomData }
    }

    /// The value of an option. A wrong or absent one has its default, if it has one.
    pub(super) fn get<G, V: Typed>(self, key: Key<G, V>) -> V::Read<'v>
    where
        T: Has<G>,
    {
        V::read(self.values.entries.get(key.name()).map(|entry| &entry.value))
    }

    /// Whether the file states the option.
    pub(super) fn given<G, V>(self, key: Key<G, V>) -> bool
    where
        T: Has<G>,
    {
        self.values.entries.get(key.name()).is_some_and(|entry| entry.given)
    }

    /// The options that the file states.
    pub(super) fn stated(self) -> impl Iterator<Item = Key<T, Any>>
    where
        T: Options,
    {
        Key::all().filter(move |option| self.given(*option))
    }

    /// Offset of the option in the file, in bytes; that of its table if the file does not state it.
    pub(super) fn at<G, V>(self, key: Key<G, V>) -> usize
    where
        T: Has<G>,
    {
        let entry = self.values.entries.get(key.name()).filter(|entry| entry.given);
        entry.map_or(self.values.at, |entry| entry.at)
    }

    /// The path of the option, for messages.
    pub(super) fn path_of<G, V>(self, key: Key<G, V>) -> String
    where
        T: Has<G>,
    {
        join(&self.values.path, key.name())
    }

    /// The place of the option, for messages.
    pub(super) fn location<G, V>(self, key: Key<G, V>) -> Location
    where
        T: Has<G>,
    {
        Location { at: self.at(key), path: self.path_of(key) }
    }

    /// Offset of the table in the file, in bytes.
    pub(super) fn start(self) -> usize {
        self.values.at
    }

    /// The path of the table, for messages.
    pub(super) fn path(self) -> &'v str {
        &self.values.path
    }

    /// The options that the table shares with others.
    pub(super) fn part<G>(self) -> View<'v, G>
    where
        T: Has<G>,
    {
        View::new(self.values)
    }
}

impl<'v, T> Views<'v, T> {
    /// All of `list` have the options of `T`.
    pub(super) fn new(list: &'v [Values]) -> Views<'v, T> {
        Views { list, table: PhantomData }
    }

    pub(super) fn iter(self) -> impl DoubleEndedIterator<Item = View<'v, T>> + Clone + use<'v, T> {
        self.list.iter().map(View::new)
    }

    pub(super) fn get(self, index: usize) -> Option<View<'v, T>> {
        self.list.get(index).map(View::new)
    }

    pub(super) fn first(self) -> Option<View<'v, T>> {
        self.get(0)
    }

    pub(super) fn len(self) -> usize {
        self.list.len()
    }

    pub(super) fn is_empty(self) -> bool {
        self.list.is_empty()
    }
}

impl<'v, T> IntoIterator for Views<'v, T> {
    type Item = View<'v, T>;
    type IntoIter = std::iter::Map<std::slice::Iter<'v, Values>, fn(&'v Values) -> View<'v, T>>;

    fn into_iter(self) -> Self::IntoIter {
        self.list.iter().map(View::new)
    }
}

impl<V: Typed> Typed for Option<V> {
    type Read<'v> = Option<V::Read<'v>>;

    fn read(value: Option<&Value>) -> Self::Read<'_> {
        value.map(|value| V::read(Some(value)))
    }
}

/// A key gives its option both the kind of the values and their type, and every option without
/// `Option` in its type has a default.
fn unlike(value: Option<&Value>) -> ! {
    unreachable!("a key's type is that of its values, but there is {value:?}")
}

/// Reads a value of one kind.
macro_rules! typed {
    ($([$($param:tt)*] $type:ty, $read:ty: $kind:pat => $value:expr;)*) => {
        $(impl<$($param)*> Typed for $type {
            type Read<'v> = $read;

            fn read(value: Option<&Value>) -> Self::Read<'_> {
                match value {
                    Some($kind) => $value,
                    other => unlike(other),
                }
            }
        })*
    };
}

typed! {
    [] bool, bool: Value::Flag(flag) => *flag;
    [] f64, f64: Value::Share(number) => *number;
    [] Duration, Duration: Value::Duration(time) => *time;
    [N: Number] Count<N>, N: Value::Number(number) => whole(*number);
    [N: Number] Size<N>, N: Value::Number(bytes) => whole(*bytes);
    [] Text, &'v str: Value::Text(text) => text;
    [] Texts, &'v [String]: Value::Texts(texts) => texts;
    [X: FromStr] Parsed<X>, X: Value::Text(text) => standing_for(text);
    [X: FromStr] Each<X>, Vec<X>: Value::Texts(texts) => {
        texts.iter().map(|text| standing_for(text)).collect()
    };
    [E: Choice] OneOf<E>, E: Value::Text(word) => chosen(word);
    [M: 'static] In<M>, View<'v, M>: Value::Table(values) => View::new(values);
    [M: 'static] List<M>, Views<'v, M>: Value::Tables(list) => Views::new(list);
    [M: 'static] Briefs<M>, Views<'v, M>: Value::Tables(list) => Views::new(list);
}

impl<E: Numbered> Typed for CountOr<E> {
    type Read<'v> = E;

    fn read(value: Option<&Value>) -> E {
        match value {
            Some(Value::Number(number)) => {
                E::numbered(*number).expect("the bounds admit numbers that stand for a value")
            }
            Some(Value::Text(word)) => chosen(word),
            other => unlike(other),
        }
    }
}

fn whole<N: Number>(number: u64) -> N {
    let number = N::try_from(number).ok();
    number.expect("the type has all numbers within the bounds: `count` and `size` assert it")
}

fn standing_for<X: FromStr>(text: &str) -> X {
    text.parse().ok().expect("the form admits only texts that stand for a value")
}

fn chosen<E: Choice>(word: &str) -> E {
    E::CHOICES.get(word).expect("the words are those of the type")
}
