//! Pipelines that will be asked for, made on threads of their own meanwhile: drivers take long to compile a kernel, and
//! a pass over few rows has kernels of its own for each number of rows.

use std::{
    collections::{HashMap, HashSet, VecDeque},
    num::NonZero,
    panic::{AssertUnwindSafe, catch_unwind},
    sync::{Arc, Condvar, Mutex, MutexGuard},
    thread::{self, JoinHandle},
};

use super::{super::device::Gpu, Kernel, make::Maker};

/// What compilers may need; a thread has less unless it is asked for.
const STACK_BYTES: usize = 8 << 20;

/// Whatever else runs needs processors too.
const MOST_THREADS: usize = 4;

/// When a kernel is made.
#[derive(Clone, Copy)]
pub enum Turn {
    /// Before all others that are wanted: whoever asks for several begins with the first, and the threads with the last.
    Next,
    Last,
}

#[derive(Default)]
struct Work {
    wanted: VecDeque<Kernel>,
    making: HashSet<Kernel>,
    made: HashMap<Kernel, wgpu::ComputePipeline>,
    has_ended: bool,
}

#[derive(Default)]
struct Shared {
    work: Mutex<Work>,
    changed: Condvar,
}

impl Shared {
    /// Its state is whole at any time.
    fn work(&self) -> MutexGuard<'_, Work> {
        self.work.lock().unwrap_or_else(|e| e.into_inner())
    }

    fn wait<'a>(&self, work: MutexGuard<'a, Work>) -> MutexGuard<'a, Work> {
        self.changed.wait(work).unwrap_or_else(|e| e.into_inner())
    }

    fn run(&self, gpu: &Gpu, maker: &Maker) {
        let mut work = self.work();
        while !work.has_ended {
            let Some(kernel) = work.wanted.pop_front() else {
                work = self.wait(work);
                continue;
            };
            work.making.insert(kernel);
            drop(work);
            // Whoever waits for it must not wait for ever.
            let made = catch_unwind(AssertUnwindSafe(|| maker.make(gpu, kernel).ok()));
            work = self.work();
            work.making.remove(&kernel);
            // One that is refused is refused again, and reported, if it is ever asked for.
            work.made.extend(made.ok().flatten().map(|made| (kernel, made)));
            self.changed.notify_all();
        }
    }
}

pub struct Background {
    shared: Arc<Shared>,
    threads: Vec<JoinHandle<()>>,
}

impl Background {
    /// Where there can be no threads, nothing is made before it is asked for.
    pub fn new(gpu: &Arc<Gpu>, maker: &Arc<Maker>) -> Self {
        let shared = Arc::new(Shared::default());
        let processors = thread::available_parallelism().map_or(1, NonZero::get);
        let started = (0..(processors / 2).clamp(1, MOST_THREADS)).map_while(|_| {
            let (gpu, maker, shared) = (gpu.clone(), maker.clone(), shared.clone());
            let named = thread::Builder::new().name("kernels".into()).stack_size(STACK_BYTES);
            named.spawn(move || shared.run(&gpu, &maker)).ok()
        });
        Background { threads: started.collect(), shared }
    }

    /// Kernels that nobody has asked for yet.
    pub fn want(&self, kernels: impl IntoIterator<Item = Kernel>, turn: Turn) {
        if self.threads.is_empty() {
            return;
        }
        let mut work = self.shared.work();
        for kernel in kernels {
            if work.making.contains(&kernel)
                || work.made.contains_key(&kernel)
                || work.wanted.contains(&kernel)
            {
                continue;
            }
            match turn {
                Turn::Next => work.wanted.push_front(kernel),
                Turn::Last => work.wanted.push_back(kernel),
            }
        }
        drop(work);
        self.shared.changed.notify_all();
    }

    /// A pipeline that is made or being made; what is only wanted is left to whoever asks, who would have to wait.
    pub fn take(&self, kernel: Kernel) -> Option<wgpu::ComputePipeline> {
        let mut work = self.shared.work();
        work.wanted.retain(|&wanted| wanted != kernel);
        while work.making.contains(&kernel) {
            work = self.shared.wait(work);
        }
        work.made.remove(&kernel)
    }

    #[cfg(test)]
    pub fn waiting(&self) -> usize {
        self.shared.work().made.len()
    }

    /// Waits until all that is wanted is made.
    #[cfg(test)]
    pub fn settle(&self) {
        let mut work = self.shared.work();
        while !work.making.is_empty() || !work.wanted.is_empty() {
            work = self.shared.wait(work);
        }
    }
}

