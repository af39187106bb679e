//! What Windows tells of this process, its threads and the cores: every call of its own interface that is not in a crate.

use std::{
    ffi::OsString,
    mem::{size_of, zeroed},
    os::windows::ffi::OsStrExt,
    path::{Component, Path, PathBuf, Prefix},
    ptr::null_mut,
    sync::OnceLock,
    time::{Duration, Instant},
};

use windows_sys::Win32::{
    Foundation::FILETIME,
    Storage::FileSystem::GetDiskFreeSpaceExW,
    System::{
        Console::{
            ENABLE_VIRTUAL_TERMINAL_PROCESSING, GetConsoleMode, GetStdHandle, STD_OUTPUT_HANDLE,
            SetConsoleMode,
        },
        ProcessStatus::{K32GetProcessMemoryInfo, PROCESS_MEMORY_COUNTERS},
        SystemInformation::{
            GROUP_AFFINITY, GetLogicalProcessorInformationEx, RelationProcessorCore,
            SYSTEM_LOGICAL_PROCESSOR_INFORMATION_EX,
        },
        Threading::{
            GetCurrentProcess, GetCurrentThread, GetProcessAffinityMask, GetThreadTimes,
            SetThreadGroupAffinity,
        },
        WindowsProgramming::QueryThreadCycleTime,
    },
};

/// Room for the name of a file is left of the 260.
const LONGEST_PATH: usize = 200;

/// CPUs are counted through groups of so many.
const GROUP: usize = 64;

/// Has the console of the standard output take escape sequences for colours, which it does unasked only inside a terminal program.
/// Gives whether it takes them; what is no console takes everything.
pub fn console_takes_colors() -> bool {
    // SAFETY: the mode is written to a number of our own; a handle that is none makes the first call fail.
    unsafe {
        let (output, mut mode) = (GetStdHandle(STD_OUTPUT_HANDLE), 0);
        if GetConsoleMode(output, &mut mode) == 0 {
            return true;
        }
        SetConsoleMode(output, mode | ENABLE_VIRTUAL_TERMINAL_PROCESSING) != 0
    }
}

/// A core of the processor.
pub struct WindowsCore {
    /// Its hardware threads.
    pub cpus: Vec<usize>,
    /// Cores of a higher class are faster.
    pub class: u8,
}

/// The cores that this process may run on.
pub fn cores() -> Option<Vec<WindowsCore>> {
    let mut bytes = 0;
    // SAFETY: without a buffer it only tells how many bytes there are.
    unsafe { GetLogicalProcessorInformationEx(RelationProcessorCore, null_mut(), &mut bytes) };
    // Of eight bytes each, since the entries hold pointers' widths.
    let mut buffer = vec![0u64; (bytes as usize).div_ceil(8)];
    // SAFETY: the buffer has as many bytes as it says.
    let told = unsafe {
        GetLogicalProcessorInformationEx(RelationProcessorCore, buffer.as_mut_ptr().cast(), &mut bytes)
    };
    let allowed = first_group();
    let mut cores = Vec::new();
    let mut at = 0;
    while told != 0 && at < bytes as usize {
        // SAFETY: entries of the size that each tells fill the buffer, and all are of the kind that was asked for.
        let (size, core) = unsafe {
            let entry =
                buffer.as_ptr().cast::<u8>().add(at).cast::<SYSTEM_LOGICAL_PROCESSOR_INFORMATION_EX>();
            ((*entry).Size as usize, (*entry).Anonymous.Processor)
        };
        let GROUP_AFFINITY { Mask: mask, Group: group, .. } = core.GroupMask[0];
        let mask = if group == 0 { mask & allowed } else { mask };
        let cpus: Vec<usize> = (0..GROUP)
            .filter(|bit| mask >> bit & 1 == 1)
            .map(|bit| usize::from(group) * GROUP + bit)
            .collect();
        if !cpus.is_empty() {
            cores.push(WindowsCore { cpus, class: core.EfficiencyClass });
        }
        at += size.max(1);
    }
    Some(cores).filter(|cores| !cores.is_empty())
}

/// Of the first group's CPUs those that this process may run on. Where it runs in several groups, all.
fn first_group() -> usize {
    let (mut own, mut all) = (0, 0);
    // SAFETY: it writes two numbers.
    let told = unsafe { GetProcessAffinityMask(GetCurrentProcess(), &mut own, &mut all) };
    if told == 0 || own == 0 { usize::MAX } else { own }
}

/// Has the calling thread run on these CPUs alone. Tells whether Windows did it: it cannot where they are of several groups.
pub fn bind(cpus: &[usize]) -> bool {
    let Some(group) = cpus.first().map(|cpu| cpu / GROUP) else { return true };
    if cpus.iter().any(|cpu| cpu / GROUP != group) {
        return false;
    }
    let mask = cpus.iter().fold(0, |mask, cpu| mask | 1usize << (cpu % GROUP));
    let Ok(group) = u16::try_from(group) else { return false };
    let affinity = GROUP_AFFINITY { Mask: mask, Group: group, Reserved: [0; 3] };
    // SAFETY: it reads the struct.
    unsafe { SetThreadGroupAffinity(GetCurrentThread(), &affinity, null_mut()) != 0 }
}

