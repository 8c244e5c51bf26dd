//! Many witnesses of one key: workers that pull them one by one, proofs handed out in order.

use crate::control::CancelToken;
use crate::device::Device;
use crate::error::{Error, Result};
use crate::proof::Proof;
use crate::prover::{ProveOptions, Prover};
use crate::proving_key::ProvingKey;
use crate::report::{PhaseClock, ProofReport};
use crate::witness::Witness;
use std::any::Any;
use std::collections::BTreeMap;
use std::ops::ControlFlow;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// Proofs that one device works on at a time: while one is on the device, one is being staged and
/// one is in its host tail.
const WORKERS_PER_DEVICE: usize = 3;
/// Finished proofs a worker that may wait for an earlier one.
const HELD_BACK_PER_WORKER: usize = 4;

type ProofResult = Result<(Proof, ProofReport)>;

impl Prover {
    /// Proves witnesses as they come, several at a time, and hands each result to `on_proof` on
    /// this thread, in the order of the witnesses and with their index.
    ///
    /// A worker (by default three a device, one for the CPU path) first reserves the host memory of
    /// a proof and only then pulls a witness, so that a batch of any length takes no more memory
    /// than the prover's limit. If an early proof takes long, at most four finished ones a worker
    /// wait for it; then no more are pulled.
    ///
    /// A witness that is an error, does not prove, or makes its worker panic ([`Error::Internal`])
    /// is that item's result; the others go on. If the iterator itself panics, that is its last
    /// item. [`ControlFlow::Break`] and a panic of `on_proof` cancel what is under way, and nothing
    /// more is handed out. `options.progress` hears of the steps of all proofs.
    ///
    /// # Errors
    /// [`Error::Cancelled`] and [`Error::Timeout`] if the options say so, after the results of what
    /// was under way; [`Error::OutOfMemory`] if a proof takes more than the host's limit.
    pub fn prove_each<I, F>(
        &self,
        key: &ProvingKey,
        witnesses: I,
        options: &ProveOptions,
        workers: Option<usize>,
        mut on_proof: F,
    ) -> Result<()>
    where
        I: Iterator<Item = Result<Witness>> + Send,
        F: FnMut(usize, ProofResult) -> ControlFlow<()>,
    {
        let default = || {
            let of_device = |d: &Device| d.gpu().map_or(1, |_| WORKERS_PER_DEVICE);
            self.devices().map(of_device).sum()
        };
        let workers = workers.unwrap_or_else(default).max(1);
        let cancel = match &options.cancel {
            Some(token) => token.child(),
            None => CancelToken::new(),
        };
        let mut options = options.clone();
        options.cancel = Some(cancel.clone());
        let batch = Batch {
            prover: self,
            key,
            options: &options,
            max_held: HELD_BACK_PER_WORKER * workers,
            source: Mutex::new(Source {
                witnesses: Some(witnesses),
                next: 0,
            }),
            state: Mutex::new(State {
                working: workers,
                ..State::default()
            }),
            changed: Condvar::new(),
        };
        std::thread::scope(|scope| {
            for _ in 0..workers {
                scope.spawn(|| batch.work());
            }
            // Also when the callback panics: the scope then waits for the workers.
            let _stop = CancelOnDrop(&cancel);
            let mut index = 0;
            while let Some(result) = batch.wait_for(index) {
                if on_proof(index, result).is_break() {
                    return Ok(());
                }
                index += 1;
            }
            batch.lock().failed.take().map_or(Ok(()), Err)
        })
    }

    /// Proves all of `witnesses`, several at a time; the results have their order. The first error
    /// cancels the rest. For batches that should not be held in memory whole, see
    /// [`Self::prove_each`].
    ///
    /// # Errors
    /// As [`Self::prove`].
    pub fn prove_many(
        &self,
        key: &ProvingKey,
        witnesses: &[Witness],
        options: &ProveOptions,
    ) -> Result<Vec<(Proof, ProofReport)>> {
        let mut proofs = Vec::with_capacity(witnesses.len());
        let mut failed = None;
        let each = witnesses.iter().cloned().map(Ok);
        self.prove_each(key, each, options, None, |_, result| match result {
            Ok(proof) => {
                proofs.push(proof);
                ControlFlow::Continue(())
            }
            Err(e) => {
                failed = Some(e);
                ControlFlow::Break(())
            }
        })?;
        failed.map_or(Ok(proofs), Err)
    }
}

struct CancelOnDrop<'a>(&'a CancelToken);

