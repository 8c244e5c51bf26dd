use super::*;
use crate::error::Error;
use crate::setup::setup_from_seed;
use crate::synthetic::circuit;
use std::fs;

fn key(curve: CurveId, reduction: QapReduction) -> ProvingKey {
    let r1cs = with_curve!(curve, C => circuit::<C>(40, 0.5, 1).0);
    setup_from_seed(&r1cs, reduction, 1).unwrap()
}

fn class(result: Result<ProvingKey>) -> InputClass {
    match result {
        Err(Error::Input(e)) => {
            assert!(
                e.to_string().contains("the-key"),
                "does not name the file: {e}"
            );
            e.class
        }
        other => panic!("{other:?}"),
    }
}

/// A prepared key in a file, to be damaged.
struct Place {
    folder: tempfile::TempDir,
}

impl Place {
    fn new() -> Self {
        Self {
            folder: tempfile::tempdir().unwrap(),
        }
    }
    fn path(&self) -> std::path::PathBuf {
        self.folder.path().join("the-key")
    }
    fn read(&self, bytes: &[u8]) -> Result<ProvingKey> {
        fs::write(self.path(), bytes).unwrap();
        OpenPrepared::open(&self.path())?.read()
    }
}

/// Gives a changed header, or a changed section, the digests that belong to it.
fn sign(bytes: &mut [u8]) {
    let count = (le_u32(&bytes[28..]) as usize).min(MAX_SECTIONS);
    for i in 0..count {
        let entry = TABLE + i * ENTRY;
        let at = le_u64(&bytes[entry + 8..]) as usize;
        let length = (le_u64(&bytes[entry + 16..]) as usize).next_multiple_of(PAGE);
        if at + length <= bytes.len() {
            let digest = digest(&bytes[at..at + length]);
            bytes[entry + 24..entry + ENTRY].copy_from_slice(&digest);
        }
    }
    let own = Sha256::digest(&bytes[..HEADER]);
    bytes[HEADER..PAGE].copy_from_slice(&own);
}

#[test]
fn what_is_written_is_read_again() {
    let place = Place::new();
    for curve in CURVES {
        for reduction in REDUCTIONS {
            let mut key = key(curve, reduction);
            for ic in [key.ic.take(), None] {
                key.ic = ic;
                write(&key, KeyCheck::OnCurve, true, &place.path()).unwrap();
                let file = OpenPrepared::open(&place.path()).unwrap();
                assert_eq!((file.level, file.insecure), (KeyCheck::OnCurve, true));
                let found = file.read().unwrap();
                found.check(KeyCheck::Subgroup).unwrap();
                assert_eq!(found.roots, key.roots);
                let mut shape = found.shape();
                shape.source = None;
                assert_eq!(shape, key.shape());
                for (found, key) in [(&found.a, &key.a), (&found.b, &key.b)] {
                    assert_eq!(found.row_starts[..], key.row_starts[..]);
                    assert_eq!(found.entries[..], key.entries[..]);
                    assert_eq!(found.coefficients[..], key.coefficients[..]);
                }
                let parts = |k: &ProvingKey| {
                    let parts = [
                        &k.alpha_g1,
                        &k.beta_g1,
                        &k.beta_g2,
                        &k.gamma_g2,
                        &k.delta_g1,
                        &k.delta_g2,
                        &k.h_query,
                        &k.a_query,
                        &k.b_g1_query,
                        &k.l_query,
                        &k.b_g2_query,
                    ];
                    let ic = k.ic.as_ref().map(|ic| ic.to_vec());
                    (parts.map(|p| p.to_vec()), ic)
                };
                assert_eq!(parts(&found), parts(&key));
                // Points begin with pages, for whoever reads them without a copy.
                let queries = [&found.h_query, &found.a_query, &found.b_g2_query];
                for query in queries {
                    assert_eq!(query.file_offset().unwrap() % PAGE as u64, 0);
                }
            }
        }
    }
}

#[test]
fn p30_every_byte_counts_and_every_cut_is_refused() {
    let place = Place::new();
    write(
        &key(CurveId::Bn254, QapReduction::Circom),
        KeyCheck::OnCurve,
        false,
        &place.path(),
    )
    .unwrap();
    let whole = fs::read(place.path()).unwrap();
    place.read(&whole).unwrap();
    // Every field of the header and its padding; of each section the first and last byte, one
    // inside, and one of what fills it up.
    let mut places: Vec<usize> = (0..PAGE).step_by(3).chain([PAGE - 1]).collect();
    for section in OpenPrepared::open(&place.path()).unwrap().sections {
        let (at, bytes) = (
            section.bytes.file_offset().unwrap() as usize,
            section.bytes.len(),
        );
        places.extend([
            at,
            at + bytes / 2,
            at + bytes - 1,
            at + section.padded.len() - 1,
        ]);
    }
    for at in places {
        let mut damaged = whole.clone();
        damaged[at] ^= 1 << (at % 8);
        let expected = match at {
            0..4 => InputClass::BadMagic,
            4..8 => InputClass::UnsupportedVersion,
            _ => InputClass::BadSection,
        };
        assert_eq!(class(place.read(&damaged)), expected, "byte {at}");
    }
    for cut in (0..whole.len())
        .step_by(509)
        .chain([PAGE - 1, PAGE, whole.len() - 1])
    {
        assert_eq!(
            class(place.read(&whole[..cut])),
            InputClass::Truncated,
            "{cut} bytes"
        );
    }
    let longer = [&whole[..], &[0]].concat();
    assert_eq!(class(place.read(&longer)), InputClass::BadSection);
}

