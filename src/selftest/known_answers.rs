//! What known inputs give. Written by `tests/known_answers/generate.py` with Python's integers from
//! the definitions alone; sources of the curves' parameters are there.

/// Lengths of the inputs that [`super::known`] makes.
pub(super) const PRODUCTS: usize = 257;
pub(super) const NTT_LOG: u32 = 10;
pub(super) const WIRES: usize = 97;
pub(super) const ROWS: [usize; 8] = [0, 1, 2, 31, 32, 33, 70, 5];
pub(super) const BASES: usize = 300;

/// Digests of scalars are SHA-256 over 32 bytes each, little-endian, coordinates are hexadecimal.
pub(super) struct Answers {
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
}

/// Over BN254.
pub(super) const BN254: Answers = Answers {
    products: "2fed2c00803fc9c1b30616f7dc290e49d0721b6b85107ab18163b80f1ea57e1a",
    quotients: "2068a7a39e7aecf8d0ceb8c72f0a8f405b3bd87b397a264ff1f403e53179c17a",
    rows: "fff2aab0b0a95d1f903b6f68157ef8e326bd91e135126a633a1b416aa6ebf372",
    coefficients: "7013d8b502d3f8186a9a213a618daef7c8919cf751722eeab55f96a22134bfd5",
    coset_values: "6d1478c3bd67240dd98cb37dada6ba7cd591c500f0edb2a120f41d08002903de",
    sum_g1: [
        "137763287d400f6e915c6e3825dd1fdd60956b06b11fddac649a1fa1acd878ef",
        "08a92d458f17d3e1e51e8c4a66fc6069bdfb1994a2d6bf11bc90d206516a9bbe",
    ],
    sum_g2: [
        "20385b2f1c72d179edf1ccaa0856a3ea041816254d3a190e849f3ac3a5230199",
        "0271a4a6b3dc00f3e5a90f28ef883508f4cb96ba344384c63491352f39ee0bed",
        "260b8dc93b055491eab5f0b2088a100ce5cc080e81ff3b8604314f0e5a868130",
        "012625ee96d36196a1b522aded1ecc15c7f2ea9b23bea3e2e9d01e2bd35e34ae",
    ],
};

/// Over BLS12_381.
pub(super) const BLS12_381: Answers = Answers {
    products: "26276864faddf059f4638b4058b93db8f6bc8ae79cfe25bfea312cdfc4bd1926",
    quotients: "92e76935d1ad6a189129c478630dbe3a255baf503240b6b99668188b625e3ebf",
    rows: "ad21f6418c59c35958ff84ad75cb60851b8be52df98590070d6c231f3f6428dc",
    coefficients: "f114e65a9591680cf2e826f10431fccc35964fc6c6e3b923d8099a46d8f601e0",
    coset_values: "05d3a0c47f25cc049241825991d95680d65122592ffabf72f002c9d244cc41d0",
    sum_g1: [
        "18765c5ddeece4f6e76cddc5c79b8b206cc01609be32740c2b1c39b3bd7d36002518089ba58a3dd207fa0c546c47763e",
        "172f8d14a216e4fb584243919b00be4314dc1181b5549b17a4c22f63ec9b9b5053e3973d4d1ce588b934cbd9f400ce67",
    ],
    sum_g2: [
        "11d9ca3cf9944a9386a18d6c2c6fa3d21f446d85221cd2f9a3cef594568ee83bf473cce762bb05874f587d8d618ea269",
        "01a6ff3bdd1732517e1cb604889078234dc72397d7b047558d6aeab7ae70718e56eddc7ae7eaa9dcf723f59128c93143",
        "00ecaf3dc1366c27fb16f64b92e92bb0f4862c00a61e780f22cfa8fd5060ae424345f54b1888211a307ad821d29c8eb0",
        "0172582fe3c0742c5d09f35c9b294b1d90ac8e0710af2c3ca825d4246cb7270e38050a89bd2df9d1d512ec8c9f975c9d",
    ],
};
