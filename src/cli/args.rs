//! Arguments: as typed ([`Raw`]), and as meant ([`Command`]).

use super::commands::trace_files;
use super::units::{parse_seconds, parse_size};
use clap::{Args, Parser, Subcommand};
use clap_complete::Shell;
use groth16_gpu::curve::CurveId;
use groth16_gpu::device::selector::DeviceSelector;
use groth16_gpu::kernels::WordTier;
use groth16_gpu::proving_key::KeyCheck;
use groth16_gpu::tuning::TuningSource;
use groth16_gpu::{Error, Result};
use std::path::PathBuf;
use std::time::Instant;

/// Groth16 proofs over BLS12-381 and BN254 on any GPU.
#[derive(Debug, Parser)]
#[command(name = "groth16-gpu", version, after_help = EXIT_CODES)]
pub struct Raw {
    #[command(subcommand)]
    command: RawCommand,
    #[command(flatten)]
    pub global: Global,
}

const EXIT_CODES: &str = "Exit codes: 0 done or valid, 1 proof invalid or witness unsatisfied, \
2 wrong usage, 3 no such device, 4 bad input file, 5 device fault or out of memory.";

#[derive(Debug, Args)]
pub struct Global {
    /// Print results, and failures, as JSON on stdout
    #[arg(long, global = true)]
    pub json: bool,
    /// Print errors only
    #[arg(long, global = true)]
    pub quiet: bool,
    /// Say more on stderr; repeat for more
    #[arg(short, long, global = true, action = clap::ArgAction::Count)]
    pub verbose: u8,
}

#[derive(Debug, Subcommand)]
enum RawCommand {
    /// Prove a witness: writes proof.json and public.json as snarkjs does
    Prove(RawProve),
    /// Verify a proof; exit code 0 is valid, 1 is invalid
    Verify(RawVerify),
    /// Describe a key, witness, circuit, proof or verification key
    Inspect(RawInspect),
    /// Write a key's verification_key.json
    ExportVkey(RawExportVkey),
    /// Write a key in the form that loads fastest, checked once
    Prepare(RawPrepare),
    /// Make a one-party key for development; whoever makes it can forge proofs
    #[command(mut_arg("tables", |a| a.hide(true)))]
    Setup(RawSetup),
    /// Write an example to try: a circuit (of 9,986 constraints, or of any size), a witness, and a
    /// development key
    Example(RawExample),
    /// List the devices that can prove
    Devices,
    /// Run every kernel on every device found, against the CPU
    Selftest(RawSelftest),
    /// Measure; every result is checked first
    #[command(subcommand)]
    Bench(super::bench::RawBench),
    /// Print a completion script for a shell
    Completions { shell: Shell },
}

#[derive(Debug, Args)]
struct RawProve {
    /// Proving key: .zkey, a prepared key, or with --r1cs a key of arkworks, bellman or bellperson
    key: PathBuf,
    /// Witness: .wtns
    #[arg(required_unless_present = "batch", conflicts_with = "batch")]
    witness: Option<PathBuf>,
    #[arg(default_value = "proof.json")]
    proof: PathBuf,
    #[arg(default_value = "public.json")]
    public: PathBuf,
    /// In place of WITNESS: a folder of .wtns files, or a file with the path of one a line (`-` is
    /// stdin). Writes NAME.proof.json and NAME.public.json for each NAME.wtns
    #[arg(long, value_name = "DIR|LIST")]
    batch: Option<PathBuf>,
    /// Folder for the results of --batch; made if need be [default: the current one]
    #[arg(long, value_name = "DIR")]
    out: Option<PathBuf>,
    #[command(flatten)]
    key_options: RawKeyOptions,
    #[command(flatten)]
    device: RawDevice,
    /// Do not verify the proof before writing it
    #[arg(long)]
    no_verify: bool,
    /// Write a report of phases, times and memory as JSON; under --batch a folder for
    /// NAME.report.json, made if need be
    #[arg(long, value_name = "FILE")]
    report: Option<PathBuf>,
    /// Give up what is not finished after this time
    #[arg(long, value_name = "SECONDS")]
    timeout: Option<String>,
    /// Write what ran when as Chrome trace events, and as a picture to FILE.svg
    #[arg(long, value_name = "FILE")]
    trace: Option<PathBuf>,
    /// Measure the device anew: word tier, accumulation method, digits; remembered for later runs
    #[arg(long)]
    retune: bool,
}

