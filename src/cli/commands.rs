//! The commands.

use super::args::{Command, Key, Raw, Setup, Verify, VkeySource};
use super::prove::prove;
use super::{Output, batch, engine, example, inspect, write_stdout};
use clap::CommandFactory;
use groth16_gpu::device::CacheFolder;
use groth16_gpu::error::{InputClass, InputError};
use groth16_gpu::formats::output::NewFile;
use groth16_gpu::formats::r1cs::{self, R1cs};
use groth16_gpu::formats::{FileKind, KeyFile, json, prepared, zkey};
use groth16_gpu::proving_key::{KeyShape, ProvingKey};
use groth16_gpu::trace;
use groth16_gpu::verify::verify;
use groth16_gpu::{Error, Result};
use serde_json::json;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

/// Carries out a command; the exit code is 1 for an invalid proof, that of the first failure of a
/// batch, else 0.
pub fn run(command: Command, out: &Output) -> Result<ExitCode> {
    match command {
        Command::Prove(args) => prove(&args, out)?,
        Command::ProveBatch(args) => return batch::prove_batch(&args, out),
        Command::Verify(args) => return verify_proof(&args, out),
        Command::Inspect(args) => inspect::inspect(&args, out)?,
        Command::ExportVkey { key, vkey } => export_vkey(&key, &vkey, out)?,
        Command::Prepare { key, to } => prepare(&key, &to, out)?,
        Command::Setup(args) => setup(args, out)?,
        Command::Example(args) => example::example(&args, out)?,
        Command::Devices => engine::devices(out)?,
        Command::Selftest(args) => return super::selftest::selftest(&args, out),
        Command::Bench(args) => super::bench::run(args, out)?,
        Command::Completions(shell) => {
            // clap_complete panics when it cannot write.
            let mut script = Vec::new();
            clap_complete::generate(shell, &mut Raw::command(), "groth16-gpu", &mut script);
            write_stdout(&script)?;
        }
    }
    Ok(ExitCode::SUCCESS)
}

/// A proving key's file, opened, with the circuit that it may need.
pub struct KeySource<'a> {
    key: &'a Key,
    circuit: Option<R1cs>,
}

impl<'a> KeySource<'a> {
    pub fn new(key: &'a Key) -> Result<Self> {
        let circuit = key.r1cs.as_deref().map(r1cs::read).transpose()?;
        Ok(Self { key, circuit })
    }

    /// Opens it, whatever kind it is. A key that holds its matrices does not need the circuit, but one
    /// that was named is of the key.
    pub fn open(&self) -> Result<KeyFile<'_>> {
        let file = self.open_file()?;
        if let Some(circuit) = &self.circuit {
            belongs(file.shape(), circuit)?;
        }
        Ok(file)
    }

    fn open_file(&self) -> Result<KeyFile<'_>> {
        let key = self.key;
        KeyFile::open(&key.path, self.circuit.as_ref()).map_err(|e| {
            let hint = "a key of arkworks or bellman needs --r1cs FILE";
            match e {
                Error::Input(mut input)
                    if key.r1cs.is_none()
                        && input.class == InputClass::BadMagic
                        && FileKind::of_file(&key.path).is_ok_and(|k| k == FileKind::Unknown) =>
                {
                    input.message = format!("{}; {hint}", input.message);
                    Error::Input(input)
                }
                other => other,
            }
        })
    }
}

/// As far as counts tell.
fn belongs(key: &KeyShape, circuit: &R1cs) -> Result<()> {
    let refuse = |class, what: String| {
        let mut e = InputError::new(class, what);
        e.file.clone_from(&circuit.source);
        Err(e.into())
    };
    let of_key = key.source.as_deref().map_or_else(
        || "the key".to_owned(),
        |path| format!("the key {}", path.display()),
    );
    if circuit.curve != key.curve {
        let what = format!(
            "the circuit is over {}, and {of_key} over {}",
            circuit.curve, key.curve
        );
        return refuse(InputClass::CurveMismatch, what);
    }
    let counts = (circuit.n_wires, circuit.n_public());
    if counts != (key.n_vars, key.n_public) {
        let what = format!(
            "the circuit has {} wires, {} of them public, and {of_key} is for {} and {}",
            counts.0, counts.1, key.n_vars, key.n_public
        );
        return refuse(InputClass::CountMismatch, what);
    }
    Ok(())
}

/// Reads a proving key of any kind.
pub fn read_key(key: &Key) -> Result<ProvingKey> {
    KeySource::new(key)?.open()?.read(key.check)
}

/// Names the witness that does not satisfy the circuit.
pub fn name_witness(e: Error, witness: &Path) -> Error {
    match e {
        Error::Unsatisfied(what) => Error::Unsatisfied(format!("{}: {what}", witness.display())),
        other => other,
    }
}

