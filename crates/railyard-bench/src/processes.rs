//! Processor time and memory of other processes, from /proc.

use std::collections::HashMap;
use std::path::Path;
use std::time::Duration;

use anyhow::Context;

/// The unit of times in /proc: USER_HZ, which Linux fixes at 100 for every architecture it runs Railyard on.
const TICK: Duration = Duration::from_millis(10);

struct Stat {
    parent: u32,
    /// Its own time.
    own: u64,
    /// Of children that have ended and were waited for.
    ended_children: u64,
}

/// Processor time of one process since its start.
pub(crate) fn processor_time(process: u32) -> anyhow::Result<Duration> {
    let stat = stat(process).with_context(|| format!("/proc/{process}/stat"))?;
    Ok(ticks(stat.own))
}

/// Processor time of a process and of all below it, those that have ended included.
pub(crate) fn tree_time(root: u32) -> anyhow::Result<Duration> {
    let mut all = HashMap::new();
    for entry in std::fs::read_dir("/proc")?.flatten() {
        let number = entry.file_name().to_string_lossy().parse::<u32>();
        if let Some((process, stat)) = number.ok().and_then(|process| Some((process, stat(process)?))) {
            all.insert(process, stat);
        }
    }
    anyhow::ensure!(all.contains_key(&root), "process {root} is gone");
    let belongs = |mut process: u32| loop {
        if process == root {
            return true;
        }
        match all.get(&process) {
            Some(stat) if stat.parent > 1 => process = stat.parent,
            Some(_) | None => return false,
        }
    };
    let total = all.iter().filter(|(process, _)| belongs(**process)).map(|(_, stat)| stat.own + stat.ended_children);
    Ok(ticks(total.sum()))
}

/// Resident memory in bytes.
pub(crate) fn resident_bytes(process: u32) -> anyhow::Result<u64> {
    let text = std::fs::read_to_string(format!("/proc/{process}/status"))?;
    let line = text.lines().find_map(|line| line.strip_prefix("VmRSS:")).context("no VmRSS")?;
    let kibibytes: u64 = line.trim().trim_end_matches("kB").trim().parse()?;
    Ok(kibibytes * 1024)
}

/// The process whose id stands first in PostgreSQL's lock file.
pub(crate) fn postmaster(data_dir: &Path) -> anyhow::Result<u32> {
    let text = std::fs::read_to_string(data_dir.join("postmaster.pid"))?;
    Ok(text.lines().next().unwrap_or_default().trim().parse()?)
}

fn stat(process: u32) -> Option<Stat> {
    parse(&std::fs::read_to_string(format!("/proc/{process}/stat")).ok()?)
}

/// The name, the second field, stands in parentheses and may contain anything.
fn parse(text: &str) -> Option<Stat> {
    let rest = text.rsplit_once(')')?.1;
    let fields: Vec<&str> = rest.split_whitespace().collect();
    let number = |index: usize| fields.get(index)?.parse::<u64>().ok();
    Some(Stat {
        parent: fields.get(1)?.parse().ok()?,
        own: number(11)? + number(12)?,
        ended_children: number(13)? + number(14)?,
    })
}

fn ticks(count: u64) -> Duration {
    TICK.saturating_mul(u32::try_from(count).unwrap_or(u32::MAX))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a failed unwrap is a failed test")]

    use super::*;

    #[test]
    fn a_name_may_look_like_fields() {
        let stat = parse("42 (a) b) S 7 1 1 0 -1 4194560 1 2 3 4 10 20 30 40 20 0 1 0").unwrap();
        assert_eq!((stat.parent, stat.own, stat.ended_children), (7, 30, 70));
    }

    #[test]
    fn this_process_has_memory_and_belongs_to_its_tree() {
        let me = std::process::id();
        assert!(resident_bytes(me).unwrap() > 1000);
        assert!(tree_time(me).unwrap() >= processor_time(me).unwrap());
    }
}
