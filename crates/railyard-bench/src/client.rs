//! A plain connection beside the product's pools: for what an operator would ask.

use std::time::Duration;

use anyhow::Context;
use tokio::task::JoinHandle;
use tokio_postgres::types::{FromSql, ToSql};
use tokio_postgres::{NoTls, Row};

/// A connection as whoever the URL names.
pub(crate) struct Client {
    inner: tokio_postgres::Client,
    task: JoinHandle<()>,
}

impl Client {
    #[expect(clippy::disallowed_methods, reason = "owned by the value that is returned, and aborted with it")]
    pub(crate) async fn connect(url: &str) -> anyhow::Result<Self> {
        let (inner, connection) = tokio_postgres::connect(url, NoTls).await.context("connect to the database")?;
        // What ends the connection is told by the next statement.
        let task = tokio::spawn(async move { drop(connection.await) });
        Ok(Self { inner, task })
    }

    /// Statements without parameters and results.
    pub(crate) async fn run(&self, sql: &str) -> anyhow::Result<()> {
        self.inner.batch_execute(sql).await.with_context(|| sql.to_owned())
    }

    pub(crate) async fn rows(&self, sql: &str, parameters: &[&(dyn ToSql + Sync)]) -> anyhow::Result<Vec<Row>> {
        self.inner.query(sql, parameters).await.with_context(|| sql.to_owned())
    }

    /// The one value of a statement without parameters.
    pub(crate) async fn one<T: for<'a> FromSql<'a>>(&self, sql: &str) -> anyhow::Result<T> {
        self.value(sql, &[]).await
    }

    /// The one value of a statement.
    pub(crate) async fn value<T>(&self, sql: &str, parameters: &[&(dyn ToSql + Sync)]) -> anyhow::Result<T>
    where
        T: for<'a> FromSql<'a>,
    {
        let row = self.inner.query_one(sql, parameters).await.with_context(|| sql.to_owned())?;
        Ok(row.try_get(0)?)
    }

    /// Prepares, so that what is timed afterwards is the statement alone.
    pub(crate) async fn prepare(&self, sql: &str) -> anyhow::Result<tokio_postgres::Statement> {
        self.inner.prepare(sql).await.with_context(|| sql.to_owned())
    }

    /// Runs what was prepared, as a transaction of its own.
    pub(crate) async fn execute(
        &self,
        statement: &tokio_postgres::Statement,
        parameters: &[&(dyn ToSql + Sync)],
    ) -> anyhow::Result<()> {
        self.inner.query(statement, parameters).await?;
        Ok(())
    }

    /// The same for a statement that gives an id; with it the moment when the commit's answer was here, on
    /// CLOCK_BOOTTIME.
    pub(crate) async fn committed(
        &self,
        statement: &tokio_postgres::Statement,
        parameters: &[&(dyn ToSql + Sync)],
    ) -> anyhow::Result<(uuid::Uuid, Duration)> {
        let row = self.inner.query_one(statement, parameters).await?;
        let at = railyard_store::clock::boottime();
        Ok((row.try_get(0)?, at))
    }
}

impl Drop for Client {
    fn drop(&mut self) {
        self.task.abort();
    }
}
