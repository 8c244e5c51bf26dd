//! Batches on the CPU path: order, laziness, back-pressure, and what fails in the middle.

use crate::circuits::{chain_from, number, with_value};
use ark_ff::Field;
use groth16_gpu::control::CancelToken;
use groth16_gpu::curve::{Bn254, GpuCurve};
use groth16_gpu::device::Device;
use groth16_gpu::setup::setup_insecure;
use groth16_gpu::{Error, ProveOptions, Prover, ProverOptions, ProvingKey, Result, Witness};
use std::ops::ControlFlow;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

type Fr = <Bn254 as GpuCurve>::Fr;

/// A circuit's witness whose first public input is `i`.
fn witness(i: usize) -> Witness {
    let start = [Fr::from(i as u64), Fr::ONE];
    chain_from::<Bn254>(20, 1, &start).1
}

fn key() -> ProvingKey {
    let (r1cs, _) = chain_from::<Bn254>(20, 1, &[Fr::ONE, Fr::ONE]);
    setup_insecure(&r1cs).unwrap()
}

fn cpu() -> Prover {
    Prover::new(Device::Cpu)
}

fn limited(host_limit: u64) -> Prover {
    let options = ProverOptions {
        host_limit: Some(host_limit),
        ..Default::default()
    };
    Prover::with_options(vec![Device::Cpu], options)
}

/// Witnesses without end, which counts how many were pulled.
fn endless(pulled: &AtomicUsize) -> impl Iterator<Item = Result<Witness>> + Send {
    (0..).map(|i| {
        pulled.fetch_add(1, Ordering::SeqCst);
        Ok(witness(i))
    })
}

fn first_input(i: usize) -> [u8; 32] {
    let mut bytes = [0; 32];
    bytes[..8].copy_from_slice(&(i as u64).to_le_bytes());
    bytes
}

fn nothing_held(prover: &Prover) {
    let host = prover.host_memory();
    assert_eq!((host.in_use, host.waiting), (0, 0), "{host:?}");
}

#[test]
fn results_come_in_order() {
    let (prover, key) = (cpu(), key());
    for workers in [None, Some(1), Some(5)] {
        let each = (0..23).map(|i| Ok(witness(i)));
        let mut next = 0;
        let on_proof = |i, result: Result<(groth16_gpu::Proof, _)>| {
            assert_eq!(i, next);
            assert_eq!(result.unwrap().0.public_inputs[0], first_input(i));
            next += 1;
            ControlFlow::Continue(())
        };
        let options = ProveOptions::default();
        prover
            .prove_each(&key, each, &options, workers, on_proof)
            .unwrap();
        assert_eq!(next, 23);
        nothing_held(&prover);
    }
}

#[test]
fn no_witness_no_result() {
    let none = std::iter::empty();
    let on_proof = |_, _| panic!("there is no item");
    cpu()
        .prove_each(&key(), none, &ProveOptions::default(), None, on_proof)
        .unwrap();
    let proofs = cpu().prove_many(&key(), &[], &ProveOptions::default());
    assert!(proofs.unwrap().is_empty());
}

/// Pulling stops while the callback is busy, and ends for good when it breaks.
#[test]
fn witnesses_are_pulled_when_they_are_needed() {
    const WORKERS: usize = 2;
    let (prover, key) = (cpu(), key());
    let pulled = AtomicUsize::new(0);
    let mut seen = 0;
    let on_proof = |i: usize, result: Result<_>| {
        result.unwrap();
        seen += 1;
        if i == 0 {
            std::thread::sleep(Duration::from_millis(700));
        }
        // Handed out, held back, and one each in the workers' hands.
        let most = i + 1 + 4 * WORKERS + 1 + 2 * WORKERS;
        let pulled = pulled.load(Ordering::SeqCst);
        assert!(pulled <= most, "{pulled} pulled at item {i}");
        match i {
            40 => ControlFlow::Break(()),
            _ => ControlFlow::Continue(()),
        }
    };
    let options = ProveOptions::default();
    prover
        .prove_each(&key, endless(&pulled), &options, Some(WORKERS), on_proof)
        .unwrap();
    assert_eq!(seen, 41);
    nothing_held(&prover);
}

/// However many workers, together they stay within the limit; a proof that exceeds it alone is an
/// error before any witness is pulled.
#[test]
fn host_memory_is_reserved_before_pulling() {
    let key = key();
    let job = cpu().job_bytes(&key, None);
    let options = ProveOptions::default();
    let prover = limited(2 * job);
    let each = (0..20).map(|i| Ok(witness(i)));
    let on_proof = |_, result: Result<_>| {
        result.unwrap();
        ControlFlow::Continue(())
    };
    prover
        .prove_each(&key, each, &options, Some(6), on_proof)
        .unwrap();
    assert!(prover.host_memory().peak <= 2 * job);
    nothing_held(&prover);

    let prover = limited(job - 1);
    let pulled = AtomicUsize::new(0);
    let on_proof = |_, _| panic!("there is no item");
    let error = prover
        .prove_each(&key, endless(&pulled), &options, None, on_proof)
        .unwrap_err();
    assert_eq!(error.class(), "out_of_memory");
    assert!(error.to_string().contains("host memory"), "{error}");
    assert_eq!(pulled.load(Ordering::SeqCst), 0);
    let error = prover.prove(&key, &witness(1), &options).unwrap_err();
    assert_eq!(error.class(), "out_of_memory");
    nothing_held(&prover);
}

