use super::*;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::SeqCst};
use std::thread;

/// A driver that has `0` bytes.
struct Fake(AtomicU64);

impl Memory for Fake {
    type Buffer = u64;
    type Page = ();
    fn buffer(&self, _: BufferUse, size: u64) -> Result<u64> {
        self.0
            .fetch_update(SeqCst, SeqCst, |left| left.checked_sub(size))
            .map(|_| size)
            .map_err(|available| Error::OutOfMemory {
                device: "fake".into(),
                needed: size,
                available,
            })
    }
    fn page(&self) -> Result<()> {
        Ok(())
    }
}

fn arena(budget: u64, driver: u64) -> Arc<BufferArena<Fake>> {
    BufferArena::new(
        Fake(AtomicU64::new(driver)),
        ArenaConfig {
            device: "fake".into(),
            budget,
            max_slab: 1 << 20,
            min_slab: 4096,
            chunk: 4096,
            max_chunks: 4,
        },
    )
}

fn regions(sizes: &[u64]) -> Request {
    Request {
        regions: sizes.to_vec(),
        ..Default::default()
    }
}

fn go() -> Result<()> {
    Ok(())
}

#[test]
fn over_budget_fails_at_once_with_both_figures() {
    let arena = arena(8192, u64::MAX);
    let held = arena.reserve(&regions(&[4096]), &go).unwrap();
    let error = arena.reserve(&regions(&[4096, 4097]), &go).err().unwrap();
    let Error::OutOfMemory {
        needed, available, ..
    } = error
    else {
        panic!("{error}")
    };
    assert_eq!((needed, available), (4096 + 4352, 8192));
    drop(held);
    let report = arena.report();
    assert_eq!((report.in_use, report.held, report.waiting), (0, 0, 0));
    assert_eq!(report.peak_in_use, 4096);
}

#[test]
fn residents_that_fill_the_budget_are_an_error_not_a_wait() {
    let arena = arena(8192, u64::MAX);
    let key = arena.resident(8000, &go).unwrap();
    assert_eq!(arena.report().padding, 192);
    let error = arena.reserve(&regions(&[512]), &go).err().unwrap();
    assert_eq!(error.class(), "out_of_memory");
    let twin = key.clone();
    drop(key);
    assert!(arena.reserve(&regions(&[512]), &go).is_err());
    drop(twin);
    assert!(arena.reserve(&regions(&[512]), &go).is_ok());
    assert_eq!(arena.report().resident, 0);
}

#[test]
fn the_driver_may_have_less_than_the_budget() {
    let arena = arena(1 << 20, 10_000);
    let first = arena.reserve(&regions(&[6000]), &go).unwrap();
    assert_eq!(arena.report().allocated, 6144);
    // Others hold memory, so this waits, until they are gone and it is clear that it never fits.
    let waiter = {
        let arena = arena.clone();
        thread::spawn(move || arena.reserve(&regions(&[6000, 6000]), &go).err())
    };
    thread::sleep(Duration::from_millis(50));
    assert!(!waiter.is_finished());
    drop(first);
    assert_eq!(waiter.join().unwrap().unwrap().class(), "out_of_memory");
    // And the arena works on.
    assert!(arena.reserve(&regions(&[6000]), &go).is_ok());
}

#[test]
fn unused_slabs_make_room_for_a_larger_one() {
    let arena = arena(16384, u64::MAX);
    drop(arena.reserve(&regions(&[5000]), &go).unwrap());
    let large = arena.reserve(&regions(&[16384]), &go).unwrap();
    assert_eq!(arena.report().allocated, 16384);
    assert_eq!(large.buffers, [16384]);
}

#[test]
fn reservations_are_served_in_order() {
    let arena = arena(4096, u64::MAX);
    let all = arena.reserve(&regions(&[4096]), &go).unwrap();
    let order = Arc::new(Mutex::new(Vec::new()));
    // The first in line wants everything; the small ones behind it must not overtake it.
    let sizes = [4096u64, 256, 4096, 512];
    let mut threads = Vec::new();
    for (i, size) in sizes.into_iter().enumerate() {
        let (arena, order) = (arena.clone(), order.clone());
        let before = arena.report().waiting;
        let waiting = arena.clone();
        threads.push(thread::spawn(move || {
            let held = arena.reserve(&regions(&[size]), &go).unwrap();
            order.lock().unwrap().push(i);
            thread::sleep(Duration::from_millis(5));
            drop(held);
        }));
        while waiting.report().waiting == before {
            thread::yield_now();
        }
    }
    drop(all);
    threads.into_iter().for_each(|t| t.join().unwrap());
    assert_eq!(*order.lock().unwrap(), [0, 1, 2, 3]);
}

#[test]
fn a_cancelled_wait_leaves_the_line() {
    let arena = arena(4096, u64::MAX);
    let all = arena.reserve(&regions(&[4096]), &go).unwrap();
    let stop = Arc::new(AtomicBool::new(false));
    let waiter = {
        let (arena, stop) = (arena.clone(), stop.clone());
        thread::spawn(move || {
            let check = || {
                if stop.load(SeqCst) {
                    Err(Error::Cancelled)
                } else {
                    Ok(())
                }
            };
            arena.reserve(&regions(&[4096]), &check).err()
        })
    };
    stop.store(true, SeqCst);
    assert_eq!(waiter.join().unwrap().unwrap().class(), "cancelled");
    assert_eq!(arena.report().waiting, 0);
    drop(all);
    assert!(arena.reserve(&regions(&[4096]), &go).is_ok());
}

#[test]
fn staging_is_part_of_the_reservation() {
    let arena = arena(4096, u64::MAX);
    let wish = Request {
        regions: vec![],
        uploads: 100,
        downloads: 1,
    };
    let held = arena.reserve(&wish, &go).unwrap();
    assert_eq!((held.uploads, held.downloads), (4, 1));
    let chunk = arena.take_chunk(BufferUse::Upload).unwrap();
    arena.return_chunk(BufferUse::Upload, chunk);
    assert_eq!(arena.report().staging, 4096);
    arena.take_chunk(BufferUse::Upload).unwrap();
    assert_eq!(arena.report().staging, 0);
}

#[test]
fn many_threads_never_exceed_the_budget() {
    let arena = arena(64 << 10, u64::MAX);
    thread::scope(|scope| {
        for t in 0..8u64 {
            let arena = &arena;
            scope.spawn(move || {
                for i in 0..200u64 {
                    let size = 256 + (t * 7919 + i * 104_729) % (48 << 10);
                    let held = arena.reserve(&regions(&[size, 300]), &go).unwrap();
                    assert_eq!(held.slices.len(), 2);
                }
            });
        }
    });
    let report = arena.report();
    assert!(report.peak_in_use <= 64 << 10);
    assert_eq!((report.in_use, report.padding, report.held), (0, 0, 0));
}
