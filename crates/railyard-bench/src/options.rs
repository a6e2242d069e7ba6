//! Options that every verb has.

use clap::Args;
use serde_json::{Value, json};

/// Options that every verb has. What is left out has the verb's own default, named in its help.
#[derive(Clone, Debug, Args)]
pub(crate) struct Common {
    /// Messages of one round.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..=100_000_000))]
    pub(crate) messages: Option<u64>,
    /// Groups that they are spread over, evenly.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..=10_000_000))]
    pub(crate) groups: Option<u64>,
    /// Bytes of each payload.
    #[arg(long, value_name = "BYTES", default_value_t = 500, value_parser = clap::value_parser!(u32).range(16..=1_000_000))]
    pub(crate) payload: u32,
    /// Calls at once: of the node to its endpoint, and of the bare HTTP client.
    #[arg(long, value_name = "N", default_value_t = 64, value_parser = clap::value_parser!(u32).range(1..=1000))]
    pub(crate) concurrency: u32,
    /// Times that everything is measured; figures are medians.
    #[arg(long, value_name = "N", default_value_t = 3, value_parser = clap::value_parser!(u32).range(1..=100))]
    pub(crate) rounds: u32,
    /// A server to make a database on (a superuser's URL); otherwise a private one is started, with fsync.
    #[arg(long, value_name = "URL")]
    pub(crate) database_url: Option<String>,
    /// Print one JSON object on standard output.
    #[arg(long)]
    pub(crate) json: bool,
}

/// How many messages over how many groups, each group having equally many.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Size {
    pub(crate) groups: u64,
    pub(crate) depth: u64,
}

impl Size {
    /// At least one message a group; the number of messages is rounded down to whole depths.
    pub(crate) fn of(messages: u64, groups: u64) -> Self {
        let groups = groups.min(messages).max(1);
        Self { groups, depth: (messages / groups).max(1) }
    }

    pub(crate) fn messages(self) -> u64 {
        self.groups * self.depth
    }
}

impl Common {
    pub(crate) fn size(&self, messages: u64, groups: u64) -> Size {
        Size::of(self.messages.unwrap_or(messages), self.groups.unwrap_or(groups))
    }

    /// As reported: what was really used.
    pub(crate) fn shown(&self, size: Size) -> Value {
        json!({
            "messages": size.messages(), "groups": size.groups, "payload": self.payload,
            "concurrency": self.concurrency, "rounds": self.rounds,
            "database": if self.database_url.is_some() { "given" } else { "private" },
        })
    }
}

#[cfg(test)]
mod tests {
    use super::Size;

    #[test]
    fn every_group_has_equally_many() {
        assert_eq!(Size::of(20_000, 10_000), Size { groups: 10_000, depth: 2 });
        assert_eq!(Size::of(25, 10).messages(), 20);
        assert_eq!(Size::of(5, 10), Size { groups: 5, depth: 1 });
    }
}
