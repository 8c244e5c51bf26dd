//! snarkjs' `proof.json`, `public.json` and `verification_key.json`, as version 0.7 writes and
//! reads them.
//!
//! Numbers are decimal strings of plain (not Montgomery) integers. Points are projective with
//! z = 1; infinity is (0, 1, 0). Elements of Fq2 are `[c0, c1]`. Text is indented by one space and
//! ends without a newline.
//!
//! The readers are stricter than snarkjs: numbers below the modulus only, z of 0 or 1 only, and
//! every point on its curve and in its subgroup. A proof may lack `curve`, as rapidsnark's do.

use crate::bytes::Bytes;
use crate::curve::{CurveId, GpuCurve};
use crate::error::{InputClass, InputError, Result};
use crate::formats::map_file;
use crate::proof::Proof;
use crate::verifying_key::VerifyingKey;
use crate::with_curve;
use ark_ec::pairing::Pairing;
use ark_ff::{Field, PrimeField, Zero};
use num_bigint::BigUint;
use serde::Serialize;
use serde_json::Value;
use std::path::Path;

type G1Json = [String; 3];
type G2Json = [[String; 2]; 3];

#[derive(Serialize)]
struct ProofJson {
    pi_a: G1Json,
    pi_b: G2Json,
    pi_c: G1Json,
    protocol: &'static str,
    curve: &'static str,
}

#[derive(Serialize)]
struct VerifyingKeyJson {
    protocol: &'static str,
    curve: &'static str,
    #[serde(rename = "nPublic")]
    n_public: usize,
    vk_alpha_1: G1Json,
    vk_beta_2: G2Json,
    vk_gamma_2: G2Json,
    vk_delta_2: G2Json,
    /// e(α, β) in the tower Fq12 = Fq6[w], Fq6 = Fq2[v]. Verifiers recompute it.
    vk_alphabeta_12: Vec<Vec<[String; 2]>>,
    #[serde(rename = "IC")]
    ic: Vec<G1Json>,
}

/// The text of `proof.json`.
///
/// # Errors
/// `invalid_point` if a coordinate is not below q.
pub fn proof_to_json(proof: &Proof) -> Result<String> {
    with_curve!(proof.curve, C => pretty(&ProofJson {
        pi_a: g1_to_json::<C>(&proof.a)?,
        pi_b: g2_to_json::<C>(&proof.b)?,
        pi_c: g1_to_json::<C>(&proof.c)?,
        protocol: "groth16",
        curve: C::ID.snarkjs_name(),
    }))
}

/// The text of `public.json`.
pub fn public_to_json(public_inputs: &[[u8; 32]]) -> Result<String> {
    let decimal = |x: &[u8; 32]| BigUint::from_bytes_le(x).to_string();
    pretty(&public_inputs.iter().map(decimal).collect::<Vec<_>>())
}

/// The text of `verification_key.json`.
///
/// # Errors
/// `invalid_point`, as [`VerifyingKey::check`].
pub fn verifying_key_to_json(key: &VerifyingKey) -> Result<String> {
    with_curve!(key.curve, C => {
        let points = key.to_ark::<C>()?;
        let alpha_beta = <C as GpuCurve>::Pairing::pairing(points.alpha_g1, points.beta_g2).0;
        pretty(&VerifyingKeyJson {
            protocol: "groth16",
            curve: C::ID.snarkjs_name(),
            n_public: key.n_public(),
            vk_alpha_1: g1_to_json::<C>(&key.alpha_g1)?,
            vk_beta_2: g2_to_json::<C>(&key.beta_g2)?,
            vk_gamma_2: g2_to_json::<C>(&key.gamma_g2)?,
            vk_delta_2: g2_to_json::<C>(&key.delta_g2)?,
            vk_alphabeta_12: tower_to_json(&alpha_beta),
            ic: key.ic.chunks_exact(C::ID.g1_bytes()).map(g1_to_json::<C>).collect::<Result<_>>()?,
        })
    })
}

/// Twelve coefficients as Fq12 over Fq6 over Fq2, lowest first: arkworks' order is snarkjs'.
fn tower_to_json<F: Field>(x: &F) -> Vec<Vec<[String; 2]>> {
    let numbers: Vec<String> = x
        .to_base_prime_field_elements()
        .map(|c| Into::<BigUint>::into(c.into_bigint()).to_string())
        .collect();
    let pairs: Vec<[String; 2]> = numbers
        .chunks_exact(2)
        .map(|c| [c[0].clone(), c[1].clone()])
        .collect();
    pairs.chunks(3).map(<[_]>::to_vec).collect()
}

