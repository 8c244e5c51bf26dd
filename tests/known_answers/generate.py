#!/usr/bin/env python3
"""Writes src/selftest/known_answers.rs: what small inputs must give, from definitions alone.

    python3 tests/known_answers/generate.py > src/selftest/known_answers.rs

Python's integers, the curves' equations and sums as the definitions have them; no code and no table
is shared with the prover or with arkworks. Parameters: BN254 from EIP-196 and EIP-197, BLS12-381 from
draft-irtf-cfrg-pairing-friendly-curves-11 (section 4.2.1). They are checked below: generators lie on
their curves and have order r.

Inputs: scalar LABEL, I is SHA-256("groth16-gpu known answer LABEL" ++ I as 4 bytes, little-endian),
read as a little-endian integer, modulo r. src/selftest/known.rs makes the same ones.
"""
import hashlib

PRODUCTS, NTT_LOG, WIRES, BASES = 257, 10, 97, 300
ROWS = [0, 1, 2, 31, 32, 33, 70, 5]


class Curve:
    def __init__(self, name, p, r, b, b2, g1, g2, generator):
        self.name, self.p, self.r = name, p, r
        # The multiplicative generator of Fr that arkworks' roots of unity come from.
        self.generator = generator
        self.g1, self.g2 = Group(Fp(p), (b, 0), g1), Group(Fp2(p), b2, g2)

    def scalar(self, label, i):
        text = b"groth16-gpu known answer " + label.encode() + i.to_bytes(4, "little")
        return int.from_bytes(hashlib.sha256(text).digest(), "little") % self.r


class Fp2:
    """p ≡ 3 mod 4: Fp[u]/(u² + 1), elements are pairs."""

    def __init__(self, p):
        self.p = p

    def add(self, x, y):
        return ((x[0] + y[0]) % self.p, (x[1] + y[1]) % self.p)

    def neg(self, x):
        return (-x[0] % self.p, -x[1] % self.p)

    def mul(self, x, y):
        (a, b), (c, d) = x, y
        return ((a * c - b * d) % self.p, (a * d + b * c) % self.p)

    def inv(self, x):
        n = pow(x[0] * x[0] + x[1] * x[1], -1, self.p)
        return (x[0] * n % self.p, -x[1] * n % self.p)


class Fp(Fp2):
    """The subfield of pairs whose second part is 0."""


class Group:
    """y² = x³ + b, affine; None is infinity."""

    def __init__(self, field, b, generator):
        self.f, self.b, self.g = field, b, generator
        x, y = generator
        f = field
        assert f.mul(y, y) == f.add(f.mul(x, f.mul(x, x)), b), "generator is off the curve"

    def add(self, p, q):
        f = self.f
        if p is None or q is None:
            return q if p is None else p
        if p[0] == q[0]:
            if p[1] == f.neg(q[1]):
                return None
            xx = f.mul(p[0], p[0])
            slope = f.mul(f.add(xx, f.add(xx, xx)), f.inv(f.add(p[1], p[1])))
        else:
            slope = f.mul(f.add(q[1], f.neg(p[1])), f.inv(f.add(q[0], f.neg(p[0]))))
        x = f.add(f.mul(slope, slope), f.neg(f.add(p[0], q[0])))
        return (x, f.add(f.mul(slope, f.add(p[0], f.neg(x))), f.neg(p[1])))

    def mul(self, p, k):
        out = None
        while k:
            if k & 1:
                out = self.add(out, p)
            p, k = self.add(p, p), k >> 1
        return out


def digest(values):
    """SHA-256 over the values as 32 bytes each, little-endian."""
    return hashlib.sha256(b"".join(v.to_bytes(32, "little") for v in values)).hexdigest()


def transform(values, root, r):
    """values[i] · root^(i·j) summed up over i, for every j."""
    if len(values) == 1:
        return values
    even = transform(values[0::2], root * root % r, r)
    odd = transform(values[1::2], root * root % r, r)
    out, power = [0] * len(values), 1
    for i, (e, o) in enumerate(zip(even, odd)):
        out[i] = (e + power * o) % r
        out[i + len(even)] = (e - power * o) % r
        power = power * root % r
    return out


