//! Known answers: small inputs whose results stand in the source ([`super::known_answers`]), so that
//! neither this program's CPU path nor arkworks has a part in them. One for each stage of a proof,
//! in the order in which stages build on each other; the first use of a device runs them
//! ([`crate::first_use`]), and so does the self-test.

use super::field::pointwise;
use super::known_answers::{Answers, BASES, BLS12_381, BN254, NTT_LOG, PRODUCTS, ROWS, WIRES};
use super::msm::{Way, canonical, on_device};
use super::ntt::to_coefficients_and_coset;
use super::rows::products;
use super::{
    Case, Outcome, Prepared, Scope, Size, at_rest, check, ensure, rng, run_recording, upload,
};
use crate::bytes::Bytes;
use crate::curve::{CurveId, G1, G1Affine, G2, G2Affine, GpuCurve};
use crate::device::recording::{Dispatch, Recording};
use crate::domain::RootConvention;
use crate::formats::r1cs::R1csMatrix;
use crate::kernels::Kernel;
use crate::msm::{Geometry, Group, finish_g1, finish_g2, record_sort, scalar_bits};
use crate::parts::Parts;
use crate::proving_key::{g1_to_raw, g2_to_raw};
use crate::row_product::RowPieces;
use crate::scan::record_scan;
use ark_ec::short_weierstrass::{Projective, SWCurveConfig};
use ark_ec::{AffineRepr, CurveGroup, PrimeGroup};
use ark_ff::{BigInteger, Field, One, PrimeField, UniformRand, Zero};
use sha2::{Digest, Sha256};

fn answers(curve: CurveId) -> &'static Answers {
    match curve {
        CurveId::Bn254 => &BN254,
        CurveId::Bls12_381 => &BLS12_381,
    }
}

/// Bits of a digit in the sums: several blocks of offsets, and buckets of several points.
const WINDOW: u32 = 7;

/// The answers over one curve. Each lists every kernel that it runs.
pub(super) fn cases_over<C: GpuCurve>() -> Vec<Case> {
    use Kernel::*;
    let case = |name, kernels, prepare| Case {
        name,
        curve: C::ID,
        scope: Scope::Kernel,
        kernels,
        prepare,
    };
    const SORT: [Kernel; 4] = [MsmDigits, ScanBlock, ScanAdd, MsmScatter];
    const POINTS: [Kernel; 2] = [PointsImport, PointsExport];
    macro_rules! sum {
        ($($kernel:ident),*) => {
            &[
                SORT[0], SORT[1], SORT[2], SORT[3], POINTS[0], POINTS[1], $($kernel),*
            ]
        };
    }
    macro_rules! pairs {
        ($sums:ident, $($kernel:ident),*) => {
            sum!(MsmPairCounts, MsmPairSources, $sums, $($kernel),*)
        };
    }
    vec![
        case("known_scan", &[ScanBlock, ScanAdd], scan::<C>),
        case("known_pointwise_mul", &[PointwiseMul], pointwise_mul::<C>),
        case("known_quotient", &[Quotient], quotient::<C>),
        case("known_row_product", &[RowProduct], row_product::<C>),
        case("known_ntt", &[NttRoots, NttDif, NttDit], ntt::<C>),
        case(
            "known_ntt_parts",
            &[NttRoots, NttDif, NttDit, NttSplit, NttReverse],
            ntt_parts::<C>,
        ),
        case("known_points", &POINTS, points::<C>),
        case("known_digits", &SORT, digits::<C>),
        case(
            "known_msm_g1",
            sum!(MsmAccumulateG1, MsmMergeG1, MsmReduceG1),
            |_| sum_g1::<C>(0, 0),
        ),
        case(
            "known_msm_g2",
            sum!(MsmAccumulateG2, MsmMergeG2, MsmReduceG2),
            |_| sum_g2::<C>(0, 0),
        ),
        case(
            "known_msm_pairs_g1",
            pairs!(MsmPairSumsG1, MsmAccumulateG1, MsmMergeG1, MsmReduceG1),
            |_| sum_g1::<C>(2, 0),
        ),
        case(
            "known_msm_pairs_g2",
            pairs!(MsmPairSumsG2, MsmAccumulateG2, MsmMergeG2, MsmReduceG2),
            |_| sum_g2::<C>(2, 0),
        ),
        case(
            "known_msm_tables_g1",
            sum!(MsmTableG1, MsmAccumulateG1, MsmMergeG1, MsmReduceG1),
            |_| sum_g1::<C>(0, 4),
        ),
        case(
            "known_msm_tables_g2",
            sum!(MsmTableG2, MsmAccumulateG2, MsmMergeG2, MsmReduceG2),
            |_| sum_g2::<C>(0, 4),
        ),
    ]
}