fn pretty<T: Serialize>(value: &T) -> Result<String> {
    let mut out = Vec::new();
    let formatter = serde_json::ser::PrettyFormatter::with_indent(b" ");
    value
        .serialize(&mut serde_json::Serializer::with_formatter(
            &mut out, formatter,
        ))
        .and_then(|()| String::from_utf8(out).map_err(|e| serde::ser::Error::custom(e.to_string())))
        .map_err(|e| InputError::new(InputClass::BadJson, e.to_string()).into())
}

/// A coordinate at rest as a plain decimal number.
fn coordinate_to_json<C: GpuCurve>(raw: &[u8]) -> Result<String> {
    let x = C::fq_from_montgomery(raw)
        .ok_or_else(|| InputError::new(InputClass::InvalidPoint, "a coordinate is not below q"))?;
    Ok(Into::<BigUint>::into(x.into_bigint()).to_string())
}

fn g1_to_json<C: GpuCurve>(raw: &[u8]) -> Result<G1Json> {
    if raw.iter().all(|b| *b == 0) {
        return Ok(["0", "1", "0"].map(String::from));
    }
    let (x, y) = raw.split_at(C::ID.fq_bytes());
    let (x, y) = (coordinate_to_json::<C>(x)?, coordinate_to_json::<C>(y)?);
    Ok([x, y, "1".to_owned()])
}

fn g2_to_json<C: GpuCurve>(raw: &[u8]) -> Result<G2Json> {
    if raw.iter().all(|b| *b == 0) {
        return Ok([["0", "0"], ["1", "0"], ["0", "0"]].map(|pair| pair.map(String::from)));
    }
    let c = raw
        .chunks_exact(C::ID.fq_bytes())
        .map(coordinate_to_json::<C>)
        .collect::<Result<Vec<_>>>()?;
    let pair = |i: usize| [c[i].clone(), c[i + 1].clone()];
    Ok([pair(0), pair(2), ["1", "0"].map(String::from)])
}

/// Reads a proof; its public inputs are left empty. `expected` is the curve of the verifying key,
/// if there is one.
///
/// # Errors
/// `bad_json`, `unsupported_protocol`, `unsupported_curve`, `curve_mismatch` (with `expected`),
/// `invalid_point` for a number not below q, a z other than 0 and 1, or a point off the curve or
/// outside the subgroup.
pub fn read_proof(path: &Path, expected: Option<CurveId>) -> Result<Proof> {
    let json = Document::read(path)?;
    if json.value.get("pi_a").is_none() && json.value.get("vk_alpha_1").is_some() {
        return json.bad("expected a proof, but this is a verification key");
    }
    json.check_protocol()?;
    let named = json.curve()?;
    let curve = match (named, expected) {
        (Some(named), Some(expected)) if named != expected => {
            let message =
                format!("the proof is over {named}, but the verifying key over {expected}");
            return json.fail(InputClass::CurveMismatch, message);
        }
        (Some(curve), _) | (None, Some(curve)) => curve,
        (None, None) => return json.bad("the field `curve` is missing"),
    };
    let proof = with_curve!(curve, C => Proof {
        curve,
        a: json.g1::<C>(json.field("pi_a")?, "pi_a")?,
        b: json.g2::<C>("pi_b")?,
        c: json.g1::<C>(json.field("pi_c")?, "pi_c")?,
        public_inputs: Vec::new(),
    });
    with_curve!(curve, C => proof.to_ark::<C>().map(|_| ())).map_err(|e| e.in_file(path))?;
    Ok(proof)
}

/// Reads public inputs, canonical little-endian.
///
/// # Errors
/// `bad_json`; `bad_scalar` with the index of a value that is negative or not below r.
pub fn read_public(path: &Path, curve: CurveId) -> Result<Vec<[u8; 32]>> {
    let json = Document::read(path)?;
    let Some(values) = json.value.as_array() else {
        let what = match (json.value.get("pi_a"), json.value.get("vk_alpha_1")) {
            (Some(_), _) => ", but this is a proof",
            (_, Some(_)) => ", but this is a verification key",
            _ => "",
        };
        return json.bad(format!("expected an array of public inputs{what}"));
    };
    let modulus = BigUint::from_bytes_le(&curve.fr_modulus_bytes());
    let element = |(i, value)| {
        let number = match Number::parse(value) {
            Number::Natural(n) => n.filter(|n| *n < modulus),
            Number::Negative => None,
            Number::Malformed => {
                return json.bad(format!("public input {i} is not a decimal number"));
            }
        };
        let Some(number) = number else {
            let message = "the public input is not from 0 to the scalar field's modulus";
            return Err(InputError::new(InputClass::BadScalar, message)
                .file(path)
                .element(i as u64)
                .into());
        };
        let mut bytes = [0; 32];
        let digits = number.to_bytes_le();
        bytes[..digits.len()].copy_from_slice(&digits);
        Ok(bytes)
    };
    values.iter().enumerate().map(element).collect()
}

