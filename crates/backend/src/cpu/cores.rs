//! The cores that this process may use, and which of them are the fast ones: processors of phones, laptops and desktops
//! have two kinds. Linux and Windows tell which core is which, macOS how many are fast; elsewhere all are taken to be alike.

use std::{collections::BTreeMap, fs, path::Path};

/// Slower than this share of the fastest core, a core is of the slow kind. Cores of one kind differ less, by how they came
/// out of the factory; two kinds differ more.
const FAST: f64 = 0.7;
/// What Intel's small cores do of a large one's work on vectors: they have half the width.
const OF_A_LARGE_CORE: f64 = 0.5;
/// Speeds are relative to this one.
const FASTEST: u32 = 1024;

/// A core of the processor.
#[derive(Clone, Debug, PartialEq)]
struct Core {
    /// The system's numbers of its hardware threads.
    cpus: Vec<usize>,
    speed: u32,
    /// The memory that is near.
    node: usize,
}

/// The fast cores come first.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Cores {
    /// Empty where the system does not tell.
    known: Vec<Core>,
    n_fast: usize,
}

/// How threads are bound to cores.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Binding {
    /// To cores of a kind, where there are two kinds; else the system places them.
    #[default]
    ByKind,
    /// To one core each.
    OneEach,
    /// To one core each, by turns near each of the machine's memories, and so are those that load weights.
    AcrossNodes,
}

/// Where a thread of a team runs.
#[derive(Clone, Debug, PartialEq)]
pub struct Seat {
    /// The system's numbers; empty for wherever it likes.
    pub cpus: Vec<usize>,
    /// How fast it is there: shares of work are dealt by it.
    pub speed: u32,
}

impl Cores {
    /// The cores that this process may use.
    pub fn here() -> Self {
        Self::found().unwrap_or_else(|| Cores { known: Vec::new(), n_fast: num_cpus::get_physical() })
    }

    #[cfg(target_os = "linux")]
    fn found() -> Option<Self> {
        Self::read(Path::new("/sys/devices"), &allowed()?)
    }

    #[cfg(target_os = "macos")]
    fn found() -> Option<Self> {
        let said = std::process::Command::new("/usr/sbin/sysctl").arg("hw.perflevel0.physicalcpu").output();
        // `hw.perflevel0.physicalcpu: 8`
        let said = String::from_utf8(said.ok()?.stdout).ok()?;
        let n_fast = said.trim().rsplit(' ').next()?.parse().ok()?;
        Some(Cores { known: Vec::new(), n_fast })
    }

    #[cfg(windows)]
    fn found() -> Option<Self> {
        let cores = crate::windows::cores()?;
        Self::of_classes(cores.into_iter().map(|core| (core.class, core.cpus)).collect())
    }

    #[cfg(not(any(target_os = "linux", target_os = "macos", windows)))]
    fn found() -> Option<Self> {
        None
    }

    /// From classes, of which the highest is the fastest: Windows says no more of their speed.
    #[cfg(any(test, windows))]
    fn of_classes(cores: Vec<(u8, Vec<usize>)>) -> Option<Self> {
        let highest = cores.iter().map(|&(class, _)| class).max()?;
        let speed = |class| if class == highest { 1.0 } else { OF_A_LARGE_CORE };
        let of_class =
            |(class, cpus)| Core { cpus, speed: (speed(class) * f64::from(FASTEST)) as u32, node: 0 };
        Self::sorted(cores.into_iter().map(of_class).collect())
    }

    fn sorted(mut known: Vec<Core>) -> Option<Self> {
        known.sort_by_key(|core| std::cmp::Reverse(core.speed));
        let n_fast = known.iter().filter(|core| core.speed == FASTEST).count();
        Some(Cores { known, n_fast }).filter(|cores| cores.n_fast > 0)
    }

