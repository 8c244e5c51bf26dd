//! `prove`.

use super::args::Prove;
use super::commands::{KeySource, check_outputs, name_witness};
use super::opening::{Opening, Purpose};
use super::{Output, engine};
use groth16_gpu::error::{InputClass, InputError};
use groth16_gpu::formats::output::{NewFile, commit_all};
use groth16_gpu::formats::{FileKind, json, wtns};
use groth16_gpu::key_layout::KeyLayout;
use groth16_gpu::report::PhaseClock;
use groth16_gpu::trace::Trace;
use groth16_gpu::{ProofReport, Result, cpu};
use serde_json::json;
use std::path::Path;
use std::sync::Arc;

/// Proves a witness. The devices are opened while the key is read.
pub fn prove(args: &Prove, out: &Output) -> Result<()> {
    let trace = args.trace.as_ref().map(|_| Trace::new());
    let mut clock = PhaseClock::traced(trace.clone());
    check_order(&args.key.path, &args.witness)?;
    check_outputs(args.outputs())?;

    let witness = wtns::read(&args.witness)?;
    let source = KeySource::new(&args.key)?;
    let file = source.open()?;
    let mismatch = file.shape().check_witness(&witness);
    mismatch.map_err(|e| e.in_file(&args.witness))?;
    clock.end_phase("read_witness", cpu::BACKEND, witness.values.len() as u64);
    let bar = engine::progress_bar(out);
    bar.set_message("reading the key");
    let opening = Opening::begin(Purpose {
        choice: args.device.clone(),
        shape: file.shape().clone(),
        dense: witness.dense(0..witness.len()),
        deadline: args.deadline,
        trace: trace.clone(),
        bar: bar.clone(),
    });
    let key = file.read_timed(args.key.check, &mut clock)?;
    if args.self_verify {
        key.verifying_key()?;
    }
    // Whatever is wrong shows when the device cuts it itself.
    let limits = opening.limits();
    clock.end_phase("find_device", cpu::BACKEND, 0);
    let cut = limits.and_then(|l| Some((l, KeyLayout::cut(&key, &l, "device").ok()?)));
    clock.end_phase("cut_key", cpu::BACKEND, 0);
    let (opened, tuned) = opening.finish(out)?;
    let startup = opened.startup;
    if let Some(end) = opened.measured {
        clock.end_phase_at(end, "tune", cpu::BACKEND, 0);
    }
    // What was left of these when the key was there.
    clock.end_phase_at(opened.at, "open_device", cpu::BACKEND, 0);
    clock.end_phase("compile_ahead", cpu::BACKEND, 0);
    if !out.json {
        bar.suspend(|| tuned.note(out));
    }

    let prover = engine::prover(&tuned.choice, opened.devices, &key, Some(&witness))?;
    if let Some((limits, layout)) = cut {
        prover.adopt(&key, &limits, &layout);
    }
    let mut options = engine::prove_options(&args.device, args.self_verify, args.deadline);
    options.trace = trace.clone();
    options.since = Some(clock);
    let drawn = bar.clone();
    options.progress = Some(Arc::new(move |step: &str, done: f32| {
        drawn.set_message(step.to_owned());
        drawn.set_position((done * 100.0) as u64);
    }));
    let proved = prover.prove(&key, &witness, &options);
    bar.finish_and_clear();
    // The process is about to end: the system takes everything back at once, which a driver does
    // buffer by buffer.
    std::mem::forget(prover);
    let (proof, report) = proved.map_err(|e| name_witness(e, &args.witness))?;
    let report = engine::report_json(&ProofReport {
        startup: Some(startup),
        ..report
    })?;

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
