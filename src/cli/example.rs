//! `example`: the bundled circuit, or one of any size, with a witness and a development key, ready
//! to prove.

use super::Output;
use super::args::Example;
use super::bench::shape_of;
use groth16_gpu::example::{DEFAULT_DEPTH, merkle_membership};
use groth16_gpu::formats::r1cs::R1cs;
use groth16_gpu::formats::{json, output, r1cs, wtns, zkey};
use groth16_gpu::setup::setup_insecure;
use groth16_gpu::{Error, Result, synthetic, with_curve};
use serde_json::json;
use std::path::{Path, PathBuf};

/// Position of the made-up member among the 2^28 leaves.
const LEAF: u64 = 123_456_789;

/// Writes circuit, witness, key and verification key, and says what to run next.
pub fn example(args: &Example, out: &Output) -> Result<()> {
    let (dir, curve) = (&args.dir, args.curve);
    let [circuit, witness, key, vkey] = [
        "circuit.r1cs",
        "witness.wtns",
        "circuit.zkey",
        "verification_key.json",
    ]
    .map(|name| dir.join(name));
    let (system, values) = with_curve!(curve, C => match args.log2 {
        Some(log2) => synthetic::circuit_of::<C>(shape_of(log2, args.density), 1),
        None => merkle_membership::<C>(DEFAULT_DEPTH, LEAF),
    });
    // A folder that holds this example already may be written again, and no other.
    if !holds_example(&circuit, &system)
        && let Some(taken) = [&circuit, &witness, &key, &vkey]
            .iter()
            .find(|p| p.exists())
    {
        return Err(Error::Usage(format!(
            "{} exists and is not of the example; name another folder",
            taken.display()
        )));
    }
    std::fs::create_dir_all(dir).map_err(|e| Error::io(dir, e))?;
    let mut leftovers = Leftovers::default();
    let write = |path: &Path, leftovers: &mut Leftovers, write: &dyn Fn(&Path) -> Result<()>| {
        let new = !path.exists();
        write(path)?;
        leftovers.0.extend(new.then(|| path.to_owned()));
        Ok::<_, Error>(())
    };
    write(&circuit, &mut leftovers, &|p| r1cs::write(&system, p))?;
    write(&witness, &mut leftovers, &|p| wtns::write(&values, p))?;
    let made = setup_insecure(&system)?;
    write(&key, &mut leftovers, &|p| zkey::write(&made, p, true))?;
    let text = json::verifying_key_to_json(&made.verifying_key()?)?;
    write(&vkey, &mut leftovers, &|p| {
        output::write_file(p, text.as_bytes())
    })?;
    leftovers.0.clear();

    out.note(&format!(
        "wrote {}, {}, {} and {}\n\
         The key is INSECURE, for development only: whoever made it can forge proofs.",
        circuit.display(),
        witness.display(),
        key.display(),
        vkey.display()
    ));
    let result = json!({
        "curve": curve.name(),
        "constraints": system.n_constraints,
        "circuit": circuit.display().to_string(),
        "witness": witness.display().to_string(),
        "key": key.display().to_string(),
        "vkey": vkey.display().to_string(),
        "insecure": true,
    });
    let [proof, public] = ["proof.json", "public.json"].map(|name| dir.join(name));
    let (tool, files) = (shell(&tool_name()), |paths: &[&PathBuf]| {
        let words: Vec<String> = paths.iter().map(|p| shell(p)).collect();
        words.join(" ")
    });
    let what = match args.log2 {
        Some(_) => "A synthetic circuit".to_owned(),
        None => format!(
            "A member of a group of 2^{DEFAULT_DEPTH} shows that they belong to it, and not who \
             they are"
        ),
    };
    let text = format!(
        "{what}: {} constraints over {curve}.\nProve it, and verify the proof:\n\n  \
         {tool} prove {}\n  {tool} verify {}",
        system.n_constraints,
        files(&[&key, &witness, &proof, &public]),
        files(&[&vkey, &public, &proof]),
    );
    out.result(&result, if out.quiet { "" } else { &text })
}

/// Files that are no use without those that were to follow: removed when dropped.
#[derive(Default)]
struct Leftovers(Vec<PathBuf>);

impl Drop for Leftovers {
    fn drop(&mut self) {
        for path in &self.0 {
            // Already failing; nothing better can be done about a second failure.
            let _ = std::fs::remove_file(path);
        }
    }
}

/// Whether a file holds this circuit, or the bundled one over either curve.
fn holds_example(file: &Path, circuit: &R1cs) -> bool {
    r1cs::read(file).is_ok_and(|mut found| {
        found.source = None;
        let bundled =
            || with_curve!(found.curve, C => merkle_membership::<C>(DEFAULT_DEPTH, LEAF).0);
        found == *circuit || found == bundled()
    })
}

/// This program as it was called.
fn tool_name() -> PathBuf {
    std::env::args_os()
        .next()
        .map_or_else(|| "groth16-gpu".into(), PathBuf::from)
}

/// A path as a word of a shell.
fn shell(path: &Path) -> String {
    let text = path.display().to_string();
    let plain = |c: char| c.is_alphanumeric() || "/._-+:\\".contains(c);
    if text.chars().all(plain) {
        text
    } else {
        format!("'{}'", text.replace('\'', r"'\''"))
    }
}
