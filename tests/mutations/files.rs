//! Every reader, with good files for it.

use ark_groth16::{ProvingKey as ArkKey, VerifyingKey as ArkVerifyingKey};
use ark_serialize::{CanonicalSerialize, Compress};
use groth16_gpu::curve::{Bls12381, CurveId, GpuCurve};
use groth16_gpu::error::Result;
use groth16_gpu::formats::r1cs::R1cs;
use groth16_gpu::formats::{self, json, prepared, r1cs, wtns};
use groth16_gpu::proving_key::{KeyCheck, ProvingKey, QapReduction, g1_from_raw, g2_from_raw};
use groth16_gpu::setup::setup_from_seed;
use groth16_gpu::with_curve;
use std::path::{Path, PathBuf};

type Read = Box<dyn Fn(&Path) -> Result<()> + Send>;

/// A reader of one kind of file.
pub struct Reader {
    pub name: String,
    pub files: Vec<Vec<u8>>,
    pub read: Read,
}

fn reader(
    name: impl Into<String>,
    files: Vec<Vec<u8>>,
    read: impl Fn(&Path) -> Result<()> + Send + 'static,
) -> Reader {
    Reader {
        name: name.into(),
        files,
        read: Box::new(read),
    }
}

const CIRCUITS: [&str; 4] = [
    "bn254/mul2",
    "bls12381/mul2",
    "bn254/allpublic",
    "bls12381/constout",
];

fn fixture(circuit: &str, file: &str) -> PathBuf {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures");
    root.join(circuit).join(file)
}

fn all(file: &str) -> Vec<Vec<u8>> {
    let read = |c: &&str| std::fs::read(fixture(c, file)).expect("a fixture");
    CIRCUITS.iter().map(read).collect()
}

/// A file that is written by path.
fn written(write: impl FnOnce(&Path)) -> Vec<u8> {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("file");
    write(&path);
    std::fs::read(&path).expect("just written")
}

fn to_ark<C: GpuCurve>(key: &ProvingKey) -> ArkKey<C::Pairing> {
    let g1 = |bytes: &[u8]| -> Vec<_> {
        let points = bytes.chunks_exact(C::ID.g1_bytes());
        points
            .map(|p| g1_from_raw::<C>(p).expect("a point"))
            .collect()
    };
    let g2 = |bytes: &[u8]| -> Vec<_> {
        let points = bytes.chunks_exact(C::ID.g2_bytes());
        points
            .map(|p| g2_from_raw::<C>(p).expect("a point"))
            .collect()
    };
    ArkKey {
        vk: ArkVerifyingKey {
            alpha_g1: g1(&key.alpha_g1)[0],
            beta_g2: g2(&key.beta_g2)[0],
            gamma_g2: g2(&key.gamma_g2)[0],
            delta_g2: g2(&key.delta_g2)[0],
            gamma_abc_g1: g1(key.ic.as_ref().expect("a key of our setup has IC points")),
        },
        beta_g1: g1(&key.beta_g1)[0],
        delta_g1: g1(&key.delta_g1)[0],
        a_query: g1(&key.a_query),
        b_g1_query: g1(&key.b_g1_query),
        b_g2_query: g2(&key.b_g2_query),
        h_query: g1(&key.h_query),
        l_query: g1(&key.l_query),
    }
}

fn ark_file(key: &ProvingKey, compress: Compress) -> Vec<u8> {
    let mut out = Vec::new();
    let curve = key.curve;
    with_curve!(curve, C => to_ark::<C>(key).serialize_with_mode(&mut out, compress))
        .expect("into memory");
    out
}

