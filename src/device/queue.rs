//! One queue per device: whose turn it is, how long submissions take, and how to stop waiting.

use crate::control::Priority;
use crate::device::line::Line;
use crate::error::{Error, Result};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

pub use crate::control::CancelToken;

/// The right to submit, one holder at a time, in the order of a [`Line`].
///
/// The holder's submissions follow each other without gaps from others. It gives the turn back as
/// soon as its last one is in, so that the next holder's work queues up behind it.
#[derive(Debug, Default)]
pub struct DeviceQueue {
    state: Mutex<QueueState>,
    changed: Condvar,
}

#[derive(Debug, Default)]
struct QueueState {
    line: Line,
    /// Ticket of the one that has the turn.
    holder: Option<u64>,
}

impl QueueState {
    /// Gives the turn to `ticket` if it is free and this one is next.
    fn try_serve(&mut self, ticket: u64) -> bool {
        let served = self.holder.is_none() && self.line.next() == Some(ticket);
        if served {
            self.line.serve(ticket);
            self.holder = Some(ticket);
        }
        served
    }
}

impl DeviceQueue {
    /// A queue that nobody uses.
    pub fn new() -> Self {
        Self::default()
    }

    /// Waits for the turn. `check` runs now and then; its error ends the wait.
    ///
    /// # Errors
    /// What `check` returns.
    pub fn turn(&self, priority: Priority, check: &dyn Fn() -> Result<()>) -> Result<Turn<'_>> {
        let mut state = self.lock();
        // Leaves the line on every way out of here.
        let turn = Turn {
            queue: self,
            ticket: state.line.join(priority),
        };
        while !state.try_serve(turn.ticket) {
            drop(state);
            check()?;
            state = self.lock();
            if state.try_serve(turn.ticket) {
                break;
            }
            // The time-out is for `check` alone.
            let wait = self.changed.wait_timeout(state, Duration::from_millis(20));
            state = wait.unwrap_or_else(PoisonError::into_inner).0;
        }
        drop(state);
        check()?;
        Ok(turn)
    }

    /// Number of holders: one with the turn and the rest waiting.
    pub fn len(&self) -> usize {
        let state = self.lock();
        state.line.len() + usize::from(state.holder.is_some())
    }

    /// Whether nobody has the turn.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The state is consistent after every statement, so a panic elsewhere does not matter.
    fn lock(&self) -> MutexGuard<'_, QueueState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The turn, or a place in the line for it; given back when dropped, by a panic too.
#[derive(Debug)]
pub struct Turn<'a> {
    queue: &'a DeviceQueue,
    ticket: u64,
}

impl Drop for Turn<'_> {
    fn drop(&mut self) {
        let mut state = self.queue.lock();
        if state.holder == Some(self.ticket) {
            state.holder = None;
        } else {
            state.line.leave(self.ticket);
        }
        drop(state);
        self.queue.changed.notify_all();
    }
}

/// How much work a device does per second, learnt from its submissions.
#[derive(Clone, Copy, Debug)]
pub struct Calibration {
    per_second: f64,
    target: Duration,
}

impl Calibration {
    /// Starts from a guess; submissions are to take `target`.
    pub fn new(per_second: f64, target: Duration) -> Self {
        Self { per_second, target }
    }
    /// Work units a second.
    pub fn per_second(&self) -> f64 {
        self.per_second
    }
    /// Work units for one submission, at least 1.
    pub fn budget(&self) -> u64 {
        ((self.per_second * self.target.as_secs_f64()) as u64).max(1)
    }
    /// A submission of `work` units took `time`.
    pub fn observe(&mut self, work: u64, time: Duration) {
        let seconds = time.as_secs_f64();
        let expected = work as f64 / self.per_second;
        // Short ones measure the overhead and not the device.
        let meaningful = self.target.as_secs_f64() / 8.0;
        if work == 0 || (seconds < meaningful && expected < meaningful) {
            return;
        }
        let seen = work as f64 / seconds.max(1e-6);
        // Down at once, since a submission that is too long can trip a watchdog; up in steps.
        self.per_second = if seen < self.per_second {
            0.3 * self.per_second + 0.7 * seen
        } else {
            (0.7 * self.per_second + 0.3 * seen).min(4.0 * self.per_second)
        };
    }
}

/// Wall-clock spans of submissions on a device that runs them one after the other.
#[derive(Debug, Default)]
pub struct Timeline {
    last_end: Option<Instant>,
    clock: Option<DeviceClock>,
}

