//! For tests only: databases, receivers that misbehave, faults between the parts, processes of the real binary.
//!
//! Everything here is a real part under the test's control: a real PostgreSQL ([`TestDb`], [`OwnServer`]), a real
//! HTTP receiver ([`FakeRail`]), a real TCP proxy ([`FaultProxy`]), real processes ([`Sandbox`]). The judges in
//! [`verify`] look at what a receiver saw and share no code with Railyard. Receivers and proxies run on threads of
//! their own: they go on while a test blocks, while a node is killed, and while a test pauses its runtime's clock.
//! Nothing outlives the test, not even one that is killed.

mod background;
mod eventually;
pub mod fake_rail;
mod http;
mod pg;
mod proxy;
mod sandbox;
mod seed;
pub mod verify;

pub use eventually::{eventually, eventually_ok, eventually_some};
pub use fake_rail::{FakeRail, Gate, Receipt, Reply};
pub use http::{Answer, Http};
pub use pg::{OwnServer, TestDb};
pub use proxy::{Counters, Cut, FaultProxy, Mode, Moment};
pub use railyard_postgres::free_port;
pub use sandbox::{NodeProcess, Output, Sandbox};
pub use seed::seed;
