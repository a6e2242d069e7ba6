//! The schema, step by step, under an advisory lock: any number of nodes may start at once.
//!
//! The login role needs CREATEROLE and CREATE on the database the first time, or an administrator makes the three
//! roles beforehand (README.md). All objects belong to `railyard_owner`.

use std::time::Duration;

use crate::connect::Dedicated;
use crate::error::StoreError;

mod embedded {
    refinery::embed_migrations!("migrations");
}

/// Held while migrating. Any constant will do, as long as it never changes.
const LOCK: i64 = 0x5241_494c_5941_5244;

/// Makes the roles where they are missing. Roles belong to the whole server: two databases may be set up at once.
const ROLES: &str = "
DO $$
DECLARE v_role text;
BEGIN
  FOREACH v_role IN ARRAY ARRAY['railyard_owner', 'railyard_runtime', 'railyard_producer'] LOOP
    IF NOT EXISTS (SELECT 1 FROM pg_roles WHERE rolname = v_role) THEN
      BEGIN
        EXECUTE format('CREATE ROLE %I NOLOGIN', v_role);
      EXCEPTION WHEN duplicate_object OR unique_violation THEN NULL;
      END;
    END IF;
    IF NOT pg_has_role(session_user, v_role, 'MEMBER') THEN
      EXECUTE format('GRANT %I TO %I', v_role, session_user);
    END IF;
  END LOOP;
END $$;
GRANT USAGE, CREATE ON SCHEMA public TO railyard_owner;
";

/// What an earlier outbox left behind (S2: replaced in place, no legacy).
const OLD_OUTBOX: &str = "
DO $$
BEGIN
  IF EXISTS (SELECT 1 FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
             WHERE n.nspname = 'public' AND c.relname = 'payment_outbox' AND c.relkind IN ('r', 'p')) THEN
    DROP TABLE public.payment_outbox CASCADE;
  END IF;
  DROP FUNCTION IF EXISTS public.notify_payment_outbox() CASCADE;
END $$;
";

/// What a migration did or would do.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Migrated {
    /// The schema's version now.
    pub version: i32,
    /// Versions applied (or, for a check, missing).
    pub steps: Vec<i32>,
}

/// Brings the schema up to this version. Safe to run twice, and by several at once.
///
/// # Errors
/// [`StoreError`]; a step that fails leaves the steps before it in place and nothing of itself.
pub async fn migrate(url: &str) -> Result<Migrated, StoreError> {
    let mut session = open(url).await?;
    session.client.execute("SELECT pg_advisory_lock($1)", &[&LOCK]).await?;
    session.client.batch_execute(ROLES).await?;
    session.client.batch_execute(OLD_OUTBOX).await?;
    session.client.batch_execute("SET ROLE railyard_owner; SET timezone = 'UTC'").await?;
    let report =
        embedded::migrations::runner().run_async(&mut session.client).await.map_err(|error| refused(&error))?;
    let steps = report.applied_migrations().iter().map(|step| step.version()).collect();
    Ok(Migrated { version: latest(), steps })
    // The lock goes with the session.
}

/// What is missing, without changing anything.
///
/// # Errors
/// [`StoreError`].
pub async fn check(url: &str) -> Result<Migrated, StoreError> {
    let session = open(url).await?;
    let exists =
        session.client.query_one("SELECT to_regclass('public.refinery_schema_history') IS NOT NULL", &[]).await?;
    let applied: Vec<i32> = if exists.get::<_, bool>(0) {
        let rows = session.client.query("SELECT version FROM public.refinery_schema_history", &[]).await?;
        rows.iter().map(|row| row.get(0)).collect()
    } else {
        Vec::new()
    };
    let mut steps: Vec<i32> = embedded::migrations::runner()
        .get_migrations()
        .iter()
        .map(refinery::Migration::version)
        .filter(|version| !applied.contains(version))
        .collect();
    // They are embedded in the order of their names: V10 before V2.
    steps.sort_unstable();
    Ok(Migrated { version: applied.into_iter().max().unwrap_or(0), steps })
}

/// The newest version that this build knows.
#[must_use]
pub fn latest() -> i32 {
    embedded::migrations::runner().get_migrations().iter().map(refinery::Migration::version).max().unwrap_or(0)
}

/// The steps' checksums: changes with every change of a migration. Names the template of test databases.
#[must_use]
pub fn fingerprint() -> String {
    let runner = embedded::migrations::runner();
    runner.get_migrations().iter().map(|step| format!("{:x}", step.checksum())).collect::<Vec<_>>().join("-")
}

fn refused(error: &refinery::Error) -> StoreError {
    let text = match std::error::Error::source(error) {
        Some(source) => match source.downcast_ref::<tokio_postgres::Error>().and_then(|e| e.as_db_error()) {
            Some(db) => format!("{error}: {}", db.message()),
            None => format!("{error}: {source}"),
        },
        None => error.to_string(),
    };
    StoreError::Database { sqlstate: "migration".to_owned(), detail: text }
}

async fn open(url: &str) -> Result<Dedicated, StoreError> {
    let mut config: tokio_postgres::Config = url.parse().map_err(|error: tokio_postgres::Error| {
        StoreError::Invalid { field: "database.url".to_owned(), detail: error.to_string(), ordinal: 1 }
    })?;
    config.application_name("railyard migrate");
    Dedicated::open(&config, Duration::from_secs(10)).await
}
