//! A curve is a table of moduli and a few constants; everything else is generic over [`GpuCurve`].

use ark_ec::models::short_weierstrass::{Affine, Projective, SWCurveConfig};
use ark_ec::pairing::Pairing;
use ark_ff::{BigInteger, Field, PrimeField};

/// The curves that this crate proves over.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum CurveId {
    Bls12_381,
    Bn254,
}

impl CurveId {
    pub const ALL: [CurveId; 2] = [CurveId::Bls12_381, CurveId::Bn254];

    /// Name in reports and on the command line: `bls12_381`, `bn254`.
    pub fn name(self) -> &'static str {
        match self {
            Self::Bls12_381 => "bls12_381",
            Self::Bn254 => "bn254",
        }
    }
    /// Name in snarkjs' JSON files: `bls12381`, `bn128`.
    pub fn snarkjs_name(self) -> &'static str {
        match self {
            Self::Bls12_381 => "bls12381",
            Self::Bn254 => "bn128",
        }
    }
    /// Bytes of a base field element at rest: 48 or 32.
    pub fn fq_bytes(self) -> usize {
        match self {
            Self::Bls12_381 => 48,
            Self::Bn254 => 32,
        }
    }
    /// Bytes of a scalar field element at rest.
    pub fn fr_bytes(self) -> usize {
        32
    }
    /// Bytes of an affine G1 point at rest (x, y): 96 or 64.
    pub fn g1_bytes(self) -> usize {
        2 * self.fq_bytes()
    }
    /// Bytes of an affine G2 point at rest (x.c0, x.c1, y.c0, y.c1): 192 or 128.
    pub fn g2_bytes(self) -> usize {
        4 * self.fq_bytes()
    }
    /// The scalar field's modulus r, least significant limb first.
    pub fn fr_modulus(self) -> [u64; 4] {
        match self {
            Self::Bls12_381 => ark_bls12_381::Fr::MODULUS.0,
            Self::Bn254 => ark_bn254::Fr::MODULUS.0,
        }
    }
    /// The base field's modulus q, little-endian, [`Self::fq_bytes`] bytes.
    pub fn fq_modulus_bytes(self) -> Vec<u8> {
        match self {
            Self::Bls12_381 => ark_bls12_381::Fq::MODULUS.to_bytes_le(),
            Self::Bn254 => ark_bn254::Fq::MODULUS.to_bytes_le(),
        }
    }
    /// The scalar field's modulus r, little-endian.
    pub fn fr_modulus_bytes(self) -> [u8; 32] {
        let mut bytes = [0; 32];
        for (chunk, limb) in bytes.chunks_exact_mut(8).zip(self.fr_modulus()) {
            chunk.copy_from_slice(&limb.to_le_bytes());
        }
        bytes
    }
    /// The curve whose scalar field has the little-endian modulus `r`.
    pub fn from_fr_modulus(r: &[u8]) -> Option<Self> {
        Self::ALL.into_iter().find(|c| c.fr_modulus_bytes() == r)
    }
    /// Whether 32 little-endian bytes are a canonical scalar, that is, below r.
    pub fn is_canonical_scalar(self, bytes: &[u8]) -> bool {
        below(bytes, &self.fr_modulus())
    }
}

/// Whether little-endian `bytes` (as many as `modulus` has) are a smaller number than `modulus`.
fn below(bytes: &[u8], modulus: &[u64]) -> bool {
    for (chunk, m) in bytes.rchunks_exact(8).zip(modulus.iter().rev()) {
        let limb = u64::from_le_bytes(chunk.try_into().expect("chunks of 8"));
        if limb != *m {
            return limb < *m;
        }
    }
    false
}

impl std::fmt::Display for CurveId {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.name())
    }
}

impl std::str::FromStr for CurveId {
    type Err = crate::Error;
    fn from_str(s: &str) -> Result<Self, Self::Err> {
        match s {
            "bls12_381" | "bls12-381" | "bls12381" => Ok(Self::Bls12_381),
            "bn254" | "bn128" => Ok(Self::Bn254),
            _ => Err(crate::Error::Usage(format!(
                "unknown curve `{s}`; known: bls12_381, bn254"
            ))),
        }
    }
}

