//! Cases whose recordings run on something that is no [`GpuDevice`](crate::device::GpuDevice).

use crate::device::recording::Recording;
use std::cell::RefCell;
use std::rc::Rc;

/// Runs a recording and returns its downloads, by their ids.
pub type Executor = Rc<dyn Fn(&Recording) -> Result<Vec<Vec<u8>>, String>>;

thread_local! {
    static EXECUTOR: RefCell<Option<Executor>> = const { RefCell::new(None) };
}

/// Calls `f`, and meanwhile has `executor` run what cases record on this thread. The device that a
/// case is given then decides nothing but the limits that plans keep to.
///
/// Proofs do not come here: provers run their recordings themselves.
pub fn run_elsewhere<T>(executor: Executor, f: impl FnOnce() -> T) -> T {
    struct Restore(Option<Executor>);
    impl Drop for Restore {
        fn drop(&mut self) {
            EXECUTOR.set(self.0.take());
        }
    }
    let _restore = Restore(EXECUTOR.replace(Some(executor)));
    f()
}

/// The executor of this thread, if there is one.
pub(super) fn executor() -> Option<Executor> {
    EXECUTOR.with_borrow(Clone::clone)
}