/// The key as bellman writes it: points big-endian in Zcash's encoding, which arkworks' own for this
/// curve is, counts big-endian, queries without the wires that they do not mention.
fn bellman_file(key: &ProvingKey, r1cs: &R1cs) -> Vec<u8> {
    let ark = to_ark::<Bls12381>(key);
    let mut out = Vec::new();
    fn put(out: &mut Vec<u8>, point: &impl CanonicalSerialize) {
        point.serialize_uncompressed(out).expect("into memory");
    }
    fn run<P: CanonicalSerialize>(out: &mut Vec<u8>, points: &[&P]) {
        out.extend((points.len() as u32).to_be_bytes());
        points.iter().for_each(|p| put(out, *p));
    }
    put(&mut out, &ark.vk.alpha_g1);
    put(&mut out, &ark.beta_g1);
    put(&mut out, &ark.vk.beta_g2);
    put(&mut out, &ark.vk.gamma_g2);
    put(&mut out, &ark.delta_g1);
    put(&mut out, &ark.vk.delta_g2);
    let mentioned = |m: &r1cs::R1csMatrix, publics: usize| -> Vec<bool> {
        let mut at = vec![false; r1cs.n_wires];
        at[..publics].fill(true);
        for row in 0..m.rows() {
            m.row(row).for_each(|(wire, _)| at[wire as usize] = true);
        }
        at
    };
    fn compact<'a, P>(points: &'a [P], at: &[bool]) -> Vec<&'a P> {
        points
            .iter()
            .zip(at)
            .filter_map(|(p, there)| there.then_some(p))
            .collect()
    }
    let in_a = mentioned(&r1cs.a, 1 + r1cs.n_public());
    let in_b = mentioned(&r1cs.b, 0);
    run(&mut out, &ark.vk.gamma_abc_g1.iter().collect::<Vec<_>>());
    run(&mut out, &ark.h_query.iter().collect::<Vec<_>>());
    run(&mut out, &ark.l_query.iter().collect::<Vec<_>>());
    run(&mut out, &compact(&ark.a_query, &in_a));
    run(&mut out, &compact(&ark.b_g1_query, &in_b));
    run(&mut out, &compact(&ark.b_g2_query, &in_b));
    out
}

/// Readers of keys that lack their matrices, which come from the circuit.
fn keys_of_a_circuit(circuit: &'static str) -> Vec<Reader> {
    let circuit_of = move || R1cs::from_file(fixture(circuit, "circuit.r1cs")).expect("a circuit");
    let r1cs = circuit_of();
    let key = setup_from_seed(&r1cs, QapReduction::Libsnark, 1).expect("a key");
    let name = key.curve.name();
    let ark = |compress: Compress, what: &str| {
        let r1cs = circuit_of();
        let files = vec![ark_file(&key, compress)];
        reader(format!("ark_{what}_{name}"), files, move |path| {
            ProvingKey::from_ark_file_checked(path, &r1cs, KeyCheck::OnCurve).map(drop)
        })
    };
    let mut readers = vec![ark(Compress::No, "plain"), ark(Compress::Yes, "compressed")];
    if key.curve == CurveId::Bls12_381 {
        let files = vec![bellman_file(&key, &r1cs)];
        readers.push(reader("bellman", files, move |path| {
            ProvingKey::from_bellman_checked(path, &r1cs, KeyCheck::OnCurve).map(drop)
        }));
    }
    readers
}

/// All of them.
pub fn readers() -> Vec<Reader> {
    let prepared_file = |circuit: &&str| {
        let key = ProvingKey::from_zkey(fixture(circuit, "circuit.zkey")).expect("a key");
        written(|path| {
            prepared::write(&key, KeyCheck::OnCurve, false, path).expect("a prepared key");
        })
    };
    let mut readers = vec![
        reader("zkey", all("circuit.zkey"), |path| {
            formats::read_proving_key(path, None, KeyCheck::OnCurve).map(drop)
        }),
        reader(
            "prepared",
            CIRCUITS.iter().map(prepared_file).collect(),
            |path| ProvingKey::from_prepared(path).map(drop),
        ),
        reader("wtns", all("witness.wtns"), |path| {
            wtns::read(path).map(drop)
        }),
        reader("r1cs", all("circuit.r1cs"), |path| {
            r1cs::read(path).map(drop)
        }),
        reader("proof_json", all("proof.json"), |path| {
            json::read_proof(path, None).map(drop)
        }),
        reader("public_json", all("public.json"), |path| {
            json::read_public(path, CurveId::Bn254).map(drop)
        }),
        reader("vkey_json", all("verification_key.json"), |path| {
            json::read_verifying_key(path).map(drop)
        }),
    ];
    readers.extend(keys_of_a_circuit("bn254/mul2"));
    readers.extend(keys_of_a_circuit("bls12381/mul2"));
    readers
}
