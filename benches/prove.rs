//! Our CPU path against ark-groth16 on the same keys and witnesses.
//!
//! ```text
//! cargo bench --bench prove -- [LOG2_CONSTRAINTS=17] [RUNS=5]
//! ```
//! Both provers take the same arkworks key in memory, the same r and s, and neither verifies its
//! proof; the two proofs must be equal. Wall times are medians of alternating runs. CPU times,
//! which other load on the machine disturbs less, are given beside them.

use ark_ff::{BigInteger, One, PrimeField};
use ark_groth16::r1cs_to_qap::LibsnarkReduction;
use ark_groth16::{Groth16, ProvingKey as ArkKey, VerifyingKey as ArkVerifyingKey};
use groth16_gpu::curve::{Bls12381, Bn254, GpuCurve};
use groth16_gpu::device::Device;
use groth16_gpu::example::merkle_membership;
use groth16_gpu::formats::r1cs::{R1cs, R1csMatrix};
use groth16_gpu::proof::Proof;
use groth16_gpu::prover::{ProveOptions, Prover};
use groth16_gpu::proving_key::{ProvingKey, QapReduction, g1_from_raw, g2_from_raw};
use groth16_gpu::setup::setup_insecure_as;
use groth16_gpu::witness::Witness;
use std::time::Instant;

/// Milliseconds of wall and CPU time.
#[derive(Clone, Copy)]
struct Time {
    wall: f64,
    cpu: f64,
}

/// CPU time of all threads of this process so far, where /proc tells (in ticks of 10 ms).
fn cpu_ms() -> f64 {
    let ticks = || {
        let stat = std::fs::read_to_string("/proc/self/stat").ok()?;
        let fields: Vec<&str> = stat.rsplit_once(") ")?.1.split(' ').collect();
        Some(fields.get(11)?.parse::<f64>().ok()? + fields.get(12)?.parse::<f64>().ok()?)
    };
    10.0 * ticks().unwrap_or(f64::NAN)
}

fn time<T>(f: impl FnOnce() -> T) -> (T, Time) {
    let (cpu, wall) = (cpu_ms(), Instant::now());
    let out = f();
    let wall = wall.elapsed().as_secs_f64() * 1e3;
    let cpu = cpu_ms() - cpu;
    (out, Time { wall, cpu })
}

fn median(times: &[Time], what: impl Fn(&Time) -> f64) -> f64 {
    let mut values: Vec<f64> = times.iter().map(what).collect();
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}

/// Decompositions into 64 bits: as in most circuits, nearly all wires are 0 or 1.
fn bit_circuit<C: GpuCurve>(n_constraints: usize) -> (R1cs, Witness) {
    let bytes = |x: C::Fr| {
        let mut bytes = [0; 32];
        bytes.copy_from_slice(&x.into_bigint().to_bytes_le());
        bytes
    };
    let (one, minus_one) = (bytes(C::Fr::one()), bytes(-C::Fr::one()));
    let [mut a, mut b, mut c] = [(); 3].map(|()| R1csMatrix::new());
    let mut values = vec![one, one];
    let mut number = 1u64;
    for _ in 0..n_constraints / 65 {
        number = number
            .wrapping_mul(6364136223846793005)
            .wrapping_add(1442695040888963407);
        let wire = values.len() as u32;
        values.push(bytes(C::Fr::from(number)));
        for i in 0..64u32 {
            values.push(bytes(C::Fr::from(number >> i & 1)));
            let bit = wire + 1 + i;
            a.push(bit, one);
            b.push(bit, one);
            b.push(0, minus_one);
            for matrix in [&mut a, &mut b, &mut c] {
                matrix.end_row();
            }
        }
        for i in 0..64u32 {
            a.push(wire + 1 + i, bytes(C::Fr::from(1u64 << i)));
        }
        b.push(0, one);
        c.push(wire, one);
        for matrix in [&mut a, &mut b, &mut c] {
            matrix.end_row();
        }
    }
    let r1cs = R1cs {
        curve: C::ID,
        source: None,
        n_wires: values.len(),
        n_pub_out: 0,
        n_pub_in: 1,
        n_prv_in: 0,
        n_constraints: a.rows(),
        a,
        b,
        c,
    };
    let witness = Witness {
        curve: C::ID,
        values: values.concat().into(),
    };
    (r1cs, witness)
}

