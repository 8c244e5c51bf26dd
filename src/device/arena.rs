//! The buffer arena: slabs taken from the driver once and handed out in slices.
//!
//! Nothing else creates device buffers. A user *reserves* everything that it will need before it
//! starts, whole or not at all, first come first served; the bookkeeping is in [`ledger`]. So
//! nobody holds memory while waiting for more (no deadlock), and nothing is handed out twice (no
//! out-of-memory in mid-proof).
//!
//! [`ledger`]: super::ledger

use crate::control::Priority;
use crate::device::allocator::Slice;
use crate::device::ledger::{Fill, Hold, Ledger, LedgerLimits, Refusal, Slabs};
use crate::error::{Error, Result};
use std::fmt;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

pub use crate::device::ledger::{ArenaReport, KeptSizes, Request};

/// What a buffer is for; the driver is asked for a matching kind of memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BufferUse {
    /// Storage, in device memory.
    Slab,
    /// Mapped for writing: on its way to the device.
    Upload,
    /// Mapped for reading: on its way back.
    Download,
}

/// Where an arena gets its memory from.
pub trait Memory: Send + Sync + 'static {
    type Buffer: Clone + Send + Sync;
    /// What a submission needs besides: kernel parameters, timestamps.
    type Page: Send;
    /// Bytes of a page.
    const PAGE_BYTES: u64;
    /// # Errors
    /// [`Error::OutOfMemory`] if the driver refuses.
    fn buffer(&self, usage: BufferUse, size: u64) -> Result<Self::Buffer>;
    /// Gives a slab back that nothing uses any more.
    fn free(&self, slab: Self::Buffer);
    /// # Errors
    /// As [`Self::buffer`].
    fn page(&self) -> Result<Self::Page>;
}

/// Sizes that an arena keeps to, in bytes.
#[derive(Clone, Debug)]
pub struct ArenaConfig {
    /// Device name, for errors.
    pub device: String,
    /// Slabs, staging buffers and pages together.
    pub budget: u64,
    /// Size of a staging buffer.
    pub chunk: u64,
    /// Slabs, and numbers of staging buffers and pages.
    pub limits: LedgerLimits,
}

impl ArenaConfig {
    /// Divides `budget` between slabs and what moves data to and from them.
    pub fn new(
        device: String,
        budget: u64,
        (min_slab, max_slab): (u64, u64),
        page_bytes: u64,
    ) -> Self {
        // 4 MiB keeps copies efficient; small budgets get small staging buffers, so that the least
        // number of them is a small part.
        let chunk = (budget / 256).next_power_of_two().clamp(64 << 10, 4 << 20);
        let share = |part: u64, max: u64, each: u64, min: u64| -> u32 {
            ((budget / part).min(max) / each).max(min) as u32
        };
        let uploads = share(12, 512 << 20, chunk, 8);
        // Proofs bring back window sums, a few kilobytes.
        let downloads = share(64, 64 << 20, chunk, 4);
        let pages = share(128, 16 << 20, page_bytes, 12);
        let staging = u64::from(uploads + downloads) * chunk + u64::from(pages) * page_bytes;
        Self {
            device,
            budget,
            chunk,
            limits: LedgerLimits {
                budget: budget.saturating_sub(staging) & !255,
                max_slab,
                min_slab,
                uploads,
                downloads,
                pages,
            },
        }
    }
}

/// The arena of one device.
pub struct BufferArena<M: Memory> {
    memory: M,
    config: ArenaConfig,
    state: Mutex<State<M>>,
    changed: Condvar,
}

struct State<M: Memory> {
    ledger: Ledger<M::Buffer>,
    /// Not in use at the moment.
    uploads: Vec<M::Buffer>,
    downloads: Vec<M::Buffer>,
    pages: Vec<M::Page>,
    /// Bytes of staging buffers and pages that exist, in use or not.
    staging: u64,
    peak_total: u64,
}

impl<M: Memory> BufferArena<M> {
    /// An arena without slabs; they come with the first reservations and stay.
    pub fn new(memory: M, config: ArenaConfig) -> Arc<Self> {
        let state = State {
            ledger: Ledger::new(config.limits.clone()),
            uploads: Vec::new(),
            downloads: Vec::new(),
            pages: Vec::new(),
            staging: 0,
            peak_total: 0,
        };
        Arc::new(Self {
            memory,
            config,
            state: Mutex::new(state),
            changed: Condvar::new(),
        })
    }

    /// The sizes that this arena keeps to.
    pub fn config(&self) -> &ArenaConfig {
        &self.config
    }

    /// Figures for reports.
    pub fn report(&self) -> ArenaReport {
        let state = self.lock();
        let chunks = (state.uploads.len() + state.downloads.len()) as u64;
        ArenaReport {
            budget: self.config.budget,
            peak_total: state.peak_total,
            staging: chunks * self.config.chunk + state.pages.len() as u64 * M::PAGE_BYTES,
            ..state.ledger.report()
        }
    }

