//! The library's error type.
//!
//! Input errors carry a *class* (the names in [`InputClass`] are part of the
//! command line's `--json` interface), the file, and where in it the defect is.

use std::fmt;
use std::path::PathBuf;

/// Result of this library.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// What is wrong with an input file; the snake-case names are stable.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum InputClass {
    Truncated,
    BadMagic,
    UnsupportedVersion,
    UnsupportedProtocol,
    UnsupportedCurve,
    MissingSection,
    DuplicateSection,
    BadSection,
    BadCoefficient,
    BadConstraint,
    BadScalar,
    InvalidPoint,
    CountMismatch,
    CurveMismatch,
    BadJson,
}

impl InputClass {
    /// The stable name, as printed in `--json` errors.
    pub fn name(self) -> &'static str {
        match self {
            Self::Truncated => "truncated",
            Self::BadMagic => "bad_magic",
            Self::UnsupportedVersion => "unsupported_version",
            Self::UnsupportedProtocol => "unsupported_protocol",
            Self::UnsupportedCurve => "unsupported_curve",
            Self::MissingSection => "missing_section",
            Self::DuplicateSection => "duplicate_section",
            Self::BadSection => "bad_section",
            Self::BadCoefficient => "bad_coefficient",
            Self::BadConstraint => "bad_constraint",
            Self::BadScalar => "bad_scalar",
            Self::InvalidPoint => "invalid_point",
            Self::CountMismatch => "count_mismatch",
            Self::CurveMismatch => "curve_mismatch",
            Self::BadJson => "bad_json",
        }
    }
}

/// A defect of an input file: what, and where.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct InputError {
    pub class: InputClass,
    pub message: String,
    pub file: Option<PathBuf>,
    /// Section id in the file's container, where it has sections.
    pub section: Option<u32>,
    /// Byte offset from the start of the file.
    pub offset: Option<u64>,
    /// Index of the offending element (point, scalar, constraint).
    pub element: Option<u64>,
}

impl InputError {
    pub fn new(class: InputClass, message: impl Into<String>) -> Self {
        Self {
            class,
            message: message.into(),
            file: None,
            section: None,
            offset: None,
            element: None,
        }
    }
    pub fn file(mut self, file: impl Into<PathBuf>) -> Self {
        self.file = Some(file.into());
        self
    }
    pub fn section(mut self, section: u32) -> Self {
        self.section = Some(section);
        self
    }
    pub fn offset(mut self, offset: u64) -> Self {
        self.offset = Some(offset);
        self
    }
    pub fn element(mut self, element: u64) -> Self {
        self.element = Some(element);
        self
    }
}

impl fmt::Display for InputError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(file) = &self.file {
            write!(f, "{}: ", file.display())?;
        }
        if let Some(section) = self.section {
            write!(f, "section {section}: ")?;
        }
        if let Some(element) = self.element {
            write!(f, "element {element}: ")?;
        }
        f.write_str(&self.message)?;
        if let Some(offset) = self.offset {
            write!(f, " (at byte {offset})")?;
        }
        Ok(())
    }
}

impl std::error::Error for InputError {}

/// Everything that can go wrong.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// A key, witness, circuit or proof file is malformed, or two of them do not belong together.
    #[error(transparent)]
    Input(#[from] Box<InputError>),
    /// The witness does not satisfy the circuit of the key.
    #[error("the witness does not satisfy the circuit: {0}")]
    Unsatisfied(String),
    /// The finished proof failed its own verification although the witness satisfies the circuit.
    #[error("the proof computed on {device} does not verify; it was discarded")]
    SelfVerification { device: String },
    /// No device as asked for.
    #[error("no such device: {0}")]
    NoDevice(String),
    /// A plan's smallest variant does not fit the budget, or an allocation failed.
    #[error("out of memory on {device}: needs {needed} bytes, {available} available")]
    OutOfMemory {
        device: String,
        needed: u64,
        available: u64,
    },
    /// The device failed: lost, a rejected pipeline, or a submission that came back wrong.
    #[error("device fault on {device}: {message}")]
    DeviceFault { device: String, message: String },
    /// A wait ran past its limit, or a call past its deadline.
    #[error("{}", timeout_message(what, *seconds))]
    Timeout {
        /// What was not finished in time.
        what: String,
        /// The limit; 0 if it was below a second, or a deadline.
        seconds: u64,
    },
    /// The caller cancelled.
    #[error("cancelled")]
    Cancelled,
    /// A fault of this program: it panicked.
    #[error("internal error: {0}")]
    Internal(String),
    /// Arguments that make no sense together.
    #[error("{0}")]
    Usage(String),
    /// Reading or writing a file failed.
    #[error("{}: {source}", path.display())]
    Io {
        path: PathBuf,
        source: std::io::Error,
    },
}

fn timeout_message(what: &str, seconds: u64) -> String {
    match seconds {
        0 => format!("timed out: {what}"),
        _ => format!("timed out after {seconds} s: {what}"),
    }
}

impl Error {
    pub fn io(path: impl Into<PathBuf>, source: std::io::Error) -> Self {
        Self::Io {
            path: path.into(),
            source,
        }
    }
    /// Names the file of an input error that does not name one yet.
    pub fn in_file(mut self, file: &std::path::Path) -> Self {
        if let Self::Input(e) = &mut self {
            e.file.get_or_insert_with(|| file.to_owned());
        }
        self
    }
    /// The stable class name, as printed in `--json` errors.
    pub fn class(&self) -> &'static str {
        match self {
            Self::Input(e) => e.class.name(),
            Self::Unsatisfied(_) => "unsatisfied",
            Self::SelfVerification { .. } => "device_fault",
            Self::NoDevice(_) => "no_device",
            Self::OutOfMemory { .. } => "out_of_memory",
            Self::DeviceFault { .. } => "device_fault",
            Self::Timeout { .. } => "timeout",
            Self::Cancelled => "cancelled",
            Self::Internal(_) => "internal",
            Self::Usage(_) => "usage",
            Self::Io { .. } => "io",
        }
    }
    /// The process exit code that the command line gives for this error.
    pub fn exit_code(&self) -> u8 {
        match self {
            Self::Unsatisfied(_) => 1,
            Self::Usage(_) => 2,
            Self::NoDevice(_) => 3,
            Self::Input(_) | Self::Io { .. } => 4,
            Self::SelfVerification { .. }
            | Self::OutOfMemory { .. }
            | Self::DeviceFault { .. }
            | Self::Timeout { .. }
            | Self::Cancelled
            | Self::Internal(_) => 5,
        }
    }
}

impl From<InputError> for Error {
    fn from(e: InputError) -> Self {
        Self::Input(Box::new(e))
    }
}