#[test]
fn an_error_is_its_items_alone() {
    let (prover, key) = (cpu(), key());
    let each = (0..9).map(|i| match i {
        2 => Err(Error::Unsatisfied("as it was read".into())),
        5 => Ok(with_value(&witness(i), 4, number(77))),
        _ => Ok(witness(i)),
    });
    let mut wrong = Vec::new();
    let on_proof = |i, result: Result<_>| {
        if let Err(e) = result {
            wrong.push((i, e.class()));
        }
        ControlFlow::Continue(())
    };
    let options = ProveOptions::default();
    prover
        .prove_each(&key, each, &options, Some(3), on_proof)
        .unwrap();
    assert_eq!(wrong, [(2, "unsatisfied"), (5, "unsatisfied")]);
    nothing_held(&prover);
}

#[test]
fn prove_many_is_all_or_an_error() {
    let (prover, key) = (cpu(), key());
    let options = ProveOptions::default();
    let mut witnesses: Vec<Witness> = (0..7).map(witness).collect();
    let proofs = prover.prove_many(&key, &witnesses, &options).unwrap();
    let inputs = proofs.iter().map(|(p, _)| p.public_inputs[0]);
    assert!(inputs.eq((0..7).map(first_input)));
    witnesses[3] = with_value(&witnesses[3], 4, number(77));
    let error = prover.prove_many(&key, &witnesses, &options).unwrap_err();
    assert_eq!(error.class(), "unsatisfied");
    nothing_held(&prover);
}

#[test]
fn cancelling_and_the_deadline_end_a_batch() {
    let (prover, key) = (cpu(), key());
    let token = CancelToken::new();
    let mut options = ProveOptions::default();
    options.cancel = Some(token.clone());
    let pulled = AtomicUsize::new(0);
    let on_proof = |i: usize, _: Result<_>| {
        if i == 5 {
            token.cancel();
        }
        ControlFlow::Continue(())
    };
    let error = prover
        .prove_each(&key, endless(&pulled), &options, Some(3), on_proof)
        .unwrap_err();
    assert_eq!(error.class(), "cancelled");
    nothing_held(&prover);

    let mut options = ProveOptions::default();
    options.deadline = Some(Instant::now() + Duration::from_millis(300));
    let go_on = |_, _: Result<_>| ControlFlow::Continue(());
    let error = prover
        .prove_each(&key, endless(&pulled), &options, Some(3), go_on)
        .unwrap_err();
    assert_eq!(error.class(), "timeout");
    nothing_held(&prover);
    // A break is no cancellation of the caller's token.
    let mut options = ProveOptions::default();
    let token = CancelToken::new();
    options.cancel = Some(token.clone());
    let stop = |_, _: Result<_>| ControlFlow::Break(());
    prover
        .prove_each(&key, endless(&pulled), &options, Some(3), stop)
        .unwrap();
    assert!(!token.is_cancelled());
}

/// p64: a panic in a worker is its item's error, and the next items go on.
#[test]
fn p64_a_panic_in_a_worker_is_its_items_error() {
    let (prover, key) = (cpu(), key());
    let mut options = ProveOptions::default();
    let proofs = AtomicUsize::new(0);
    options.progress = Some(Arc::new(move |step: &str, _| {
        if step == "row products" && proofs.fetch_add(1, Ordering::SeqCst) == 2 {
            panic!("injected");
        }
    }));
    let mut results = Vec::new();
    let each = (0..6).map(|i| Ok(witness(i)));
    let on_proof = |_, result: Result<_>| {
        results.push(result.map_err(|e| (e.class(), e.exit_code(), e.to_string())));
        ControlFlow::Continue(())
    };
    prover
        .prove_each(&key, each, &options, Some(1), on_proof)
        .unwrap();
    for (i, result) in results.iter().enumerate() {
        match result {
            Err((class, code, text)) => {
                assert_eq!((i, *class, *code), (2, "internal", 5));
                assert!(text.contains("injected"), "{text}");
            }
            Ok(_) => assert_ne!(i, 2),
        }
    }
    assert_eq!(results.len(), 6);
    nothing_held(&prover);
}

/// A panic of the iterator is its last item; one of the callback goes on to the caller, after the
/// workers have ended.
#[test]
fn p64_panics_of_the_caller() {
    let (prover, key) = (cpu(), key());
    let options = ProveOptions::default();
    let each = (0..).map(|i| match i {
        4 => panic!("no more"),
        _ => Ok(witness(i)),
    });
    let mut classes = Vec::new();
    let on_proof = |_, result: Result<_>| {
        classes.push(result.map_or_else(|e| e.class(), |_| "proof"));
        ControlFlow::Continue(())
    };
    prover
        .prove_each(&key, each, &options, Some(3), on_proof)
        .unwrap();
    assert_eq!(classes, ["proof", "proof", "proof", "proof", "internal"]);

    let pulled = AtomicUsize::new(0);
    let caught = catch_unwind(AssertUnwindSafe(|| {
        let on_proof = |i, _: Result<_>| match i {
            3 => panic!("of the callback"),
            _ => ControlFlow::Continue(()),
        };
        prover.prove_each(&key, endless(&pulled), &options, Some(3), on_proof)
    }));
    let panic = caught.unwrap_err();
    assert_eq!(panic.downcast_ref(), Some(&"of the callback"));
    nothing_held(&prover);
    prover.prove(&key, &witness(1), &options).unwrap();
}