    /// Reserves all of `request`, waiting in line while others hold what is missing. `check` runs
    /// now and then while waiting; its error ends the wait.
    ///
    /// # Errors
    /// [`Error::OutOfMemory`] at once if the request exceeds the budget or can not be met although
    /// nobody else holds a reservation; and what `check` returns.
    pub fn reserve(
        self: &Arc<Self>,
        request: &Request,
        priority: Priority,
        check: &dyn Fn() -> Result<()>,
    ) -> Result<Reservation<M>> {
        let request = self.lock().ledger.cap(request);
        let hold = self.wait_for(&request, priority, check, |ledger, ticket, driver| {
            ledger.attempt(ticket, &request, driver)
        })?;
        let state = self.lock();
        let buffers = |slices: &[Slice]| -> Vec<M::Buffer> {
            slices.iter().map(|&s| state.ledger.slab(s)).collect()
        };
        let kept = hold.kept.as_ref().map(|(_, slices)| buffers(slices));
        Ok(Reservation {
            buffers: buffers(&hold.slices),
            kept_buffers: kept.unwrap_or_default(),
            hold,
            arena: self.clone(),
        })
    }

    /// Takes `size` bytes that stay until the last clone of the result drops.
    ///
    /// # Errors
    /// As [`Self::reserve`].
    pub fn resident(
        self: &Arc<Self>,
        size: u64,
        check: &dyn Fn() -> Result<()>,
    ) -> Result<ResidentBuffer> {
        let request = Request {
            regions: vec![size],
            ..Request::default()
        };
        let slice = self.wait_for(
            &request,
            Priority::Normal,
            check,
            |ledger, ticket, driver| ledger.attempt_resident(ticket, size, driver),
        )?;
        Ok(ResidentBuffer(Arc::new(Resident {
            size,
            slice,
            owner: self.clone(),
        })))
    }

    /// Frees the kept sets of an id: at once, or when the last run that uses one ends.
    pub fn evict(&self, id: u64) -> bool {
        let found = self.lock().ledger.evict(id);
        self.changed.notify_all();
        found
    }

    /// Whether a kept set of this id is on the device.
    pub fn has(&self, id: u64) -> bool {
        self.lock().ledger.has(id)
    }

    /// Device buffer behind a slice in use.
    pub fn slab(&self, slice: Slice) -> M::Buffer {
        self.lock().ledger.slab(slice)
    }

    /// Identifies this arena among those of other devices.
    pub fn id(self: &Arc<Self>) -> usize {
        Arc::as_ptr(self).cast::<()>() as usize
    }

    /// A staging buffer of a reservation that counted it, mapped if it is for uploads.
    pub(super) fn take_chunk(&self, usage: BufferUse) -> Result<M::Buffer> {
        if let Some(chunk) = self.lock().chunks(usage).pop() {
            return Ok(chunk);
        }
        let chunk = self.memory.buffer(usage, self.config.chunk)?;
        self.lock().made(self.config.chunk);
        Ok(chunk)
    }

    /// Gives staging buffers back, mapped if they are for uploads; `lost` more are gone with a
    /// run that was given up.
    pub(super) fn return_chunks(&self, usage: BufferUse, chunks: Vec<M::Buffer>, lost: usize) {
        let mut state = self.lock();
        state.chunks(usage).extend(chunks);
        state.staging -= lost as u64 * self.config.chunk;
    }

    pub(super) fn take_page(&self) -> Result<M::Page> {
        if let Some(page) = self.lock().pages.pop() {
            return Ok(page);
        }
        let page = self.memory.page()?;
        self.lock().made(M::PAGE_BYTES);
        Ok(page)
    }

    pub(super) fn return_page(&self, page: M::Page) {
        self.lock().pages.push(page);
    }

    /// Pages are gone with a run that was given up.
    pub(super) fn lose_pages(&self, count: usize) {
        self.lock().staging -= count as u64 * M::PAGE_BYTES;
    }

    /// A panic while the lock was held left the bookkeeping consistent: each step of it ends
    /// before anything that can panic begins.
    fn lock(&self) -> MutexGuard<'_, State<M>> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn wait_for<T>(
        &self,
        request: &Request,
        priority: Priority,
        check: &dyn Fn() -> Result<()>,
        attempt: impl Fn(&mut Ledger<M::Buffer>, u64, &mut Driver<'_, M>) -> Result<T, Refusal>,
    ) -> Result<T> {
        if let Some((needed, available)) = self.lock().ledger.never_fits(request) {
            return Err(self.out_of_memory(needed, available));
        }
        let ticket = Ticket(self.lock().ledger.join(priority), self);
        let mut tried = None;
        loop {
            check()?;
            let mut guard = self.lock();
            let state = &mut *guard;
            let changes = state.ledger.changes();
            if state.ledger.next() == Some(ticket.0) && tried != Some(changes) {
                let driver = &mut Driver(&self.memory);
                let outcome = attempt(&mut state.ledger, ticket.0, driver);
                state.note_peak();
                match outcome {
                    Ok(got) => return Ok(got),
                    Err(Refusal::Busy) => tried = Some(state.ledger.changes()),
                    Err(Refusal::TooLarge { needed, available }) => {
                        return Err(self.out_of_memory(needed, available));
                    }
                    Err(Refusal::Driver(Error::OutOfMemory { .. })) => {
                        let (regions, kept) = request.bytes();
                        let available = state.ledger.report().allocated;
                        return Err(self.out_of_memory(regions + kept, available));
                    }
                    Err(Refusal::Driver(error)) => return Err(error),
                }
            }
            // The time-out is for `check` alone.
            let wait = self.changed.wait_timeout(guard, Duration::from_millis(20));
            drop(wait.unwrap_or_else(PoisonError::into_inner));
        }
    }