#[derive(Debug, Args)]
struct RawVerify {
    /// VKEY PUBLIC PROOF; with --key only PUBLIC PROOF
    #[arg(num_args = 2..=3, required = true, value_names = ["VKEY", "PUBLIC", "PROOF"])]
    files: Vec<PathBuf>,
    /// Take the verification key from this proving key
    #[arg(long, value_name = "KEY")]
    key: Option<PathBuf>,
    #[command(flatten)]
    key_options: RawKeyOptions,
}

#[derive(Debug, Args)]
struct RawInspect {
    file: PathBuf,
    #[command(flatten)]
    key_options: RawKeyOptions,
    #[command(flatten)]
    device: RawDevice,
}

#[derive(Debug, Args)]
struct RawExportVkey {
    key: PathBuf,
    #[arg(default_value = "verification_key.json")]
    vkey: PathBuf,
    #[command(flatten)]
    key_options: RawKeyOptions,
}

#[derive(Debug, Args)]
struct RawPrepare {
    key: PathBuf,
    /// The file to write [default: KEY with the extension .prepared]
    #[arg(short, long, value_name = "FILE")]
    output: Option<PathBuf>,
    #[command(flatten)]
    key_options: RawKeyOptions,
}

#[derive(Debug, Args)]
struct RawSetup {
    r1cs: PathBuf,
    key: PathBuf,
    /// Required: says that you know that such a key proves nothing to others
    #[arg(long)]
    insecure: bool,
    #[command(flatten)]
    device: RawDevice,
}

#[derive(Debug, Args)]
struct RawExample {
    /// Folder to write to; made if need be
    #[arg(default_value = "example")]
    dir: PathBuf,
    /// bn254 or bls12_381
    #[arg(long, value_name = "CURVE", default_value = "bn254")]
    curve: String,
    /// A synthetic circuit over a domain of 2^N in place of the bundled one
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(2..=26))]
    log2: Option<u32>,
    /// Share of its witness that is 0 or 1
    #[arg(long, value_name = "F", default_value_t = 0.0, requires = "log2")]
    density: f64,
}

#[derive(Debug, Args)]
struct RawSelftest {
    /// Devices to test; if none is given, all, through every back end that the platform has
    #[arg(long, value_name = "D")]
    device: Vec<String>,
    /// Tests one of the shaders' word sizes alone
    #[arg(long, value_name = "auto|u64|u32", default_value = "auto")]
    word_tier: String,
    /// Write the report, to attach to an issue: as a page if FILE ends in .md, else as JSON
    #[arg(long, value_name = "FILE")]
    report: Option<PathBuf>,
    /// Then measure the devices anew: word tier, accumulation method, digits; remembered for later
    /// runs
    #[arg(long)]
    retune: bool,
}

#[derive(Debug, Args)]
struct RawKeyOptions {
    /// The circuit, for keys that do not hold its matrices
    #[arg(long, value_name = "FILE")]
    r1cs: Option<PathBuf>,
    /// How far to check the key's points: none, on-curve, subgroup
    #[arg(long, value_name = "LEVEL", default_value = "on-curve")]
    check_key: String,
}

#[derive(Debug, Args)]
pub struct RawDevice {
    /// auto, cpu, software, N, name:TEXT, pci:BUS, wgpu:N, cuda:N; prove takes several
    #[arg(long, value_name = "D", default_value = "auto")]
    device: Vec<String>,
    /// Device memory to use at most, as 16GiB or 900MiB
    #[arg(long, value_name = "SIZE")]
    vram_limit: Option<String>,
    /// Tables of multiples of the key to keep on the device at most, 1 to 16: for many proofs of one
    /// key, where there is memory for so many times its size
    #[arg(long, value_name = "COUNT", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=16))]
    pub tables: u32,
    /// Host memory to use at most
    #[arg(long, value_name = "SIZE")]
    host_limit: Option<String>,
    /// Whether the CPU takes over when the device fails: never, cpu
    /// [default: cpu for auto, else never]
    #[arg(long, value_name = "never|cpu")]
    fallback: Option<String>,
    /// Forces the shaders' word size
    #[arg(long, value_name = "auto|u64|u32", default_value = "auto")]
    word_tier: String,
    /// Uses a device although `devices` shows it as known to compute wrongly
    #[arg(long)]
    allow_denied: bool,
}

