//! `inspect`: what a file holds.

use super::args::{Inspect, Key};
use super::commands::KeySource;
use super::{Output, engine};
use groth16_gpu::formats::{FileKind, json as snarkjs, r1cs, wtns};
use groth16_gpu::proving_key::{ProvingKey, QapReduction};
use groth16_gpu::{Error, Result};
use serde_json::{Value, json};
use std::path::Path;

/// Describes a file; never prints a witness' values.
pub fn inspect(args: &Inspect, out: &Output) -> Result<()> {
    let path = &args.file.path;
    let mut description = match FileKind::of_file(path)? {
        FileKind::Zkey | FileKind::Prepared => describe_key(&args.file, args)?,
        FileKind::Unknown if args.file.r1cs.is_some() => describe_key(&args.file, args)?,
        FileKind::Wtns => describe_witness(path)?,
        FileKind::R1cs => describe_r1cs(path)?,
        FileKind::JsonObject => describe_json(path)?,
        FileKind::JsonArray => describe_public(path)?,
        // The reader says what is wrong, an empty file being a truncated one.
        FileKind::Ptau | FileKind::Unknown => describe_key(&args.file, args)?,
    };
    description["file"] = path.display().to_string().into();
    let mut shown = description.clone();
    if let Some(plans) = shown.get_mut("plans") {
        *plans = plan_lines(plans);
    }
    let text = lines(&shown, 0);
    out.result(&description, text.trim_end())
}

fn describe_key(file: &Key, args: &Inspect) -> Result<Value> {
    let source = KeySource::new(file)?;
    let opened = source.open()?;
    let (insecure, checked) = (opened.is_insecure(), opened.checked());
    let key = opened.read(file.check)?;
    let reduction = match key.reduction {
        QapReduction::Circom => "circom",
        QapReduction::Libsnark => "libsnark",
    };
    let mut description = json!({
        "kind": match FileKind::of_file(&file.path)? {
            FileKind::Zkey => "zkey",
            FileKind::Prepared => "prepared key",
            _ => "proving key",
        },
        "curve": key.curve.name(),
        "reduction": reduction,
        "wires": key.n_vars,
        "public": key.n_public,
        "domain": key.domain_size,
        "coefficients": { "a": key.a.n_entries(), "b": key.b.n_entries() },
        "bytes": query_bytes(&key),
        "infinities": infinities(&key),
        "has_verifying_key": key.ic.is_some(),
        "insecure": insecure,
    });
    if let Some(level) = checked {
        description["checked"] = level.name().into();
    }
    description["plans"] = engine::memory_plans(&key, &args.device)?;
    Ok(description)
}

fn query_bytes(key: &ProvingKey) -> Value {
    json!({
        "a": key.a_query.len(),
        "b_g1": key.b_g1_query.len(),
        "b_g2": key.b_g2_query.len(),
        "l": key.l_query.len(),
        "h": key.h_query.len(),
        "ic": key.ic.as_ref().map_or(0, |ic| ic.len()),
    })
}

/// Points at infinity, which cost a prover nothing.
fn infinities(key: &ProvingKey) -> Value {
    let count = |bytes: &[u8], size| {
        let infinite = |p: &&[u8]| p.iter().all(|b| *b == 0);
        bytes.chunks_exact(size).filter(infinite).count()
    };
    let (g1, g2) = (key.curve.g1_bytes(), key.curve.g2_bytes());
    json!({
        "a": count(&key.a_query, g1),
        "b_g1": count(&key.b_g1_query, g1),
        "b_g2": count(&key.b_g2_query, g2),
        "l": count(&key.l_query, g1),
        "h": count(&key.h_query, g1),
    })
}

fn describe_witness(path: &Path) -> Result<Value> {
    let witness = wtns::read(path)?;
    let small = |v: &[u8]| v[0] <= 1 && v[1..].iter().all(|b| *b == 0);
    let small = (0..witness.len())
        .filter(|i| small(witness.value(*i)))
        .count();
    Ok(json!({
        "kind": "wtns",
        "curve": witness.curve.name(),
        "wires": witness.len(),
        "zero_or_one": small,
    }))
}