/// As `tests/known_answers/generate.py` makes it.
fn scalar<C: GpuCurve>(label: &str, i: usize) -> C::Fr {
    let mut text = format!("groth16-gpu known answer {label}").into_bytes();
    text.extend_from_slice(&(i as u32).to_le_bytes());
    C::Fr::from_le_bytes_mod_order(&Sha256::digest(text))
}

fn scalars<C: GpuCurve>(label: &str, n: usize) -> Vec<C::Fr> {
    (0..n).map(|i| scalar::<C>(label, i)).collect()
}

/// Compares scalars at rest with the digest of what they should be.
fn expect<C: GpuCurve>(got: &[u8], digest: &str, what: &str) -> Outcome {
    let mut hash = Sha256::new();
    for (i, bytes) in got.chunks_exact(32).enumerate() {
        let x = C::fr_from_montgomery(bytes)
            .ok_or_else(|| format!("{what}: element {i} is not below the modulus"))?;
        hash.update(x.into_bigint().to_bytes_le());
    }
    ensure!(
        hex(&hash.finalize()) == digest,
        "{what}: not the known answer"
    );
    Ok(())
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|b| format!("{b:02x}")).collect()
}

/// a, b and c, with edges in the first places.
fn vectors<C: GpuCurve>() -> [Bytes; 3] {
    let (zero, one, minus) = (C::Fr::zero(), C::Fr::one(), -C::Fr::one());
    [
        ("a", [zero, one, minus, minus]),
        ("b", [minus, minus, minus, one]),
        ("c", [zero, minus, one, zero]),
    ]
    .map(|(label, edges)| {
        let mut v = scalars::<C>(label, PRODUCTS);
        v[..4].copy_from_slice(&edges);
        at_rest::<C>(&v)
    })
}

fn pointwise_mul<C: GpuCurve>(_: Size) -> Prepared {
    let [a, b, _] = vectors::<C>();
    check(move |gpu| {
        let inputs = [a.clone(), b.clone()];
        let got = pointwise::<C>(gpu, Kernel::PointwiseMul, &inputs, PRODUCTS)?;
        expect::<C>(&got, answers(C::ID).products, "a·b")
    })
}

fn quotient<C: GpuCurve>(_: Size) -> Prepared {
    let [a, b, c] = vectors::<C>();
    let inputs = [a, b, c, at_rest::<C>(&[scalar::<C>("factor", 0)])];
    check(move |gpu| {
        let got = pointwise::<C>(gpu, Kernel::Quotient, &inputs, PRODUCTS)?;
        expect::<C>(&got, answers(C::ID).quotients, "(a·b − c)·factor")
    })
}

fn row_product<C: GpuCurve>(_: Size) -> Prepared {
    let wires = scalars::<C>("wire", WIRES);
    let mut matrix = R1csMatrix::new();
    let mut k = 0;
    for length in ROWS {
        for _ in 0..length {
            let value = match k % 4 {
                0 => C::Fr::one(),
                1 => -C::Fr::one(),
                _ => scalar::<C>("coefficient", k),
            };
            let mut bytes = [0; 32];
            bytes.copy_from_slice(&value.into_bigint().to_bytes_le());
            matrix.push(((7 * k + 3) % WIRES) as u32, bytes);
            k += 1;
        }
        matrix.end_row();
    }
    let matrix = matrix.to_key_matrix::<C>();
    check(move |gpu| {
        let max_binding = gpu.limits().max_binding;
        let got = products::<C>(gpu, &matrix, &wires, |rec| {
            let witness = Parts::secret(rec, "witness", WIRES, WIRES);
            let target = Parts::secret(rec, "products", ROWS.len(), ROWS.len());
            (RowPieces::new(&matrix, max_binding), witness, target)
        })?;
        expect::<C>(&got, answers(C::ID).rows, "rows")
    })
}

fn transform<C: GpuCurve>(split_log: u32) -> Prepared {
    let values = at_rest::<C>(&scalars::<C>("value", 1 << NTT_LOG));
    check(move |gpu| {
        let sizes = (NTT_LOG - split_log, split_log);
        let [coefficients, coset] =
            to_coefficients_and_coset::<C>(gpu, sizes, RootConvention::Arkworks, &values)?;
        let known = answers(C::ID);
        expect::<C>(&coefficients, known.coefficients, "coefficients")?;
        expect::<C>(&coset, known.coset_values, "values on a coset")
    })
}

fn ntt<C: GpuCurve>(_: Size) -> Prepared {
    transform::<C>(0)
}

fn ntt_parts<C: GpuCurve>(_: Size) -> Prepared {
    transform::<C>(1)
}