/// What to do, with every value checked.
#[derive(Debug)]
pub enum Command {
    Prove(Prove),
    ProveBatch(ProveBatch),
    Verify(Verify),
    Inspect(Inspect),
    ExportVkey { key: Key, vkey: PathBuf },
    Prepare { key: Key, to: PathBuf },
    Setup(Setup),
    Example(Example),
    Devices,
    Selftest(Selftest),
    Bench(super::bench::Bench),
    Completions(Shell),
}

/// A proving key's file and how to read it.
#[derive(Debug)]
pub struct Key {
    pub path: PathBuf,
    pub r1cs: Option<PathBuf>,
    pub check: KeyCheck,
}

#[derive(Debug)]
pub struct Prove {
    pub key: Key,
    pub witness: PathBuf,
    pub proof: PathBuf,
    pub public: PathBuf,
    pub device: DeviceChoice,
    pub self_verify: bool,
    pub report: Option<PathBuf>,
    pub deadline: Option<Instant>,
    pub trace: Option<PathBuf>,
}

impl Prove {
    /// Every file that the command writes.
    pub fn outputs(&self) -> Vec<PathBuf> {
        let files = [Some(&self.proof), Some(&self.public), self.report.as_ref()];
        let trace = self.trace.iter().flat_map(|path| trace_files(path));
        files.into_iter().flatten().cloned().chain(trace).collect()
    }
}

#[derive(Debug)]
pub struct ProveBatch {
    pub key: Key,
    /// A folder of witnesses, or a list of them.
    pub source: PathBuf,
    /// Folders for results and for reports.
    pub out: PathBuf,
    pub report: Option<PathBuf>,
    pub device: DeviceChoice,
    pub self_verify: bool,
    pub deadline: Option<Instant>,
    pub trace: Option<PathBuf>,
}

#[derive(Debug)]
pub struct Verify {
    pub vkey: VkeySource,
    pub public: PathBuf,
    pub proof: PathBuf,
}

#[derive(Debug)]
pub enum VkeySource {
    Json(PathBuf),
    ProvingKey(Key),
}

#[derive(Debug)]
pub struct Setup {
    pub r1cs: PathBuf,
    pub key: PathBuf,
    pub device: DeviceChoice,
}

#[derive(Debug)]
pub struct Inspect {
    /// The file; the options of a key count if it is one.
    pub file: Key,
    pub device: DeviceChoice,
}

#[derive(Debug)]
pub struct Example {
    pub dir: PathBuf,
    pub curve: CurveId,
    /// A synthetic circuit over a domain of this size; without it, the bundled one.
    pub log2: Option<u32>,
    /// Share of the synthetic witness that is 0 or 1.
    pub density: f64,
}

#[derive(Debug)]
pub struct Selftest {
    /// All devices if empty.
    pub devices: Vec<DeviceSelector>,
    pub word_tier: Option<WordTier>,
    pub report: Option<PathBuf>,
    pub retune: bool,
}

/// Where to compute, and within which limits.
#[derive(Clone, Debug)]
pub struct DeviceChoice {
    /// At least one; more for `prove` alone.
    pub selectors: Vec<DeviceSelector>,
    pub vram_limit: Option<u64>,
    /// Tables of multiples at most.
    pub tables: u32,
    pub host_limit: Option<u64>,
    /// Whether the CPU takes over.
    pub fallback: bool,
    pub word_tier: Option<WordTier>,
    pub allow_denied: bool,
    /// Whether to measure first.
    pub retune: bool,
    /// Where choices come from that are not made here.
    pub tuning: TuningSource,
}

