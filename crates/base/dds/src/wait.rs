//! Waits for samples in a thread of the caller.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use cyclors::{
    DDS_ANY_STATE, dds_attach_t, dds_create_guardcondition, dds_create_readcondition,
    dds_create_waitset, dds_set_guardcondition, dds_set_status_mask,
    dds_status_id_DDS_PUBLICATION_MATCHED_STATUS_ID, dds_take_guardcondition, dds_triggered,
    dds_waitset_attach, dds_waitset_wait,
};
use equipoise_basics::lock;

use crate::entity::{Handle, duration};
use crate::error::{Error, check};
use crate::participant::Participant;
use crate::reader::Reader;
use crate::writer::Writer;

/// Token of the guard condition. Tokens of readers are never negative.
const WOKEN: dds_attach_t = -1;

/// Waits until a reader has samples, or a [`Waker`] ends the wait.
#[derive(Debug)]
pub struct Waitset {
    // Dropped in order: attached conditions, the waitset, the participant.
    conditions: Mutex<BTreeMap<u32, Handle>>,
    guard: Arc<Handle>,
    handle: Handle,
    participant: Participant,
}

/// Wakes a [`Waitset`] from any thread.
#[derive(Debug, Clone)]
pub struct Waker(Arc<Handle>);

impl Waitset {
    pub(crate) fn new(participant: Participant) -> Result<Self, Error> {
        // SAFETY: the handle is a number that Cyclone DDS looks up.
        let (set, guard) = unsafe {
            (dds_create_waitset(participant.raw()), dds_create_guardcondition(participant.raw()))
        };
        let handle = Handle::new(check("create a waitset", set)?);
        let guard = Arc::new(Handle::new(check("create a guard condition", guard)?));
        // SAFETY: as above.
        let code = unsafe { dds_waitset_attach(handle.raw(), guard.raw(), WOKEN) };
        check("wait for the guard condition", code)?;
        Ok(Self { conditions: Mutex::default(), guard, handle, participant })
    }

    /// The participant of the readers.
    pub fn participant(&self) -> &Participant {
        &self.participant
    }

    /// Adds `reader` under `token`. It replaces an earlier reader with this token.
    ///
    /// # Errors
    /// The error of Cyclone DDS.
    pub fn attach(&self, reader: &Reader, token: u32) -> Result<(), Error> {
        // SAFETY: handles are numbers that Cyclone DDS looks up.
        let condition = unsafe { dds_create_readcondition(reader.raw(), DDS_ANY_STATE) };
        let condition = Handle::new(check("create a read condition", condition)?);
        // SAFETY: as above.
        let code = unsafe {
            dds_waitset_attach(self.handle.raw(), condition.raw(), token as dds_attach_t)
        };
        check("wait for a reader", code)?;
        self.conditions().insert(token, condition);
        Ok(())
    }

    /// Waits also until the matched readers of `writer` change. Every wait returns `token` until
    /// [`Writer::matched_ever`] is called.
    ///
    /// # Errors
    /// The error of Cyclone DDS.
    pub fn attach_matches(&self, writer: &Writer, token: u32) -> Result<(), Error> {
        // SAFETY: handles are numbers that Cyclone DDS looks up. Cyclone DDS
        // detaches a writer that is deleted.
        let code = unsafe {
            let matched = 1 << dds_status_id_DDS_PUBLICATION_MATCHED_STATUS_ID;
            check("choose a status", dds_set_status_mask(writer.raw(), matched))?;
            dds_waitset_attach(self.handle.raw(), writer.raw(), token as dds_attach_t)
        };
        check("wait for a writer's readers", code).map(|_| ())
    }

    /// Removes the reader with `token`. Must be called before the reader is dropped.
    pub fn detach(&self, token: u32) {
        self.conditions().remove(&token);
    }

    /// Waits until samples have arrived, a waker ends the wait, or `patience` is over. Adds the
    /// tokens of readers with samples to `ready`.
    ///
    /// # Errors
    /// The error of Cyclone DDS.
    pub fn wait(&self, patience: Duration, ready: &mut Vec<u32>) -> Result<(), Error> {
        if self.triggered(patience, ready)? {
            let mut was_set = false;
            // SAFETY: `was_set` is valid for writing across the call.
            unsafe { dds_take_guardcondition(self.guard.raw(), &raw mut was_set) };
        }
        Ok(())
    }

    /// Adds the tokens of readers that have samples now. Does not affect a thread that waits.
    ///
    /// # Errors
    /// The error of Cyclone DDS.
    pub fn look(&self, ready: &mut Vec<u32>) -> Result<(), Error> {
        // A wait with timeout 0 takes two system calls; this takes none.
        for (token, condition) in &*self.conditions() {
            // SAFETY: the handle is a number that Cyclone DDS looks up.
            let triggered = unsafe { dds_triggered(condition.raw()) };
            if check("read the state of a reader", triggered)? > 0 {
                ready.push(*token);
            }
        }
        Ok(())
    }

    /// Returns whether a waker ended the wait. Cyclone DDS lets several threads wait at a time.
    fn triggered(&self, patience: Duration, ready: &mut Vec<u32>) -> Result<bool, Error> {
        let mut tokens: [dds_attach_t; 80] = [0; 80];
        // SAFETY: the array has room for as many entries as its length.
        let code = unsafe {
            dds_waitset_wait(
                self.handle.raw(),
                tokens.as_mut_ptr(),
                tokens.len(),
                duration(patience),
            )
        };
        let count = (check("wait", code)? as usize).min(tokens.len());
        let of_readers = |token: &&dds_attach_t| **token != WOKEN;
        let tokens = &tokens[..count];
        ready.extend(tokens.iter().filter(of_readers).map(|token| *token as u32));
        Ok(tokens.contains(&WOKEN))
    }

    /// A waker of this waitset.
    pub fn waker(&self) -> Waker {
        Waker(self.guard.clone())
    }

    fn conditions(&self) -> std::sync::MutexGuard<'_, BTreeMap<u32, Handle>> {
        lock(&self.conditions)
    }
}

impl Waker {
    /// Ends the present wait, or else the next one.
    pub fn wake(&self) {
        // SAFETY: the handle is a number that Cyclone DDS looks up. It refuses a deleted one, and
        // then no thread waits.
        unsafe { dds_set_guardcondition(self.0.raw(), true) };
    }
}
