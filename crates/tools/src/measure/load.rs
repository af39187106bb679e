//! How busy the machine is with everything that runs on it.

use std::fmt;

/// Beyond one thread for each core. A program of our own that uses every core comes to the cores, and a little of
/// everyday work to some tenths more.
const HIGH: f64 = 0.5;

#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Load {
    /// Threads that ran or wanted to, over the last minute or so; our own too.
    pub average: f64,
    pub cores: usize,
}

impl Load {
    /// More want to run than there are cores: who waits for another thread waits for strangers too.
    pub fn is_high(&self) -> bool {
        self.average > self.cores as f64 + HIGH
    }
}

impl fmt::Display for Load {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let s = if self.cores == 1 { "" } else { "s" };
        write!(f, "load average {:.1} on {} core{s}", self.average, self.cores)
    }
}

/// `None` where the system does not tell: only Linux does.
pub fn load() -> Option<Load> {
    parse(&std::fs::read_to_string("/proc/loadavg").ok()?, num_cpus::get())
}

fn parse(loadavg: &str, cores: usize) -> Option<Load> {
    let average = loadavg.split_whitespace().next()?.parse().ok()?;
    Some(Load { average, cores })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_load_beyond_the_cores_is_high() {
        let load = parse("4.11 1.18 1.09 6/124 27585\n", 2).unwrap();
        assert_eq!(load, Load { average: 4.11, cores: 2 });
        assert!(load.is_high());
        assert_eq!(load.to_string(), "load average 4.1 on 2 cores");
        assert!(!parse("2.20 1 1", 2).unwrap().is_high(), "our own two threads");
        assert_eq!(parse("", 2), None);
    }
}
