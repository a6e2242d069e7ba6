//! `railyard dev`: everything on one machine. It owns a private PostgreSQL in its data directory, a master key and an
//! admin token beside it, and one node. Ctrl-C stops all. If it is killed, the server dies with it, and the next start
//! recovers what was committed.

mod keepsake;

use std::path::Path;
use std::process::ExitCode;
use std::sync::Arc;

use anyhow::Context;
use railyard_postgres::PrivatePostgres;
use railyard_store::crypt::{MasterKey, MasterKeys};
use sha2::{Digest, Sha256};
use zeroize::Zeroizing;

use crate::cli::Dev;
use crate::config::{Config, Environment, Role, Token};
use crate::logging;
use crate::running::Running;
use crate::signals::Signals;

/// The database's name in the private server.
const DATABASE: &str = "railyard";

/// Runs until a signal.
///
/// # Errors
/// No PostgreSQL programs, a data directory that cannot be used, a server or node that does not come up.
pub(crate) async fn run(args: &Dev, environment: &Environment) -> anyhow::Result<ExitCode> {
    let mut config = Config::load(args.config.file.as_deref(), environment)?;
    let mut signals = Signals::listen()?;
    let (server, url) = start_database(&args.data_dir, !args.no_fsync).await?;
    if args.only_database {
        println!("database: {url}");
        signals.next().await;
        server.stop().await?;
        return Ok(ExitCode::SUCCESS);
    }
    logging::start(&config.log)?;
    let keys = Arc::new(MasterKeys::new(vec![master_key(&args.data_dir)?])?);
    let token_file = args.data_dir.join("admin.token");
    let token = keepsake::read_or_make(&token_file, || Ok(Zeroizing::new(hex::encode(rand::random::<[u8; 32]>()))))?;
    adapt(&mut config, &url, &token)?;
    let running = Running { config, keys, links: None, migrate: true };
    let result = running
        .run(signals, |address| {
            println!("api:      http://{address}");
            println!("token:    {}  (for the commands: --token-file {})", *token, token_file.display());
            println!("database: {url}");
        })
        .await;
    server.stop().await?;
    result.map(|()| ExitCode::SUCCESS)
}

/// What dev decides itself: its database, its token, and that receivers on this machine may be called.
fn adapt(config: &mut Config, url: &str, token: &str) -> anyhow::Result<()> {
    config.database.url = Some(url.to_owned());
    let sha256 = hex::encode(Sha256::digest(token.as_bytes()));
    config.api.tokens.retain(|token| token.name != "dev");
    config.api.tokens.push(Token { name: "dev".to_owned(), role: Role::Admin, sha256 });
    for network in ["127.0.0.0/8", "::1/128"] {
        config.http.allow_networks.push(network.parse()?);
    }
    config.node.name.get_or_insert_with(|| "dev".to_owned());
    Ok(())
}

async fn start_database(data_dir: &Path, fsync: bool) -> anyhow::Result<(PrivatePostgres, String)> {
    std::fs::create_dir_all(data_dir).with_context(|| format!("make {}", data_dir.display()))?;
    let server = PrivatePostgres::options().data_dir(data_dir.join("postgres")).fsync(fsync).start().await?;
    server.create_database(DATABASE).await?;
    let url = server.url(DATABASE);
    Ok((server, url))
}

fn master_key(data_dir: &Path) -> anyhow::Result<MasterKey> {
    let file = data_dir.join("master.key");
    let text = keepsake::read_or_make(&file, || Ok(MasterKey::generate()?))?;
    MasterKey::read("dev", &text).with_context(|| file.display().to_string())
}
