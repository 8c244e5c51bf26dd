//! What one compiler made of every kernel: measured, written, read again.

use super::What;
use super::spirv::translate;
use super::vulkan::{self, Compiler, Executable};
use groth16_gpu::kernels::{KERNELS, KernelSource, WordTier};
use serde::{Deserialize, Serialize};
use std::error::Error;
use std::fmt::Write as _;
use std::path::Path;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::{SystemTime, UNIX_EPOCH};

/// Everything that one compiler said of the kernels.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Record {
    /// Version of this crate.
    pub version: String,
    /// Day of the measurement (UTC), as `2026-12-31`.
    pub date: String,
    pub compiler: Compiler,
    /// Pipelines compiled at a time; with more than there are cores, times say little.
    pub threads: usize,
    /// In the order of the kernel table. The u64 tier is missing where the adapter lacks it.
    pub kernels: Vec<KernelRecord>,
}

/// What it said of one kernel.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct KernelRecord {
    /// `name.curve.tier`
    pub label: String,
    /// Time in the driver.
    pub compile_ms: f64,
    /// Time of processors meanwhile, which other programs do not disturb; with one thread alone.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub processor_ms: Option<f64>,
    /// What the driver said if it refused the kernel.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
    pub executables: Vec<Executable>,
}

/// Compiles what is asked for on the first adapter with the name asked for. `None` if there is no
/// such adapter that can tell about pipelines.
///
/// # Errors
/// If the adapter cannot be opened, or naga does not translate a kernel.
pub fn measure(what: &What) -> Result<Option<Record>, Box<dyn Error>> {
    let threads = what.threads.max(1);
    let Some(adapter) = vulkan::find(&what.adapter)? else {
        return Ok(None);
    };
    let device = adapter.open()?;
    let sources: Vec<&KernelSource> = KERNELS
        .iter()
        .filter(|k| what.has(k.label) && (adapter.wide || k.tier == WordTier::U32))
        .collect();
    let next = AtomicUsize::new(0);
    let done = Mutex::new(Vec::new());
    thread::scope(|scope| {
        for _ in 0..threads {
            scope.spawn(|| {
                while let Some(source) = sources.get(next.fetch_add(1, Ordering::Relaxed)) {
                    let kernel = translate(source, adapter.api_version).map(|spirv| {
                        let start = processor_ms();
                        let compiled = device.compile(source, &spirv);
                        let used = processor_ms().zip(start).map(|(end, start)| end - start);
                        let error = compiled.as_ref().err().map(ToString::to_string);
                        let (executables, compile_ms) = compiled.unwrap_or_default();
                        KernelRecord {
                            label: source.label.to_owned(),
                            compile_ms: tenths(compile_ms),
                            processor_ms: used.filter(|_| threads == 1).map(tenths),
                            error,
                            executables,
                        }
                    });
                    done.lock().expect("no thread panics").push(kernel);
                }
            });
        }
    });
    let mut kernels = done
        .into_inner()?
        .into_iter()
        .collect::<Result<Vec<_>, _>>()?;
    kernels.sort_by_key(|k: &KernelRecord| KERNELS.iter().position(|s| s.label == k.label));
    Ok(Some(Record {
        version: env!("CARGO_PKG_VERSION").to_owned(),
        date: today()?,
        compiler: adapter.compiler.clone(),
        threads,
        kernels,
    }))
}

impl Record {
    /// Reads a file that [`Self::to_json`] filled.
    ///
    /// # Errors
    /// What is wrong with it, with its path.
    pub fn read(path: &Path) -> Result<Self, Box<dyn Error>> {
        let text = std::fs::read_to_string(path);
        let text = text.map_err(|e| format!("{}: {e}", path.display()))?;
        Ok(serde_json::from_str(&text).map_err(|e| format!("{}: {e}", path.display()))?)
    }

    /// JSON with a line for each kernel, so that changes of it read well.
    pub fn to_json(&self) -> Result<String, serde_json::Error> {
        let mut head = self.clone();
        let kernels = std::mem::take(&mut head.kernels);
        let mut text = serde_json::to_string(&head)?;
        // The list is the last field.
        assert!(text.ends_with("[]}"));
        text.truncate(text.len() - 2);
        for (i, kernel) in kernels.iter().enumerate() {
            let comma = if i + 1 < kernels.len() { "," } else { "" };
            write!(text, "\n{}{comma}", serde_json::to_string(kernel)?).expect("a string");
        }
        text.push_str("\n]}\n");
        Ok(text)
    }

    pub fn kernel(&self, label: &str) -> Option<&KernelRecord> {
        self.kernels.iter().find(|k| k.label == label)
    }
}

fn tenths(ms: f64) -> f64 {
    (ms * 10.0).round() / 10.0
}

/// What all threads of this process have had of processors, where Linux tells.
fn processor_ms() -> Option<f64> {
    let mut sum = 0;
    for task in std::fs::read_dir("/proc/self/task").ok()? {
        let text = std::fs::read_to_string(task.ok()?.path().join("schedstat")).ok()?;
        sum += text.split_whitespace().next()?.parse::<u64>().ok()?;
    }
    Some(sum as f64 / 1e6)
}

/// The day in the Gregorian calendar (UTC).
fn today() -> Result<String, Box<dyn Error>> {
    let days = SystemTime::now().duration_since(UNIX_EPOCH)?.as_secs() / 86_400;
    let (mut year, mut rest) = (1970, days);
    let leap = |y: u64| y.is_multiple_of(4) && (!y.is_multiple_of(100) || y.is_multiple_of(400));
    while rest >= 365 + u64::from(leap(year)) {
        rest -= 365 + u64::from(leap(year));
        year += 1;
    }
    let february = 28 + u64::from(leap(year));
    let mut month = 1;
    for length in [31, february, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31] {
        if rest < length {
            break;
        }
        rest -= length;
        month += 1;
    }
    Ok(format!("{year}-{month:02}-{:02}", rest + 1))
}