    /// From Linux's tree of devices.
    #[cfg_attr(not(target_os = "linux"), allow(dead_code, reason = "only Linux has it"))]
    fn read(devices: &Path, allowed: &[usize]) -> Option<Self> {
        let list = |path: &str| parse_list(&fs::read_to_string(devices.join(path)).ok()?);
        let number = |path: String| fs::read_to_string(devices.join(path)).ok()?.trim().parse::<f64>().ok();
        let small = list("cpu_atom/cpus").unwrap_or_default();
        let speed = |cpu: usize| {
            let of_kernel = number(format!("system/cpu/cpu{cpu}/cpu_capacity"));
            let clock = || number(format!("system/cpu/cpu{cpu}/cpufreq/cpuinfo_max_freq"));
            let alike = if small.contains(&cpu) { OF_A_LARGE_CORE } else { 1.0 };
            if small.is_empty() { of_kernel.or_else(clock).unwrap_or(alike) } else { alike }
        };
        let nodes: Vec<Vec<usize>> =
            (0..).map_while(|node| list(&format!("system/node/node{node}/cpulist"))).collect();
        let mut cores = BTreeMap::<usize, Core>::new();
        for &cpu in allowed {
            let siblings = list(&format!("system/cpu/cpu{cpu}/topology/thread_siblings_list"))?;
            let core = cores.entry(*siblings.first()?).or_insert_with(|| {
                let node = nodes.iter().take_while(|cpus| !cpus.contains(&cpu)).count();
                Core { cpus: Vec::new(), speed: 0, node }
            });
            core.cpus.push(cpu);
        }
        let mut known: Vec<Core> = cores.into_values().collect();
        let speeds: Vec<f64> = known.iter().map(|core| speed(core.cpus[0])).collect();
        let fastest = speeds.iter().copied().fold(0.0, f64::max);
        for (core, speed) in known.iter_mut().zip(speeds) {
            let share = speed / fastest;
            // Alike, so that equal threads have equal shares.
            core.speed = if share >= FAST { FASTEST } else { (share * f64::from(FASTEST)).max(1.0) as u32 };
        }
        Self::sorted(known)
    }

    /// How many threads there are if nobody says: one for each fast core, at most what the process may have of the machine.
    pub fn default_threads(&self) -> usize {
        let allowed = std::thread::available_parallelism().map_or(1, usize::from);
        self.n_fast.clamp(1, allowed)
    }

    /// Cores that are not of the fast kind.
    pub fn n_slow(&self) -> usize {
        self.known.len().saturating_sub(self.n_fast)
    }

    /// Where so many threads run, the fast places first.
    pub fn seats(&self, threads: usize, binding: Binding) -> Vec<Seat> {
        let one_node = self.known.iter().all(|core| core.node == self.known[0].node);
        let binding = if binding == Binding::AcrossNodes && one_node { Binding::ByKind } else { binding };
        let places = self.places(binding);
        let free = binding == Binding::ByKind && self.n_slow() == 0;
        if free || places.len() < threads {
            return vec![Seat { cpus: Vec::new(), speed: 1 }; threads];
        }
        let of_kind = |core: &Core| {
            let alike = self.known.iter().filter(|other| other.speed == core.speed);
            alike.flat_map(|core| core.cpus.iter().copied()).collect()
        };
        let seat = |&(core, cpu): &(&Core, usize)| Seat {
            cpus: if binding == Binding::ByKind { of_kind(core) } else { vec![cpu] },
            speed: core.speed,
        };
        places[..threads].iter().map(seat).collect()
    }

    /// All hardware threads: one of each core before the second ones.
    fn places(&self, binding: Binding) -> Vec<(&Core, usize)> {
        let mut cores: Vec<&Core> = self.known.iter().collect();
        if binding == Binding::AcrossNodes {
            let mut met = BTreeMap::<(u32, usize), usize>::new();
            let mut turn = |core: &&Core| {
                let before = met.entry((core.speed, core.node)).or_default();
                *before += 1;
                (std::cmp::Reverse(core.speed), *before, core.node)
            };
            let turns: Vec<_> = cores.iter().map(&mut turn).collect();
            let mut order: Vec<usize> = (0..cores.len()).collect();
            order.sort_by_key(|&i| turns[i]);
            cores = order.into_iter().map(|i| cores[i]).collect();
        }
        let most = cores.iter().map(|core| core.cpus.len()).max().unwrap_or(0);
        let of_rank = |rank| cores.iter().filter_map(move |core| Some((*core, *core.cpus.get(rank)?)));
        (0..most).flat_map(of_rank).collect()
    }

