//! What the page has about affected rows, and about transactions at other levels.

use lab::Outcome;
use lab::servers::Setup;
use lab::servers::mariadb::MariaDb;
use lab::servers::postgresql::PostgreSql;
use mysql_async::Conn;
use mysql_async::prelude::Queryable;
use tokio_postgres::error::SqlState;
use zookeeper_recipes::FencingToken;

use crate::ID;
use crate::page::Page;
use crate::stores::{Store, mariadb, values};

fn token(number: i64) -> FencingToken {
    FencingToken::try_from(number).expect("positive")
}

/// The affected rows of these writes: a row, a balance and a token.
async fn counts(connection: &mut Conn, statement: &str, writes: [(i64, i64, i64); 4]) -> Outcome<Vec<u64>> {
    let mut counts = Vec::new();
    for (id, balance, number) in writes {
        connection.exec_drop(statement, values(id, balance, token(number))).await?;
        counts.push(connection.affected_rows());
    }
    Ok(counts)
}

#[tokio::test]
async fn mariadb_counts_rows_as_the_page_has_it() -> Outcome {
    let server = MariaDb::start(&Setup::default()).await?;
    let page = Page::mariadb();
    for (counts_found_rows, inserted, updated) in
        [(false, [1, 2, 0, 0], [0, 1, 0, 0]), (true, [1, 2, 1, 1], [0, 1, 1, 0])]
    {
        let mut connection = mariadb(&server, counts_found_rows).await?;
        connection.query_drop(page.statement("table")).await?;
        // As the columns of the page: no such row, a change, the same value and token, a smaller token.
        let write = page.statement("write").split("RETURNING").next().expect("a first part");
        let writes = [(ID, 1, 5), (ID, 2, 6), (ID, 2, 6), (ID, 3, 5)];
        assert_eq!(counts(&mut connection, write, writes).await?, inserted, "found rows: {counts_found_rows}");
        let update = page.statement("update");
        let writes = [(ID + 1, 1, 5), (ID, 3, 7), (ID, 3, 7), (ID, 4, 6)];
        assert_eq!(counts(&mut connection, update, writes).await?, updated, "found rows: {counts_found_rows}");
        connection.query_drop("DROP TABLE accounts").await?;
    }
    Ok(())
}

#[tokio::test]
async fn old_holder_in_a_transaction_of_mariadb_is_refused() -> Outcome {
    let server = MariaDb::start(&Setup::default()).await?;
    let (mut old, mut new) = (mariadb(&server, true).await?, mariadb(&server, true).await?);
    old.query_drop(Page::mariadb().statement("table")).await?;
    assert!(old.write(ID, 1, token(1)).await?);
    old.query_drop("START TRANSACTION").await?;
    assert_eq!(old.row(ID).await?, Some((1, 1)));
    assert!(new.write(ID, 2, token(2)).await?);
    // It sees the old row until its end, or is cut off, as later versions do.
    match old.write(ID, 3, token(1)).await {
        Ok(accepted) => assert!(!accepted),
        Err(error) => assert!(error.to_string().contains("1020"), "{error}"),
    }
    old.query_drop("COMMIT").await?;
    assert_eq!(new.row(ID).await?, Some((2, 2)));
    Ok(())
}

#[tokio::test]
async fn old_holder_in_a_transaction_of_postgresql_is_refused_or_fails() -> Outcome {
    let server = PostgreSql::start(&Setup::default()).await?;
    let (mut old, mut new) = (server.connect().await?, server.connect().await?);
    old.batch_execute(Page::sql().statement("table")).await?;
    for (id, level, fails) in
        [(1, "READ COMMITTED", false), (2, "REPEATABLE READ", true), (3, "SERIALIZABLE", true)]
    {
        assert!(old.write(id, 1, token(1)).await?);
        old.batch_execute(&format!("BEGIN ISOLATION LEVEL {level}")).await?;
        assert_eq!(old.row(id).await?, Some((1, 1)));
        assert!(new.write(id, 2, token(2)).await?);
        match old.write(id, 3, token(1)).await {
            Ok(accepted) => assert!(!accepted && !fails, "{level}"),
            Err(error) => {
                let error: &tokio_postgres::Error = error.downcast_ref().ok_or("an error of PostgreSQL")?;
                assert_eq!(error.code(), Some(&SqlState::T_R_SERIALIZATION_FAILURE), "{level}");
                assert!(fails, "{level}");
            }
        }
        old.batch_execute("ROLLBACK").await?;
        assert_eq!(new.row(id).await?, Some((2, 2)), "{level}");
    }
    Ok(())
}
