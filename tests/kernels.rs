//! Every kernel against a reference on arkworks types, on every adapter and tier.

mod common;

use ark_ec::short_weierstrass::{Affine, Projective, SWCurveConfig};
use ark_ec::{CurveGroup, PrimeGroup};
use ark_ff::{AdditiveGroup, BigInteger, Field, PrimeField, UniformRand, Zero};
use common::TestDevice;
use groth16_gpu::bytes::Bytes;
use groth16_gpu::curve::{Bls12381, Bn254, GpuCurve};
use groth16_gpu::device::RunOptions;
use groth16_gpu::device::recording::{BufferId, Dispatch, Recording};
use groth16_gpu::kernels::Kernel;
use groth16_gpu::proving_key::{g1_to_raw, g2_to_raw};
use groth16_gpu::scan::record_scan;
use libtest_mimic::Failed;
use rand::{Rng, SeedableRng, rngs::StdRng};

fn upload(rec: &mut Recording, label: &'static str, bytes: Vec<u8>) -> BufferId {
    let id = rec.transient(label, bytes.len() as u64);
    let whole = rec.whole(id);
    rec.upload(whole, Bytes::from(bytes));
    id
}

fn integer_bytes<F: PrimeField>(x: F::BigInt, out: &mut Vec<u8>) {
    for limb in x.as_ref() {
        out.extend_from_slice(&limb.to_le_bytes());
    }
}

/// Integers at the edges of limbs and of the modulus, then random ones, all below 2p.
fn operands<F: PrimeField>(n: usize, rng: &mut StdRng) -> Vec<F::BigInt> {
    let p = F::MODULUS;
    let one = F::BigInt::from(1u64);
    let mut edges = vec![F::BigInt::from(0u64), one, p];
    let mut p1 = p;
    p1.sub_with_borrow(&one);
    edges.push(p1);
    p1 = p;
    p1.add_with_carry(&one);
    edges.push(p1);
    let mut double = p;
    double.mul2();
    double.sub_with_borrow(&one);
    edges.push(double);
    for bits in [13, 29, 30, 32, 58, 60, 64, 90, 128, 192, 240, 253] {
        let mut x = one;
        x <<= bits;
        edges.push(x);
        x.sub_with_borrow(&one);
        edges.push(x);
    }
    (0..n)
        .map(|i| {
            edges
                .get(i)
                .copied()
                .unwrap_or_else(|| F::rand(rng).into_bigint())
        })
        .collect()
}

/// p06 among others: every operation on values at and above the modulus.
fn field_ops<C: GpuCurve, F: PrimeField>(d: &TestDevice, kernel: Kernel) -> Result<(), Failed> {
    let mut rng = StdRng::seed_from_u64(1);
    let bytes = 8 * F::BigInt::NUM_LIMBS;
    let base = operands::<F>(48, &mut rng);
    let (lhs, rhs): (Vec<_>, Vec<_>) = base
        .iter()
        .flat_map(|a| base.iter().map(move |b| (*a, *b)))
        .unzip();
    let n = lhs.len();
    let pack = |v: &[F::BigInt]| {
        let mut out = Vec::new();
        v.iter().for_each(|x| integer_bytes::<F>(*x, &mut out));
        out
    };
    // As residues of the plain integers.
    let value = |x: &F::BigInt| F::from_le_bytes_mod_order(&x.to_bytes_le());
    let radix = F::from(2u64).pow([8 * bytes as u64]);
    let radix_inv = radix.inverse().unwrap();
    let mut rec = Recording::new();
    let a = upload(&mut rec, "lhs", pack(&lhs));
    let b = upload(&mut rec, "rhs", pack(&rhs));
    let ops = [0u32, 1, 3, 4];
    let downloads = ops.map(|op| {
        let out = rec.transient("result", (n * bytes) as u64);
        let bindings = [a, b, out].map(|id| rec.whole(id)).to_vec();
        rec.dispatch(Dispatch {
            kernel,
            curve: C::ID,
            bindings,
            params: vec![n as u32, op],
            groups: (n as u32).div_ceil(64),
            work_per_group: 64,
        });
        let whole = rec.whole(out);
        rec.download(whole)
    });
    let output = d.gpu.run(&rec, &RunOptions::default())?;
    for (op, id) in ops.iter().zip(downloads) {
        let got = &output.downloads[id.0 as usize];
        for i in 0..n {
            let (x, y) = (value(&lhs[i]), value(&rhs[i]));
            let mut expected = Vec::new();
            let result = match op {
                0 => x + y,
                1 => x - y,
                3 => x * y * radix_inv,
                _ => F::from(u64::from(x == y)),
            };
            // A shifted factor must be canonical.
            if *op == 3 && rhs[i] >= F::MODULUS {
                continue;
            }
            integer_bytes::<F>(result.into_bigint(), &mut expected);
            ensure!(
                got[i * bytes..(i + 1) * bytes] == expected,
                "op {op} of {} and {}",
                lhs[i],
                rhs[i]
            );
        }
    }
    Ok(())
}