    /// The CPUs near the memory that is near this one.
    #[cfg(any(test, target_os = "linux"))]
    fn near(&self, cpu: usize) -> Vec<usize> {
        let here = self.known.iter().find(|core| core.cpus.contains(&cpu)).map(|core| core.node);
        let near = self.known.iter().filter(|core| Some(core.node) == here);
        near.flat_map(|core| core.cpus.iter().copied()).collect()
    }
}

/// Has the calling thread, and those that it starts later, run near the memory that it is near now. Tells whether the
/// system did it.
pub fn bind_to_this_node() -> bool {
    #[cfg(target_os = "linux")]
    {
        let near = Cores::here().near(rustix::thread::sched_getcpu());
        !near.is_empty() && bind(&near)
    }
    #[cfg(not(target_os = "linux"))]
    false
}

/// The CPUs that the calling thread may run on.
#[cfg(target_os = "linux")]
pub fn allowed() -> Option<Vec<usize>> {
    let set = rustix::thread::sched_getaffinity(None).ok()?;
    Some((0..rustix::thread::CpuSet::MAX_CPU).filter(|&cpu| set.is_set(cpu)).collect())
}

/// Has the calling thread, and on Linux those that it starts later, run on these CPUs alone; not at all where there are none.
/// Tells whether the system did it.
pub fn bind(cpus: &[usize]) -> bool {
    #[cfg(windows)]
    return crate::windows::bind(cpus);
    #[cfg(target_os = "linux")]
    if !cpus.is_empty() {
        use rustix::thread::CpuSet;
        let mut set = CpuSet::new();
        cpus.iter().filter(|&&cpu| cpu < CpuSet::MAX_CPU).for_each(|&cpu| set.set(cpu));
        return rustix::thread::sched_setaffinity(None, &set).is_ok();
    }
    #[cfg(not(windows))]
    cpus.is_empty()
}

