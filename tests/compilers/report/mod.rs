//! What vendors' compilers make of the kernels, read through
//! `VK_KHR_pipeline_executable_properties`. `examples/compilers.rs` is the program.

pub mod record;
mod spirv;
mod vulkan;

use clap::{Args, Parser, Subcommand};
use record::Record;
use std::error::Error;
use std::path::PathBuf;
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
    /// With Mesa's driver for AMD, compile for this family of cards whether there is one or not
    #[arg(long)]
    family: Option<String>,
    /// Part of the kernels' labels, `name.curve.tier`
    #[arg(long, default_value = "")]
    kernels: String,
    /// Pipelines compiled at a time
    #[arg(long, default_value_t = 1)]
    threads: usize,
}

/// Runs the program.
///
/// # Errors
/// What the user is to be told.
pub fn main() -> Result<(), Box<dyn Error>> {
    match Cli::parse().action {
        Action::Measure { what } => {
            let found = record::measure(&what.adapter, &what.kernels, what.threads.max(1))?;
            println!("{}", serde_json::to_string(&found)?);
        }
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
        .args(["measure", "--adapter", &what.adapter])
        .args(["--kernels", &what.kernels])
        .args(["--threads", &what.threads.to_string()])
        // What comes out of a cache has no compile time.
        .env("MESA_SHADER_CACHE_DISABLE", "true")
        .env("__GL_SHADER_DISK_CACHE", "0")
        .env("MESA_VK_IGNORE_CONFORMANCE_WARNING", "true")
        .stderr(Stdio::inherit());
    if let Some(family) = &what.family {
        command.env("RADV_FORCE_FAMILY", family);
    }
    let output = command.output()?;
    if !output.status.success() {
        return Err(format!("the driver's process ended with {}", output.status).into());
    }
    Ok(serde_json::from_slice(&output.stdout)?)
}
