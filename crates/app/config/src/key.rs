//! Typed options. A [`Key`] names one option of one table, and its type is that of the values.
//!
//! A declaration begins with a [`Draft`], which has the kind of the values, and ends with what the
//! absence of the option means: `required`, `optional` or `default`.

use std::marker::PhantomData;
use std::time::Duration;

use super::option::{Absent, Choice, Form, Kind, Numbered, Opt, Table, TypedForm, Usual};

/// An option of the tables `T`. A reader gets a `V`: an `Option` if the value may be absent.
pub(super) struct Key<T, V> {
    /// Its description.
    pub(super) opt: Opt,
    typed: PhantomData<fn(T) -> V>,
}

/// A value of no particular type, for lists of options of several types.
pub(super) struct Any;
/// A whole number.
pub(super) struct Count<N>(PhantomData<N>);
/// A size in bytes.
pub(super) struct Size<N>(PhantomData<N>);
/// One of the words for the values of `E`.
pub(super) struct OneOf<E>(PhantomData<E>);
/// A whole number, or one of the words for the values of `E`.
pub(super) struct CountOr<E>(PhantomData<E>);
/// A string.
pub(super) struct Text;
/// One or more strings.
pub(super) struct Texts;
/// A string that stands for an `X`.
pub(super) struct Parsed<X>(PhantomData<X>);
/// One or more strings, each of which stands for an `X`.
pub(super) struct Each<X>(PhantomData<X>);
/// A table with the options of `M`.
pub(super) struct In<M>(PhantomData<M>);
/// A list of tables with the options of `M`.
pub(super) struct List<M>(PhantomData<M>);
/// A list like [`List`], where a string stands for a table with only one option.
pub(super) struct Briefs<M>(PhantomData<M>);

/// A type with the options of a table. The macro `options!` implements it.
pub(super) trait Options: 'static {
    const TABLE: &'static Table;
}

/// A table with all options of the group `G`, which several tables share. The macro
/// `shared_options!` implements it.
pub(super) trait Has<G> {}

impl<T> Has<T> for T {}

impl<T, V> Clone for Key<T, V> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<T, V> Copy for Key<T, V> {}

impl<T, V> Key<T, V> {
    /// Marks the option as having no effect without HTTP.
    pub(super) const fn http_only(self) -> Key<T, V> {
        Key { opt: Opt { http_only: true, ..self.opt }, ..self }
    }

    /// The option without the type of its values.
    pub(super) const fn any(self) -> Key<T, Any> {
        Key { opt: self.opt, typed: PhantomData }
    }

    /// The option's name in the file.
    pub(super) const fn name(self) -> &'static str {
        self.opt.name
    }
}

impl<T: Options> Key<T, Any> {
    /// All options of the table.
    pub(super) fn all() -> impl Iterator<Item = Key<T, Any>> {
        T::TABLE.options.iter().map(|opt| Key { opt: *opt, typed: PhantomData })
    }

    /// The option of that name.
    pub(super) fn named(name: &str) -> Option<Key<T, Any>> {
        Key::all().find(|option| option.name() == name)
    }
}

impl<T, X> Key<T, Option<Parsed<X>>> {
    /// The option, read as the text of the file.
    pub(super) const fn as_written(self) -> Key<T, Option<Text>> {
        Key { opt: self.opt, typed: PhantomData }
    }
}

impl<T, X> Key<T, Option<Each<X>>> {
    /// The option, read as the texts of the file.
    pub(super) const fn as_written(self) -> Key<T, Option<Texts>> {
        Key { opt: self.opt, typed: PhantomData }
    }
}

/// An option of which the meaning of its absence is still to be stated.
pub(super) struct Draft<V> {
    name: &'static str,
    kind: Kind,
    typed: PhantomData<fn() -> V>,
}

const fn draft<V>(name: &'static str, kind: Kind) -> Draft<V> {
    Draft { name, kind, typed: PhantomData }
}

/// `true` or `false`.
pub(super) const fn flag(name: &'static str) -> Draft<bool> {
    draft(name, Kind::Flag)
}

/// A whole number within bounds.
pub(super) const fn count<N: Number>(name: &'static str, min: u64, max: u64) -> Draft<Count<N>> {
    assert!(min < max && max <= N::MAX, "the type has values beyond the bounds");
    draft(name, Kind::Count(min, max))
}

/// A size within bounds in bytes.
pub(super) const fn size<N: Number>(name: &'static str, min: u64, max: u64) -> Draft<Size<N>> {
    assert!(min < max && max <= N::MAX, "the type has values beyond the bounds");
    draft(name, Kind::Size(min, max))
}

