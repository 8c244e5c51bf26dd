//! What a caller holds of a long call: cancellation and progress.

use crate::error::{Error, Result};
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// Asks a running call to stop. Clones are the same token.
#[derive(Clone, Debug, Default)]
pub struct CancelToken(Arc<AtomicBool>);

impl CancelToken {
    pub fn new() -> Self {
        Self::default()
    }
    /// Makes calls that hold this token return [`Error::Cancelled`] at their next step.
    pub fn cancel(&self) {
        self.0.store(true, Ordering::Relaxed);
    }
    pub fn is_cancelled(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }
    /// # Errors
    /// [`Error::Cancelled`] once cancelled.
    pub fn check(&self) -> Result<()> {
        if self.is_cancelled() {
            return Err(Error::Cancelled);
        }
        Ok(())
    }
}

/// Called with the name of the step that starts, and the part of the work that is done, 0 to 1.
/// May be called from any thread.
pub type Progress = Arc<dyn Fn(&str, f32) + Send + Sync>;

/// A cancellation token and a progress callback, either of which may be absent.
#[derive(Clone, Default)]
pub struct Control {
    pub cancel: Option<CancelToken>,
    pub progress: Option<Progress>,
}

impl Control {
    /// Between two steps: reports the next one, unless the call was cancelled.
    ///
    /// # Errors
    /// [`Error::Cancelled`].
    pub fn step(&self, name: &str, done: f32) -> Result<()> {
        self.check()?;
        if let Some(progress) = &self.progress {
            progress(name, done);
        }
        Ok(())
    }
    /// # Errors
    /// [`Error::Cancelled`] if the token was cancelled.
    pub fn check(&self) -> Result<()> {
        self.cancel.as_ref().map_or(Ok(()), CancelToken::check)
    }
}

impl fmt::Debug for Control {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Control")
            .field("cancel", &self.cancel)
            .field("progress", &self.progress.is_some())
            .finish()
    }
}
