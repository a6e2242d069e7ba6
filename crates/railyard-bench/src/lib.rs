//! `railyard bench`: figures that mean something, because each stands beside what bounds it, measured in the same run.
//!
//! Every part is real and a process of its own: the receiver (`receiver`), the node (`node`, `railyard serve` of
//! this very binary) and PostgreSQL with fsync on (`server`). A `stand` puts them together; a module in `verbs`
//! measures one thing with them. A machine's own speed drops out of the ratios: a faster disk, network or processor
//! raises the ceiling with the figure. Every output names versions, cores, options, the single values of all rounds
//! and their spread, so that a figure can be doubted.
//!
//! SQL stands here as in the tests: a bench looks at the database from outside, as an operator would. What it measures
//! goes through the product's own functions.

mod bare_calls;
mod bare_rows;
mod client;
mod database;
mod deliveries;
mod idle;
mod load;
mod node;
mod options;
mod processes;
mod profile;
mod progress;
mod receiver;
mod report;
mod server;
mod sql_ceiling;
mod stand;
mod statistics;
pub mod verbs;

use clap::Subcommand;

/// Measure this machine and this version; each verb says what, and against which ceiling.
#[derive(Debug, Subcommand)]
#[expect(missing_docs, reason = "a verb's own type says what it measures, and its help repeats it")]
pub enum Bench {
    Deliver(verbs::deliver::Deliver),
    HotGroup(verbs::hot_group::HotGroup),
    Backlog(verbs::backlog::Backlog),
    Claim(verbs::claim::Claim),
    Dispatch(verbs::dispatch::Dispatch),
    Enqueue(verbs::enqueue::Enqueue),
    Wake(verbs::wake::Wake),
    Groups(verbs::groups::Groups),
    Nodes(verbs::nodes::Nodes),
    Slots(verbs::slots::Slots),
    Limit(verbs::limit::Limit),
    Soak(verbs::soak::Soak),
    /// The receiver of the other verbs, told what to do on its standard input.
    #[command(hide = true)]
    Receiver,
}

/// Measures and prints.
///
/// # Errors
/// No PostgreSQL, or a part that does not do what it should: then there is no figure.
pub async fn run(bench: &Bench) -> anyhow::Result<()> {
    match bench {
        Bench::Deliver(verb) => verb.run().await,
        Bench::HotGroup(verb) => verb.run().await,
        Bench::Backlog(verb) => verb.run().await,
        Bench::Claim(verb) => verb.run().await,
        Bench::Dispatch(verb) => verb.run().await,
        Bench::Enqueue(verb) => verb.run().await,
        Bench::Wake(verb) => verb.run().await,
        Bench::Groups(verb) => verb.run().await,
        Bench::Nodes(verb) => verb.run().await,
        Bench::Slots(verb) => verb.run().await,
        Bench::Limit(verb) => verb.run().await,
        Bench::Soak(verb) => verb.run().await,
        Bench::Receiver => receiver::serve().await,
    }
}
