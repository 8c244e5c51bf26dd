//! `prove --batch`: many witnesses of one key.

use super::args::ProveBatch;
use super::commands::{KeySource, check_outputs, name_witness, refuse_to_replace, trace_files};
use super::opening::{Opening, Purpose};
use super::{Output, engine, error_json, full_message};
use groth16_gpu::formats::output::{NewFile, commit_all};
use groth16_gpu::formats::{json, wtns};
use groth16_gpu::trace::Trace;
use groth16_gpu::{Error, Proof, ProofReport, ProvingKey, Result};
use serde_json::{Value, json};
use std::cmp::Ordering;
use std::collections::HashMap;
use std::fs;
use std::io::{self, Read};
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

/// One witness, and where its results go.
struct Item {
    witness: PathBuf,
    proof: PathBuf,
    public: PathBuf,
    report: Option<PathBuf>,
}

/// Proves all of them. One that fails does not stop the others; the exit code is that of the first
/// that failed.
pub fn prove_batch(args: &ProveBatch, out: &Output) -> Result<ExitCode> {
    let items = items(args)?;
    for item in &items {
        for output in [&item.proof, &item.public].into_iter().chain(&item.report) {
            refuse_to_replace(output)?;
        }
    }
    for folder in [&args.out].into_iter().chain(&args.report) {
        fs::create_dir_all(folder).map_err(|e| Error::io(folder, e))?;
    }
    // Dropped at once: finds out before the work whether the folders can be written.
    for output in [&items[0].proof].into_iter().chain(&items[0].report) {
        NewFile::create(output)?;
    }
    if let Some(path) = &args.trace {
        check_outputs(trace_files(path))?;
    }
    let trace = args.trace.as_ref().map(|_| Trace::new());
    let bar = engine::progress_bar(out);
    let source = KeySource::new(&args.key)?;
    let file = source.open()?;
    let opening = Opening::begin(Purpose {
        choice: args.device.clone(),
        // Nobody has looked at a witness yet.
        dense: file.shape().n_vars,
        shape: file.shape().clone(),
        deadline: args.deadline,
        trace: trace.clone(),
        bar: bar.clone(),
    });
    let key = file.read(args.key.check)?;
    if args.self_verify {
        key.verifying_key()?;
    }
    let (opened, tuned) = opening.finish(out)?;
    bar.suspend(|| tuned.note(out));
    let prover = engine::prover(&tuned.choice, opened.devices, &key, None)?;
    let mut options = engine::prove_options(&args.device, args.self_verify, args.deadline);
    options.trace = trace;
    bar.set_length(items.len() as u64);
    let mut first_failure = None;
    let mut failures = 0;
    let mut delivered = 0;
    let witnesses = items.iter().map(|item| read(item, &key));
    let ended = prover.prove_each(&key, witnesses, &options, None, |i, result| {
        let item = &items[i];
        delivered = i + 1;
        let written = result
            .map_err(|e| name_witness(e, &item.witness))
            .and_then(|proved| write(item, &proved));
        let printed = bar.suspend(|| match written {
            Ok(result) => {
                let (proof, public) = (item.proof.display(), item.public.display());
                out.note(&format!("wrote {proof} and {public}"));
                out.result(&result, "")
            }
            Err(e) => {
                first_failure.get_or_insert(e.exit_code());
                failures += 1;
                report_failure(item, &e, out)
            }
        });
        bar.inc(1);
        // Nobody reads what is printed: no reason to leave proofs unmade.
        if let Err(e) = printed {
            log::debug!("{e}");
        }
        ControlFlow::Continue(())
    });
    bar.finish_and_clear();
    if let (Some(trace), Some(path)) = (&options.trace, &args.trace) {
        trace.write(path)?;
    }
    if let Err(e) = ended {
        // What ended the batch is the failure of all that were not tried.
        for item in &items[delivered..] {
            first_failure.get_or_insert(e.exit_code());
            failures += 1;
            report_failure(item, &e, out)?;
        }
    }
    if failures > 0 {
        out.note(&format!("{failures} of {} failed", items.len()));
    }
    Ok(ExitCode::from(first_failure.unwrap_or(0)))
}

fn read(item: &Item, key: &ProvingKey) -> Result<groth16_gpu::Witness> {
    let witness = wtns::read(&item.witness)?;
    key.check_witness(&witness)
        .map_err(|e| e.in_file(&item.witness))?;
    Ok(witness)
}

/// Writes a proof's files, all or none; returns its line for `--json`.
fn write(item: &Item, (proof, report): &(Proof, ProofReport)) -> Result<Value> {
    let report_json = engine::report_json(report)?;
    let mut outputs = vec![
        (&item.proof, json::proof_to_json(proof)?),
        (&item.public, json::public_to_json(&proof.public_inputs)?),
    ];
    if let Some(path) = &item.report {
        outputs.push((path, format!("{report_json:#}\n")));
    }
    let mut files = Vec::new();
    for (path, text) in outputs {
        let mut file = NewFile::create(path)?;
        file.write(text.as_bytes())?;
        files.push(file);
    }
    commit_all(files)?;
    Ok(json!({
        "witness": item.witness.display().to_string(),
        "proof": item.proof.display().to_string(),
        "public": item.public.display().to_string(),
        "verified": report.self_verified,
        "report": report_json,
    }))
}

