use std::sync::atomic::AtomicBool;

use super::{waits::SPIN_BETWEEN_PASSES, *};

const EQUAL: [u64; 8] = [0, 1, 2, 3, 4, 5, 6, 7];

fn seats(speeds: &[u32]) -> Vec<Seat> {
    speeds.iter().map(|&speed| Seat { cpus: Vec::new(), speed }).collect()
}

fn team(threads: usize) -> Team {
    Team::new(threads, threads, &seats(&vec![1; threads])).unwrap()
}

#[test]
fn a_barrier_orders_what_was_written_before_it() {
    let mut team = team(3);
    let slots: Vec<AtomicU64> = (0..3).map(|_| AtomicU64::new(0)).collect();
    team.run(1, |m| {
        for round in 1..2000 {
            slots[m.index].store(round, Ordering::Relaxed);
            m.sync();
            for slot in &slots {
                assert_eq!(slot.load(Ordering::Relaxed), round);
            }
            m.sync();
        }
    });
}

#[test]
fn shares_cover_everything_once() {
    let (barrier, spun) = (Barrier::new(), Spun::default());
    for (count, grain, threads) in [(0, 8, 2), (1, 8, 3), (31, 8, 2), (64, 8, 3), (100, 1, 7)] {
        let mut next = 0;
        for index in 0..threads {
            let share =
                Member { index, threads, bounds: &EQUAL, barrier: &barrier, spun: &spun }.share(count, grain);
            assert_eq!(share.start, next);
            assert!(share.is_empty() || share.start.is_multiple_of(grain));
            next = share.end;
        }
        assert_eq!(next, count);
    }
}

#[test]
fn what_is_dealt_is_dealt_once_whoever_comes_first() {
    for (count, grain, threads) in [(0, 8, 2), (1, 8, 3), (31, 8, 2), (4000, 32, 3), (101, 1, 1)] {
        let mut team = team(threads);
        let dealt: Vec<AtomicU64> = (0..count).map(|_| AtomicU64::new(0)).collect();
        let taken = WorkCounter::default();
        team.run(1, |m| {
            for items in m.deal(Some(&taken), count, grain) {
                assert!(items.start.is_multiple_of(grain) && !items.is_empty());
                items.for_each(|i| _ = dealt[i].fetch_add(1, Ordering::Relaxed));
            }
        });
        assert!(dealt.iter().all(|n| n.load(Ordering::Relaxed) == 1), "{count} by {grain} to {threads}");
    }
}

#[test]
fn late_parts_are_long_at_first_and_leave_something_for_every_thread() {
    let lengths = |pieces: usize, threads| -> Vec<usize> {
        let parts: Vec<_> = ever_smaller(7..7 + pieces, threads).collect();
        assert_eq!(parts.iter().cloned().flatten().collect::<Vec<_>>(), (7..7 + pieces).collect::<Vec<_>>());
        parts.iter().map(|part| part.len()).collect()
    };
    assert_eq!(lengths(0, 2), [0; 0]);
    assert_eq!(lengths(4, 2), [1; 4]);
    assert_eq!(lengths(16, 2), [4, 3, 2, 2, 2, 2, 1]);
    assert_eq!(lengths(32, 16), [1; 32]);
    assert_eq!(lengths(1000, 2)[..3], [250, 187, 140]);
}

#[test]
fn who_is_late_gets_less() {
    let (barrier, spun) = (Barrier::new(), Spun::default());
    let taken = WorkCounter::default();
    let [first, late] =
        [0, 1].map(|index| Member { index, threads: 2, bounds: &EQUAL, barrier: &barrier, spun: &spun });
    let of_first: usize = first.deal(Some(&taken), 800, 10).map(|items| items.len()).sum();
    let of_late: usize = late.deal(Some(&taken), 800, 10).map(|items| items.len()).sum();
    assert_eq!((of_first, of_late), (500, 300));
    let of_one: usize = late.deal(None, 800, 10).map(|items| items.len()).sum();
    assert_eq!(of_one, 400, "without a counter, shares are equal");
}

#[test]
fn slow_threads_get_less_of_what_is_dealt_and_of_what_is_shared() {
    let mut team = Team::new(3, 3, &seats(&[1024, 1024, 512])).unwrap();
    let taken = WorkCounter::default();
    let shares: Vec<AtomicU64> = (0..3).map(|_| AtomicU64::new(0)).collect();
    let dealt: Vec<AtomicU64> = (0..3).map(|_| AtomicU64::new(0)).collect();
    team.run(1, |m| {
        shares[m.index].store(m.share(1000, 1).len() as u64, Ordering::Relaxed);
        let own = m.deal(Some(&taken), 1000, 1).next().map_or(0, |items| items.len());
        dealt[m.index].store(own as u64, Ordering::Relaxed);
    });
    assert_eq!(shares.iter().map(|n| n.load(Ordering::Relaxed)).collect::<Vec<_>>(), [400, 400, 200]);
    assert_eq!(dealt.iter().map(|n| n.load(Ordering::Relaxed)).collect::<Vec<_>>(), [300, 300, 150]);
}