    fn out_of_memory(&self, needed: u64, available: u64) -> Error {
        Error::OutOfMemory {
            device: self.config.device.clone(),
            needed,
            available: available.min(needed.saturating_sub(1)),
        }
    }
}

/// Slabs from an arena's memory.
struct Driver<'a, M>(&'a M);

impl<M: Memory> Slabs<M::Buffer> for Driver<'_, M> {
    fn make(&mut self, size: u64) -> Result<M::Buffer> {
        self.0.buffer(BufferUse::Slab, size)
    }
    fn free(&mut self, slab: M::Buffer) {
        self.0.free(slab);
    }
}

impl<M: Memory> State<M> {
    fn chunks(&mut self, usage: BufferUse) -> &mut Vec<M::Buffer> {
        match usage {
            BufferUse::Upload => &mut self.uploads,
            BufferUse::Download => &mut self.downloads,
            BufferUse::Slab => unreachable!("slabs are not pooled"),
        }
    }
    fn made(&mut self, staging: u64) {
        self.staging += staging;
        self.note_peak();
    }
    fn note_peak(&mut self) {
        let now = self.ledger.report().allocated + self.staging;
        self.peak_total = self.peak_total.max(now);
    }
}

/// A place in the line, left when dropped.
struct Ticket<'a, M: Memory>(u64, &'a BufferArena<M>);

impl<M: Memory> Drop for Ticket<'_, M> {
    fn drop(&mut self) {
        self.1.lock().ledger.leave(self.0);
        self.1.changed.notify_all();
    }
}

/// Memory of one user; goes back when dropped, so only after the device is done with it.
pub struct Reservation<M: Memory> {
    arena: Arc<BufferArena<M>>,
    hold: Hold,
    /// Slab of each region.
    pub buffers: Vec<M::Buffer>,
    /// Slab of each part of the kept set.
    pub kept_buffers: Vec<M::Buffer>,
}

impl<M: Memory> Reservation<M> {
    /// Where the regions are, in the order of the request.
    pub fn slices(&self) -> &[Slice] {
        &self.hold.slices
    }
    /// Where the parts of the kept set are.
    pub fn kept(&self) -> &[Slice] {
        self.hold.kept.as_ref().map_or(&[], |(_, slices)| slices)
    }
    pub fn uploads(&self) -> u32 {
        self.hold.uploads
    }
    pub fn downloads(&self) -> u32 {
        self.hold.downloads
    }

    /// Whether this user, and nobody else, is to fill the kept set. If it ends without having said
    /// that it did, the next one is to.
    pub fn fills(&self) -> bool {
        let kept = self.hold.kept.as_ref();
        kept.is_some_and(|(serial, _)| self.arena.lock().ledger.fill(*serial) == Fill::Empty)
    }

    /// The kept set has its content.
    pub fn filled(&self) {
        if let Some((serial, _)) = self.hold.kept {
            self.arena.lock().ledger.set_ready(serial);
            self.arena.changed.notify_all();
        }
    }
}

impl<M: Memory> Drop for Reservation<M> {
    fn drop(&mut self) {
        self.arena.lock().ledger.release(&self.hold);
        self.arena.changed.notify_all();
    }
}

/// An arena as the owner of resident memory, whatever its device.
trait Owner: Send + Sync {
    fn release(&self, slice: Slice, size: u64);
    fn id(&self) -> usize;
}

impl<M: Memory> Owner for BufferArena<M> {
    fn release(&self, slice: Slice, size: u64) {
        self.lock().ledger.release_resident(slice, size);
        self.changed.notify_all();
    }
    fn id(&self) -> usize {
        std::ptr::from_ref(self).cast::<()>() as usize
    }
}

/// Memory that stays on the device between proofs; freed when the last clone goes.
#[derive(Clone)]
pub struct ResidentBuffer(Arc<Resident>);

struct Resident {
    size: u64,
    slice: Slice,
    owner: Arc<dyn Owner>,
}

impl ResidentBuffer {
    /// Bytes, a multiple of 4.
    pub fn size(&self) -> u64 {
        self.0.size
    }
    pub(super) fn slice(&self) -> Slice {
        self.0.slice
    }
    /// [`BufferArena::id`] of the arena that it belongs to.
    pub(super) fn arena_id(&self) -> usize {
        self.0.owner.id()
    }
}

impl fmt::Debug for ResidentBuffer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "ResidentBuffer({} bytes, {:?})",
            self.0.size, self.0.slice
        )
    }
}

impl Drop for Resident {
    fn drop(&mut self) {
        self.owner.release(self.slice, self.size);
    }
}

#[cfg(test)]
mod tests;