fn to_ark<C: GpuCurve>(key: &ProvingKey) -> ArkKey<C::Pairing> {
    let g1 = |bytes: &[u8]| -> Vec<_> {
        bytes
            .chunks_exact(C::ID.g1_bytes())
            .map(|p| g1_from_raw::<C>(p).expect("a point"))
            .collect()
    };
    let g2 = |bytes: &[u8]| -> Vec<_> {
        bytes
            .chunks_exact(C::ID.g2_bytes())
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

fn rows<C: GpuCurve>(matrix: &R1csMatrix) -> Vec<Vec<(C::Fr, usize)>> {
    (0..matrix.rows())
        .map(|i| {
            matrix
                .row(i)
                .map(|(wire, x)| (C::Fr::from_le_bytes_mod_order(x), wire as usize))
                .collect()
        })
        .collect()
}

fn compare<C: GpuCurve>(circuit: &str, r1cs: &R1cs, witness: &Witness, runs: usize) {
    let key = setup_insecure_as(r1cs, QapReduction::Libsnark).expect("a key");
    let ark_key = to_ark::<C>(&key);
    let matrices = [&r1cs.a, &r1cs.b, &r1cs.c].map(rows::<C>);
    let assignment: Vec<C::Fr> = (0..witness.len())
        .map(|i| C::Fr::from_le_bytes_mod_order(witness.value(i)))
        .collect();
    let (r, s) = (C::Fr::from(3u64), C::Fr::from(5u64));
    let ark = || {
        Groth16::<C::Pairing, LibsnarkReduction>::create_proof_with_reduction_and_matrices(
            &ark_key,
            r,
            s,
            &matrices,
            r1cs.n_public() + 1,
            r1cs.n_constraints,
            &assignment,
        )
        .expect("a proof")
    };
    let prover = Prover::new(Device::Cpu);
    let mut options = ProveOptions::default();
    options.self_verify = false;
    let scalar = |n: u8| std::array::from_fn(|i| if i == 0 { n } else { 0 });
    let ours = || {
        prover
            .prove_with_blinding(&key, witness, &options, &scalar(3), &scalar(5))
            .expect("a proof")
    };

    let (mut our_times, mut ark_times) = (Vec::new(), Vec::new());
    let mut phases = Vec::new();
    for run in 0..=runs {
        let ((proof, report), our_time) = time(ours);
        let (ark_proof, ark_time) = time(ark);
        let public = &assignment[1..=r1cs.n_public()];
        assert_eq!(proof, Proof::from_ark::<C>(&ark_proof, public));
        // The first run warms up.
        if run > 0 {
            our_times.push(our_time);
            ark_times.push(ark_time);
            phases = report.phases;
        }
    }
    let wall = |times: &[Time]| median(times, |t| t.wall);
    let cpu = |times: &[Time]| median(times, |t| t.cpu);
    println!(
        "{:9} {circuit:10} {:7} constraints: ours {:8.1} ms, ark-groth16 {:8.1} ms, ratio {:.2}; CPU time ours {:8.0} ms, ark-groth16 {:8.0} ms, ratio {:.2}",
        C::ID.name(),
        r1cs.n_constraints,
        wall(&our_times),
        wall(&ark_times),
        wall(&our_times) / wall(&ark_times),
        cpu(&our_times),
        cpu(&ark_times),
        cpu(&our_times) / cpu(&ark_times),
    );
    for phase in phases {
        println!("    {:14} {:8.1} ms", phase.name, phase.wall_ms);
    }
}

fn both<C: GpuCurve>(log2: u32, runs: usize) {
    // Membership takes 333 constraints a level; a little below a power of two.
    let n = (1usize << log2) * 49 / 64;
    let (r1cs, witness) = merkle_membership::<C>((n / 333).max(1) as u32, 1);
    compare::<C>("membership", &r1cs, &witness, runs);
    let (r1cs, witness) = bit_circuit::<C>(n);
    compare::<C>("bits", &r1cs, &witness, runs);
}

fn main() {
    // `cargo bench` and `cargo test` pass flags of their own.
    let numbers: Vec<u32> = std::env::args()
        .filter_map(|arg| arg.parse().ok())
        .collect();
    let testing = std::env::args().any(|arg| arg == "--test")
        || !std::env::args().any(|arg| arg == "--bench");
    let (log2, runs) = if testing { (9, 1) } else { (17, 5) };
    let log2 = numbers.first().copied().unwrap_or(log2);
    let runs = numbers.get(1).map_or(runs, |n| *n as usize).max(1);
    both::<Bn254>(log2, runs);
    both::<Bls12381>(log2, runs);
}