/// Reads a verification key and checks its points ([`VerifyingKey::check`]). `vk_alphabeta_12`
/// is not read: it follows from the points.
///
/// # Errors
/// As [`read_proof`]; `count_mismatch` if `nPublic` and the number of IC points do not agree.
pub fn read_verifying_key(path: &Path) -> Result<VerifyingKey> {
    let json = Document::read(path)?;
    if json.value.get("vk_alpha_1").is_none() && json.value.get("pi_a").is_some() {
        return json.bad("expected a verification key, but this is a proof");
    }
    json.check_protocol()?;
    let Some(curve) = json.curve()? else {
        return json.bad("the field `curve` is missing");
    };
    let Some(n_public) = json.field("nPublic")?.as_u64() else {
        return json.bad("`nPublic` is not a natural number");
    };
    let Some(ic) = json.field("IC")?.as_array() else {
        return json.bad("`IC` is not an array");
    };
    if Some(ic.len() as u64) != n_public.checked_add(1) {
        let message = format!(
            "nPublic is {n_public}, but there are {} IC points",
            ic.len()
        );
        return json.fail(InputClass::CountMismatch, message);
    }
    let key = with_curve!(curve, C => VerifyingKey {
        curve,
        alpha_g1: json.g1::<C>(json.field("vk_alpha_1")?, "vk_alpha_1")?,
        beta_g2: json.g2::<C>("vk_beta_2")?,
        gamma_g2: json.g2::<C>("vk_gamma_2")?,
        delta_g2: json.g2::<C>("vk_delta_2")?,
        ic: ic
            .iter()
            .map(|p| json.g1::<C>(p, "IC"))
            .collect::<Result<Vec<_>>>()?
            .concat(),
    });
    key.check().map_err(|e| e.in_file(path))?;
    Ok(key)
}

/// A number as JSON may give it.
enum Number {
    /// `None` if it is too long for any modulus.
    Natural(Option<BigUint>),
    Negative,
    Malformed,
}

impl Number {
    fn parse(value: &Value) -> Self {
        let text = match value {
            Value::String(s) => s.as_str(),
            Value::Number(n) => match n.as_u64() {
                Some(n) => return Self::Natural(Some(n.into())),
                None if n.is_i64() => return Self::Negative,
                None => return Self::Malformed,
            },
            _ => return Self::Malformed,
        };
        let (negative, digits) = match text.strip_prefix('-') {
            Some(rest) => (true, rest),
            None => (false, text),
        };
        if digits.is_empty() || !digits.bytes().all(|b| b.is_ascii_digit()) {
            return Self::Malformed;
        }
        if negative {
            return Self::Negative;
        }
        let digits = digits.trim_start_matches('0');
        // 2^384 has 116 digits; parsing is quadratic, so longer ones are not worth it.
        if digits.len() > 120 {
            return Self::Natural(None);
        }
        Self::Natural(BigUint::parse_bytes(digits.as_bytes(), 10).or_else(|| Some(BigUint::zero())))
    }
}

/// A parsed file.
struct Document<'a> {
    path: &'a Path,
    value: Value,
}