impl Drop for Background {
    /// A driver must not be compiling when the program ends.
    fn drop(&mut self) {
        self.shared.work().has_ended = true;
        self.shared.changed.notify_all();
        for thread in self.threads.drain(..) {
            let _ = thread.join();
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::{Duration, Instant};

    use super::super::{super::variants::Variants, Mode, Pipelines};
    use super::*;
    use crate::{formats::Format, tests::gpu};

    fn product(columns: u32) -> Kernel {
        let (format, mode, arith) = (Format::ALL[0], Mode::Store, Variants::PLAIN.arith);
        let (coarse, scales) = (false, false);
        Kernel::MatmulRows { format, mode, lanes: 8, columns, coarse, arith, scales }
    }

    #[test]
    fn the_first_number_of_columns_asked_for_has_the_others_made() {
        let Some(gpu) = gpu("the_first_number_of_columns_asked_for_has_the_others_made") else { return };
        let gpu = Arc::new(gpu);
        let mut pipelines = Pipelines::new(&gpu).in_background(&gpu).with_other_columns();
        pipelines.get(&gpu, Kernel::Add).unwrap();
        pipelines.settle();
        assert_eq!(pipelines.waiting(), 0);
        pipelines.get(&gpu, product(1)).unwrap();
        pipelines.settle();
        assert_eq!(pipelines.waiting(), 7);
        for columns in 2..=8 {
            pipelines.get(&gpu, product(columns)).unwrap();
            assert_eq!(pipelines.waiting(), 8 - columns as usize, "{columns}");
        }
        pipelines.settle();
        assert_eq!(pipelines.waiting(), 0, "none is made twice");
    }

    #[test]
    fn what_comes_next_is_made_from_its_end_on_and_before_the_rest() {
        let Some(gpu) = gpu("what_comes_next_is_made_from_its_end_on_and_before_the_rest") else { return };
        let maker = Arc::new(Maker::new(Variants::PLAIN));
        let background = Background::new(&Arc::new(gpu), &maker);
        // Nothing is made any more.
        background.shared.work().has_ended = true;
        background.want([7, 8].map(product), Turn::Last);
        for columns in [1, 2, 1, 8, 3] {
            background.want([product(columns)], Turn::Next);
        }
        let wanted: Vec<_> = background.shared.work().wanted.iter().copied().collect();
        assert_eq!(wanted, [3, 2, 1, 7, 8].map(product));
    }

    /// One after the other while threads are at work: some are made, one is being made, some are only wanted.
    #[test]
    fn kernels_can_be_asked_for_at_any_time() {
        let Some(gpu) = gpu("kernels_can_be_asked_for_at_any_time") else { return };
        let gpu = Arc::new(gpu);
        for order in [[1, 2, 3, 4, 5, 6, 7, 8], [1, 8, 7, 6, 5, 4, 3, 2], [4, 5, 1, 8, 2, 3, 7, 6]] {
            let mut pipelines = Pipelines::new(&gpu).in_background(&gpu).with_other_columns();
            for columns in order {
                pipelines.get(&gpu, product(columns)).unwrap();
            }
            pipelines.settle();
            assert_eq!(pipelines.waiting(), 0);
        }
    }

    #[test]
    fn a_kernel_refused_in_the_background_is_reported_when_it_is_asked_for() {
        let name = "a_kernel_refused_in_the_background_is_reported_when_it_is_asked_for";
        let Some(gpu) = gpu(name) else { return };
        let gpu = Arc::new(gpu);
        let broken = |kernel: Kernel, text: String| match kernel {
            Kernel::MatmulRows { columns: 3, .. } => format!("{text}\nfn wrong() -> f32 {{ return 1u; }}"),
            _ => text,
        };
        let edited = Pipelines::edited(Variants::PLAIN, Some(broken));
        let mut pipelines = edited.in_background(&gpu).with_other_columns();
        pipelines.get(&gpu, product(1)).unwrap();
        pipelines.settle();
        gpu.check().unwrap();
        assert_eq!(pipelines.waiting(), 6);
        let refused = pipelines.get(&gpu, product(3)).unwrap_err().to_string();
        assert!(refused.contains("x3 was refused"), "{refused}");
        pipelines.get(&gpu, product(4)).unwrap();
        gpu.check().unwrap();
    }

    #[test]
    fn the_end_waits_for_what_is_being_made_and_not_for_all() {
        let Some(gpu) = gpu("the_end_waits_for_what_is_being_made_and_not_for_all") else { return };
        let gpu = Arc::new(gpu);
        let all = Kernel::all().into_iter().filter(|kernel| kernel.bindings().fits(&gpu.limits));
        let maker = Arc::new(Maker::new(Variants::PLAIN));
        let background = Background::new(&gpu, &maker);
        background.want(all, Turn::Last);
        thread::sleep(Duration::from_millis(50));
        let since = Instant::now();
        let shared = background.shared.clone();
        drop(background);
        let left = shared.work().wanted.len();
        assert!(left > 0, "all were made within {:?}", since.elapsed());
        assert_eq!(Arc::strong_count(&shared), 1, "the threads have ended");
    }
}