#[test]
fn prompts_have_a_crew_of_their_own() {
    for (few, many) in [(1, 3), (3, 1), (2, 2)] {
        let mut team = Team::new(few, many, &seats(&[1; 3])).unwrap();
        for (rows, expected) in [(1, few), (32, few), (33, many), (512, many)] {
            let seen = AtomicUsize::new(0);
            assert_eq!(team.crew(rows), expected);
            team.run(rows, |m| {
                assert_eq!(m.threads, expected);
                seen.fetch_add(1, Ordering::Relaxed);
            });
            assert_eq!(seen.into_inner(), expected);
        }
    }
}

#[test]
fn a_region_uses_the_whole_crew_and_ends_before_run_returns() {
    for threads in 1..5 {
        let mut team = team(threads);
        for _ in 0..500 {
            let (seen, crew) = (AtomicU64::new(0), team.crew(1));
            team.run(1, |m| {
                seen.fetch_add(1 << (8 * m.index), Ordering::Relaxed);
            });
            let expected: u64 = (0..crew).map(|i| 1 << (8 * i)).sum();
            assert_eq!(seen.into_inner(), expected);
        }
        // Long enough for everybody to fall asleep.
        thread::sleep(4 * SPIN_BETWEEN_PASSES);
        team.run(1, |m| m.sync());
    }
}

#[test]
fn whoever_takes_part_does_it_in_every_region() {
    let mut team = team(5);
    for round in 0..3000 {
        let threads = [5, 1, 3, 2, 2, 4][round % 6];
        team.crew = Crew::new(threads);
        let seen: [AtomicU64; 5] = Default::default();
        team.run(1, |m| {
            assert_eq!(m.threads, threads);
            seen[m.index].fetch_add(1, Ordering::Relaxed);
            m.sync();
            let all: u64 = seen.iter().map(|seen| seen.load(Ordering::Relaxed)).sum();
            assert_eq!(all, threads as u64);
        });
        if round % 500 == 0 {
            // Long enough for everybody to fall asleep.
            thread::sleep(4 * SPIN_BETWEEN_PASSES);
        }
    }
}

/// Passes of short phases on a machine whose every core somebody else has too. Where threads of a team wait for
/// each other through whole turns of the scheduler, two get a fifth of what one does. Half would be fair to
/// expect; how turns fall is chance, hence the best of several tries.
#[test]
fn on_a_busy_machine_a_team_is_not_much_slower_than_one_thread() {
    let busy = AtomicBool::new(true);
    let passes = |team: &mut Team| {
        let (started, mut passes) = (Instant::now(), 0);
        while started.elapsed() < Duration::from_millis(400) {
            team.run(1, |m| {
                for _ in 0..45 {
                    m.sync();
                    for i in m.share(1000, 1) {
                        std::hint::black_box((0..20).fold(i, |sum, i| std::hint::black_box(sum ^ i)));
                    }
                }
            });
            passes += 1;
        }
        passes
    };
    let stop = AtOnce(&busy);
    thread::scope(|scope| {
        let stop = stop;
        for _ in 0..thread::available_parallelism().map_or(2, usize::from) {
            scope.spawn(|| {
                while busy.load(Ordering::Relaxed) {
                    std::hint::spin_loop()
                }
            });
        }
        let threads = thread::available_parallelism().map_or(2, usize::from).max(2);
        let (mut one, mut all) = (team(1), team(threads));
        let ratio = || f64::from(passes(&mut all)) / f64::from(passes(&mut one));
        let ratios: Vec<f64> = std::iter::repeat_with(ratio).take(5).collect();
        let best = ratios.iter().copied().fold(0.0, f64::max);
        drop(stop);
        assert!(best > 0.5, "{threads} threads against one: {ratios:.2?}");
    });
}

/// Ends those who look at it, also where a test fails.
struct AtOnce<'a>(&'a AtomicBool);

impl Drop for AtOnce<'_> {
    fn drop(&mut self) {
        self.0.store(false, Ordering::Relaxed);
    }
}

#[test]
fn a_panic_in_one_thread_does_not_hang_the_others() {
    let mut team = team(2);
    let result = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
        team.run(1, |m| {
            if m.index == 1 {
                panic!("on purpose");
            }
            m.sync();
        })
    }));
    assert_eq!(result.unwrap_err().downcast_ref(), Some(&"on purpose"));
    team.run(1, |m| m.sync());
}