impl Raw {
    /// Checks every value.
    ///
    /// # Errors
    /// [`Error::Usage`].
    pub fn resolve(self) -> Result<Command> {
        Ok(match self.command {
            RawCommand::Prove(raw) => raw.resolve()?,
            RawCommand::Verify(raw) => Command::Verify(raw.resolve()?),
            RawCommand::Inspect(raw) => Command::Inspect(Inspect {
                file: raw.key_options.resolve(raw.file)?,
                device: raw.device.resolve()?,
            }),
            RawCommand::ExportVkey(raw) => Command::ExportVkey {
                key: raw.key_options.resolve(raw.key)?,
                vkey: raw.vkey,
            },
            RawCommand::Prepare(raw) => Command::Prepare {
                to: raw
                    .output
                    .unwrap_or_else(|| raw.key.with_extension("prepared")),
                key: raw.key_options.resolve(raw.key)?,
            },
            RawCommand::Setup(raw) if !raw.insecure => {
                return Err(Error::Usage(format!(
                    "whoever makes {} this way can forge proofs; pass --insecure if it is for \
                     development only",
                    raw.key.display()
                )));
            }
            RawCommand::Setup(raw) => Command::Setup(Setup {
                r1cs: raw.r1cs,
                key: raw.key,
                device: raw.device.resolve()?,
            }),
            RawCommand::Example(raw) => Command::Example(Example {
                curve: curve(&raw.curve)?,
                dir: raw.dir,
                log2: raw.log2,
                density: super::bench::check_density(raw.density)?,
            }),
            RawCommand::Devices => Command::Devices,
            RawCommand::Selftest(raw) => Command::Selftest(Selftest {
                devices: raw
                    .device
                    .iter()
                    .map(|d| d.parse())
                    .collect::<Result<_>>()?,
                word_tier: word_tier(&raw.word_tier)?,
                report: raw.report,
                retune: raw.retune,
            }),
            RawCommand::Bench(raw) => Command::Bench(raw.resolve()?),
            RawCommand::Completions { shell } => Command::Completions(shell),
        })
    }
}

impl RawProve {
    fn resolve(self) -> Result<Command> {
        let timeout = self.timeout.as_deref().map(parse_seconds).transpose()?;
        // From the start of the process on. Out of range is never.
        let deadline = timeout.and_then(|t| Instant::now().checked_add(t));
        let key = self.key_options.resolve(self.key)?;
        let device = DeviceChoice {
            retune: self.retune,
            ..self.device.resolve_all()?
        };
        let self_verify = !self.no_verify;
        let witness = match (self.batch, self.witness) {
            (None, Some(witness)) if self.out.is_none() => witness,
            (Some(source), None) => {
                return Ok(Command::ProveBatch(ProveBatch {
                    key,
                    source,
                    out: self.out.unwrap_or_default(),
                    report: self.report,
                    device,
                    self_verify,
                    deadline,
                    trace: self.trace,
                }));
            }
            _ => {
                let what =
                    "prove takes KEY WITNESS [PROOF] [PUBLIC], or KEY --batch DIR|LIST [--out DIR]";
                return Err(Error::Usage(what.to_owned()));
            }
        };
        let prove = Prove {
            key,
            witness,
            proof: self.proof,
            public: self.public,
            device,
            self_verify,
            report: self.report,
            deadline,
            trace: self.trace,
        };
        let outputs = prove.outputs();
        for (i, output) in outputs.iter().enumerate() {
            // Several results may go to the same terminal or pipe.
            if outputs[..i].contains(output) && !output.starts_with("/dev") {
                return Err(Error::Usage(format!(
                    "{} is named for two outputs",
                    output.display()
                )));
            }
        }
        Ok(Command::Prove(prove))
    }
}

impl RawVerify {
    fn resolve(self) -> Result<Verify> {
        let mut files = self.files.into_iter();
        let vkey = match self.key {
            Some(key) => VkeySource::ProvingKey(self.key_options.resolve(key)?),
            None => VkeySource::Json(next_file(&mut files)?),
        };
        let verify = Verify {
            vkey,
            public: next_file(&mut files)?,
            proof: next_file(&mut files)?,
        };
        match files.next() {
            None => Ok(verify),
            Some(_) => Err(verify_usage()),
        }
    }
}

