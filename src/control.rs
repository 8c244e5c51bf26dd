//! What a caller holds of a long call: cancellation, deadline, progress, priority.

use crate::error::{Error, Result};
use std::fmt;
use std::str::FromStr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;

/// Asks a running call to stop. Clones are the same token.
#[derive(Clone, Debug, Default)]
pub struct CancelToken(Arc<TokenState>);

#[derive(Debug, Default)]
struct TokenState {
    cancelled: AtomicBool,
    parent: Option<CancelToken>,
}

impl CancelToken {
    pub fn new() -> Self {
        Self::default()
    }
    /// A token that counts as cancelled when this one is, and can be cancelled without it.
    pub fn child(&self) -> Self {
        Self(Arc::new(TokenState {
            cancelled: AtomicBool::new(false),
            parent: Some(self.clone()),
        }))
    }
    /// Makes calls that hold this token return [`Error::Cancelled`] at their next step.
    pub fn cancel(&self) {
        self.0.cancelled.store(true, Ordering::Relaxed);
    }
    pub fn is_cancelled(&self) -> bool {
        self.0.cancelled.load(Ordering::Relaxed)
            || self.0.parent.as_ref().is_some_and(Self::is_cancelled)
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

/// # Errors
/// [`Error::Timeout`] about `what` once `deadline` has passed.
pub(crate) fn check_deadline(deadline: Option<Instant>, what: impl fmt::Display) -> Result<()> {
    match deadline {
        Some(at) if Instant::now() >= at => Err(Error::Timeout {
            what: format!("{what} was not finished by the deadline"),
            seconds: 0,
        }),
        _ => Ok(()),
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

/// What a caller has to say about a long call, all of it optional.
#[derive(Clone, Default)]
pub struct Control {
    pub cancel: Option<CancelToken>,
    pub progress: Option<Progress>,
    pub priority: Priority,
    /// When the call is to give up.
    pub deadline: Option<Instant>,
}

impl Control {
    /// Between two steps: reports the next one, unless the call is to stop.
    ///
    /// # Errors
    /// As [`Self::check`].
    pub fn step(&self, name: &str, done: f32) -> Result<()> {
        self.check()?;
        if let Some(progress) = &self.progress {
            progress(name, done);
        }
        Ok(())
    }
    /// # Errors
    /// [`Error::Cancelled`] if the token was cancelled, [`Error::Timeout`] after the deadline.
    pub fn check(&self) -> Result<()> {
        self.cancel.as_ref().map_or(Ok(()), CancelToken::check)?;
        check_deadline(self.deadline, "the proof")
    }
}

impl fmt::Debug for Control {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Control")
            .field("cancel", &self.cancel)
            .field("progress", &self.progress.is_some())
            .field("priority", &self.priority)
            .field("deadline", &self.deadline)
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

    #[test]
    fn a_child_is_cancelled_with_its_parent_and_not_the_other_way() {
        let parent = CancelToken::new();
        let (one, two) = (parent.child(), parent.child());
        one.cancel();
        assert!(one.is_cancelled() && !two.is_cancelled() && !parent.is_cancelled());
        parent.cancel();
        assert!(two.is_cancelled());
    }

    #[test]
    fn a_deadline_ends_a_call_between_two_steps() {
        let mut control = Control {
            deadline: Some(Instant::now() + std::time::Duration::from_secs(600)),
            ..Control::default()
        };
        control.step("one", 0.0).unwrap();
        control.deadline = Some(Instant::now());
        let error = control.step("two", 0.5).unwrap_err();
        assert_eq!((error.class(), error.exit_code()), ("timeout", 5));
        assert!(
            error.to_string().contains("the proof was not finished"),
            "{error}"
        );
    }
}
