//! The command line: raw arguments ([`args::Raw`]) are resolved to values ([`args::Command`]),
//! which [`commands`] carries out. Results go to stdout, everything else to stderr.

mod args;
mod batch;
mod bench;
mod bench_msm;
mod commands;
mod engine;
mod example;
mod inputs;
mod inspect;
mod opening;
mod proofs;
mod prove;
mod selftest;
mod throughput;
mod tune;
mod units;

use clap::Parser;
use groth16_gpu::{Error, Result};
use serde_json::{Value, json};
use std::io::{self, IsTerminal, Write};
use std::path::Path;
use std::process::ExitCode;

/// Parses the arguments, runs the command, reports its failure.
pub fn main() -> ExitCode {
    let raw = match args::Raw::try_parse() {
        Ok(raw) => raw,
        Err(e) => return report_usage(&e),
    };
    init_log(raw.global.quiet, raw.global.verbose);
    let out = Output {
        json: raw.global.json,
        quiet: raw.global.quiet,
    };
    match raw
        .resolve()
        .and_then(|command| commands::run(command, &out))
    {
        Ok(code) => code,
        Err(e) => report(&e, &out),
    }
}

/// Where results and notes go.
#[derive(Clone, Copy, Debug)]
pub struct Output {
    pub json: bool,
    pub quiet: bool,
}

impl Output {
    /// Prints a result: `value` under `--json`, else `text`.
    pub fn result(&self, value: &Value, text: &str) -> Result<()> {
        if self.json {
            print_stdout(&value.to_string())
        } else if text.is_empty() {
            Ok(())
        } else {
            print_stdout(text)
        }
    }
    /// Prints a note to stderr, unless `--quiet`.
    pub fn note(&self, text: &str) {
        if !self.quiet {
            let _ = writeln!(io::stderr(), "{text}");
        }
    }
    /// Prints a failure to stderr.
    pub fn error(&self, message: &str) {
        let _ = writeln!(io::stderr(), "error: {message}");
    }
    /// Whether to draw progress.
    pub fn shows_progress(&self) -> bool {
        !self.quiet && io::stderr().is_terminal()
    }
}

/// Prints a line. A reader that has closed the pipe is not an error.
pub fn print_stdout(text: &str) -> Result<()> {
    write_stdout(format!("{text}\n").as_bytes())
}

/// As [`print_stdout`], of bytes as they are.
pub fn write_stdout(bytes: &[u8]) -> Result<()> {
    let mut stdout = io::stdout().lock();
    match stdout.write_all(bytes).and_then(|()| stdout.flush()) {
        Err(e) if e.kind() != io::ErrorKind::BrokenPipe => Err(Error::io("stdout", e)),
        _ => Ok(()),
    }
}

fn report(e: &Error, out: &Output) -> ExitCode {
    let message = full_message(e);
    out.error(&message);
    if out.json {
        let _ = print_stdout(&error_json(e, &message).to_string());
    }
    ExitCode::from(e.exit_code())
}

/// An error with what it comes from.
fn full_message(e: &Error) -> String {
    let mut message = e.to_string();
    let mut source = std::error::Error::source(e);
    while let Some(cause) = source {
        let cause_text = cause.to_string();
        if !message.contains(&cause_text) {
            message = format!("{message}: {cause_text}");
        }
        source = cause.source();
    }
    message
}

fn error_json(e: &Error, message: &str) -> Value {
    let mut error = json!({ "class": e.class(), "message": message });
    let name = |path: &Path| path.display().to_string();
    match e {
        Error::Input(e) => {
            let fields = [
                ("file", e.file.as_deref().map(|p| name(p).into())),
                ("section", e.section.map(Value::from)),
                ("offset", e.offset.map(Value::from)),
                ("element", e.element.map(Value::from)),
            ];
            for (field, value) in fields {
                if let Some(value) = value {
                    error[field] = value;
                }
            }
        }
        Error::Io { path, .. } => error["file"] = name(path).into(),
        _ => {}
    }
    json!({ "error": error })
}

/// clap's message; `--json` was not parsed then, so it is looked for.
fn report_usage(e: &clap::Error) -> ExitCode {
    if e.use_stderr() && std::env::args_os().any(|a| a == "--json") {
        let error = Error::Usage(e.to_string().trim_end().to_owned());
        let _ = print_stdout(&error_json(&error, &error.to_string()).to_string());
    }
    // Help and version go to stdout: code 0. A closed pipe is no error there, either.
    let _ = e.print();
    ExitCode::from(if e.use_stderr() { 2 } else { 0 })
}

fn init_log(quiet: bool, verbose: u8) {
    use log::LevelFilter;
    let level = match (quiet, verbose) {
        (true, _) => LevelFilter::Error,
        (false, 0) => LevelFilter::Warn,
        (false, 1) => LevelFilter::Info,
        (false, 2) => LevelFilter::Debug,
        (false, _) => LevelFilter::Trace,
    };
    // The graphics stack's own warnings are about drivers in general; -vv shows them.
    let others = if verbose >= 2 {
        level
    } else {
        LevelFilter::Error
    };
    env_logger::Builder::new()
        .filter_level(others)
        // Says every step of compiling a shader below warnings.
        .filter_module("naga", others.min(LevelFilter::Warn))
        .filter_module("groth16_gpu", level)
        .parse_default_env()
        .format(|buf, record| {
            let level = record.level().as_str().to_ascii_lowercase();
            writeln!(buf, "{level}: {}", record.args())
        })
        .init();
}
