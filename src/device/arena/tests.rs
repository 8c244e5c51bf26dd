use super::*;
use crate::control::Priority;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::SeqCst};
use std::thread;

/// A driver that has `0` bytes.
struct Fake(AtomicU64);

impl Memory for Fake {
    type Buffer = u64;
    type Page = u8;
    const PAGE_BYTES: u64 = 512;
    fn free(&self, slab: u64) {
        self.0.fetch_add(slab, SeqCst);
    }
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
    fn page(&self) -> Result<u8> {
        Ok(0)
    }
}

fn arena(budget: u64, driver: u64) -> Arc<BufferArena<Fake>> {
    BufferArena::new(
        Fake(AtomicU64::new(driver)),
        ArenaConfig {
            device: "fake".into(),
            budget: budget + 8 * 4096 + 6 * 512,
            chunk: 4096,
            limits: LedgerLimits {
                budget,
                max_slab: 1 << 20,
                min_slab: 4096,
                uploads: 4,
                downloads: 4,
                pages: 6,
            },
        },
    )
}

fn regions(sizes: &[u64]) -> Request {
    Request {
        regions: sizes.to_vec(),
        ..Default::default()
    }
}

const NORMAL: Priority = Priority::Normal;

fn go() -> Result<()> {
    Ok(())
}

#[test]
fn over_budget_fails_at_once_with_both_figures() {
    let arena = arena(8192, u64::MAX);
    let held = arena.reserve(&regions(&[4096]), NORMAL, &go).unwrap();
    let error = arena
        .reserve(&regions(&[4096, 4097]), NORMAL, &go)
        .err()
        .unwrap();
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
    let error = arena.reserve(&regions(&[512]), NORMAL, &go).err().unwrap();
    assert_eq!(error.class(), "out_of_memory");
    let twin = key.clone();
    drop(key);
    assert!(arena.reserve(&regions(&[512]), NORMAL, &go).is_err());
    drop(twin);
    assert!(arena.reserve(&regions(&[512]), NORMAL, &go).is_ok());
    assert_eq!(arena.report().resident, 0);
}

#[test]
fn the_driver_may_have_less_than_the_budget() {
    let arena = arena(1 << 20, 10_000);
    let first = arena.reserve(&regions(&[6000]), NORMAL, &go).unwrap();
    assert_eq!(arena.report().allocated, 6144);
    // Others hold memory, so this waits, until they are gone and it is clear that it never fits.
    let waiter = {
        let arena = arena.clone();
        thread::spawn(move || arena.reserve(&regions(&[6000, 6000]), NORMAL, &go).err())
    };
    thread::sleep(Duration::from_millis(50));
    assert!(!waiter.is_finished());
    drop(first);
    assert_eq!(waiter.join().unwrap().unwrap().class(), "out_of_memory");
    // And the arena works on.
    assert!(arena.reserve(&regions(&[6000]), NORMAL, &go).is_ok());
}

#[test]
fn unused_slabs_make_room_for_a_larger_one() {
    let arena = arena(16384, u64::MAX);
    drop(arena.reserve(&regions(&[5000]), NORMAL, &go).unwrap());
    let large = arena.reserve(&regions(&[16384]), NORMAL, &go).unwrap();
    assert_eq!(arena.report().allocated, 16384);
    assert_eq!(large.buffers, [16384]);
}

#[test]
fn reservations_are_served_in_order() {
    let arena = arena(4096, u64::MAX);
    let all = arena.reserve(&regions(&[4096]), NORMAL, &go).unwrap();
    let order = Arc::new(Mutex::new(Vec::new()));
    // The first in line wants everything; the small ones behind it must not overtake it.
    let sizes = [4096u64, 256, 4096, 512];
    let mut threads = Vec::new();
    for (i, size) in sizes.into_iter().enumerate() {
        let (arena, order) = (arena.clone(), order.clone());
        let before = arena.report().waiting;
        let waiting = arena.clone();
        threads.push(thread::spawn(move || {
            let held = arena.reserve(&regions(&[size]), NORMAL, &go).unwrap();
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
    let all = arena.reserve(&regions(&[4096]), NORMAL, &go).unwrap();
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
            arena.reserve(&regions(&[4096]), NORMAL, &check).err()
        })
    };
    stop.store(true, SeqCst);
    assert_eq!(waiter.join().unwrap().unwrap().class(), "cancelled");
    assert_eq!(arena.report().waiting, 0);
    drop(all);
    assert!(arena.reserve(&regions(&[4096]), NORMAL, &go).is_ok());
}

#[test]
fn staging_is_part_of_the_reservation() {
    let arena = arena(4096, u64::MAX);
    let wish = Request {
        regions: vec![],
        uploads: 100,
        downloads: 1,
        ..Default::default()
    };
    let held = arena.reserve(&wish, NORMAL, &go).unwrap();
    assert_eq!((held.uploads(), held.downloads()), (4, 1));
    let chunk = arena.take_chunk(BufferUse::Upload).unwrap();
    arena.return_chunks(BufferUse::Upload, vec![chunk], 0);
    assert_eq!(arena.report().staging, 4096);
    arena.take_chunk(BufferUse::Upload).unwrap();
    assert_eq!(arena.report().staging, 0);
    // One that is gone with its run does not count any more.
    arena.return_chunks(BufferUse::Upload, Vec::new(), 1);
    let page = arena.take_page().unwrap();
    arena.return_page(page);
    let report = arena.report();
    assert_eq!((report.staging, report.peak_total), (512, 4096));
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
                    let held = arena.reserve(&regions(&[size, 300]), NORMAL, &go).unwrap();
                    assert_eq!(held.slices().len(), 2);
                }
            });
        }
    });
    let report = arena.report();
    assert!(report.peak_in_use <= 64 << 10);
    assert_eq!((report.in_use, report.padding, report.held), (0, 0, 0));
}