#[test]
fn other_versions_say_what_to_do() {
    let place = Place::new();
    write(
        &key(CurveId::Bn254, QapReduction::Circom),
        KeyCheck::OnCurve,
        false,
        &place.path(),
    )
    .unwrap();
    let mut bytes = fs::read(place.path()).unwrap();
    bytes[4] = 2;
    sign(&mut bytes);
    let error = place.read(&bytes).unwrap_err();
    assert_eq!(error.class(), "unsupported_version");
    let text = error.to_string();
    assert!(
        text.contains("version 2") && text.contains("prepare the key again"),
        "{text}"
    );
}

/// Crafted files, whose digests are right.
#[test]
fn p30_digests_do_not_replace_checks() {
    let place = Place::new();
    write(
        &key(CurveId::Bn254, QapReduction::Circom),
        KeyCheck::OnCurve,
        false,
        &place.path(),
    )
    .unwrap();
    let whole = fs::read(place.path()).unwrap();
    let section = |id: u32| {
        let file = OpenPrepared::open(&place.path()).unwrap();
        let section = file.sections.into_iter().find(|s| s.id == id).unwrap();
        (
            section.bytes.file_offset().unwrap() as usize,
            section.bytes.len(),
        )
    };
    let last_word = |id| {
        let (at, bytes) = section(id);
        at + bytes - 4
    };
    let lie = u32::MAX.to_le_bytes();
    // Curve, sections, wires, domain size; the first section's offset and length.
    let header = [8, 28, 32, 48, TABLE + 8, TABLE + 16].map(|at| (at, InputClass::BadSection));
    let contents = [
        // Starts of rows; wire and coefficient of an entry; a coefficient.
        (section(A_ROWS).0, InputClass::BadCoefficient),
        (last_word(A_ROWS), InputClass::BadCoefficient),
        (section(A_ROWS + 1).0, InputClass::BadCoefficient),
        (last_word(A_ROWS + 1), InputClass::BadCoefficient),
        (last_word(B_ROWS + 2), InputClass::BadCoefficient),
    ];
    for (at, expected) in header.into_iter().chain(contents) {
        let mut crafted = whole.clone();
        crafted[at..at + 4].copy_from_slice(&lie);
        sign(&mut crafted);
        assert_eq!(class(place.read(&crafted)), expected, "byte {at}");
    }
    // A section too few.
    let mut crafted = whole.clone();
    let count = le_u32(&whole[28..]) - 1;
    crafted[28..32].copy_from_slice(&count.to_le_bytes());
    sign(&mut crafted);
    assert_eq!(class(place.read(&crafted)), InputClass::BadSection);
}

/// The cache folder decides, and not what the file says of itself.
#[test]
fn p33_points_are_checked_unless_this_user_did() {
    let place = Place::new();
    let cache = CacheFolder::At(place.folder.path().join("cache"));
    let mut bad = key(CurveId::Bls12_381, QapReduction::Circom);
    let mut points = bad.h_query.to_vec();
    points[0] ^= 1;
    bad.h_query = points.into();
    let digest = write(&bad, KeyCheck::Subgroup, false, &place.path()).unwrap();
    let check = |level| {
        let file = OpenPrepared::open(&place.path()).unwrap();
        let key = file.read().unwrap();
        file.check(&key, level, &cache).map(|()| key)
    };
    assert_eq!(class(check(KeyCheck::OnCurve)), InputClass::InvalidPoint);
    // Not looked at again: known by its digest, up to that level.
    checked_keys::remember(&cache, &digest, KeyCheck::OnCurve);
    check(KeyCheck::OnCurve).unwrap();
    assert_eq!(class(check(KeyCheck::Subgroup)), InputClass::InvalidPoint);
    // A good key is remembered once it was checked.
    let good = key(CurveId::Bls12_381, QapReduction::Circom);
    let digest = write(&good, KeyCheck::None, false, &place.path()).unwrap();
    assert!(!checked_keys::is_known(&cache, &digest, KeyCheck::OnCurve));
    check(KeyCheck::Subgroup).unwrap();
    assert!(checked_keys::is_known(&cache, &digest, KeyCheck::Subgroup));
}
