//! The commands.

use super::args::{Command, Key, Prove, Raw, Selftest, Verify, VkeySource};
use super::{Output, batch, engine, example, inspect, tune, write_stdout};
use clap::CommandFactory;
use groth16_gpu::error::{InputClass, InputError};
use groth16_gpu::formats::output::{NewFile, commit_all};
use groth16_gpu::formats::{self, FileKind, json, r1cs, wtns, zkey};
use groth16_gpu::proving_key::ProvingKey;
use groth16_gpu::trace::{self, Trace};
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
        Command::Setup { r1cs, key } => setup(&r1cs, &key, out)?,
        Command::Example(args) => example::example(&args, out)?,
        Command::Devices => engine::devices(out)?,
        Command::Selftest(args) => return selftest(&args, out),
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

/// Reads a proving key of any kind.
pub fn read_key(key: &Key) -> Result<ProvingKey> {
    let circuit = key.r1cs.as_deref().map(r1cs::read).transpose()?;
    formats::read_proving_key(&key.path, circuit.as_ref(), key.check).map_err(|e| {
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

fn prove(args: &Prove, out: &Output) -> Result<()> {
    check_order(&args.key.path, &args.witness)?;
    check_outputs(args.outputs())?;

    let witness = wtns::read(&args.witness)?;
    let key = read_key(&args.key)?;
    key.check_witness(&witness)
        .map_err(|e| e.in_file(&args.witness))?;
    if args.self_verify {
        key.verifying_key()?;
    }
    // Nothing that was not asked for is done under a time limit.
    let proof_log2 = args.deadline.is_none().then(|| log2_domain(&key));
    let tuned = tune::tune(&args.device, key.curve, proof_log2, out)?;
    if !out.json {
        tuned.note(out);
    }
    let trace = args.trace.as_ref().map(|_| Trace::new());
    let (proof, report) = engine::prove(args, &tuned.choice, &key, &witness, trace.clone(), out)
        .map_err(|e| name_witness(e, &args.witness))?;

    let mut outputs = vec![
        (&args.proof, json::proof_to_json(&proof)?),
        (&args.public, json::public_to_json(&proof.public_inputs)?),
    ];
    if let Some(path) = &args.report {
        outputs.push((path, format!("{report:#}\n")));
    }
    // First, so that no proof is left behind if it can not be written.
    if let (Some(trace), Some(path)) = (trace, &args.trace) {
        trace.write(path)?;
    }
    let mut files = Vec::new();
    for (path, text) in outputs {
        let mut file = NewFile::create(path)?;
        file.write(text.as_bytes())?;
        files.push(file);
    }
    commit_all(files)?;
    out.note(&format!(
        "wrote {} and {}",
        args.proof.display(),
        args.public.display()
    ));
    let mut result = json!({
        "proof": args.proof.display().to_string(),
        "public": args.public.display().to_string(),
        "verified": args.self_verify,
        "report": report,
    });
    if !tuned.json.is_empty() {
        result["tuning"] = tuned.json.into();
    }
    out.result(&result, "")
}

/// Its domain, as a power of two.
pub fn log2_domain(key: &ProvingKey) -> u32 {
    key.domain_size.max(1).ilog2()
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

/// Files tell what they are, so swapped arguments can be named.
fn check_order(key: &Path, witness: &Path) -> Result<()> {
    let (in_key, in_witness) = (FileKind::of_file(key)?, FileKind::of_file(witness)?);
    if in_key == FileKind::Wtns && in_witness != FileKind::Wtns {
        return Err(InputError::new(
            InputClass::BadMagic,
            format!(
                "this is a witness, and {} is {}; the order is: prove KEY WITNESS [PROOF] [PUBLIC]",
                witness.display(),
                in_witness.describe()
            ),
        )
        .file(key)
        .offset(0)
        .into());
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
        kind @ (FileKind::Zkey | FileKind::Wtns | FileKind::R1cs | FileKind::Ptau) => {
            Err(Error::Usage(format!(
                "{} is {}; refusing to overwrite it with an output",
                output.display(),
                kind.describe()
            )))
        }
        _ => Ok(()),
    }
}

fn verify_proof(args: &Verify, out: &Output) -> Result<ExitCode> {
    let vkey = match &args.vkey {
        VkeySource::ProvingKey(key) => read_key(key)?.verifying_key()?,
        VkeySource::Json(path) => {
            if FileKind::of_file(path)? == FileKind::Zkey {
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

fn setup(circuit: &Path, key: &Path, out: &Output) -> Result<()> {
    let in_key = std::fs::metadata(key).is_ok_and(|m| m.is_file());
    if in_key && FileKind::of_file(key)? == FileKind::R1cs {
        return Err(Error::Usage(format!(
            "{} is a constraint system; the order is: setup R1CS KEY",
            key.display()
        )));
    }
    let circuit = r1cs::read(circuit)?;
    let made = engine::setup(&circuit)?;
    zkey::write(&made, key, true)?;
    out.note(&format!(
        "wrote {}: INSECURE, for development only; whoever made it can forge proofs",
        key.display()
    ));
    let result = json!({ "key": key.display().to_string(), "insecure": true });
    out.result(&result, "")
}

/// Exit code 5 if a kernel fails, or gives a wrong sum when it is measured, as for any device fault.
fn selftest(args: &Selftest, out: &Output) -> Result<ExitCode> {
    let file = match &args.report {
        Some(path) => {
            refuse_to_replace(path)?;
            Some(NewFile::create(path)?)
        }
        None => None,
    };
    let report = engine::selftest(args, out)?;
    let mut value = serde_json::to_value(&report)
        .map_err(|e| Error::io("report", std::io::Error::other(e.to_string())))?;
    let (tuning, tuning_text, right) = tune::tune_tested(args, &report, out);
    if !tuning_text.is_empty() {
        value["tuning"] = tuning;
    }
    if let Some(mut file) = file {
        file.write(format!("{value:#}\n").as_bytes())?;
        file.commit()?;
    }
    let text = tuning_text + &engine::selftest_table(&report);
    out.result(&value, &text)?;
    Ok(ExitCode::from(if report.passed && right { 0 } else { 5 }))
}