/// Relates a device's clock to the host's.
#[derive(Clone, Copy, Debug)]
pub struct DeviceClock {
    /// A moment on both: nanoseconds of the device's clock.
    device: f64,
    host: Instant,
}

impl DeviceClock {
    /// The host's time when the device's clock showed this.
    pub fn at(&self, nanoseconds: f64) -> Instant {
        let distance = Duration::from_nanos((nanoseconds - self.device).abs() as u64);
        let moment = match nanoseconds >= self.device {
            true => self.host.checked_add(distance),
            false => self.host.checked_sub(distance),
        };
        moment.unwrap_or(self.host)
    }
}

impl Timeline {
    /// Notes that what was submitted at `submitted` was seen complete at `now`, and returns when
    /// it began to run, as far as can be seen from outside.
    pub fn complete(&mut self, submitted: Instant, now: Instant) -> Instant {
        let start = self.last_end.map_or(submitted, |end| end.max(submitted));
        self.last_end = Some(self.last_end.map_or(now, |end| end.max(now)));
        start.min(now)
    }

    /// Notes that the host saw complete at `seen` what the device ended at `end` by its own clock.
    /// The host always sees it late: the least delay of all gives the relation of the clocks.
    pub fn clock(&mut self, end: f64, seen: Instant) -> DeviceClock {
        let this = DeviceClock {
            device: end,
            host: seen,
        };
        let clock = self.clock.get_or_insert(this);
        if seen < clock.at(end) {
            *clock = this;
        }
        *clock
    }
}

/// What is known to be wrong with a device. Driver callbacks write it, users check it.
#[derive(Debug)]
pub struct Health {
    device: String,
    lost: Mutex<Option<String>>,
    /// Errors that no error scope caught.
    stray: Mutex<Vec<String>>,
}

impl Health {
    /// A device without faults.
    pub fn new(device: String) -> Self {
        Self {
            device,
            lost: Mutex::default(),
            stray: Mutex::default(),
        }
    }
    /// A fault of this device.
    pub fn fault(&self, message: impl Into<String>) -> Error {
        Error::DeviceFault {
            device: self.device.clone(),
            message: message.into(),
        }
    }
    /// The device is gone for good.
    pub fn set_lost(&self, why: String) {
        let mut lost = self.lost.lock().unwrap_or_else(PoisonError::into_inner);
        lost.get_or_insert(why);
    }
    /// # Errors
    /// [`Error::DeviceFault`] once the device is lost.
    pub fn check(&self) -> Result<()> {
        let lost = self.lost.lock().unwrap_or_else(PoisonError::into_inner);
        match &*lost {
            None => Ok(()),
            Some(why) => Err(self.fault(format!("device lost: {why}"))),
        }
    }
    pub fn add_stray(&self, message: String) {
        let mut stray = self.stray.lock().unwrap_or_else(PoisonError::into_inner);
        stray.push(message);
    }
    /// # Errors
    /// [`Error::DeviceFault`] if an error came from nowhere since the last call.
    pub fn take_stray(&self) -> Result<()> {
        let mut stray = self.stray.lock().unwrap_or_else(PoisonError::into_inner);
        match std::mem::take(&mut *stray).join("; ") {
            none if none.is_empty() => Ok(()),
            errors => Err(self.fault(errors)),
        }
    }
}

/// Submits to a wgpu queue and waits for what was submitted. Nothing else does either.
pub struct Submitter {
    device: ::wgpu::Device,
    queue: ::wgpu::Queue,
    health: Arc<Health>,
}

/// One submission.
#[derive(Clone, Debug)]
pub struct Submission {
    done: Arc<Done>,
    pub at: Instant,
}

/// Whether a submission has completed; some thread's poll says so.
#[derive(Debug, Default)]
struct Done {
    state: Mutex<bool>,
    changed: Condvar,
}

impl Done {
    fn set(&self) {
        *self.state.lock().unwrap_or_else(PoisonError::into_inner) = true;
        self.changed.notify_all();
    }
    /// Whether it is, at the latest after `timeout`.
    fn wait(&self, timeout: Duration) -> bool {
        let state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        let waited = self
            .changed
            .wait_timeout_while(state, timeout, |done| !*done);
        *waited.unwrap_or_else(PoisonError::into_inner).0
    }
}