fn next_file(files: &mut impl Iterator<Item = PathBuf>) -> Result<PathBuf> {
    files.next().ok_or_else(verify_usage)
}

fn verify_usage() -> Error {
    Error::Usage("verify takes VKEY PUBLIC PROOF, or --key KEY PUBLIC PROOF".to_owned())
}

impl RawKeyOptions {
    fn resolve(self, path: PathBuf) -> Result<Key> {
        Ok(Key {
            path,
            r1cs: self.r1cs,
            check: self.check_key.parse()?,
        })
    }
}

impl RawDevice {
    /// Takes `--vram-limit` as a list, in which `none` is no limit, and leaves none in its place.
    ///
    /// # Errors
    /// [`Error::Usage`].
    pub fn take_vram_limits(&mut self) -> Result<Vec<Option<u64>>> {
        let limit = |text: &str| match text.trim() {
            "none" => Ok(None),
            size => parse_size(size).map(Some),
        };
        let list = self.vram_limit.take().unwrap_or_else(|| "none".to_owned());
        list.split(',').map(limit).collect()
    }

    /// For commands that take one device.
    pub fn resolve(self) -> Result<DeviceChoice> {
        match self.device.as_slice() {
            [_] => self.resolve_all(),
            _ => Err(Error::Usage(
                "this command takes one --device; prove takes several".to_owned(),
            )),
        }
    }

    /// For commands that take several.
    fn resolve_all(self) -> Result<DeviceChoice> {
        let selectors: Vec<DeviceSelector> = self
            .device
            .iter()
            .map(|d| d.parse())
            .collect::<Result<_>>()?;
        let fallback = match self.fallback.as_deref() {
            None => selectors == [DeviceSelector::Auto],
            Some("never") => false,
            Some("cpu") => true,
            Some(other) => {
                return Err(Error::Usage(format!(
                    "unknown fallback `{other}`; known: never, cpu"
                )));
            }
        };
        let limit = |size: Option<String>| size.as_deref().map(parse_size).transpose();
        Ok(DeviceChoice {
            selectors,
            vram_limit: limit(self.vram_limit)?,
            tables: self.tables,
            host_limit: limit(self.host_limit)?,
            fallback,
            word_tier: word_tier(&self.word_tier)?,
            allow_denied: self.allow_denied,
            retune: false,
            tuning: TuningSource::Cached,
        })
    }
}

fn curve(name: &str) -> Result<CurveId> {
    let known = CurveId::ALL.map(CurveId::name);
    let found = CurveId::ALL.into_iter().find(|c| c.name() == name);
    found.ok_or_else(|| {
        Error::Usage(format!(
            "unknown curve `{name}`; known: {}",
            known.join(", ")
        ))
    })
}

fn word_tier(name: &str) -> Result<Option<WordTier>> {
    match name {
        "auto" => Ok(None),
        "u64" => Ok(Some(WordTier::U64)),
        "u32" => Ok(Some(WordTier::U32)),
        _ => Err(Error::Usage(format!(
            "unknown word tier `{name}`; known: auto, u64, u32"
        ))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn arguments_are_consistent() {
        use clap::CommandFactory;
        Raw::command().debug_assert();
    }

    #[test]
    fn fallback_depends_on_the_device() {
        let resolve = |args: &[&str]| {
            let line = ["groth16-gpu", "prove", "k", "w"].iter().chain(args);
            match Raw::try_parse_from(line).unwrap().resolve() {
                Ok(Command::Prove(prove)) => Ok(prove.device.fallback),
                Ok(_) => unreachable!(),
                Err(e) => Err(e.class()),
            }
        };
        assert_eq!(resolve(&[]), Ok(true));
        assert_eq!(resolve(&["--device", "0"]), Ok(false));
        assert_eq!(resolve(&["--device", "0", "--fallback", "cpu"]), Ok(true));
        assert_eq!(resolve(&["--fallback", "gpu"]), Err("usage"));
        assert_eq!(resolve(&["--device", "nonsense"]), Err("usage"));
        assert_eq!(resolve(&["--check-key", "all"]), Err("usage"));
    }
}
