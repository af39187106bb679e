//! The flags that say how many threads there are and where they run, in llama.cpp's words.

use clap::{Args, ValueEnum};

use super::output::warning;
use crate::{
    Error, Result,
    backend::cpu::cores::{self, Binding},
    context::ContextConfig,
};

const MAX_THREADS: usize = 1024;

#[derive(Args, Clone, Debug)]
pub struct ThreadArgs {
    /// Threads [default: the physical cores, of the fast kind where there are two]
    #[arg(short = 't', long, value_name = "N", default_value_t = 0, hide_default_value = true)]
    threads: usize,
    /// -tb: threads for prompts [default: as -t]
    #[arg(long, value_name = "N", default_value_t = 0, hide_default_value = true)]
    threads_batch: usize,
    /// -C: run on these CPUs only: a hexadecimal number with a bit for each [default: those that the system gives]
    #[arg(long, value_name = "HEX")]
    cpu_mask: Option<String>,
    /// -Cr: run on these CPUs only, as 0-7, or 0-3,8-11 [default: those that the system gives]
    #[arg(long, value_name = "LIST", conflicts_with = "cpu_mask")]
    cpu_range: Option<String>,
    /// 1 binds each thread to a CPU of its own
    #[arg(long, value_name = "0|1", default_value_t = 0, hide_default_value = true)]
    #[arg(value_parser = clap::value_parser!(u8).range(0..=1))]
    cpu_strict: u8,
    /// On a machine with several memories: threads and weights spread over them, or only the one where the program was
    /// started; numactl keeps to what numactl has said
    #[arg(long, value_name = "TYPE", value_enum)]
    numa: Option<Numa>,
}

#[derive(ValueEnum, Clone, Copy, Debug, PartialEq, Eq)]
enum Numa {
    Distribute,
    Isolate,
    Numactl,
}

impl ThreadArgs {
    pub fn check(&self) -> Result<()> {
        for (flag, threads) in [("-t", self.threads), ("-tb", self.threads_batch)] {
            if threads > MAX_THREADS {
                return Err(Error::Usage(format!("{flag} {threads}: at most {MAX_THREADS} threads")));
            }
        }
        self.cpus().map(drop)
    }

    /// What they say of a context's threads, once this thread and those that it starts run where they should.
    pub fn apply(&self, config: ContextConfig) -> Result<ContextConfig> {
        self.confine()?;
        Ok(ContextConfig {
            threads: at_most_all("-t", self.threads),
            prompt_threads: at_most_all("-tb", self.threads_batch),
            binding: match (self.numa, self.cpu_strict) {
                (Some(Numa::Distribute), _) => Binding::AcrossNodes,
                (_, 1) => Binding::OneEach,
                _ => Binding::ByKind,
            },
            ..config
        })
    }

    fn confine(&self) -> Result<()> {
        if let Some((flag, cpus)) = self.cpus()?
            && !cores::bind(&cpus)
        {
            return Err(Error::Usage(format!("{flag}: the system has none of these CPUs for this program")));
        }
        if self.numa == Some(Numa::Isolate) && !cores::bind_to_this_node() {
            warning!("--numa isolate: the system does not tell which CPUs are near this one; all are used");
        }
        Ok(())
    }

    /// Those that are named, and by which flag.
    fn cpus(&self) -> Result<Option<(String, Vec<usize>)>> {
        let (flag, cpus) = match (&self.cpu_mask, &self.cpu_range) {
            (Some(mask), _) => (format!("--cpu-mask {mask}"), parse_mask(mask)),
            (None, Some(range)) => (format!("--cpu-range {range}"), cores::parse_list(range)),
            (None, None) => return Ok(None),
        };
        let wanted = || {
            Error::Usage(format!(
                "{flag}: CPUs are named by a list, --cpu-range 0-3,8, or by bits, --cpu-mask f0"
            ))
        };
        let cpus = cpus.filter(|cpus| !cpus.is_empty()).ok_or_else(wanted)?;
        match cfg!(target_os = "linux") {
            true => Ok(Some((flag, cpus))),
            false => Err(Error::Usage(format!("{flag}: only Linux binds a program to CPUs; leave it out"))),
        }
    }
}

/// At most what the machine has: beyond that threads only wait for each other, and no result depends on it.
fn at_most_all(flag: &str, asked: usize) -> usize {
    let cores = std::thread::available_parallelism().map_or(asked, usize::from);
    if asked > cores {
        let s = if cores == 1 { "" } else { "s" };
        warning!("{flag} {asked} is more than this machine has cores: {cores} thread{s} will run");
    }
    asked.min(cores)
}

/// The numbers of the bits that are set.
fn parse_mask(text: &str) -> Option<Vec<usize>> {
    let digits = text.strip_prefix("0x").or(text.strip_prefix("0X")).unwrap_or(text);
    let digits: Option<Vec<u32>> = digits.chars().rev().map(|digit| digit.to_digit(16)).collect();
    let of_digit = |(place, digit): (usize, u32)| {
        (0..4).filter(move |bit| digit >> bit & 1 == 1).map(move |bit| 4 * place + bit as usize)
    };
    Some(digits?.into_iter().enumerate().flat_map(of_digit).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn masks_name_cpus_by_their_bits() {
        assert_eq!(parse_mask("0xF0"), Some(vec![4, 5, 6, 7]));
        assert_eq!(parse_mask("100000001"), Some(vec![0, 32]));
        assert_eq!(parse_mask("0"), Some(vec![]));
        assert_eq!(parse_mask("0x1g"), None);
    }
}