/// Time between two polls of a thread that waits: short at first, for short submissions.
const POLL_INTERVALS: [Duration; 2] = [Duration::from_micros(50), Duration::from_micros(200)];
/// How long it is short.
const POLL_OFTEN: Duration = Duration::from_millis(5);

impl Submitter {
    pub fn new(device: ::wgpu::Device, queue: ::wgpu::Queue, health: Arc<Health>) -> Self {
        Self {
            device,
            queue,
            health,
        }
    }

    /// Nanoseconds in a tick of timestamps.
    pub fn timestamp_period(&self) -> f32 {
        self.queue.get_timestamp_period()
    }

    /// Queues commands behind all that was submitted before. `None` queues nothing, which tests
    /// use to lose a submission.
    pub fn submit(&self, _: &Turn<'_>, commands: Option<::wgpu::CommandBuffer>) -> Submission {
        self.queue.submit(commands);
        let submission = Submission {
            done: Arc::default(),
            at: Instant::now(),
        };
        // Nobody else submits during the turn, so this is about these commands.
        let done = submission.done.clone();
        self.queue.on_submitted_work_done(move || done.set());
        submission
    }

    /// A submission that never ends, for tests.
    pub fn hang(&self) -> Submission {
        Submission {
            done: Arc::default(),
            at: Instant::now(),
        }
    }

    /// Waits for one submission, in short steps so that `check` can end the wait.
    ///
    /// Polls rather than waits inside wgpu: where a wait there times out while another thread sees
    /// the last submission complete, wgpu 30 panics (wgpu#9958).
    ///
    /// # Errors
    /// [`Error::Timeout`], [`Error::DeviceFault`], and what `check` returns.
    pub fn wait(
        &self,
        submission: &Submission,
        timeout: Duration,
        check: &dyn Fn() -> Result<()>,
    ) -> Result<()> {
        let start = Instant::now();
        loop {
            self.poll()?;
            let often = start.elapsed() < POLL_OFTEN;
            if submission.done.wait(POLL_INTERVALS[usize::from(!often)]) {
                return Ok(());
            }
            check()?;
            if start.elapsed() > timeout {
                return Err(Error::Timeout {
                    what: format!("a submission to {}", self.health.device),
                    seconds: timeout.as_secs(),
                });
            }
        }
    }

    /// Whether a submission has completed.
    ///
    /// # Errors
    /// As [`Self::wait`].
    pub fn is_complete(&self, submission: &Submission) -> Result<bool> {
        self.poll()?;
        Ok(submission.done.wait(Duration::ZERO))
    }

    /// Waits until `received` gets the answer to a mapping request whose submission has completed.
    ///
    /// # Errors
    /// As [`Self::wait`].
    pub fn wait_mapped(&self, mapped: &Mapping, timeout: Duration) -> Result<()> {
        let start = Instant::now();
        loop {
            // Another thread's poll may be about to deliver the answer.
            match mapped.0.recv_timeout(Duration::from_micros(100)) {
                Ok(true) => return Ok(()),
                Ok(false) | Err(RecvTimeoutError::Disconnected) => {
                    self.health.check()?;
                    return Err(self.health.fault("a buffer could not be mapped"));
                }
                Err(RecvTimeoutError::Timeout) => self.poll()?,
            };
            self.health.check()?;
            if start.elapsed() > timeout {
                return Err(Error::Timeout {
                    what: format!("mapping a buffer of {}", self.health.device),
                    seconds: timeout.as_secs(),
                });
            }
        }
    }

    /// Lets wgpu look what has completed, and say so.
    fn poll(&self) -> Result<()> {
        let poll = || self.device.poll(::wgpu::PollType::Poll);
        // wgpu panics on errors of the driver here, where a device can get lost.
        match catch_unwind(AssertUnwindSafe(poll)) {
            Ok(Ok(_)) => Ok(()),
            Ok(Err(error)) => {
                self.health.check()?;
                Err(self.health.fault(format!("submission rejected: {error}")))
            }
            Err(_) => {
                self.health
                    .set_lost("the driver failed while waiting".into());
                Err(self.health.check().expect_err("just set"))
            }
        }
    }
}

/// The answer to a mapping request.
#[derive(Debug)]
pub struct Mapping(Receiver<bool>);