/// What `--trace FILE` writes.
pub fn trace_files(path: &Path) -> Vec<PathBuf> {
    std::iter::once(path.to_owned())
        .chain(trace::svg_path(path))
        .collect()
}

/// Finds out before the work whether outputs can be written, and leaves nothing behind if the
/// process is killed meanwhile.
pub fn check_outputs(outputs: Vec<PathBuf>) -> Result<()> {
    for output in outputs {
        refuse_to_replace(&output)?;
        // Dropped at once.
        NewFile::create(&output)?;
    }
    Ok(())
}

/// An output argument that names a key, witness or circuit is a mistake.
pub fn refuse_to_replace(output: &Path) -> Result<()> {
    let regular = std::fs::metadata(output).is_ok_and(|m| m.is_file());
    if !regular {
        return Ok(());
    }
    match FileKind::of_file(output)? {
        kind @ (FileKind::Zkey
        | FileKind::Prepared
        | FileKind::Wtns
        | FileKind::R1cs
        | FileKind::Ptau) => Err(Error::Usage(format!(
            "{} is {}; refusing to overwrite it with an output",
            output.display(),
            kind.describe()
        ))),
        _ => Ok(()),
    }
}

fn verify_proof(args: &Verify, out: &Output) -> Result<ExitCode> {
    let vkey = match &args.vkey {
        VkeySource::ProvingKey(key) => read_key(key)?.verifying_key()?,
        VkeySource::Json(path) => {
            if let FileKind::Zkey | FileKind::Prepared = FileKind::of_file(path)? {
                return Err(Error::Usage(format!(
                    "{} is a proving key; pass it as --key {0}",
                    path.display()
                )));
            }
            json::read_verifying_key(path)?
        }
    };
    let public = json::read_public(&args.public, vkey.curve)?;
    let mut proof = json::read_proof(&args.proof, Some(vkey.curve))?;
    proof.public_inputs = public;
    // The proof's points are fine by now; what is left is about the public inputs.
    let valid = verify(&vkey, &proof).map_err(|e| e.in_file(&args.public))?;
    let text = if valid {
        "the proof is valid"
    } else {
        "the proof is INVALID"
    };
    out.result(
        &json!({ "valid": valid }),
        if out.quiet { "" } else { text },
    )?;
    Ok(ExitCode::from(u8::from(!valid)))
}

fn export_vkey(key: &Key, vkey: &Path, out: &Output) -> Result<()> {
    refuse_to_replace(vkey)?;
    let mut file = NewFile::create(vkey)?;
    let text = json::verifying_key_to_json(&read_key(key)?.verifying_key()?)
        .map_err(|e| e.in_file(&key.path))?;
    file.write(text.as_bytes())?;
    file.commit()?;
    out.note(&format!("wrote {}", vkey.display()));
    out.result(&json!({ "vkey": vkey.display().to_string() }), "")
}

/// Writes a key in the form that loads fastest. What was checked to read it is remembered.
fn prepare(key: &Key, to: &Path, out: &Output) -> Result<()> {
    // An older one may be replaced.
    if !FileKind::of_file(to).is_ok_and(|kind| kind == FileKind::Prepared) {
        refuse_to_replace(to)?;
    }
    check_folder(to)?;
    let source = KeySource::new(key)?;
    let file = source.open()?;
    let insecure = file.is_insecure();
    let read = file.read(key.check)?;
    prepared::prepare(&read, key.check, insecure, to, &CacheFolder::User)?;
    out.note(&format!("wrote {}", to.display()));
    let result = json!({
        "key": to.display().to_string(),
        "checked": key.check.name(),
        "insecure": insecure,
    });
    out.result(&result, "")
}

/// Finds out before the work whether a file can be written.
fn check_folder(output: &Path) -> Result<()> {
    // Dropped at once.
    NewFile::create(output).map(drop)
}

fn setup(args: Setup, out: &Output) -> Result<()> {
    let (circuit, key) = (&args.r1cs, &args.key);
    let in_key = std::fs::metadata(key).is_ok_and(|m| m.is_file());
    if in_key && FileKind::of_file(key)? == FileKind::R1cs {
        return Err(Error::Usage(format!(
            "{} is a constraint system; the order is: setup R1CS KEY",
            key.display()
        )));
    }
    // Only one that was made here may be made again.
    if !in_key || !KeyFile::open(key, None).is_ok_and(|file| file.is_insecure()) {
        refuse_to_replace(key)?;
    }
    let (made, report) = engine::setup(r1cs::read(circuit)?, &args.device)?;
    zkey::write(&made, key, true)?;
    out.note(&format!(
        "wrote {}: INSECURE, for development only; whoever made it can forge proofs",
        key.display()
    ));
    let result = json!({
        "key": key.display().to_string(), "insecure": true,
        "device": report.device, "stages": report.stages_ms(),
    });
    out.result(&result, "")
}