/// A whole number within bounds, or a word.
pub(super) const fn count_or<E: Numbered>(
    name: &'static str,
    min: u64,
    max: u64,
) -> Draft<CountOr<E>> {
    assert!(min < max, "the bounds are in order");
    draft(name, Kind::CountOr(min, max, E::CHOICES))
}

/// A number from 0.0 to 1.0.
pub(super) const fn share(name: &'static str) -> Draft<f64> {
    draft(name, Kind::Share)
}

/// A number within bounds.
pub(super) const fn number(name: &'static str, min: f64, max: f64) -> Draft<f64> {
    assert!(min < max, "the bounds are in order");
    draft(name, Kind::Number(min, max))
}

/// A number and a unit of time, within bounds.
pub(super) const fn duration(name: &'static str, min: Duration, max: Duration) -> Draft<Duration> {
    assert!(min.as_nanos() < max.as_nanos(), "the bounds are in order");
    draft(name, Kind::Duration(min, max))
}

/// One of several words.
pub(super) const fn choice<E: Choice>(name: &'static str) -> Draft<OneOf<E>> {
    draft(name, Kind::Choice(E::CHOICES))
}

/// A string of a certain form.
pub(super) const fn text(name: &'static str, form: &'static Form) -> Draft<Text> {
    draft(name, Kind::Text(form))
}

/// One or more strings of a certain form.
pub(super) const fn texts(name: &'static str, form: &'static Form) -> Draft<Texts> {
    draft(name, Kind::Texts(form))
}

/// A string that stands for an `X`.
pub(super) const fn parsed<X>(name: &'static str, form: &'static TypedForm<X>) -> Draft<Parsed<X>> {
    draft(name, Kind::Text(&form.form))
}

/// One or more strings, each of which stands for an `X`.
pub(super) const fn each<X>(name: &'static str, form: &'static TypedForm<X>) -> Draft<Each<X>> {
    draft(name, Kind::Texts(&form.form))
}

/// A table.
pub(super) const fn table<M: Options>(name: &'static str) -> Draft<In<M>> {
    draft(name, Kind::Table(M::TABLE))
}

/// A list of tables.
pub(super) const fn tables<M: Options>(name: &'static str) -> Draft<List<M>> {
    draft(name, Kind::Tables(M::TABLE))
}

/// A list of tables, where a string stands for the table with only the option `brief`.
pub(super) const fn briefs<M: Options + Has<G>, G, V>(
    name: &'static str,
    brief: Key<G, V>,
) -> Draft<Briefs<M>> {
    draft(name, Kind::Briefs(M::TABLE, brief.opt.name))
}

impl<V> Draft<V> {
    const fn key<T, R>(self, absent: Absent, help: &'static str) -> Key<T, R> {
        let opt = Opt { name: self.name, kind: self.kind, absent, help, http_only: false };
        Key { opt, typed: PhantomData }
    }

    /// An option that must be given. Readers run after an error, too, and then get `None`.
    pub(super) const fn required<T>(self, help: &'static str) -> Key<T, Option<V>> {
        self.key(Absent::Required, help)
    }

    /// An option without a default value; `absent` describes the meaning of its absence.
    pub(super) const fn optional<T>(
        self,
        absent: &'static str,
        help: &'static str,
    ) -> Key<T, Option<V>> {
        self.key(Absent::Means(absent), help)
    }
}

impl Draft<bool> {
    pub(super) const fn default<T>(self, value: bool, help: &'static str) -> Key<T, bool> {
        self.key(Absent::Default(Usual::Flag(value)), help)
    }
}

impl<N> Draft<Count<N>> {
    pub(super) const fn default<T>(self, value: u64, help: &'static str) -> Key<T, Count<N>> {
        assert!(self.kind.admits_number(value), "the default is out of bounds");
        self.key(Absent::Default(Usual::Count(value)), help)
    }
}

impl<N> Draft<Size<N>> {
    pub(super) const fn default<T>(self, bytes: u64, help: &'static str) -> Key<T, Size<N>> {
        assert!(self.kind.admits_number(bytes), "the default is out of bounds");
        self.key(Absent::Default(Usual::Size(bytes)), help)
    }
}

impl Draft<f64> {
    pub(super) const fn default<T>(self, value: f64, help: &'static str) -> Key<T, f64> {
        assert!(self.kind.admits_fraction(value), "the default is out of bounds");
        self.key(Absent::Default(Usual::Fraction(value)), help)
    }
}

impl Draft<Duration> {
    pub(super) const fn default<T>(self, value: Duration, help: &'static str) -> Key<T, Duration> {
        assert!(self.kind.admits_duration(value), "the default is out of bounds");
        self.key(Absent::Default(Usual::Duration(value)), help)
    }
}