/// A pairing-friendly curve of this crate, tied to its arkworks types.
pub trait GpuCurve: Copy + Clone + Eq + std::fmt::Debug + Send + Sync + 'static {
    const ID: CurveId;
    type Fr: PrimeField;
    type Fq: PrimeField;
    type Fq2: Field<BasePrimeField = Self::Fq>;
    type G1Config: SWCurveConfig<BaseField = Self::Fq, ScalarField = Self::Fr>;
    type G2Config: SWCurveConfig<BaseField = Self::Fq2, ScalarField = Self::Fr>;
    type Pairing: Pairing<
            ScalarField = Self::Fr,
            BaseField = Self::Fq,
            G1 = Projective<Self::G1Config>,
            G2 = Projective<Self::G2Config>,
            G1Affine = Affine<Self::G1Config>,
            G2Affine = Affine<Self::G2Config>,
        >;
    /// The (c0, c1) coordinates of a quadratic extension element.
    fn fq2_parts(x: &Self::Fq2) -> [Self::Fq; 2];
    /// c0 + c1·u.
    fn fq2_from_parts(c0: Self::Fq, c1: Self::Fq) -> Self::Fq2;
    /// The element whose Montgomery limbs are given as little-endian bytes; `None` if not below p.
    fn fq_from_montgomery(bytes: &[u8]) -> Option<Self::Fq>;
    /// Montgomery limbs, least significant first.
    fn fq_montgomery(x: &Self::Fq) -> &[u64];
    /// As [`Self::fq_from_montgomery`], for the scalar field.
    fn fr_from_montgomery(bytes: &[u8]) -> Option<Self::Fr>;
    /// As [`Self::fq_montgomery`], for the scalar field.
    fn fr_montgomery(x: &Self::Fr) -> &[u64];
}

/// Little-endian bytes as limbs of the scalar or base field's integer type.
fn read_limbs<F: PrimeField>(bytes: &[u8]) -> Option<F::BigInt> {
    let mut big = F::BigInt::default();
    for (limb, chunk) in big.as_mut().iter_mut().zip(bytes.chunks_exact(8)) {
        *limb = u64::from_le_bytes(chunk.try_into().expect("chunks of 8"));
    }
    (big < F::MODULUS).then_some(big)
}

/// Affine point of G1.
pub type G1Affine<C> = Affine<<C as GpuCurve>::G1Config>;
/// Affine point of G2.
pub type G2Affine<C> = Affine<<C as GpuCurve>::G2Config>;
/// Projective point of G1.
pub type G1<C> = Projective<<C as GpuCurve>::G1Config>;
/// Projective point of G2.
pub type G2<C> = Projective<<C as GpuCurve>::G2Config>;

macro_rules! gpu_curve {
    ($name:ident, $id:expr, $krate:ident, $pairing:ident) => {
        #[doc = concat!("The curve of `", stringify!($krate), "`.")]
        #[derive(Copy, Clone, Debug, PartialEq, Eq)]
        pub struct $name;
        impl GpuCurve for $name {
            const ID: CurveId = $id;
            type Fr = $krate::Fr;
            type Fq = $krate::Fq;
            type Fq2 = $krate::Fq2;
            type G1Config = $krate::g1::Config;
            type G2Config = $krate::g2::Config;
            type Pairing = $krate::$pairing;
            fn fq2_parts(x: &Self::Fq2) -> [Self::Fq; 2] {
                [x.c0, x.c1]
            }
            fn fq2_from_parts(c0: Self::Fq, c1: Self::Fq) -> Self::Fq2 {
                Self::Fq2::new(c0, c1)
            }
            fn fq_from_montgomery(bytes: &[u8]) -> Option<Self::Fq> {
                read_limbs::<Self::Fq>(bytes).map(Self::Fq::new_unchecked)
            }
            fn fq_montgomery(x: &Self::Fq) -> &[u64] {
                &x.0.0
            }
            fn fr_from_montgomery(bytes: &[u8]) -> Option<Self::Fr> {
                read_limbs::<Self::Fr>(bytes).map(Self::Fr::new_unchecked)
            }
            fn fr_montgomery(x: &Self::Fr) -> &[u64] {
                &x.0.0
            }
        }
    };
}
gpu_curve!(Bls12381, CurveId::Bls12_381, ark_bls12_381, Bls12_381);
gpu_curve!(Bn254, CurveId::Bn254, ark_bn254, Bn254);

/// Runs `$body` with the type `$C` bound to the curve of the run-time id `$id`.
#[macro_export]
macro_rules! with_curve {
    ($id:expr, $C:ident => $body:expr) => {
        match $id {
            $crate::curve::CurveId::Bls12_381 => {
                type $C = $crate::curve::Bls12381;
                $body
            }
            $crate::curve::CurveId::Bn254 => {
                type $C = $crate::curve::Bn254;
                $body
            }
        }
    };
}