fn report_failure(item: &Item, e: &Error, out: &Output) -> Result<()> {
    let name = item.witness.display().to_string();
    let message = match full_message(e) {
        named if named.contains(&name) => named,
        other => format!("{name}: {other}"),
    };
    out.error(&message);
    let mut line = error_json(e, &message);
    line["witness"] = json!(name);
    out.result(&line, "")
}

/// The witnesses with their outputs, which are all different.
fn items(args: &ProveBatch) -> Result<Vec<Item>> {
    let witnesses = match args.source.is_dir() {
        true => of_folder(&args.source)?,
        false => of_list(&args.source)?,
    };
    if witnesses.is_empty() {
        let what = match args.source.is_dir() {
            true => "has no .wtns files",
            false => "names no files",
        };
        return Err(Error::Usage(format!("{} {what}", args.source.display())));
    }
    let mut names: HashMap<String, &Path> = HashMap::new();
    let mut items = Vec::with_capacity(witnesses.len());
    for witness in &witnesses {
        let name = witness
            .file_name()
            .ok_or_else(|| Error::Usage(format!("{} names no file", witness.display())))?;
        let name = name.to_string_lossy();
        let name = name.strip_suffix(".wtns").unwrap_or(&name);
        if let Some(other) = names.insert(name.to_owned(), witness) {
            return Err(Error::Usage(format!(
                "{} and {} would both be written to {name}.proof.json",
                other.display(),
                witness.display()
            )));
        }
        let output = |folder: &Path, kind: &str| folder.join(format!("{name}.{kind}.json"));
        items.push(Item {
            witness: witness.clone(),
            proof: output(&args.out, "proof"),
            public: output(&args.out, "public"),
            report: args.report.as_ref().map(|folder| output(folder, "report")),
        });
    }
    Ok(items)
}

/// The witnesses in a folder, in the natural order of their names.
fn of_folder(folder: &Path) -> Result<Vec<PathBuf>> {
    let err = |e| Error::io(folder, e);
    let mut files = Vec::new();
    for entry in fs::read_dir(folder).map_err(err)? {
        let path = entry.map_err(err)?.path();
        if path.extension().is_some_and(|e| e == "wtns") && path.is_file() {
            files.push(path);
        }
    }
    let name = |p: &Path| {
        p.file_name()
            .unwrap_or_default()
            .to_string_lossy()
            .into_owned()
    };
    files.sort_by(|a, b| natural_order(&name(a), &name(b)));
    Ok(files)
}

/// The files that a list names, one a line, relative to the folder of the list; `-` is stdin.
fn of_list(list: &Path) -> Result<Vec<PathBuf>> {
    let from_stdin = list == Path::new("-");
    let text = match from_stdin {
        true => {
            let mut text = String::new();
            let read = io::stdin().lock().read_to_string(&mut text);
            read.map(|_| text)
        }
        false => fs::read_to_string(list),
    };
    let text = text.map_err(|e| match e.kind() {
        io::ErrorKind::InvalidData => Error::Usage(format!(
            "{} is neither a folder nor a list of files",
            list.display()
        )),
        _ => Error::io(list, e),
    })?;
    let folder = list.parent().unwrap_or(Path::new(""));
    let lines = text.lines().map(str::trim).filter(|line| !line.is_empty());
    Ok(lines.map(|line| folder.join(line)).collect())
}

/// Numbers inside names count as numbers: w2 before w10.
fn natural_order(a: &str, b: &str) -> Ordering {
    let (mut x, mut y) = (a, b);
    loop {
        let (m, n) = (digits(x), digits(y));
        let order = if m > 0 && n > 0 {
            let (p, q) = (
                x[..m].trim_start_matches('0'),
                y[..n].trim_start_matches('0'),
            );
            (x, y) = (&x[m..], &y[n..]);
            p.len().cmp(&q.len()).then_with(|| p.cmp(q))
        } else {
            let (mut p, mut q) = (x.chars(), y.chars());
            let order = match (p.next(), q.next()) {
                // Equal up to leading zeros, at most.
                (None, None) => return a.cmp(b),
                (c, d) => c.cmp(&d),
            };
            (x, y) = (p.as_str(), q.as_str());
            order
        };
        if order.is_ne() {
            return order;
        }
    }
}

fn digits(text: &str) -> usize {
    text.bytes().take_while(u8::is_ascii_digit).count()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_have_a_natural_order() {
        let ordered = [
            "",
            "a",
            "a0",
            "a1",
            "a01",
            "a2",
            "a2b",
            "a10",
            "a10b2",
            "a10b11",
            "ab",
            "b",
            "b99999999999999999999999",
            "b100000000000000000000000",
            "é1",
            "é2",
        ];
        for (i, a) in ordered.iter().enumerate() {
            for (j, b) in ordered.iter().enumerate() {
                let expected = if (*a, *b) == ("a1", "a01") || (*a, *b) == ("a01", "a1") {
                    a.cmp(b)
                } else {
                    i.cmp(&j)
                };
                assert_eq!(natural_order(a, b), expected, "{a:?}, {b:?}");
            }
        }
    }
}
