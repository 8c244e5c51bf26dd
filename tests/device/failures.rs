//! Devices that fail: lost submissions, refused pipelines, panics, lost devices, waits past their limit.

use super::*;

pub fn p16_a_lost_submission_is_noticed(info: &DeviceInfo) {
    let gpu = open(info, &options());
    gpu.inject_fault(Fault::LoseSubmission(0));
    let data = words(&numbers(1000, 2));
    let lost = gpu.upload_resident(&[("key", data.clone())], &RunOptions::default());
    assert_eq!(lost.unwrap_err().class(), "device_fault");
    assert_eq!(gpu.memory().in_use, 0);
    assert!(
        gpu.upload_resident(&[("key", data)], &RunOptions::default())
            .is_ok()
    );
    let (r, expected) = chain(1000, 6, 1500, 0);
    for lost in [0, 2, 5] {
        gpu.inject_fault(Fault::LoseSubmission(lost));
        assert_eq!(run(&gpu, &r).unwrap_err().class(), "device_fault");
        assert!(run(&gpu, &r).unwrap() == expected);
    }
}

pub fn p57_a_refused_pipeline_is_an_error(info: &DeviceInfo) {
    let gpu = open(info, &options());
    let (mut r, _) = chain(100, 1, 1, 0);
    let dst = r.whole(BufferId(1));
    let mut broken = step(dst, dst, 100, 0);
    broken.curve = CurveId::Bn254;
    r.dispatch(broken);
    for _ in 0..2 {
        let error = run(&gpu, &r).unwrap_err();
        assert_eq!(error.class(), "device_fault");
        assert!(error.to_string().contains("step"), "{error}");
    }
    let all = [
        (Kernel::FieldOpsFq, CurveId::Bls12_381),
        (Kernel::FieldOpsFq, CurveId::Bn254),
    ];
    assert!(gpu.precompile(&all, &|_| Ok(())).is_err());
    check_chain(&gpu, 100, 1, 1);
}

pub fn pipelines_are_remembered_and_a_damaged_memory_is_ignored(info: &DeviceInfo) {
    let folder = tempfile::tempdir().unwrap();
    let remembering = DeviceOptions {
        cache: CacheFolder::At(folder.path().to_owned()),
        ..options()
    };
    let files = || -> Vec<_> {
        let entries = std::fs::read_dir(folder.path()).unwrap();
        entries.map(|e| e.unwrap().path()).collect()
    };
    check_chain(&open(info, &remembering), 100, 1, 1);
    if files().is_empty() {
        eprintln!("{info} remembers no pipelines");
        return;
    }
    assert_eq!(files().len(), 1);
    check_chain(&open(info, &remembering), 100, 1, 1);
    std::fs::write(&files()[0], b"damaged").unwrap();
    check_chain(&open(info, &remembering), 100, 1, 1);
    // And one that can not be written is no obstacle.
    let file = files().remove(0);
    let nowhere = DeviceOptions {
        cache: CacheFolder::At(file.join("not a folder")),
        ..options()
    };
    check_chain(&open(info, &nowhere), 100, 1, 1);
}

pub fn p66_waiting_does_not_keep_others_from_submitting(info: &DeviceInfo) {
    let gpu = open(info, &options());
    // One long submission that is waited for outside the turn.
    let (mut long, expected) = chain(50_000, 1, 10, 400);
    long.commands.iter_mut().for_each(|c| {
        if let Command::Dispatch(d) = c {
            d.work_per_group = 1;
        }
    });
    std::thread::scope(|scope| {
        let waiting = scope.spawn(|| run(&gpu, &long).unwrap());
        std::thread::sleep(Duration::from_millis(30));
        let (short, short_expected) = chain(100, 2, 2, 0);
        let output = gpu.run(&short, &RunOptions::default()).unwrap();
        assert!(from_bytes(&output.downloads[0]) == short_expected);
        let report = output.report;
        eprintln!(
            "turn after {:.2} ms, submitted after {:.1} ms, done after {:.1} ms",
            report.turn_wait_ms,
            report.turn_wait_ms + report.turn_ms,
            report.total_ms
        );
        // lavapipe's own submit waits for the submission before; no lock of this crate does.
        assert!(report.reserve_ms + report.turn_wait_ms < 20.0, "{report:?}");
        assert!(waiting.join().unwrap() == expected);
    });
}

pub fn p64_after_a_panic_in_the_turn_the_next_run_works(info: &DeviceInfo) {
    let gpu = open(info, &options());
    let (r, expected) = chain(1000, 6, 1500, 0);
    for at in [0, 3] {
        gpu.inject_fault(Fault::Panic(at));
        let panicked = std::thread::scope(|s| s.spawn(|| run(&gpu, &r)).join());
        assert!(panicked.is_err());
        assert!(run(&gpu, &r).unwrap() == expected);
        assert_eq!((gpu.memory().in_use, gpu.memory().held), (0, 0));
    }
}

pub fn a_lost_device_is_an_error_for_every_user(info: &DeviceInfo) {
    let gpu = open(info, &options());
    check_chain(&gpu, 100, 1, 1);
    gpu.lose_device();
    for _ in 0..2 {
        let (r, _) = chain(100, 1, 1, 0);
        assert_eq!(run(&gpu, &r).unwrap_err().class(), "device_fault");
    }
    check_chain(&open(info, &options()), 100, 1, 1);
}

pub fn cancelling_ends_a_run_between_submissions(info: &DeviceInfo) {
    let gpu = open(info, &options());
    let (r, _) = chain(20_000, 1, 4000, 200);
    let cancel = CancelToken::new();
    let options = RunOptions {
        cancel: Some(cancel.clone()),
        ..Default::default()
    };
    let start = Instant::now();
    std::thread::scope(|scope| {
        let running = scope.spawn(|| gpu.run(&r, &options));
        std::thread::sleep(Duration::from_millis(300));
        cancel.cancel();
        assert_eq!(running.join().unwrap().unwrap_err().class(), "cancelled");
    });
    eprintln!("cancelled after {:?}", start.elapsed());
    assert_eq!(gpu.memory().in_use, 0);
    check_chain(&gpu, 100, 1, 1);
}

pub fn a_wait_past_its_limit_is_a_timeout_and_keeps_the_memory(info: &DeviceInfo) {
    let hasty = DeviceOptions {
        timeout: Duration::from_millis(1),
        submission: Duration::from_secs(20),
        ..options()
    };
    let gpu = open(info, &hasty);
    let (mut r, _) = chain(50_000, 1, 20, 2000);
    r.commands.iter_mut().for_each(|c| {
        if let Command::Dispatch(d) = c {
            d.work_per_group = 1;
        }
    });
    assert_eq!(run(&gpu, &r).unwrap_err().class(), "timeout");
    // The device still works on it, so its memory is not free yet; later it is.
    let start = Instant::now();
    assert!(gpu.memory().in_use > 0);
    let mut small = Recording::new();
    let b = small.transient("b", 4);
    small.clear(small.whole(b));
    while gpu.memory().in_use > 0 {
        let _ = gpu.run(&small, &RunOptions::default());
        assert!(start.elapsed() < Duration::from_secs(120));
    }
}