fn with_key(id: u64, sizes: &[u64], region: u64) -> Request {
    Request {
        kept: Some(KeptSizes {
            id,
            sizes: sizes.to_vec(),
        }),
        ..regions(&[region])
    }
}

#[test]
fn a_key_is_filled_once_and_stays() {
    let arena = arena(16384, u64::MAX);
    let wish = with_key(7, &[4096, 300], 1024);
    let first = arena.reserve(&wish, NORMAL, &go).unwrap();
    assert!(first.fills() && !arena.has(7));
    // Nobody else gets the key, or memory for it, before it is filled.
    let second = {
        let (arena, wish) = (arena.clone(), wish.clone());
        thread::spawn(move || arena.reserve(&wish, NORMAL, &go).unwrap())
    };
    thread::sleep(Duration::from_millis(40));
    assert!(!second.is_finished());
    first.filled();
    let second = second.join().unwrap();
    assert!(!second.fills() && second.kept() == first.kept() && arena.has(7));
    drop((first, second));
    let report = arena.report();
    assert_eq!(
        (report.in_use, report.resident, report.kept_sets),
        (4608, 4608, 1)
    );
    assert!(!arena.reserve(&wish, NORMAL, &go).unwrap().fills());
    // Another layout of the same key is another set.
    assert!(
        arena
            .reserve(&with_key(7, &[4096], 256), NORMAL, &go)
            .unwrap()
            .fills()
    );
}

#[test]
fn a_key_that_was_not_filled_is_the_next_users_to_fill() {
    let arena = arena(16384, u64::MAX);
    let wish = with_key(7, &[4096], 1024);
    drop(arena.reserve(&wish, NORMAL, &go).unwrap());
    assert!(arena.reserve(&wish, NORMAL, &go).unwrap().fills());
}

#[test]
fn keys_make_room_the_one_not_used_for_longest_first() {
    let arena = arena(16384, u64::MAX);
    let bring = |id| {
        let held = arena
            .reserve(&with_key(id, &[4096], 256), NORMAL, &go)
            .unwrap();
        let fills = held.fills();
        held.filled();
        fills
    };
    assert!(bring(1) && bring(2) && bring(3) && !bring(1));
    assert!(bring(4), "there is room for three keys");
    assert!(arena.has(1) && !arena.has(2) && arena.has(3));
    // Everything at once, for somebody without a key.
    drop(arena.reserve(&regions(&[16384]), NORMAL, &go).unwrap());
    assert_eq!((arena.report().kept_sets, arena.report().evictions), (0, 4));
    assert!(bring(1));
}

#[test]
fn evicting_waits_for_the_last_user() {
    let arena = arena(16384, u64::MAX);
    let wish = with_key(1, &[4096], 256);
    let held = arena.reserve(&wish, NORMAL, &go).unwrap();
    held.filled();
    assert!(arena.evict(1) && !arena.evict(1));
    assert_eq!(arena.report().resident, 4096);
    drop(held);
    assert_eq!(arena.report().in_use, 0);
}

#[test]
fn a_key_in_the_way_of_its_own_proof_is_moved() {
    // The key's part lies in the middle of what there is; the region beside it needs more than
    // either side has.
    let arena = arena(16384, u64::MAX);
    let both = arena.reserve(&regions(&[8192, 4096]), NORMAL, &go).unwrap();
    let wish = with_key(1, &[512], 256);
    let held = arena.reserve(&wish, NORMAL, &go).unwrap();
    held.filled();
    drop((held, both));
    let held = arena
        .reserve(&with_key(1, &[512], 15872), NORMAL, &go)
        .unwrap();
    assert_eq!(arena.report().in_use, 16384);
    assert!(held.slices()[0].size == 15872);
}

#[test]
fn out_of_memory_at_any_allocation_leaves_nothing_behind() {
    // The driver refuses the n-th slab, whatever n.
    for driver in (0..40_000).step_by(1111) {
        let arena = arena(32768, driver);
        let mut ends = [0, 0];
        for id in 0..3 {
            let wish = Request {
                regions: vec![6000, 5000],
                ..with_key(id, &[3000, 2000], 0)
            };
            match arena.reserve(&wish, NORMAL, &go) {
                Ok(held) => {
                    held.filled();
                    ends[0] += 1;
                }
                Err(e) => {
                    assert_eq!(e.class(), "out_of_memory");
                    ends[1] += 1;
                }
            }
            let report = arena.report();
            assert_eq!((report.held, report.waiting), (0, 0));
            assert_eq!(report.in_use, report.resident);
        }
        assert!(ends[1] == 0 || driver < 32768, "{driver}: {ends:?}");
        (0..3).for_each(|id| _ = arena.evict(id));
        assert_eq!((arena.report().in_use, arena.report().padding), (0, 0));
    }
}