/// Sums of runs of affine points, with every special case of the addition (p07, p08).
fn point_ops<C: GpuCurve, P: SWCurveConfig>(
    d: &TestDevice,
    kernel: Kernel,
    push: fn(&Affine<P>, &mut Vec<u8>),
    read: fn(&[u8]) -> P::BaseField,
    coordinate: usize,
) -> Result<(), Failed> {
    let mut rng = StdRng::seed_from_u64(2);
    let g = Projective::<P>::generator();
    let (p, q) = (
        g * P::ScalarField::rand(&mut rng),
        g * P::ScalarField::rand(&mut rng),
    );
    let o = Projective::<P>::zero();
    let (p2, q2) = (p.double(), q.double());
    let runs: Vec<[Projective<P>; 4]> = vec![
        [p, q, o, o],
        [p, p, p, p],
        [p, -p, q, o],
        [o, o, o, o],
        [o, p, o, -p],
        [p, q, p + q, -(p + q)],
        [p, p, -p2, q],
        [p2, -p, -p, q2],
        [q, p, q, p],
        [p, -p, p, -p],
        [g, g, g + g, g.double().double()],
        [p, q, -(p + q), p],
    ];
    let n = runs.len();
    let mut bases = Vec::new();
    for x in runs.iter().flatten() {
        push(&x.into_affine(), &mut bases);
    }
    let mut rec = Recording::new();
    let bases = upload(&mut rec, "bases", bases);
    let sums = rec.transient("sums", (n * 4 * coordinate) as u64);
    let sums = rec.whole(sums);
    rec.clear(sums);
    let bindings = vec![rec.whole(bases), sums];
    rec.dispatch(Dispatch {
        kernel,
        curve: C::ID,
        bindings,
        params: vec![n as u32, 4],
        groups: 1,
        work_per_group: 64 * 4 * 10,
    });
    let field_bytes = C::ID.fq_bytes();
    let elements = (n * 4 * coordinate / field_bytes) as u32;
    rec.dispatch(Dispatch {
        kernel: Kernel::PointsExport,
        curve: C::ID,
        bindings: vec![sums],
        params: vec![elements],
        groups: elements.div_ceil(64),
        work_per_group: 64,
    });
    let id = rec.download(sums);
    let output = d.gpu.run(&rec, &RunOptions::default())?;
    let got = &output.downloads[id.0 as usize];
    for (i, (run, bytes)) in runs
        .iter()
        .zip(got.chunks_exact(4 * coordinate))
        .enumerate()
    {
        let expected: Projective<P> = run.iter().sum();
        let c: Vec<P::BaseField> = bytes.chunks_exact(coordinate).map(read).collect();
        let (x, y, zz, zzz) = (c[0], c[1], c[2], c[3]);
        if expected.is_zero() {
            ensure!(zz.is_zero(), "run {i} is not infinity");
            continue;
        }
        ensure!(!zz.is_zero(), "run {i} is infinity");
        ensure!(zz.square() * zz == zzz.square(), "run {i}: ZZ³ ≠ ZZZ²");
        let affine = Affine::<P>::new_unchecked(x / zz, y / zzz);
        ensure!(affine == expected.into_affine(), "run {i}");
    }
    Ok(())
}

