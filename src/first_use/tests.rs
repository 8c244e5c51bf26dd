//! The record and the choice of answers, without a device.

use super::*;
use crate::device::CacheFolder;
use crate::tuning::file::tests::card;
use std::fs;

fn options(folder: &std::path::Path) -> DeviceOptions {
    DeviceOptions {
        cache: CacheFolder::At(folder.to_owned()),
        ..DeviceOptions::default()
    }
}

fn failure(tier: WordTier) -> Failure {
    Failure {
        tier: tier.name().to_owned(),
        curve: "bn254".to_owned(),
        case: "known_ntt".to_owned(),
        kernels: vec!["ntt_dif".to_owned()],
        message: "wrong".to_owned(),
    }
}

#[test]
fn a_tier_that_failed_is_left_for_the_other_one() {
    let folder = tempfile::tempdir().unwrap();
    let (info, options) = (card(), options(folder.path()));
    let choose = |options: &DeviceOptions| choose_tier(&info, options, WordTier::U64);
    assert_eq!(choose(&options).unwrap(), WordTier::U64);
    remember(&info, &options, |r| r.failed.push(failure(WordTier::U64)));
    assert_eq!(choose(&options).unwrap(), WordTier::U32);
    let forced = DeviceOptions {
        word_tier: Some(WordTier::U64),
        ..options.clone()
    };
    let error = choose(&forced).unwrap_err();
    assert_eq!((error.class(), error.exit_code()), ("device_fault", 5));
    let off = DeviceOptions {
        first_use_probe: false,
        ..forced
    };
    assert_eq!(choose(&off).unwrap(), WordTier::U64);
    remember(&info, &options, |r| r.failed.push(failure(WordTier::U32)));
    let message = choose(&options).unwrap_err().to_string();
    for part in ["ntt_dif", "tier u64", "tier u32", "driver 1.2", "card"] {
        assert!(message.contains(part), "{message}");
    }
    // What the self-test finds goes before.
    remember_selftest(&info, &options, WordTier::U64, &[]);
    assert_eq!(choose(&options).unwrap(), WordTier::U64);
}

#[test]
fn what_passed_is_read_again_unless_anything_changed() {
    let folder = tempfile::tempdir().unwrap();
    let (info, options) = (card(), options(folder.path()));
    let (tier, curve) = (WordTier::U32, CurveId::Bn254);
    let set = bit(Kernel::NttDif) | bit(Kernel::ScanAdd);
    remember(&info, &options, |r| r.set_passed(tier, curve, set));
    let read = on_file(&info, &options);
    assert_eq!(read.passed(tier, curve), set);
    assert_eq!(read.passed(WordTier::U64, curve), 0);
    assert_eq!(read.passed(tier, CurveId::Bls12_381), 0);
    for change in [
        &|d: &mut DeviceInfo| d.driver = "driver 1.3".into(),
        &|d: &mut DeviceInfo| d.name = "another".into(),
        &|d: &mut DeviceInfo| d.tiers.truncate(1),
    ] as [&dyn Fn(&mut DeviceInfo); 3]
    {
        let mut other = card();
        change(&mut other);
        assert_eq!(on_file(&other, &options).passed(tier, curve), 0);
    }
    let path = adapter_file::path(folder.path(), KIND, &info);
    #[cfg(unix)]
    {
        use std::os::unix::fs::PermissionsExt;
        let mode = fs::metadata(&path).unwrap().permissions().mode();
        assert_eq!(mode & 0o077, 0, "{mode:o}");
    }
    let text = fs::read_to_string(&path).unwrap();
    let kernels = crate::kernels::KERNELS_DIGEST;
    for changed in [
        text.replace(kernels, "0123456789abcdef"),
        text.replace("\"format\": 1", "\"format\": 2"),
        text.replace("\"passed\"", "\"pass\""),
        text[..text.len() / 2].to_owned(),
    ] {
        assert_ne!(changed, text);
        fs::write(&path, changed).unwrap();
        assert_eq!(on_file(&info, &options), Record::new(&info));
    }
    // Names of nothing are nothing.
    fs::write(&path, text.replace("ntt_dif", "ntt_xyz")).unwrap();
    assert_eq!(
        on_file(&info, &options).passed(tier, curve),
        bit(Kernel::ScanAdd)
    );
}

/// Every kernel of a proof is asked for, and no kernel is compiled that it does not run.
#[test]
fn answers_are_about_the_kernels_of_a_proof_and_no_others() {
    use Kernel::*;
    let plain = [
        RowProduct,
        PointwiseMul,
        NttRoots,
        NttDif,
        NttDit,
        Quotient,
        ScanBlock,
        ScanAdd,
        MsmDigits,
        MsmScatter,
        PointsImport,
        PointsExport,
        MsmAccumulateG1,
        MsmAccumulateG2,
        MsmMergeG1,
        MsmMergeG2,
        MsmReduceG1,
        MsmReduceG2,
    ];
    let pairs = [MsmPairCounts, MsmPairSources, MsmPairSumsG1, MsmPairSumsG2];
    let set = |kernels: &[Kernel]| kernels.iter().fold(0, |set, k| set | bit(*k));
    let ran = |cases: &[Case]| cases.iter().fold(0, |s, c| s | set(c.kernels));
    for kernels in [
        set(&plain),
        set(&plain) | set(&pairs),
        set(&plain) | bit(NttSplit) | bit(NttReverse),
    ] {
        for curve in CurveId::ALL {
            assert_eq!(ran(&answers_for(curve, kernels, 0)), kernels);
            assert!(answers_for(curve, kernels, kernels).is_empty());
        }
    }
    // What is left after other proofs; tests' kernels are in none.
    let left = answers_for(CurveId::Bn254, set(&plain) | set(&pairs), set(&plain));
    let names: Vec<_> = left.iter().map(|c| c.name).collect();
    assert_eq!(names, ["known_msm_pairs_g1", "known_msm_pairs_g2"]);
    assert!(answers_for(CurveId::Bn254, bit(FieldOpsFq), 0).is_empty());
}