/// Sums that are counted here by the definition.
fn scan<C: GpuCurve>(_: Size) -> Prepared {
    check(|gpu| {
        let counts: Vec<u32> = (0..5000).map(|i| (i * i + 3) % 7).collect();
        let mut rec = Recording::new();
        let bytes: Vec<u8> = counts.iter().flat_map(|c| c.to_le_bytes()).collect();
        let id = upload(&mut rec, "counts", &bytes.into());
        record_scan(&mut rec, C::ID, id, counts.len() as u32);
        let whole = rec.whole(id);
        rec.download(whole);
        let output = run_recording(gpu, &rec)?;
        let mut sum = 0;
        for (i, (got, count)) in words(&output.downloads[0]).zip(counts).enumerate() {
            ensure!(got == sum, "sum of {i} counts: {got}, not {sum}");
            sum += count;
        }
        Ok(())
    })
}

fn words(bytes: &[u8]) -> impl Iterator<Item = u32> {
    let word = |w: &[u8]| u32::from_le_bytes(w.try_into().expect("chunks of 4"));
    bytes.chunks_exact(4).map(word)
}

/// Coordinates to working form and back: what they were.
fn points<C: GpuCurve>(_: Size) -> Prepared {
    let rng = &mut rng(10);
    let mut elements = vec![C::Fq::zero(), C::Fq::one(), -C::Fq::one()];
    elements.resize_with(200, || C::Fq::rand(rng));
    let limbs = elements.iter().flat_map(C::fq_montgomery);
    let bytes = Bytes::from(limbs.flat_map(|l| l.to_le_bytes()).collect::<Vec<u8>>());
    let n = elements.len() as u32;
    check(move |gpu| {
        let mut rec = Recording::new();
        let at_rest = upload(&mut rec, "at rest", &bytes);
        let at_rest = rec.whole(at_rest);
        let working = rec.transient("working form", at_rest.size);
        let working = rec.whole(working);
        let mut dispatch = |kernel, bindings| {
            rec.dispatch(Dispatch {
                kernel,
                curve: C::ID,
                bindings,
                params: vec![n],
                groups: n.div_ceil(64),
                work_per_group: 64,
            });
        };
        dispatch(Kernel::PointsImport, vec![at_rest, working]);
        dispatch(Kernel::PointsExport, vec![working]);
        rec.download(working);
        let output = run_recording(gpu, &rec)?;
        ensure!(output.downloads[0][..] == bytes[..], "coordinates changed");
        Ok(())
    })
}

/// The sorted entries stand for the scalars that they were made of.
fn digits<C: GpuCurve>(_: Size) -> Prepared {
    let s = sum_scalars::<C>();
    let bytes = canonical::<C>(&s);
    check(move |gpu| {
        let max_binding = gpu.limits().max_binding;
        let geometry = Geometry::with_window(s.len(), scalar_bits::<C>(), WINDOW, max_binding);
        let g = geometry.ok_or("does not fit a binding")?;
        let mut rec = Recording::new();
        let scalars = upload(&mut rec, "scalars", &bytes);
        let scalars = rec.whole(scalars);
        let sorted = record_sort(&mut rec, C::ID, scalars, g);
        for buffer in sorted.buffers() {
            let whole = rec.whole(buffer);
            rec.download(whole);
        }
        let output = run_recording(gpu, &rec)?;
        let [offsets, entries] = [0, 1].map(|i| words(&output.downloads[i]).collect::<Vec<_>>());
        let mut sums = vec![C::Fr::zero(); s.len()];
        for (bucket, range) in offsets.windows(2).enumerate() {
            let (window, digit) = (bucket as u32 / g.buckets, bucket as u32 % g.buckets + 1);
            let weight = C::Fr::from(2u64).pow([u64::from(window * WINDOW)]);
            let summand = weight * C::Fr::from(digit);
            let entries = entries.get(range[0] as usize..range[1] as usize);
            for entry in entries.ok_or("offsets are not in order")? {
                let of = sums.get_mut((entry & !(1 << 31)) as usize);
                let of = of.ok_or_else(|| format!("entry {entry:#x}"))?;
                *of += if entry >> 31 == 0 { summand } else { -summand };
            }
        }
        let wrong = sums.iter().zip(&s).position(|(sum, s)| sum != s);
        ensure!(wrong.is_none(), "digits of scalar {wrong:?}");
        Ok(())
    })
}

/// Scalars of the sums, with edges.
fn sum_scalars<C: GpuCurve>() -> Vec<C::Fr> {
    let mut s = scalars::<C>("scalar", BASES);
    s[..3].copy_from_slice(&[C::Fr::zero(), C::Fr::one(), -C::Fr::one()]);
    s
}

