//! The promises of the sources, against real databases, real receivers and real processes.
//!
//! `world` builds what a test needs; every other module is an area. A test is named after the promise it shows
//! (`s2_09_…`) or the trap it stands for; tests/README.md lists both.
#![expect(clippy::unwrap_used, reason = "a test that cannot go on says where")]

mod api;
mod bench;
mod clock;
mod cluster;
mod crash;
mod database;
mod deaf;
mod fleet;
mod freeze;
mod hand;
mod holds;
mod hooks;
mod hostile;
mod invariants;
mod late;
mod lease;
mod linked;
mod links;
mod matrix;
mod metrics;
mod openapi;
mod outage;
mod paging;
mod process;
mod producer;
mod record;
mod rolling;
mod s1_rate;
mod s2_claim;
mod s2_enqueue;
mod s2_late;
mod s2_migrate;
mod s2_reaper;
mod s2_record;
mod s2_retry;
mod s2_wake;
mod s3_answers;
mod s3_api;
mod s3_batch;
mod s3_breaker;
mod s3_credentials;
mod s3_deadlines;
mod s3_guard;
mod s3_idempotency;
mod s3_interop;
mod s3_operator;
mod s3_order;
mod s3_payload;
mod s3_process;
mod s3_replay;
mod s3_search;
mod s3_secrets;
mod s3_signing;
mod s4_events;
mod smoke;
mod tidy;
mod trap_attempts;
mod trap_order;
mod unreadable;
mod world;