/// Asks for `buffer` to be mapped once the submissions that use it have completed.
pub fn request_mapping(buffer: &::wgpu::Buffer, mode: ::wgpu::MapMode) -> Mapping {
    let (send, receive) = channel();
    buffer.map_async(mode, .., move |answer| {
        // Nobody waits any more if the run was given up.
        let _ = send.send(answer.is_ok());
    });
    Mapping(receive)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::thread;

    fn go() -> Result<()> {
        Ok(())
    }

    #[test]
    fn turns_come_in_order() {
        let queue = Arc::new(DeviceQueue::new());
        let order = Arc::new(Mutex::new(Vec::new()));
        let first = queue.turn(Priority::Normal, &go).unwrap();
        let threads: Vec<_> = (0..5)
            .map(|i| {
                let (q, o) = (queue.clone(), order.clone());
                let thread = thread::spawn(move || {
                    let _turn = q.turn(Priority::Normal, &go).unwrap();
                    o.lock().unwrap().push(i);
                });
                while queue.len() < i + 2 {
                    thread::yield_now();
                }
                thread
            })
            .collect();
        drop(first);
        threads.into_iter().for_each(|t| t.join().unwrap());
        assert_eq!(*order.lock().unwrap(), [0, 1, 2, 3, 4]);
        assert!(queue.is_empty());
    }

    #[test]
    fn the_urgent_go_first() {
        let queue = Arc::new(DeviceQueue::new());
        let order = Arc::new(Mutex::new(Vec::new()));
        let first = queue.turn(Priority::Low, &go).unwrap();
        let threads: Vec<_> = Priority::ALL
            .into_iter()
            .enumerate()
            .map(|(i, priority)| {
                let (q, o) = (queue.clone(), order.clone());
                let thread = thread::spawn(move || {
                    let _turn = q.turn(priority, &go).unwrap();
                    o.lock().unwrap().push(priority);
                });
                while queue.len() < i + 2 {
                    thread::yield_now();
                }
                thread
            })
            .collect();
        drop(first);
        threads.into_iter().for_each(|t| t.join().unwrap());
        let served = order.lock().unwrap();
        assert!(served.iter().rev().is_sorted(), "{served:?}");
    }

    #[test]
    fn cancelling_leaves_the_line() {
        let queue = DeviceQueue::new();
        let held = queue.turn(Priority::Normal, &go).unwrap();
        let cancel = CancelToken::new();
        cancel.cancel();
        assert_eq!(
            queue
                .turn(Priority::Normal, &|| cancel.check())
                .unwrap_err()
                .class(),
            "cancelled"
        );
        drop(held);
        drop(queue.turn(Priority::Normal, &go).unwrap());
    }

    #[test]
    fn p64_a_panic_gives_the_turn_back() {
        let queue = Arc::new(DeviceQueue::new());
        let q = queue.clone();
        let panicked = thread::spawn(move || {
            let _turn = q.turn(Priority::Normal, &go).unwrap();
            panic!("injected");
        });
        assert!(panicked.join().is_err());
        drop(queue.turn(Priority::Normal, &go).unwrap());
    }

    #[test]
    fn calibration_converges_from_both_sides() {
        for start in [1e5, 1e12] {
            let mut c = Calibration::new(start, Duration::from_millis(100));
            for _ in 0..60 {
                let work = c.budget();
                c.observe(work, Duration::from_secs_f64(work as f64 / 3e8));
            }
            assert!((c.per_second() / 3e8 - 1.0).abs() < 0.05, "{c:?}");
        }
    }

    #[test]
    fn overhead_of_small_submissions_does_not_count() {
        let mut c = Calibration::new(1e9, Duration::from_millis(100));
        c.observe(10, Duration::from_millis(1));
        assert_eq!(c.per_second(), 1e9);
    }

    #[test]
    fn clocks_are_related_by_the_least_delay() {
        let t = Instant::now();
        let at = |us| t + Duration::from_micros(us);
        let mut line = Timeline::default();
        // Seen 50, 10 and 30 microseconds late.
        line.clock(1e6, at(1050));
        line.clock(2e6, at(2010));
        let clock = line.clock(3e6, at(3030));
        assert_eq!(clock.at(1e6), at(1010));
        assert_eq!(clock.at(5e6), at(5010));
    }

    #[test]
    fn spans_do_not_overlap() {
        let t = Instant::now();
        let at = |ms| t + Duration::from_millis(ms);
        let mut line = Timeline::default();
        assert_eq!(line.complete(at(0), at(10)), at(0));
        assert_eq!(line.complete(at(1), at(25)), at(10));
        assert_eq!(line.complete(at(40), at(50)), at(40));
    }
}