impl<E: Choice> Draft<OneOf<E>> {
    pub(super) const fn default<T>(
        self,
        value: &'static E,
        help: &'static str,
    ) -> Key<T, OneOf<E>> {
        self.key(Absent::Default(Usual::Word(value)), help)
    }
}

// A form is a function that runs; a test tries it on the defaults.
impl Draft<Text> {
    pub(super) const fn default<T>(self, text: &'static str, help: &'static str) -> Key<T, Text> {
        self.key(Absent::Default(Usual::Text(text)), help)
    }
}

impl Draft<Texts> {
    pub(super) const fn default<T>(
        self,
        texts: &'static [&'static str],
        help: &'static str,
    ) -> Key<T, Texts> {
        self.key(Absent::Default(Usual::Texts(texts)), help)
    }
}

impl<X> Draft<Parsed<X>> {
    pub(super) const fn default<T>(
        self,
        text: &'static str,
        help: &'static str,
    ) -> Key<T, Parsed<X>> {
        self.key(Absent::Default(Usual::Text(text)), help)
    }
}

impl<X> Draft<Each<X>> {
    pub(super) const fn default<T>(
        self,
        texts: &'static [&'static str],
        help: &'static str,
    ) -> Key<T, Each<X>> {
        self.key(Absent::Default(Usual::Texts(texts)), help)
    }
}

impl<M: Options> Draft<In<M>> {
    /// An absent table is one without options.
    pub(super) const fn default<T>(self) -> Key<T, In<M>> {
        self.key(Absent::Default(Usual::Table), M::TABLE.help)
    }

    /// `absent` describes the meaning of an absent table.
    pub(super) const fn unless<T>(self, absent: &'static str) -> Key<T, Option<In<M>>> {
        self.optional(absent, M::TABLE.help)
    }
}

impl<M> Draft<List<M>> {
    /// An absent list is empty.
    pub(super) const fn default<T>(self, help: &'static str) -> Key<T, List<M>> {
        self.key(Absent::Default(Usual::Texts(&[])), help)
    }
}

impl<M> Draft<Briefs<M>> {
    /// An absent list is empty.
    pub(super) const fn default<T>(self, help: &'static str) -> Key<T, Briefs<M>> {
        self.key(Absent::Default(Usual::Texts(&[])), help)
    }
}

/// A type of whole numbers.
pub(super) trait Number: TryFrom<u64> {
    const MAX: u64;
}

macro_rules! numbers {
    ($($number:ty)*) => { $(impl Number for $number { const MAX: u64 = <$number>::MAX as u64; })* };
}

numbers!(u8 u16 u32 u64 usize);

/// Declares a table: a type with a [`Key`] for each option, and the list of its options. An option
/// of [`shared_options!`] stands in the list as `GROUP::OPTION`.
macro_rules! options {
    (
        $name:ident: $title:literal, $help:expr;
        $($head:ident $(:: $key:ident)? $(: $type:ty = $value:expr)?,)*
    ) => {
        #[doc = concat!("The table `", $title, "`.")]
        #[derive(Clone, Copy, Debug)]
        pub(crate) struct $name;

        impl $name {
            $($(pub(crate) const $head: $crate::key::Key<$name, $type> = $value;)?)*
        }

        impl $crate::key::Options for $name {
            const TABLE: &'static $crate::option::Table = &$crate::option::Table {
                title: $title,
                help: $help,
                options: &[$($crate::key::options!(@opt $name $head $(:: $key)?)),*],
            };
        }
    };
    (@opt $table:ident $key:ident) => { $table::$key.opt };
    (@opt $table:ident $group:ident :: $key:ident) => { $group::$key.opt };
}

/// Declares a group of options, and the tables that share them. A table that does not list all of
/// them does not compile.
macro_rules! shared_options {
    ($name:ident in $($table:ident)*; $($key:ident: $type:ty = $value:expr,)*) => {
        #[doc = concat!("Options that these tables share:", $(" ", stringify!($table)),*)]
        #[derive(Clone, Copy, Debug)]
        pub(crate) struct $name;

        impl $name {
            $(pub(crate) const $key: $crate::key::Key<$name, $type> = $value;)*
            const NAMES: &[&'static str] = &[$($name::$key.opt.name),*];
        }

        $(
            impl $crate::key::Has<$name> for $table {}
            const _: () = assert!(
                <$table as $crate::key::Options>::TABLE.has_all($name::NAMES),
                "the table lists every option that it shares"
            );
        )*
    };
}

pub(super) use {options, shared_options};
