//! A server for many test runs in a row: prints its URL and lives until its standard input ends or Ctrl-C.
//!
//! `cargo run -p railyard-testkit --example shared_postgres`, then `RAILYARD_TEST_PG=… cargo nextest run` elsewhere.

use railyard_postgres::PrivatePostgres;
use tokio::io::AsyncReadExt;

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), railyard_postgres::Error> {
    let options = PrivatePostgres::options().fsync(false).max_connections(500);
    let server = options.setting("deadlock_timeout", "200ms").setting("autovacuum_naptime", "2s").start().await?;
    println!("RAILYARD_TEST_PG={}", server.url("postgres"));
    let mut input = tokio::io::stdin();
    let mut buffer = [0; 256];
    loop {
        tokio::select! {
            read = input.read(&mut buffer) => if !matches!(read, Ok(1..)) { break },
            _ = tokio::signal::ctrl_c() => break,
        }
    }
    server.stop().await
}
