//! Good files, damaged by the thousand, given to every reader: no panic, no allocation that the file
//! does not justify, no reading without end. Each mutation follows from its number, so that a finding
//! can be repeated.
//!
//! `MUTATIONS=100000 cargo test --release --test mutations` runs so many for each reader in place of
//! [`DEFAULT_COUNT`]; `MUTATIONS_FROM=N` begins with another number.

mod allocations;
mod damage;
mod files;

use damage::damaged;
use files::{Reader, readers};
use groth16_gpu::report::processor_ms;
use libtest_mimic::{Arguments, Failed, Trial};
use std::collections::BTreeMap;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;
use std::time::{Duration, Instant};

/// Mutations for each reader: some seconds.
const DEFAULT_COUNT: u64 = 1000;
/// One file takes well under a millisecond. Time of processors, where the system tells.
const SLOWEST: Duration = Duration::from_secs(1);
/// Beside what a file's size justifies: messages, paths, tables of threads.
const ALLOWANCE: usize = 128 << 10;

fn variable(name: &str) -> Option<u64> {
    std::env::var(name).ok()?.parse().ok()
}

/// The largest allocation that a file of so many bytes justifies.
fn justified(bytes: usize) -> usize {
    bytes + bytes / 10 + ALLOWANCE
}

fn run(reader: &Reader, folder: &Path) -> Result<(), Failed> {
    let count = variable("MUTATIONS").unwrap_or(DEFAULT_COUNT);
    let from = variable("MUTATIONS_FROM").unwrap_or(0);
    let path = folder.join(reader.name.replace('/', "_"));
    let mut classes = BTreeMap::new();
    let (mut slowest, mut largest) = (Duration::ZERO, 0);
    // Undamaged files are read.
    for good in &reader.files {
        std::fs::write(&path, good)?;
        (reader.read)(&path).map_err(|e| format!("an undamaged file: {e}"))?;
    }
    for number in from..from + count {
        let bytes = damaged(&reader.files, number);
        std::fs::write(&path, &bytes)?;
        let (start, busy) = (Instant::now(), processor_ms());
        let before = allocations::watch();
        let result = catch_unwind(AssertUnwindSafe(|| (reader.read)(&path)));
        let largest_of_this = allocations::largest(before);
        let busy = processor_ms().zip(busy).map(|(now, then)| now - then);
        let took = busy.map_or_else(
            || start.elapsed(),
            |ms| Duration::from_secs_f64(ms.max(0.0) / 1e3),
        );
        slowest = slowest.max(took);
        largest = largest.max(largest_of_this.saturating_sub(bytes.len() + bytes.len() / 10));
        let wrong = match &result {
            Err(_) => Some("a panic".to_owned()),
            Ok(Err(e)) if e.class() == "internal" => Some(format!("no typed error: {e}")),
            _ if largest_of_this > justified(bytes.len()) => Some(format!(
                "an allocation of {largest_of_this} bytes for a file of {}",
                bytes.len()
            )),
            _ if took > SLOWEST => Some(format!("{took:?} for {} bytes", bytes.len())),
            _ => None,
        };
        if let Some(wrong) = wrong {
            let kept = std::env::temp_dir().join(format!("mutation_{number}"));
            std::fs::write(&kept, &bytes)?;
            return Err(format!("mutation {number} ({}): {wrong}", kept.display()).into());
        }
        let class = match result {
            Ok(Err(e)) => e.class(),
            _ => "none",
        };
        *classes.entry(class.to_owned()).or_insert(0u64) += 1;
    }
    eprintln!(
        "{}: {count} files, slowest {slowest:?}, largest allocation above the file's size {largest} bytes, {classes:?}",
        reader.name
    );
    let refused = count - classes.get("none").copied().unwrap_or(0);
    if refused < count / 4 {
        return Err(format!("only {refused} of {count} files were refused").into());
    }
    Ok(())
}

fn main() {
    let mut arguments = Arguments::from_args();
    // Allocations are the process', so that one reader has it for itself.
    arguments.test_threads = Some(1);
    let trials = readers().into_iter().map(|reader| {
        Trial::test(format!("mutations/{}", reader.name), move || {
            let folder = tempfile::tempdir()?;
            run(&reader, folder.path())
        })
    });
    libtest_mimic::run(&arguments, trials.collect()).exit()
}