fn describe_r1cs(path: &Path) -> Result<Value> {
    let circuit = r1cs::read(path)?;
    Ok(json!({
        "kind": "r1cs",
        "curve": circuit.curve.name(),
        "wires": circuit.n_wires,
        "constraints": circuit.n_constraints,
        "public_outputs": circuit.n_pub_out,
        "public_inputs": circuit.n_pub_in,
        "private_inputs": circuit.n_prv_in,
        "coefficients": {
            "a": circuit.a.columns.len(),
            "b": circuit.b.columns.len(),
            "c": circuit.c.columns.len(),
        },
    }))
}

fn describe_json(path: &Path) -> Result<Value> {
    let text = std::fs::read_to_string(path).map_err(|e| Error::io(path, e))?;
    if text.contains("\"pi_a\"") {
        let proof = snarkjs::read_proof(path, None)?;
        return Ok(json!({ "kind": "proof", "curve": proof.curve.name() }));
    }
    let key = snarkjs::read_verifying_key(path)?;
    Ok(json!({
        "kind": "verification key",
        "curve": key.curve.name(),
        "public": key.n_public(),
    }))
}

fn describe_public(path: &Path) -> Result<Value> {
    // Of the two moduli that of BLS12-381 is the larger one.
    let values = snarkjs::read_public(path, groth16_gpu::curve::CurveId::Bls12_381)?;
    Ok(json!({ "kind": "public inputs", "public": values.len() }))
}

/// Memory plans for people: a line a variant.
fn plan_lines(plans: &Value) -> Value {
    let size = |value: &Value| {
        let mib = value.as_f64().unwrap_or(0.0) / f64::from(1 << 20);
        format!("{mib:.1} MiB")
    };
    let variant = |v: &Value| {
        let name = v["name"].as_str().unwrap_or_default();
        let buffers = size(&v["max_buffer"]);
        let (resident, transient) = (size(&v["resident"]), size(&v["transient"]));
        format!("{name}: {resident} + {transient} a proof (buffers of {buffers})")
    };
    let mut out = serde_json::Map::new();
    for plan in plans.as_array().into_iter().flatten() {
        let device = plan["device"].as_str().unwrap_or_default().to_owned();
        let Some(variants) = plan["variants"].as_array() else {
            let text = match plan["error"].as_str() {
                Some(error) => error.to_owned(),
                None => format!(
                    "{} on the CPU, {} beside a device",
                    size(&plan["bytes"]),
                    size(&plan["bytes_with_device"])
                ),
            };
            out.insert(device, text.into());
            continue;
        };
        let chosen = match plan["error"].as_str() {
            Some(error) => error.to_owned(),
            None => variant(&plan["chosen"]),
        };
        out.insert(
            format!("{device}, {} to use", size(&plan["budget"])),
            json!({ "chosen": chosen, "variants": variants.iter().map(variant).collect::<Vec<_>>() }),
        );
    }
    out.into()
}

/// An object as indented lines.
fn lines(value: &Value, indent: usize) -> String {
    let mut text = String::new();
    let Some(object) = value.as_object() else {
        return format!("{:indent$}{value}\n", "");
    };
    for (name, value) in object {
        let name = name.replace('_', " ");
        match value {
            Value::Object(_) => {
                text += &format!("{:indent$}{name}:\n{}", "", lines(value, indent + 2));
            }
            Value::Array(items) => {
                text += &format!("{:indent$}{name}:\n", "");
                for item in items {
                    match item.as_str() {
                        Some(item) => text += &format!("{:1$}{item}\n", "", indent + 2),
                        None => text += &lines(item, indent + 2),
                    }
                }
            }
            Value::String(s) => text += &format!("{:indent$}{name}: {s}\n", ""),
            other => text += &format!("{:indent$}{name}: {other}\n", ""),
        }
    }
    text
}