/// What the calling thread has had of a core: by its cycles, or where these are not counted by Windows' clock, which ticks 64
/// times a second.
pub fn cpu_time() -> Duration {
    match cycles() {
        Some(cycles) => Duration::from_secs_f64(cycles as f64 / cycles_a_second()),
        None => thread_times(),
    }
}

fn cycles() -> Option<u64> {
    let mut cycles = 0;
    // SAFETY: it writes a number.
    let told = unsafe { QueryThreadCycleTime(GetCurrentThread(), &mut cycles) };
    (told != 0 && cycles > 0).then_some(cycles)
}

/// Measured by a thread that does nothing else for a moment.
fn cycles_a_second() -> f64 {
    const MOMENT: Duration = Duration::from_millis(2);
    static RATE: OnceLock<f64> = OnceLock::new();
    *RATE.get_or_init(|| {
        let (started, before) = (Instant::now(), cycles().unwrap_or(0));
        while started.elapsed() < MOMENT {
            std::hint::spin_loop();
        }
        let cycles = cycles().unwrap_or(0).saturating_sub(before);
        cycles.max(1) as f64 / started.elapsed().as_secs_f64()
    })
}

fn thread_times() -> Duration {
    // SAFETY: a time of zeros is one.
    let [mut created, mut ended, mut kernel, mut user]: [FILETIME; 4] = unsafe { zeroed() };
    // SAFETY: it writes four times.
    unsafe { GetThreadTimes(GetCurrentThread(), &mut created, &mut ended, &mut kernel, &mut user) };
    let of = |time: FILETIME| u64::from(time.dwHighDateTime) << 32 | u64::from(time.dwLowDateTime);
    Duration::from_nanos(100 * (of(kernel) + of(user)))
}

/// Calls that are not the standard library's take a path of more than 260 characters in this form only.
pub fn of_any_length(path: &Path) -> PathBuf {
    long_form(path).unwrap_or_else(|| path.to_owned())
}

/// `None` for what needs none.
fn long_form(path: &Path) -> Option<PathBuf> {
    let path = std::path::absolute(path).ok().filter(|path| path.as_os_str().len() >= LONGEST_PATH)?;
    let mut components = path.components();
    let Component::Prefix(prefix) = components.next()? else { return None };
    let mut long = OsString::from(r"\\?\");
    match prefix.kind() {
        Prefix::Disk(_) => long.push(&path),
        Prefix::UNC(server, share) => {
            let behind = components.as_path().as_os_str();
            [r"UNC\".as_ref(), server, r"\".as_ref(), share, behind].iter().for_each(|part| long.push(part));
        }
        _ => return None,
    }
    Some(long.into())
}

/// What this user may still write in a folder.
pub fn free_bytes(folder: &Path) -> Option<u64> {
    let folder: Vec<u16> = of_any_length(folder).as_os_str().encode_wide().chain([0]).collect();
    let mut free = 0;
    // SAFETY: the name ends with zero, and it writes a number.
    let told = unsafe { GetDiskFreeSpaceExW(folder.as_ptr(), &mut free, null_mut(), null_mut()) };
    (told != 0).then_some(free)
}

/// Bytes of this process that are in memory.
pub fn resident_bytes() -> Option<u64> {
    // SAFETY: numbers may be zero.
    let mut told: PROCESS_MEMORY_COUNTERS = unsafe { zeroed() };
    told.cb = size_of::<PROCESS_MEMORY_COUNTERS>() as u32;
    // SAFETY: it writes as many bytes as the struct says that it has.
    let done = unsafe { K32GetProcessMemoryInfo(GetCurrentProcess(), &mut told, told.cb) };
    (done != 0).then_some(told.WorkingSetSize as u64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_thread_that_works_has_had_a_core() {
        let (started, before) = (Instant::now(), cpu_time());
        while started.elapsed() < Duration::from_millis(300) {
            std::hint::spin_loop();
        }
        let had = cpu_time() - before;
        // Others may have had it too.
        assert!(had > Duration::from_millis(20) && had < 2 * started.elapsed(), "{had:?}");
        let before = cpu_time();
        std::thread::sleep(Duration::from_millis(100));
        assert!(cpu_time() - before < Duration::from_millis(50));
    }

    #[test]
    fn a_thread_is_bound_to_a_core_that_there_is() {
        let Some(cores) = cores() else {
            eprintln!(
                "NOT RUN: a_thread_is_bound_to_a_core_that_there_is: Windows does not tell which cores there are"
            );
            return;
        };
        assert!(std::thread::spawn(move || bind(&cores[0].cpus)).join().unwrap());
        assert!(!bind(&[0, GROUP]), "of two groups");
        assert!(!bind(&[GROUP * 900]), "there is no such group");
    }

    #[test]
    fn long_paths_have_a_form_that_every_call_takes() {
        let name = r"models\".repeat(40);
        for (path, long) in [
            (r"C:\short\model.gguf".to_string(), None),
            (format!(r"C:\{name}model.gguf"), Some(format!(r"\\?\C:\{name}model.gguf"))),
            (format!(r"C:/a/../{name}model.gguf"), Some(format!(r"\\?\C:\{name}model.gguf"))),
            (format!(r"\\server\share\{name}m"), Some(format!(r"\\?\UNC\server\share\{name}m"))),
            (format!(r"\\?\C:\{name}m"), None),
        ] {
            assert_eq!(of_any_length(path.as_ref()), PathBuf::from(long.unwrap_or(path.clone())), "{path}");
        }
    }
}
