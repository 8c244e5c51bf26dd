//! What a caller holds of a long call: cancellation, progress, priority.

use crate::error::{Error, Result};
use std::fmt;
use std::str::FromStr;
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

/// Who goes first where calls wait for each other. One that was passed over 16 times is served
/// before younger ones of any priority, so that nobody waits for ever.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Priority {
    Low,
    #[default]
    Normal,
    High,
    Critical,
}

impl Priority {
    /// Lowest first.
    pub const ALL: [Self; 4] = [Self::Low, Self::Normal, Self::High, Self::Critical];

    pub fn name(self) -> &'static str {
        match self {
            Self::Low => "low",
            Self::Normal => "normal",
            Self::High => "high",
            Self::Critical => "critical",
        }
    }
}

impl fmt::Display for Priority {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

impl FromStr for Priority {
    type Err = Error;
    fn from_str(name: &str) -> Result<Self> {
        let found = Self::ALL.into_iter().find(|p| p.name() == name);
        found.ok_or_else(|| {
            let known = Self::ALL.map(Self::name).join(", ");
            Error::Usage(format!("unknown priority `{name}`; known: {known}"))
        })
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn priorities_have_names_and_an_order() {
        for p in Priority::ALL {
            assert_eq!(p.to_string().parse::<Priority>().unwrap(), p);
        }
        assert!(Priority::ALL.is_sorted());
        assert_eq!("urgent".parse::<Priority>().unwrap_err().class(), "usage");
    }
}