fn g1_ops<C: GpuCurve>(d: &TestDevice) -> Result<(), Failed> {
    point_ops::<C, C::G1Config>(
        d,
        Kernel::PointOpsG1,
        g1_to_raw::<C>,
        |b| C::fq_from_montgomery(b).expect("canonical"),
        C::ID.fq_bytes(),
    )
}

fn g2_ops<C: GpuCurve>(d: &TestDevice) -> Result<(), Failed> {
    point_ops::<C, C::G2Config>(
        d,
        Kernel::PointOpsG2,
        g2_to_raw::<C>,
        |b| {
            let (c0, c1) = b.split_at(b.len() / 2);
            let read = |b| C::fq_from_montgomery(b).expect("canonical");
            C::fq2_from_parts(read(c0), read(c1))
        },
        2 * C::ID.fq_bytes(),
    )
}

/// p09: no hidden size precondition.
fn scan(d: &TestDevice) -> Result<(), Failed> {
    let mut rng = StdRng::seed_from_u64(3);
    let sizes: &[u32] = if d.slow {
        &[1, 31, 1023, 1024, 1025, 5000]
    } else {
        &[1, 2, 3, 31, 33, 1023, 1024, 1025, 65537, 1_100_000]
    };
    for &n in sizes {
        let counts: Vec<u32> = (0..n).map(|_| rng.gen_range(0..9)).collect();
        let mut rec = Recording::new();
        let id = upload(
            &mut rec,
            "counts",
            counts.iter().flat_map(|c| c.to_le_bytes()).collect(),
        );
        record_scan(&mut rec, Bn254::ID, id, n);
        let whole = rec.whole(id);
        let out = rec.download(whole);
        let output = d.gpu.run(&rec, &RunOptions::default())?;
        let mut sum = 0u32;
        for (i, b) in output.downloads[out.0 as usize].chunks_exact(4).enumerate() {
            let got = u32::from_le_bytes(b.try_into().unwrap());
            ensure!(got == sum, "n = {n}, element {i}: {got}, not {sum}");
            sum += counts[i];
        }
    }
    Ok(())
}

fn main() {
    let mut cases: Vec<common::Case> = Vec::new();
    macro_rules! both_curves {
        ($name:expr, $f:expr, $g:expr) => {
            cases.push((format!("{}/bls12_381", $name), $f));
            cases.push((format!("{}/bn254", $name), $g));
        };
    }
    type Fq<C> = <C as GpuCurve>::Fq;
    type Fr<C> = <C as GpuCurve>::Fr;
    both_curves!(
        "field_ops_fq",
        |d| field_ops::<Bls12381, Fq<Bls12381>>(d, Kernel::FieldOpsFq),
        |d| field_ops::<Bn254, Fq<Bn254>>(d, Kernel::FieldOpsFq)
    );
    both_curves!(
        "field_ops_fr",
        |d| field_ops::<Bls12381, Fr<Bls12381>>(d, Kernel::FieldOpsFr),
        |d| field_ops::<Bn254, Fr<Bn254>>(d, Kernel::FieldOpsFr)
    );
    both_curves!("point_ops_g1", g1_ops::<Bls12381>, g1_ops::<Bn254>);
    both_curves!("point_ops_g2", g2_ops::<Bls12381>, g2_ops::<Bn254>);
    cases.push(("scan".into(), scan));
    common::run(cases);
}