def answers(c):
    r = c.r
    assert c.g1.mul(c.g1.g, r) is None and c.g2.mul(c.g2.g, r) is None, "order"
    vectors = {}
    for label in "abc":
        v = [c.scalar(label, i) for i in range(PRODUCTS)]
        # Edges: 0, 1 and −1 in every combination of the first two.
        v[0], v[1], v[2], v[3] = {
            "a": (0, 1, r - 1, r - 1),
            "b": (r - 1, r - 1, r - 1, 1),
            "c": (0, r - 1, 1, 0),
        }[label]
        vectors[label] = v
    a, b, cc = vectors["a"], vectors["b"], vectors["c"]
    factor = c.scalar("factor", 0)
    products = [x * y % r for x, y in zip(a, b)]
    quotients = [(x * y - z) * factor % r for x, y, z in zip(a, b, cc)]
    # Rows.
    wires = [c.scalar("wire", i) for i in range(WIRES)]
    rows, k = [], 0
    for length in ROWS:
        total = 0
        for _ in range(length):
            value = {0: 1, 1: r - 1}.get(k % 4, c.scalar("coefficient", k))
            total += value * wires[(7 * k + 3) % WIRES]
            k += 1
        rows.append(total % r)
    # Coefficients of the polynomial with these values, and its values on the coset of the generator.
    n = 1 << NTT_LOG
    s = (r - 1 & -(r - 1)).bit_length() - 1
    root = pow(c.generator, (r - 1) >> NTT_LOG, r)
    assert NTT_LOG <= s and pow(root, n // 2, r) == r - 1
    values = [c.scalar("value", i) for i in range(n)]
    n_inv = pow(n, -1, r)
    coefficients = [x * n_inv % r for x in transform(values, pow(root, -1, r), r)]
    # By the definition, at one place.
    assert sum(x * pow(root, 5 * i, r) for i, x in enumerate(coefficients)) % r == values[5]
    shifted, power = [], 1
    for x in coefficients:
        shifted.append(x * power % r)
        power = power * c.generator % r
    coset = transform(shifted, root, r)
    # Σ s_i·m_i·G: bases are m_i·G.
    s = [c.scalar("scalar", i) for i in range(BASES)]
    s[0], s[1], s[2] = 0, 1, r - 1
    m = [i + 1 for i in range(BASES)]
    m[3], m[4], m[6] = 0, -m[4], m[5]
    k = sum(x * y for x, y in zip(s, m)) % r
    points = [c.g1.mul(c.g1.g, k), c.g2.mul(c.g2.g, k)]
    width = (c.p.bit_length() + 7) // 8 * 2
    g1, g2 = [[f"{x:0{width}x}" for x in point] for point in (
        (points[0][0][0], points[0][1][0]),
        (*points[1][0], *points[1][1]),
    )]
    quoted = lambda parts: ", ".join(f'"{x}"' for x in parts)
    return f"""
/// Over {c.name}.
pub(super) const {c.name.upper().replace("-", "_")}: Answers = Answers {{
    products: "{digest(products)}",
    quotients: "{digest(quotients)}",
    rows: "{digest(rows)}",
    coefficients: "{digest(coefficients)}",
    coset_values: "{digest(coset)}",
    sum_g1: [{quoted(g1)}],
    sum_g2: [{quoted(g2)}],
}};
"""


def hexadecimal(*parts):
    return int("".join(parts), 16)


BN254 = Curve(
    "BN254",
    21888242871839275222246405745257275088696311157297823662689037894645226208583,
    21888242871839275222246405745257275088548364400416034343698204186575808495617,
    3,
    # 3/(9 + u)
    (
        19485874751759354771024239261021720505790618469301721065564631296452457478373,
        266929791119991161246907387137283842545076965332900288569378510910307636690,
    ),
    ((1, 0), (2, 0)),
    (
        (
            10857046999023057135944570762232829481370756359578518086990519993285655852781,
            11559732032986387107991004021392285783925812861821192530917403151452391805634,
        ),
        (
            8495653923123431417604973247489272438418190587263600148770280649306958101930,
            4082367875863433681332203403145435568316851327593401208105741076214120093531,
        ),
    ),
    5,
)
BLS12_381 = Curve(
    "BLS12_381",
    hexadecimal(
        "1a0111ea397fe69a4b1ba7b6434bacd764774b84f38512bf6730d2a0f6b0f624",
        "1eabfffeb153ffffb9feffffffffaaab",
    ),
    hexadecimal("73eda753299d7d483339d80809a1d80553bda402fffe5bfeffffffff00000001"),
    4,
    (4, 4),
    (
        (
            hexadecimal(
                "17f1d3a73197d7942695638c4fa9ac0fc3688c4f9774b905a14e3a3f171bac58",
                "6c55e83ff97a1aeffb3af00adb22c6bb",
            ),
            0,
        ),
        (
            hexadecimal(
                "08b3f481e3aaa0f1a09e30ed741d8ae4fcf5e095d5d00af600db18cb2c04b3ed",
                "d03cc744a2888ae40caa232946c5e7e1",
            ),
            0,
        ),
    ),
    (
        (
            hexadecimal(
                "024aa2b2f08f0a91260805272dc51051c6e47ad4fa403b02b4510b647ae3d177",
                "0bac0326a805bbefd48056c8c121bdb8",
            ),
            hexadecimal(
                "13e02b6052719f607dacd3a088274f65596bd0d09920b61ab5da61bbdc7f5049",
                "334cf11213945d57e5ac7d055d042b7e",
            ),
        ),
        (
            hexadecimal(
                "0ce5d527727d6e118cc9cdc6da2e351aadfd9baa8cbdd3a76d429a695160d12c",
                "923ac9cc3baca289e193548608b82801",
            ),
            hexadecimal(
                "0606c4a02ea734cc32acd2b02bc28b99cb3e287e85a763af267492ab572e99ab",
                "3f370d275cec1da1aaa9075ff05f79be",
            ),
        ),
    ),
    7,
)

print(f"""//! What known inputs give. Written by `tests/known_answers/generate.py` with Python's integers from
//! the definitions alone; sources of the curves' parameters are there.

/// Lengths of the inputs that [`super::known`] makes.
pub(super) const PRODUCTS: usize = {PRODUCTS};
pub(super) const NTT_LOG: u32 = {NTT_LOG};
pub(super) const WIRES: usize = {WIRES};
pub(super) const ROWS: [usize; {len(ROWS)}] = {ROWS};
pub(super) const BASES: usize = {BASES};

/// Digests of scalars are SHA-256 over 32 bytes each, little-endian, coordinates are hexadecimal.
pub(super) struct Answers {{
    /// a·b
    pub products: &'static str,
    /// (a·b − c)·factor
    pub quotients: &'static str,
    pub rows: &'static str,
    pub coefficients: &'static str,
    pub coset_values: &'static str,
    /// x and y.
    pub sum_g1: [&'static str; 2],
    /// Both parts of x, then of y.
    pub sum_g2: [&'static str; 4],
}}""")
for curve in (BN254, BLS12_381):
    print(answers(curve).rstrip())