/// (i + 1)·G, with an infinity, an opposite and an equal point among them.
fn bases<P: SWCurveConfig>() -> Vec<ark_ec::short_weierstrass::Affine<P>> {
    let g = Projective::<P>::generator();
    let next = |p: &Projective<P>| Some(*p + g);
    let mut points: Vec<_> = std::iter::successors(Some(g), next).take(BASES).collect();
    points[3] = Projective::zero();
    points[4] = -points[4];
    points[6] = points[5];
    Projective::normalize_batch(&points)
}

fn way(pair_levels: u32, tables: u32) -> Way {
    Way {
        window: Some(WINDOW),
        pair_levels: Some(pair_levels),
        tables,
        max_binding: None,
    }
}

/// Coordinates in hexadecimal, as the answers have them.
fn coordinates<F: PrimeField>(c: &[F]) -> Vec<String> {
    let bytes = F::MODULUS_BIT_SIZE.div_ceil(8) as usize;
    let text = |x: &F| {
        let big = x.into_bigint().to_bytes_be();
        hex(&big[big.len() - bytes..])
    };
    c.iter().map(text).collect()
}

fn sum_g1<C: GpuCurve>(pair_levels: u32, tables: u32) -> Prepared {
    let scalars = canonical::<C>(&sum_scalars::<C>());
    let mut raw = Vec::new();
    let points: Vec<G1Affine<C>> = bases();
    points.iter().for_each(|p| g1_to_raw::<C>(p, &mut raw));
    let raw = Bytes::from(raw);
    check(move |gpu| {
        let way = way(pair_levels, tables);
        let (bytes, geometry) = on_device::<C>(gpu, Group::G1, &scalars, &raw, way)?;
        let sum: G1<C> = finish_g1::<C>(&bytes, &geometry).map_err(|e| e.to_string())?;
        let (x, y) = sum.into_affine().xy().ok_or("the sum is infinity")?;
        let right = coordinates(&[x, y]) == answers(C::ID).sum_g1;
        ensure!(right, "the sum is not the known answer");
        Ok(())
    })
}

fn sum_g2<C: GpuCurve>(pair_levels: u32, tables: u32) -> Prepared {
    let scalars = canonical::<C>(&sum_scalars::<C>());
    let mut raw = Vec::new();
    let points: Vec<G2Affine<C>> = bases();
    points.iter().for_each(|p| g2_to_raw::<C>(p, &mut raw));
    let raw = Bytes::from(raw);
    check(move |gpu| {
        let way = way(pair_levels, tables);
        let (bytes, geometry) = on_device::<C>(gpu, Group::G2, &scalars, &raw, way)?;
        let sum: G2<C> = finish_g2::<C>(&bytes, &geometry).map_err(|e| e.to_string())?;
        let (x, y) = sum.into_affine().xy().ok_or("the sum is infinity")?;
        let parts = [C::fq2_parts(&x), C::fq2_parts(&y)].concat();
        ensure!(
            coordinates(&parts) == answers(C::ID).sum_g2,
            "the sum is not the known answer"
        );
        Ok(())
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::curve::{Bls12381, Bn254};
    use ark_ec::VariableBaseMSM;

    /// The inputs here are those of the script: arkworks comes to the same answers.
    fn arkworks_agrees<C: GpuCurve>() {
        let known = answers(C::ID);
        let [a, b, _] = vectors::<C>().map(|v| {
            let read = |x: &[u8]| C::fr_from_montgomery(x).unwrap();
            v.chunks_exact(32).map(read).collect::<Vec<_>>()
        });
        let products: Vec<_> = a.iter().zip(&b).map(|(a, b)| *a * b).collect();
        expect::<C>(&at_rest::<C>(&products), known.products, "products").unwrap();
        let s = sum_scalars::<C>();
        let g1 = G1::<C>::msm_unchecked(&bases(), &s).into_affine();
        assert_eq!(coordinates(&[g1.x, g1.y]), known.sum_g1);
        let g2 = G2::<C>::msm_unchecked(&bases(), &s).into_affine();
        let parts = [C::fq2_parts(&g2.x), C::fq2_parts(&g2.y)].concat();
        assert_eq!(coordinates(&parts), known.sum_g2);
    }

    #[test]
    fn answers_are_those_of_arkworks() {
        arkworks_agrees::<Bn254>();
        arkworks_agrees::<Bls12381>();
    }

    #[test]
    fn one_digit_changed_is_noticed() {
        let [a, ..] = vectors::<Bn254>();
        assert!(expect::<Bn254>(&a, BN254.products, "a").is_err());
    }
}
