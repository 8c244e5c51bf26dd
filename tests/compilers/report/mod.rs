//! What vendors' compilers make of the kernels, read through
//! `VK_KHR_pipeline_executable_properties`. `examples/compilers.rs` is the program.

pub mod ceilings;
mod figures;
pub mod page;
pub mod record;
mod spirv;
mod vulkan;

use clap::{Args, Parser, Subcommand};
use record::Record;
use std::error::Error;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

#[derive(Parser)]
#[command(
    name = "compilers",
    about = "What vendors' compilers make of the kernels"
)]
struct Cli {
    #[command(subcommand)]
    action: Action,
}

#[derive(Subcommand)]
enum Action {
    /// Compile every kernel with a Vulkan driver, its caches off, and write what it says of them
    Record {
        #[command(flatten)]
        what: What,
        /// Where to write (default: standard output)
        #[arg(short, long)]
        out: Option<PathBuf>,
    },
    /// Compile for AMD's cards and record the ceilings that the tests hold the kernels to
    Ceilings,
    /// Write docs/compilers.md from the records beside it
    Page,
    /// `record` in this process and in its environment
    #[command(hide = true)]
    Measure {
        #[command(flatten)]
        what: What,
    },
}

/// What is compiled, by whom.
#[derive(Args, Clone, Debug, Default)]
pub struct What {
    /// Part of the adapter's name (default: the first adapter that can tell about pipelines)
    #[arg(long, default_value = "")]
    adapter: String,
    /// Compile with Mesa's driver for AMD for this family of cards, whether there is one or not
    #[arg(long)]
    family: Option<String>,
    /// The driver's manifest (default: all drivers of the system; for `--family` the system's
    /// radeon_icd.json)
    #[arg(long)]
    icd: Option<PathBuf>,
    /// Part of the kernels' labels, `name.curve.tier`
    #[arg(long, default_value = "")]
    kernels: String,
    /// Part of the labels of kernels to leave out
    #[arg(long)]
    skip: Option<String>,
    /// Pipelines compiled at a time
    #[arg(long, default_value_t = 1)]
    threads: usize,
}

impl What {
    /// The kernels with `part` in their labels, for a family of AMD's cards.
    pub fn family(family: &str, part: &str) -> Self {
        Self {
            family: Some(family.to_owned()),
            kernels: part.to_owned(),
            threads: 1,
            ..Self::default()
        }
    }
}

impl What {
    fn has(&self, label: &str) -> bool {
        let skipped = |part: &String| label.contains(part.as_str());
        label.contains(&self.kernels) && !self.skip.as_ref().is_some_and(skipped)
    }
}

/// The manifest of Mesa's driver for AMD, where Vulkan's loader would look for it.
fn radeon_icd() -> Option<PathBuf> {
    let folders = [
        "/etc/vulkan/icd.d",
        "/usr/local/share/vulkan/icd.d",
        "/usr/share/vulkan/icd.d",
    ];
    let names = [
        format!("radeon_icd.{}.json", std::env::consts::ARCH),
        "radeon_icd.json".to_owned(),
    ];
    folders
        .iter()
        .flat_map(|folder| names.iter().map(|name| Path::new(folder).join(name)))
        .find(|path| path.exists())
}

/// Whether [`record`] started this process, whatever binary it is, to measure and do nothing else.
pub fn is_measuring() -> bool {
    std::env::args().nth(1).is_some_and(|a| a == MEASURE)
}

const MEASURE: &str = "measure";

/// Runs the program.
///
/// # Errors
/// What the user is to be told.
pub fn main() -> Result<(), Box<dyn Error>> {
    match Cli::parse().action {
        Action::Measure { what } => {
            let found = record::measure(&what)?;
            println!("{}", serde_json::to_string(&found)?);
        }
        Action::Ceilings => ceilings::regenerate()?,
        Action::Page => page::write()?,
        Action::Record { what, out } => {
            let record = record(&what)?.ok_or("no such adapter that can tell about pipelines")?;
            let text = record.to_json()?;
            match out {
                Some(path) => std::fs::write(path, text)?,
                None => print!("{text}"),
            }
        }
    }
    Ok(())
}

/// Compiles in a process of its own: a driver reads its environment once. `None` if no adapter
/// answers.
///
/// # Errors
/// As [`record::measure`], or if that process fails.
pub fn record(what: &What) -> Result<Option<Record>, Box<dyn Error>> {
    let mut command = Command::new(std::env::current_exe()?);
    command
        .args([MEASURE, "--adapter", &what.adapter])
        .args(["--kernels", &what.kernels])
        .args(what.skip.iter().flat_map(|part| ["--skip", part]))
        .args(["--threads", &what.threads.to_string()])
        // What comes out of a cache has no compile time.
        .env("MESA_SHADER_CACHE_DISABLE", "true")
        .env("__GL_SHADER_DISK_CACHE", "0")
        .env("MESA_VK_IGNORE_CONFORMANCE_WARNING", "true")
        .stderr(Stdio::inherit());
    let mut icd = what.icd.clone();
    if let Some(family) = &what.family {
        icd = icd.or_else(radeon_icd);
        if icd.is_none() {
            return Ok(None);
        }
        command.env("RADV_FORCE_FAMILY", family);
    }
    if let Some(icd) = icd {
        // The second is what loaders before 1.3.207 know.
        command.env("VK_DRIVER_FILES", &icd);
        command.env("VK_ICD_FILENAMES", &icd);
    }
    let output = command.output()?;
    if !output.status.success() {
        return Err(format!("the driver's process ended with {}", output.status).into());
    }
    Ok(serde_json::from_slice(&output.stdout)?)
}