/// `0-3,8` as Linux writes lists of CPUs.
pub fn parse_list(text: &str) -> Option<Vec<usize>> {
    const MOST: usize = 1 << 16;
    let mut all = Vec::new();
    for part in text.trim().split(',').filter(|part| !part.is_empty()) {
        let (first, last) = part.split_once('-').unwrap_or((part, part));
        let (first, last) = (first.parse::<usize>().ok()?, last.parse::<usize>().ok()?);
        if last < first || last >= MOST {
            return None;
        }
        all.extend(first..=last);
    }
    Some(all)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A tree of devices with these files.
    fn machine(files: &[(String, String)]) -> tempfile::TempDir {
        let root = tempfile::tempdir().unwrap();
        for (path, text) in files {
            let path = root.path().join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, format!("{text}\n")).unwrap();
        }
        root
    }

    fn siblings(cpu: usize, list: &str) -> (String, String) {
        (format!("system/cpu/cpu{cpu}/topology/thread_siblings_list"), list.into())
    }

    /// An i7-12700: 8 large cores with two hardware threads each, 4 small ones.
    fn of_two_kinds() -> Cores {
        let mut files = vec![
            ("cpu_core/cpus".into(), "0-15".into()),
            ("cpu_atom/cpus".into(), "16-19".into()),
            ("system/node/node0/cpulist".into(), "0-19".into()),
        ];
        for cpu in 0..20 {
            let of_two = format!("{}-{}", cpu / 2 * 2, cpu / 2 * 2 + 1);
            files.push(siblings(cpu, &if cpu < 16 { of_two } else { cpu.to_string() }));
            let clock = if cpu < 16 { "4900000" } else { "3600000" };
            files.push((format!("system/cpu/cpu{cpu}/cpufreq/cpuinfo_max_freq"), clock.into()));
        }
        Cores::read(machine(&files).path(), &(0..20).collect::<Vec<_>>()).unwrap()
    }

    #[test]
    fn small_cores_of_intel_are_told_from_large_ones() {
        let cores = of_two_kinds();
        assert_eq!((cores.n_fast, cores.n_slow()), (8, 4));
        let threads = cores.seats(10, Binding::ByKind);
        assert!(threads[..8].iter().all(|seat| seat.cpus == (0..16).collect::<Vec<_>>()));
        assert!(threads[8..].iter().all(|seat| seat.cpus == [16, 17, 18, 19]));
        assert_eq!(2 * threads[9].speed, threads[0].speed);
        let bound: Vec<_> =
            cores.seats(20, Binding::OneEach).into_iter().flat_map(|seat| seat.cpus).collect();
        assert_eq!(bound[..13], [0, 2, 4, 6, 8, 10, 12, 14, 16, 17, 18, 19, 1]);
        let too_many = cores.seats(21, Binding::OneEach);
        assert!(too_many.len() == 21 && too_many.iter().all(|seat| seat.cpus.is_empty()));
    }

    /// An RK3588: four large and four small cores, with the capacities that the kernel gives.
    #[test]
    fn large_cores_of_arm_come_first() {
        let mut files = Vec::new();
        for cpu in 0..8 {
            files.push(siblings(cpu, &cpu.to_string()));
            let capacity = if cpu < 4 { "530" } else { "1024" };
            files.push((format!("system/cpu/cpu{cpu}/cpu_capacity"), capacity.into()));
        }
        let cores = Cores::read(machine(&files).path(), &(0..8).collect::<Vec<_>>()).unwrap();
        assert_eq!((cores.n_fast, cores.n_slow()), (4, 4));
        let seats = cores.seats(5, Binding::OneEach);
        assert_eq!(seats.iter().map(|seat| seat.cpus[0]).collect::<Vec<_>>(), [4, 5, 6, 7, 0]);
        assert_eq!((seats[0].speed, seats[4].speed), (1024, 530));
    }

    /// Two sockets of four cores, of which a container has been given six hardware threads.
    #[test]
    fn only_what_is_allowed_is_counted_and_nodes_take_turns() {
        let mut files = vec![
            ("system/node/node0/cpulist".into(), "0-3,8-11".into()),
            ("system/node/node1/cpulist".into(), "4-7,12-15".into()),
        ];
        files.extend((0..16).map(|cpu| siblings(cpu, &format!("{},{}", cpu % 8, cpu % 8 + 8))));
        let root = machine(&files);
        let cores = Cores::read(root.path(), &[1, 2, 4, 5, 9, 12]).unwrap();
        assert_eq!((cores.n_fast, cores.n_slow()), (4, 0));
        let across = |threads| -> Vec<usize> {
            cores.seats(threads, Binding::AcrossNodes).into_iter().flat_map(|seat| seat.cpus).collect()
        };
        assert_eq!(across(4), [1, 4, 2, 5]);
        assert_eq!(across(6), [1, 4, 2, 5, 9, 12]);
        assert_eq!((cores.near(9), cores.near(5)), (vec![1, 9, 2], vec![4, 12, 5]));
        assert!(of_two_kinds().seats(3, Binding::AcrossNodes) == of_two_kinds().seats(3, Binding::ByKind));
        assert!(cores.seats(4, Binding::ByKind).iter().all(|seat| seat.cpus.is_empty()), "all are alike");
        assert_eq!(Cores::read(root.path(), &[99]), None);
    }

    #[test]
    fn small_cores_are_told_by_windows_classes_too() {
        let large = (0..8).map(|core| (1, vec![2 * core, 2 * core + 1]));
        let small = (16..20).map(|cpu| (0, vec![cpu]));
        assert_eq!(Cores::of_classes(small.chain(large).collect()).unwrap(), of_two_kinds());
        assert_eq!(Cores::of_classes(vec![]), None);
    }

    #[test]
    fn lists_are_read_as_linux_writes_them() {
        assert_eq!(parse_list("0-2,8\n"), Some(vec![0, 1, 2, 8]));
        assert_eq!(parse_list("\n"), Some(vec![]));
        for wrong in ["3-1", "a", "1-", "0-99999999"] {
            assert_eq!(parse_list(wrong), None, "{wrong}");
        }
    }

    #[cfg(target_os = "linux")]
    #[test]
    fn a_bound_thread_stays_where_it_is_told() {
        let cpu = *allowed().unwrap().last().unwrap();
        let told = std::thread::spawn(move || (bind(&[cpu]), allowed())).join().unwrap();
        assert_eq!(told, (true, Some(vec![cpu])));
        assert!(!bind(&[(1 << 16) - 1]), "there is no such CPU");
        assert!(Cores::here().default_threads() <= num_cpus::get());
    }
}
