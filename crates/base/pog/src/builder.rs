//! Options for building a POG.

use std::marker::PhantomData;

use crate::cell::Cell;
use crate::controller::PogController;
use crate::error::BuildError;
use crate::form::{Fingerprint, Form, Plain};
use crate::hash::{KeyHash, Randomness, Seed, SipHash13};
use crate::key::Key;
use crate::sizes::{KEYS_MAX, Sizes};

/// Number of seeds to try before a build fails. With a good hash more than half of all seeds
/// succeed, so a failure by chance is practically impossible.
const ATTEMPTS: u32 = 64;

/// Options of a new [`PogController`]: cell, hash, form, limits.
///
/// ```
/// use equipoise_pog::PogBuilder;
///
/// let mut controller = PogBuilder::<u16>::new().build([(1_u64, 7), (2, 9)])?;
/// assert_eq!(controller.pog().tau(&2_u64), 9);
/// controller.insert(3, 11)?;
/// assert_eq!(controller.pog().tau(&3_u64), 11);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug)]
pub struct PogBuilder<C: Cell = u16, H: KeyHash = SipHash13, F: Form = Plain> {
    form: F,
    keys_max: usize,
    room: usize,
    random_seed: Option<Seed>,
    kinds: PhantomData<(C, H)>,
}

impl<C: Cell> PogBuilder<C> {
    /// Makes a builder with SipHash-1-3, the plain form, the maximum number of keys, and seeds from
    /// the system.
    pub fn new() -> PogBuilder<C> {
        let kinds = PhantomData;
        PogBuilder { form: Plain, keys_max: KEYS_MAX, room: 0, random_seed: None, kinds }
    }
}

impl<C: Cell> Default for PogBuilder<C> {
    fn default() -> PogBuilder<C> {
        PogBuilder::new()
    }
}

impl<C: Cell, H: KeyHash, F: Form> PogBuilder<C, H, F> {
    /// Selects another hash.
    pub fn hash<G: KeyHash>(self) -> PogBuilder<C, G, F> {
        let PogBuilder { form, keys_max, room, random_seed, .. } = self;
        PogBuilder { form, keys_max, room, random_seed, kinds: PhantomData }
    }

    /// Selects the fingerprint form: lookups distinguish pinned from unknown keys.
    ///
    /// # Panics
    /// If `form` was made for a larger cell and leaves no bit for the fingerprint.
    pub fn fingerprint(self, form: Fingerprint) -> PogBuilder<C, H, Fingerprint> {
        let tau_bits = form.tau_bits::<C>();
        assert!(
            tau_bits < C::BITS,
            "a tau of {tau_bits} bits leaves none of {} for a fingerprint",
            C::BITS
        );
        let PogBuilder { keys_max, room, random_seed, .. } = self;
        PogBuilder { form, keys_max, room, random_seed, kinds: PhantomData }
    }

    /// Sets the maximum number of keys; a further insert fails with
    /// [`UpdateError::Full`](crate::UpdateError::Full). At most [`KEYS_MAX`].
    pub fn keys_max(mut self, keys: usize) -> PogBuilder<C, H, F> {
        self.keys_max = keys.min(KEYS_MAX);
        self
    }

    /// Reserves space for this many further keys, within the paper's bounds: their inserts then
    /// change few cells, because the arrays do not grow. The default reserve is a twentieth of the
    /// keys.
    pub fn room(mut self, keys: usize) -> PogBuilder<C, H, F> {
        self.room = keys.min(KEYS_MAX);
        self
    }

    /// Sets the source of hash seeds and random cells, so that every run is the same. For tests and
    /// experiments only: with a known seed, an attacker can choose keys that collide.
    pub fn random_seed(mut self, seed: u64) -> PogBuilder<C, H, F> {
        self.random_seed = Some(Seed { k0: seed, k1: 0 });
        self
    }

    /// Builds a controller and its first image from distinct keys with their taus. Expected O(n).
    ///
    /// Cells without keys are random, so that the image is balanced.
    ///
    /// # Errors
    /// [`BuildError`]: a duplicate key, a tau that does not fit, too many keys, or no suitable
    /// seed.
    pub fn build<K: Key + Eq>(
        &self,
        entries: impl IntoIterator<Item = (K, C)>,
    ) -> Result<PogController<K, C, H, F>, BuildError> {
        let random = match self.random_seed {
            Some(seed) => Randomness::from_seed(seed),
            None => Randomness::from_system()?,
        };
        let (keys, taus): (Vec<K>, Vec<C>) = entries.into_iter().unzip();
        if keys.len() > self.keys_max {
            return Err(BuildError::TooMany { keys: keys.len(), most: self.keys_max });
        }
        let room = self.room.min(self.keys_max - keys.len());
        let sizes = Sizes::with_room(keys.len(), room);
        PogController::build(self.form, sizes, keys, taus, self.keys_max, ATTEMPTS, random)
    }
}