impl<'a> Document<'a> {
    fn read(path: &'a Path) -> Result<Self> {
        let bytes: Bytes = map_file(path)?;
        match serde_json::from_slice(&bytes) {
            Ok(value) => Ok(Self { path, value }),
            Err(e) => Err(
                InputError::new(InputClass::BadJson, format!("not JSON: {e}"))
                    .file(path)
                    .into(),
            ),
        }
    }
    fn fail<T>(&self, class: InputClass, message: impl Into<String>) -> Result<T> {
        Err(InputError::new(class, message).file(self.path).into())
    }
    fn bad<T>(&self, message: impl Into<String>) -> Result<T> {
        self.fail(InputClass::BadJson, message)
    }
    fn field(&self, name: &str) -> Result<&Value> {
        match self.value.get(name) {
            Some(value) => Ok(value),
            None => self.bad(format!("the field `{name}` is missing")),
        }
    }
    fn check_protocol(&self) -> Result<()> {
        match self.field("protocol")?.as_str() {
            Some("groth16") => Ok(()),
            Some(other) => self.fail(
                InputClass::UnsupportedProtocol,
                format!("protocol `{other}` is not supported; expected `groth16`"),
            ),
            None => self.bad("`protocol` is not a string"),
        }
    }
    /// snarkjs ignores case and punctuation of the name.
    fn curve(&self) -> Result<Option<CurveId>> {
        let Some(value) = self.value.get("curve") else {
            return Ok(None);
        };
        let Some(name) = value.as_str() else {
            return self.bad("`curve` is not a string");
        };
        let plain: String = name
            .chars()
            .filter(char::is_ascii_alphanumeric)
            .map(|c| c.to_ascii_lowercase())
            .collect();
        match plain.as_str() {
            "bn128" | "bn254" | "altbn128" => Ok(Some(CurveId::Bn254)),
            "bls12381" => Ok(Some(CurveId::Bls12_381)),
            _ => self.fail(
                InputClass::UnsupportedCurve,
                format!("curve `{name}` is not supported; expected `bn128` or `bls12381`"),
            ),
        }
    }
    /// The elements of an array of exactly `N`.
    fn array<'v, const N: usize>(&self, value: &'v Value, name: &str) -> Result<&'v [Value; N]> {
        match value.as_array().and_then(|a| a.as_slice().try_into().ok()) {
            Some(elements) => Ok(elements),
            None => self.bad(format!("`{name}` is not an array of {N}")),
        }
    }
    fn coordinate<C: GpuCurve>(&self, value: &Value, name: &str) -> Result<C::Fq> {
        let number = match Number::parse(value) {
            Number::Natural(n) => n,
            Number::Negative => None,
            Number::Malformed => {
                return self.bad(format!("a coordinate of `{name}` is not a decimal number"));
            }
        };
        match number.filter(|n| *n < C::Fq::MODULUS.into()) {
            Some(n) => Ok(C::Fq::from(n)),
            None => self.fail(
                InputClass::InvalidPoint,
                format!("a coordinate of `{name}` is not from 0 to the base field's modulus"),
            ),
        }
    }
    fn g1<C: GpuCurve>(&self, value: &Value, name: &str) -> Result<Vec<u8>> {
        let [x, y, z] = self.array::<3>(value, name)?;
        let x = self.coordinate::<C>(x, name)?;
        let y = self.coordinate::<C>(y, name)?;
        let z = self.coordinate::<C>(z, name)?;
        self.affine::<C>(&[x], &[y], &[z], name)
    }
    fn g2<C: GpuCurve>(&self, name: &str) -> Result<Vec<u8>> {
        let pair = |value| -> Result<[C::Fq; 2]> {
            let [c0, c1] = self.array::<2>(value, name)?;
            Ok([
                self.coordinate::<C>(c0, name)?,
                self.coordinate::<C>(c1, name)?,
            ])
        };
        let [x, y, z] = self.array::<3>(self.field(name)?, name)?;
        self.affine::<C>(&pair(x)?, &pair(y)?, &pair(z)?, name)
    }
    /// The form at rest of an affine or infinite point given by the coefficients of x, y, z.
    fn affine<C: GpuCurve>(
        &self,
        x: &[C::Fq],
        y: &[C::Fq],
        z: &[C::Fq],
        name: &str,
    ) -> Result<Vec<u8>> {
        let is_one = |c: &[C::Fq]| c[0] == C::Fq::from(1u64) && c[1..].iter().all(Zero::is_zero);
        let is_zero = |c: &[C::Fq]| c.iter().all(Zero::is_zero);
        let infinite = is_zero(z) && is_zero(x) && is_one(y);
        // (0, 0) is on no curve, but is what infinity looks like at rest.
        if !infinite && (!is_one(z) || (is_zero(x) && is_zero(y))) {
            let message = format!("`{name}` is not affine: z must be 1, or (x, y, z) = (0, 1, 0)");
            return self.fail(InputClass::InvalidPoint, message);
        }
        let mut out = Vec::with_capacity((x.len() + y.len()) * C::ID.fq_bytes());
        for c in x.iter().chain(y) {
            let c = if infinite { C::Fq::zero() } else { *c };
            for limb in C::fq_montgomery(&c) {
                out.extend_from_slice(&limb.to_le_bytes());
            }
        }
        Ok(out)
    }
}