impl Drop for CancelOnDrop<'_> {
    fn drop(&mut self) {
        self.0.cancel();
    }
}

struct Batch<'a, I> {
    prover: &'a Prover,
    key: &'a ProvingKey,
    options: &'a ProveOptions,
    max_held: usize,
    source: Mutex<Source<I>>,
    state: Mutex<State>,
    changed: Condvar,
}

struct Source<I> {
    /// `None` after the end.
    witnesses: Option<I>,
    /// Index of the next item.
    next: usize,
}

#[derive(Default)]
struct State {
    /// Results that nobody has taken yet.
    held: BTreeMap<usize, ProofResult>,
    /// Workers that may still have results to come.
    working: usize,
    /// What ended the batch before its time.
    failed: Option<Error>,
}

impl<I: Iterator<Item = Result<Witness>> + Send> Batch<'_, I> {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The result of an item, once it is there; `None` if there is no such item.
    fn wait_for(&self, index: usize) -> Option<ProofResult> {
        let mut state = self.lock();
        loop {
            if let Some(result) = state.held.remove(&index) {
                drop(state);
                self.changed.notify_all();
                return Some(result);
            }
            if state.working == 0 {
                return None;
            }
            let woken = self.changed.wait(state);
            state = woken.unwrap_or_else(PoisonError::into_inner);
        }
    }

    /// One worker.
    fn work(&self) {
        let all = || {
            while self.prove_next()? {}
            Ok(())
        };
        let ended = catch_unwind(AssertUnwindSafe(all))
            .unwrap_or_else(|panic| Err(panicked("a worker", &*panic)));
        let mut state = self.lock();
        state.working -= 1;
        if let Err(e) = ended {
            state.failed.get_or_insert(e);
        }
        drop(state);
        self.changed.notify_all();
    }

    /// Proves one more witness; `false` if there is none.
    fn prove_next(&self) -> Result<bool> {
        if !self.wait_for_room()? {
            return Ok(false);
        }
        let control = self.options.control();
        // In this order: the witness may be read from a file, which takes memory.
        let mut host = self.prover.reserve_host(self.key, None, &control)?;
        let Some((index, witness)) = self.pull()? else {
            return Ok(false);
        };
        let proved = catch_unwind(AssertUnwindSafe(|| {
            let witness = witness?;
            let clock = PhaseClock::traced(self.options.trace.clone());
            let options = self.options;
            self.prover
                .prove_reserved(self.key, &witness, options, &mut host, clock)
        }));
        let result = proved
            .unwrap_or_else(|panic| Err(panicked(&format!("proving witness {index}"), &*panic)));
        drop(host);
        self.lock().held.insert(index, result);
        self.changed.notify_all();
        Ok(true)
    }

    /// Waits while too many results are held back; `false` if the batch has failed meanwhile.
    /// Before the memory is reserved: the one that they wait for may need it.
    fn wait_for_room(&self) -> Result<bool> {
        let control = self.options.control();
        loop {
            control.check()?;
            let state = self.lock();
            if state.failed.is_some() {
                return Ok(false);
            }
            if state.held.len() <= self.max_held {
                return Ok(true);
            }
            // The time-out is for the check alone.
            let wait = self.changed.wait_timeout(state, Duration::from_millis(20));
            drop(wait.unwrap_or_else(PoisonError::into_inner));
        }
    }

    /// The next witness and its index.
    fn pull(&self) -> Result<Option<(usize, Result<Witness>)>> {
        let mut source = self.source.lock().unwrap_or_else(PoisonError::into_inner);
        self.options.control().check()?;
        let Some(witnesses) = &mut source.witnesses else {
            return Ok(None);
        };
        let pulled = catch_unwind(AssertUnwindSafe(|| witnesses.next()));
        let witness = match pulled {
            Ok(Some(witness)) => witness,
            Ok(None) => {
                source.witnesses = None;
                return Ok(None);
            }
            Err(panic) => {
                source.witnesses = None;
                Err(panicked("reading a witness", &*panic))
            }
        };
        source.next += 1;
        Ok(Some((source.next - 1, witness)))
    }
}

fn panicked(what: &str, panic: &(dyn Any + Send)) -> Error {
    let text = panic.downcast_ref::<&str>().copied();
    let text = text.or_else(|| panic.downcast_ref::<String>().map(String::as_str));
    Error::Internal(format!(
        "{what} panicked: {}",
        text.unwrap_or("for no known reason")
    ))
}
